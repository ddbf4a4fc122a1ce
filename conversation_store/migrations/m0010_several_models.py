"""What a model's API wants back with a message, and which model an exchange was with."""

from conversation_store.connections import Execute


def apply(execute: Execute) -> None:
    """Add the columns; so far there was one model, which wanted nothing back."""
    execute("ALTER TABLE messages ADD COLUMN state TEXT")
    execute("ALTER TABLE exchanges ADD COLUMN model TEXT NOT NULL DEFAULT 'default'")
