"""Inbox, turns, messages, outbox, audit."""

from conversation_store.connections import Execute

STATEMENTS = (
    # A body is there while the message waits; afterwards only the key that detects duplicates.
    """
    CREATE TABLE inbox (
        id INTEGER PRIMARY KEY,
        account TEXT NOT NULL,
        author TEXT NOT NULL,
        timestamp INTEGER NOT NULL,
        kind TEXT NOT NULL,
        chat TEXT NOT NULL,
        body TEXT,
        received_at INTEGER NOT NULL,
        state TEXT NOT NULL CHECK (state IN ('waiting', 'done')),
        outcome TEXT,
        UNIQUE (account, author, timestamp, kind)
    ) STRICT
    """,
    "CREATE INDEX inbox_waiting ON inbox (id) WHERE state = 'waiting'",
    "CREATE INDEX inbox_age ON inbox (received_at)",
    # A turn has the id of the inbox row that it answers.
    """
    CREATE TABLE turns (
        id INTEGER PRIMARY KEY,
        chat TEXT NOT NULL,
        state TEXT NOT NULL CHECK (state IN ('running', 'answered', 'failed', 'stopped')),
        attempts INTEGER NOT NULL,
        started_at INTEGER NOT NULL,
        finished_at INTEGER,
        progress_timestamp INTEGER,
        model TEXT,
        requests INTEGER,
        prompt_tokens INTEGER,
        completion_tokens INTEGER
    ) STRICT
    """,
    # With the state, so that loading a history reads only the turns that belong to it.
    "CREATE INDEX turns_of_chat ON turns (chat, id, state)",
    "CREATE INDEX turns_age ON turns (started_at)",
    # An open call is a row of role 'tool' without content.
    """
    CREATE TABLE messages (
        id INTEGER PRIMARY KEY,
        turn_id INTEGER NOT NULL REFERENCES turns (id) ON DELETE CASCADE,
        role TEXT NOT NULL CHECK (role IN ('user', 'assistant', 'tool')),
        content TEXT,
        tool_calls TEXT,
        tool_call_id TEXT,
        created_at INTEGER NOT NULL
    ) STRICT
    """,
    "CREATE INDEX messages_of_turn ON messages (turn_id, id)",
    # One answer to a message, in parts: a second one is refused by the index.
    """
    CREATE TABLE outbox (
        id INTEGER PRIMARY KEY,
        inbox_id INTEGER NOT NULL,
        part INTEGER NOT NULL,
        chat TEXT NOT NULL,
        text TEXT,
        state TEXT NOT NULL CHECK (state IN ('waiting', 'sent', 'given_up')),
        attempts INTEGER NOT NULL DEFAULT 0,
        created_at INTEGER NOT NULL,
        signal_timestamp INTEGER,
        UNIQUE (inbox_id, part)
    ) STRICT
    """,
    "CREATE INDEX outbox_waiting ON outbox (id) WHERE state = 'waiting'",
    "CREATE INDEX outbox_given_up ON outbox (chat) WHERE state = 'given_up'",
    "CREATE INDEX outbox_age ON outbox (created_at)",
    """
    CREATE TABLE audit (
        id INTEGER PRIMARY KEY,
        at INTEGER NOT NULL,
        chat TEXT NOT NULL,
        author TEXT NOT NULL,
        turn_id INTEGER NOT NULL,
        tool TEXT NOT NULL,
        arguments_sha256 TEXT NOT NULL,
        outcome TEXT NOT NULL,
        duration_ms INTEGER NOT NULL
    ) STRICT
    """,
    "CREATE INDEX audit_age ON audit (at)",
)


def apply(execute: Execute) -> None:
    """Create everything."""
    for statement in STATEMENTS:
        execute(statement)
