"""Standing permissions: calls that a person has allowed in a chat until a date."""

from conversation_store.connections import Execute


def apply(execute: Execute) -> None:
    """Make the table; nothing has been allowed so far."""
    execute("""
        CREATE TABLE grants (
            id INTEGER PRIMARY KEY,
            chat TEXT NOT NULL,
            subject TEXT NOT NULL,
            version TEXT NOT NULL,
            given_by TEXT NOT NULL,
            expires_at INTEGER NOT NULL,
            UNIQUE (chat, subject)
        ) STRICT
    """)
