"""The daemon: a Signal assistant that stores first, answers once and can prove who reads along."""

__version__ = "0.1.0"
