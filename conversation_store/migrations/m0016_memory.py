"""What people asked the bot to remember, and how they want it to be in a chat."""

from conversation_store.connections import Execute

STATEMENTS = (
    # A fact of a chat. Its number is the chat's own; the call that stored it is known by its turn.
    # One that was struck has no text any more. It stays for what it was told to: that holds its
    # words, and has to go with the messages that the fact came from.
    """
    CREATE TABLE remembered (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        chat TEXT NOT NULL,
        number INTEGER NOT NULL,
        text TEXT,
        turn_id INTEGER NOT NULL,
        call TEXT NOT NULL,
        said_at INTEGER NOT NULL,
        expires_at INTEGER,
        UNIQUE (chat, number),
        UNIQUE (turn_id, call)
    ) STRICT
    """,
    "CREATE INDEX remembered_age ON remembered (said_at)",
    "CREATE INDEX remembered_expiry ON remembered (expires_at) WHERE expires_at IS NOT NULL",
    # The turns that a fact came from. Without a reference to them: a fact outlives `!clear`, and
    # goes all the same when its message is deleted for everyone after that.
    """
    CREATE TABLE remembered_from (
        turn_id INTEGER NOT NULL,
        fact_id INTEGER NOT NULL REFERENCES remembered (id) ON DELETE CASCADE,
        PRIMARY KEY (turn_id, fact_id)
    ) STRICT, WITHOUT ROWID
    """,
    "CREATE INDEX remembered_from_fact ON remembered_from (fact_id)",
    # The turns that were told a fact, so that its words are in their history.
    """
    CREATE TABLE recalled (
        turn_id INTEGER NOT NULL REFERENCES turns (id) ON DELETE CASCADE,
        fact_id INTEGER NOT NULL REFERENCES remembered (id) ON DELETE CASCADE,
        PRIMARY KEY (turn_id, fact_id)
    ) STRICT, WITHOUT ROWID
    """,
    "CREATE INDEX recalled_fact ON recalled (fact_id)",
    # The last number that a chat has given out, whether its memory is off, and how often its facts
    # have changed: whoever has seen them at one version need not look again until the next.
    """
    CREATE TABLE memories (
        chat TEXT PRIMARY KEY,
        last_number INTEGER NOT NULL DEFAULT 0,
        is_off INTEGER NOT NULL DEFAULT 0,
        version INTEGER NOT NULL DEFAULT 0
    ) STRICT, WITHOUT ROWID
    """,
    """
    CREATE TRIGGER remembered_added AFTER INSERT ON remembered BEGIN
        UPDATE memories SET version = version + 1 WHERE chat = new.chat;
    END
    """,
    """
    CREATE TRIGGER remembered_changed AFTER UPDATE ON remembered BEGIN
        UPDATE memories SET version = version + 1 WHERE chat = new.chat;
    END
    """,
    """
    CREATE TRIGGER remembered_gone AFTER DELETE ON remembered BEGIN
        UPDATE memories SET version = version + 1 WHERE chat = old.chat;
    END
    """,
    # With the message that gave them.
    """
    CREATE TABLE instructions (
        chat TEXT PRIMARY KEY,
        text TEXT NOT NULL,
        inbox_id INTEGER NOT NULL,
        expires_at INTEGER
    ) STRICT, WITHOUT ROWID
    """,
    "CREATE INDEX instructions_from ON instructions (inbox_id)",
)


def apply(execute: Execute) -> None:
    """Make the tables; nothing is remembered so far."""
    for statement in STATEMENTS:
        execute(statement)
