"""Proof of the running code, of its Signal account, and of the model that answers."""
