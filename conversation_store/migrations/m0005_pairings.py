"""Codes that strangers were given, and people who were let in by one."""

from conversation_store.connections import Execute

STATEMENTS = (
    # The note is the message with the code. What stands here is forgotten when the code expires.
    """
    CREATE TABLE pairings (
        person TEXT PRIMARY KEY,
        code TEXT NOT NULL UNIQUE,
        number TEXT,
        name TEXT,
        expires_at INTEGER NOT NULL,
        note INTEGER NOT NULL
    ) STRICT
    """,
    """
    CREATE TABLE people (
        person TEXT PRIMARY KEY,
        number TEXT,
        name TEXT,
        since INTEGER NOT NULL,
        greeted INTEGER NOT NULL DEFAULT 0
    ) STRICT
    """,
)


def apply(execute: Execute) -> None:
    """Create both tables."""
    for statement in STATEMENTS:
        execute(statement)
