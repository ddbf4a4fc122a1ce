"""Polls that phones still show as open, so that they are ended once their question is over."""

from conversation_store.connections import Execute


def apply(execute: Execute) -> None:
    """Make the table; polls from before stay as they are."""
    execute(
        "CREATE TABLE polls (chat TEXT NOT NULL, signal_timestamp INTEGER NOT NULL,"
        " PRIMARY KEY (chat, signal_timestamp)) STRICT, WITHOUT ROWID"
    )
