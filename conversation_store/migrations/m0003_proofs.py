"""Files that go with an answer, and what is proven about the answers of a model."""

from conversation_store.connections import Execute

STATEMENTS = (
    """
    CREATE TABLE attachments (
        id INTEGER PRIMARY KEY,
        outbox_id INTEGER NOT NULL REFERENCES outbox (id) ON DELETE CASCADE,
        name TEXT NOT NULL,
        content_type TEXT NOT NULL,
        data BLOB NOT NULL
    ) STRICT
    """,
    "CREATE INDEX attachments_of_part ON attachments (outbox_id)",
    # Of a turn, but not bound to its row: where nothing is kept past the turn, a signature is
    # still to be checked.
    """
    CREATE TABLE exchanges (
        id INTEGER PRIMARY KEY,
        turn_id INTEGER NOT NULL,
        completion_id TEXT NOT NULL,
        request_sha256 TEXT NOT NULL,
        response_sha256 TEXT NOT NULL,
        state TEXT NOT NULL
            CHECK (state IN ('waiting', 'proven', 'wrong', 'missing', 'unattested')),
        kind TEXT NOT NULL DEFAULT '',
        words TEXT NOT NULL DEFAULT ''
    ) STRICT
    """,
    "CREATE INDEX exchanges_of_turn ON exchanges (turn_id)",
    "CREATE INDEX exchanges_waiting ON exchanges (id) WHERE state = 'waiting'",
)


def apply(execute: Execute) -> None:
    """Create both tables."""
    for statement in STATEMENTS:
        execute(statement)
