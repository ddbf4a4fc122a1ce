"""Answers that may have been sent more than once, and what phones confirmed of them."""

from conversation_store.connections import Execute

STATEMENTS = (
    # Written only when an answer whose sending a crash interrupted is sent again.
    """
    CREATE TABLE doubts (
        outbox_id INTEGER PRIMARY KEY REFERENCES outbox (id) ON DELETE CASCADE,
        since INTEGER NOT NULL,
        until INTEGER NOT NULL,
        copies INTEGER NOT NULL,
        deletions INTEGER NOT NULL DEFAULT 0,
        deleted_since INTEGER,
        deleted_until INTEGER
    ) STRICT
    """,
    # An empty person stands for the account's owner, who sent the message from another device.
    """
    CREATE TABLE confirmations (
        timestamp INTEGER NOT NULL,
        person TEXT NOT NULL,
        PRIMARY KEY (timestamp, person)
    ) STRICT, WITHOUT ROWID
    """,
)


def apply(execute: Execute) -> None:
    """Create both tables."""
    for statement in STATEMENTS:
        execute(statement)
