"""Runs untrusted programs: behind walls, in one folder, within bounds."""
