"""Runs programs that nobody trusts: behind walls, in one folder, within bounds."""
