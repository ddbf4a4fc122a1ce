"""Turns: which message is answered when, together with which others, and how a turn ends."""
