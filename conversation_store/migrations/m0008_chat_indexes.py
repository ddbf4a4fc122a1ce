"""What came and went in a chat is found without looking at all other chats."""

from conversation_store.connections import Execute

STATEMENTS = (
    "CREATE INDEX inbox_of_chat ON inbox (chat, id) WHERE kind = 'message'",
    "CREATE INDEX outbox_of_chat ON outbox (chat, created_at)",
)


def apply(execute: Execute) -> None:
    """Create the indexes."""
    for statement in STATEMENTS:
        execute(statement)
