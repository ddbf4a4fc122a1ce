"""Groups whose members can ask what they have missed, and what is kept for that."""

from conversation_store.connections import Execute

STATEMENTS = (
    "CREATE TABLE catch_up_groups (chat TEXT PRIMARY KEY) STRICT, WITHOUT ROWID",
    # What is kept goes with its group's choice, with its own timer, and by its bounds.
    """
    CREATE TABLE kept_words (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        account TEXT NOT NULL,
        chat TEXT NOT NULL REFERENCES catch_up_groups (chat) ON DELETE CASCADE,
        author TEXT NOT NULL,
        timestamp INTEGER NOT NULL,
        author_name TEXT,
        text TEXT NOT NULL,
        sent_at INTEGER NOT NULL,
        heard_at INTEGER NOT NULL,
        expires_at INTEGER,
        UNIQUE (account, author, timestamp)
    ) STRICT
    """,
    "CREATE INDEX kept_words_of_chat ON kept_words (chat, id)",
    "CREATE INDEX kept_words_age ON kept_words (heard_at)",
    "CREATE INDEX kept_words_expiry ON kept_words (expires_at) WHERE expires_at IS NOT NULL",
    # The turns that were told a message, by its key: it may be kept no longer when it is deleted.
    """
    CREATE TABLE caught_up (
        turn_id INTEGER NOT NULL REFERENCES turns (id) ON DELETE CASCADE,
        chat TEXT NOT NULL,
        author TEXT NOT NULL,
        timestamp INTEGER NOT NULL,
        PRIMARY KEY (turn_id, chat, author, timestamp)
    ) STRICT, WITHOUT ROWID
    """,
    "CREATE INDEX caught_up_with ON caught_up (chat, author, timestamp)",
)


def apply(execute: Execute) -> None:
    """Make the tables; no group has asked for it so far."""
    for statement in STATEMENTS:
        execute(statement)
