"""Pieces, edits, deletions, timers, what was overheard, images, files of tools, and facts.

What may be forgotten while somebody still knows its number (a question that a person looks at, a
proof that is fetched, an answer that is on its way) gets numbers that are never given out again.
"""

from conversation_store.connections import Execute

INBOX = (
    "ALTER TABLE inbox ADD COLUMN expires_at INTEGER",
    # Of an edit or a deletion: the message that it is about, through its earlier edits.
    "ALTER TABLE inbox ADD COLUMN target_author TEXT",
    "ALTER TABLE inbox ADD COLUMN target_timestamp INTEGER",
    # Of a message that the turn of an earlier one answers as well.
    "ALTER TABLE inbox ADD COLUMN turn_id INTEGER",
    # Of an edit: the row whose answer its own takes the place of.
    "ALTER TABLE inbox ADD COLUMN replaces INTEGER",
    # What waits from before knows only when the message that it replies to was sent.
    """
    UPDATE inbox SET body = json_set(
        body, '$.quote',
        json_object(
            'timestamp', json_extract(body, '$.quote_timestamp'),
            'author', NULL,
            'by_bot', json('true')
        )
    )
    WHERE state = 'waiting' AND json_extract(body, '$.quote_timestamp') IS NOT NULL
    """,
    """
    CREATE INDEX inbox_targets ON inbox (target_author, target_timestamp)
    WHERE target_timestamp IS NOT NULL
    """,
    "CREATE INDEX inbox_joined ON inbox (turn_id) WHERE turn_id IS NOT NULL",
    "CREATE INDEX inbox_replacing ON inbox (replaces) WHERE replaces IS NOT NULL",
)

TURNS = (
    "ALTER TABLE turns ADD COLUMN expires_at INTEGER",
    "ALTER TABLE turns ADD COLUMN notices TEXT",
    "CREATE INDEX turns_expiry ON turns (expires_at) WHERE expires_at IS NOT NULL",
    # What the model was shown with a turn's first message. With the chat, so that a history finds
    # its few without looking at every message.
    """
    CREATE TABLE images (
        id INTEGER PRIMARY KEY,
        turn_id INTEGER NOT NULL REFERENCES turns (id) ON DELETE CASCADE,
        chat TEXT NOT NULL,
        content_type TEXT NOT NULL,
        data BLOB NOT NULL
    ) STRICT
    """,
    "CREATE INDEX images_of_turn ON images (turn_id)",
    "CREATE INDEX images_of_chat ON images (chat, turn_id)",
    # What tools gave, until it goes out with the turn's answer.
    """
    CREATE TABLE turn_files (
        id INTEGER PRIMARY KEY,
        turn_id INTEGER NOT NULL REFERENCES turns (id) ON DELETE CASCADE,
        name TEXT NOT NULL,
        content_type TEXT NOT NULL,
        data BLOB NOT NULL
    ) STRICT
    """,
    "CREATE INDEX turn_files_of_turn ON turn_files (turn_id)",
)

# A text is there until a turn that was told it has ended; afterwards only the key.
OVERHEARD = (
    """
    CREATE TABLE overheard (
        id INTEGER PRIMARY KEY,
        account TEXT NOT NULL,
        chat TEXT NOT NULL,
        author TEXT NOT NULL,
        timestamp INTEGER NOT NULL,
        author_name TEXT,
        text TEXT,
        sent_at INTEGER NOT NULL,
        heard_at INTEGER NOT NULL,
        expires_at INTEGER,
        turn_id INTEGER,
        UNIQUE (account, author, timestamp)
    ) STRICT
    """,
    "CREATE INDEX overheard_of_chat ON overheard (chat, id) WHERE text IS NOT NULL",
    "CREATE INDEX overheard_of_turn ON overheard (turn_id) WHERE turn_id IS NOT NULL",
    """
    CREATE INDEX overheard_expiry ON overheard (expires_at)
    WHERE expires_at IS NOT NULL AND text IS NOT NULL
    """,
    "CREATE INDEX overheard_age ON overheard (heard_at)",
)

# The outbox is made anew: a message of the bot's own accord answers none, and the numbers are new
# ones. The attachments come along, because their reference follows the table that is renamed.
OUTBOX = (
    "ALTER TABLE outbox RENAME TO outbox_before",
    "ALTER TABLE attachments RENAME TO attachments_before",
    """
    CREATE TABLE outbox (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        inbox_id INTEGER,
        part INTEGER NOT NULL,
        chat TEXT NOT NULL,
        kind TEXT NOT NULL DEFAULT 'text' CHECK (kind IN ('text', 'files', 'removal')),
        text TEXT,
        styles TEXT,
        quote TEXT,
        state TEXT NOT NULL CHECK (state IN ('waiting', 'sent', 'given_up')),
        attempts INTEGER NOT NULL DEFAULT 0,
        created_at INTEGER NOT NULL,
        signal_timestamp INTEGER,
        replaces INTEGER,
        edits INTEGER NOT NULL DEFAULT 0,
        expires_at INTEGER,
        UNIQUE (inbox_id, part)
    ) STRICT
    """,
    """
    INSERT INTO outbox
        (id, inbox_id, part, chat, text, state, attempts, created_at, signal_timestamp)
    SELECT id, inbox_id, part, chat, text, state, attempts, created_at, signal_timestamp
    FROM outbox_before
    """,
    """
    CREATE TABLE attachments (
        id INTEGER PRIMARY KEY,
        outbox_id INTEGER NOT NULL REFERENCES outbox (id) ON DELETE CASCADE,
        name TEXT NOT NULL,
        content_type TEXT NOT NULL,
        data BLOB NOT NULL
    ) STRICT
    """,
    """
    INSERT INTO attachments SELECT id, outbox_id, name, content_type, data
    FROM attachments_before
    """,
    "DROP TABLE attachments_before",
    "DROP TABLE outbox_before",
    "CREATE INDEX outbox_waiting ON outbox (id) WHERE state = 'waiting'",
    "CREATE INDEX outbox_given_up ON outbox (chat) WHERE state = 'given_up'",
    "CREATE INDEX outbox_age ON outbox (created_at)",
    "CREATE INDEX attachments_of_part ON attachments (outbox_id)",
)

# Made anew for the numbers: a question about a call has the call's, and comes along as above.
MESSAGES = (
    "ALTER TABLE messages RENAME TO messages_before",
    "ALTER TABLE approvals RENAME TO approvals_before",
    """
    CREATE TABLE messages (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        turn_id INTEGER NOT NULL REFERENCES turns (id) ON DELETE CASCADE,
        role TEXT NOT NULL CHECK (role IN ('user', 'assistant', 'tool')),
        content TEXT,
        tool_calls TEXT,
        tool_call_id TEXT,
        created_at INTEGER NOT NULL
    ) STRICT
    """,
    """
    INSERT INTO messages (id, turn_id, role, content, tool_calls, tool_call_id, created_at)
    SELECT id, turn_id, role, content, tool_calls, tool_call_id, created_at FROM messages_before
    """,
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
    """
    INSERT INTO approvals
        (id, chat, asker, fingerprint, state, signal_timestamp, expires_at, decided_by, decided_at)
    SELECT
        id, chat, asker, fingerprint, state, signal_timestamp, expires_at, decided_by, decided_at
    FROM approvals_before
    """,
    "DROP TABLE approvals_before",
    "DROP TABLE messages_before",
    "CREATE INDEX messages_of_turn ON messages (turn_id, id)",
    "CREATE INDEX approvals_open ON approvals (id) WHERE state = 'open'",
)

EXCHANGES = (
    "ALTER TABLE exchanges RENAME TO exchanges_before",
    """
    CREATE TABLE exchanges (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
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
    """
    INSERT INTO exchanges
        (id, turn_id, completion_id, request_sha256, response_sha256, state, kind, words)
    SELECT id, turn_id, completion_id, request_sha256, response_sha256, state, kind, words
    FROM exchanges_before
    """,
    "DROP TABLE exchanges_before",
    "CREATE INDEX exchanges_of_turn ON exchanges (turn_id)",
    "CREATE INDEX exchanges_waiting ON exchanges (id) WHERE state = 'waiting'",
)

AUDIT = ("CREATE INDEX audit_of_turn ON audit (turn_id) WHERE arguments IS NOT NULL",)

FACTS = ("CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID",)


def apply(execute: Execute) -> None:
    """Add columns and tables; make others anew with what they hold."""
    for statement in (
        *INBOX,
        *TURNS,
        *OVERHEARD,
        *OUTBOX,
        *MESSAGES,
        *EXCHANGES,
        *AUDIT,
        *FACTS,
    ):
        execute(statement)
