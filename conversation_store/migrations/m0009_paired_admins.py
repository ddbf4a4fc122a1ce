"""Some of the people who were let in administer the bot."""

from conversation_store.connections import Execute


def apply(execute: Execute) -> None:
    """Add the column; nobody becomes an admin by it."""
    execute("ALTER TABLE people ADD COLUMN admin INTEGER NOT NULL DEFAULT 0")
