"""Conversations on disk: SQLite, one writer, encrypted at rest when a key is given."""
