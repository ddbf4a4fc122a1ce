"""Messages that may have been sent and whose timestamp nobody told."""

from conversation_store.connections import Execute

STATEMENT = """
    CREATE TABLE unnamed_sends (
        outbox_id INTEGER,
        chat TEXT NOT NULL,
        since INTEGER NOT NULL,
        until INTEGER NOT NULL,
        times INTEGER NOT NULL
    ) STRICT
"""
"""Written only when a send went wrong. A row outlives the message that it is about."""


def apply(execute: Execute) -> None:
    """Create the table."""
    execute(STATEMENT)
