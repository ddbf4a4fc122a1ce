"""The whole bot on loopback: a Signal side, an offline assistant and a terminal phone."""
