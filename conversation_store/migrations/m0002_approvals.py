"""Questions to people before calls with side effects; who allowed a call, and its arguments."""

from conversation_store.connections import Execute

STATEMENTS = (
    # About one open call, whose row of `messages` it shares its life with.
    """
    CREATE TABLE approvals (
        id INTEGER PRIMARY KEY REFERENCES messages (id) ON DELETE CASCADE,
        chat TEXT NOT NULL,
        asker TEXT NOT NULL,
        fingerprint TEXT NOT NULL,
        state TEXT NOT NULL CHECK (state IN ('open', 'yes', 'no', 'silence', 'begun')),
        signal_timestamp INTEGER,
        expires_at INTEGER,
        decided_by TEXT,
        decided_at INTEGER
    ) STRICT
    """,
    "CREATE INDEX approvals_open ON approvals (id) WHERE state = 'open'",
    "ALTER TABLE audit ADD COLUMN arguments TEXT",
    "ALTER TABLE audit ADD COLUMN allowed_by TEXT",
)


def apply(execute: Execute) -> None:
    """Add the table and the columns."""
    for statement in STATEMENTS:
        execute(statement)
