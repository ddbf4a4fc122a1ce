"""How each call of a turn ended, so that a restart can show it again."""

from conversation_store.connections import Execute


def apply(execute: Execute) -> None:
    """Add the outcome; of calls from before it is not known."""
    execute("ALTER TABLE messages ADD COLUMN outcome TEXT")
