"""The whole bot on one machine: a terminal as the phone and an offline assistant."""
