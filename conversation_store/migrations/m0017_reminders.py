"""Reminders and scheduled questions, and people's time zones."""

from conversation_store.connections import Execute

STATEMENTS = (
    # A number is never given to a person twice, so it is counted beside the rows.
    """
    CREATE TABLE clocks (
        person TEXT PRIMARY KEY,
        zone TEXT,
        last_number INTEGER NOT NULL DEFAULT 0
    ) STRICT, WITHOUT ROWID
    """,
    # The text is there until what was delivered is done, or has disappeared; then only the keys.
    """
    CREATE TABLE reminders (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        person TEXT NOT NULL,
        number INTEGER NOT NULL,
        kind TEXT NOT NULL CHECK (kind IN ('reminder', 'question')),
        state TEXT NOT NULL CHECK (state IN ('waiting', 'delivered', 'done')),
        account TEXT NOT NULL,
        chat TEXT NOT NULL,
        person_name TEXT,
        person_number TEXT,
        text TEXT,
        local_at TEXT,
        repeat TEXT,
        due_at INTEGER NOT NULL,
        created_at INTEGER NOT NULL,
        ended_at INTEGER,
        timer_ms INTEGER,
        expires_at INTEGER,
        outbox_id INTEGER,
        inbox_id INTEGER,
        failures INTEGER NOT NULL DEFAULT 0,
        turn_id INTEGER,
        call_id TEXT,
        UNIQUE (person, number),
        UNIQUE (turn_id, call_id)
    ) STRICT
    """,
    "CREATE INDEX reminders_due ON reminders (due_at, id) WHERE state = 'waiting'",
    "CREATE INDEX reminders_sent ON reminders (outbox_id) WHERE outbox_id IS NOT NULL",
    "CREATE INDEX reminders_asked ON reminders (inbox_id) WHERE inbox_id IS NOT NULL",
    "CREATE INDEX reminders_expiry ON reminders (expires_at) WHERE expires_at IS NOT NULL",
    "CREATE INDEX reminders_age ON reminders (ended_at) WHERE ended_at IS NOT NULL",
)


def apply(execute: Execute) -> None:
    """Create both tables."""
    for statement in STATEMENTS:
        execute(statement)
