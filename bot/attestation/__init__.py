"""Proof: which code runs, whose Signal account it has, and which model answers."""
