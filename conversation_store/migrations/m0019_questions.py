"""Questions that the model asks people, for whose answers a turn waits on disk."""

from conversation_store.connections import Execute

STATEMENTS = (
    # About one open call, whose row of `messages` it shares its life with.
    """
    CREATE TABLE questions (
        id INTEGER PRIMARY KEY REFERENCES messages (id) ON DELETE CASCADE,
        turn_id INTEGER NOT NULL,
        chat TEXT NOT NULL,
        asker TEXT NOT NULL,
        kind TEXT NOT NULL CHECK (kind IN ('choice', 'plan')),
        options TEXT NOT NULL,
        multiple INTEGER NOT NULL,
        state TEXT NOT NULL CHECK (state IN ('open', 'answered')),
        signal_timestamp INTEGER,
        earlier TEXT,
        asked_at INTEGER,
        expires_at INTEGER,
        answer TEXT,
        chosen TEXT,
        answered_by TEXT,
        answered_at INTEGER
    ) STRICT
    """,
    "CREATE INDEX questions_open ON questions (turn_id) WHERE state = 'open'",
)


def apply(execute: Execute) -> None:
    """Make the table; nothing has been asked so far."""
    for statement in STATEMENTS:
        execute(statement)
