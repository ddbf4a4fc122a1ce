"""Images that results of calls show: each belongs to the message of its result."""

from conversation_store.connections import Execute


def apply(execute: Execute) -> None:
    """Add whose an image is; those from before belong to the first message of their turn."""
    execute("ALTER TABLE images ADD COLUMN message_id INTEGER")
