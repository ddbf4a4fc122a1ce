"""The tables of the store, and the way to later versions of them.

Version 1 is the first released schema. Append a function to `MIGRATIONS` to change it:
number N of the list upgrades a database to version N in one transaction. Never change a released
function.
"""

from collections.abc import Callable
from typing import Final

from conversation_store.connections import Session, StoreUnreadable

APPLICATION_ID: Final = 0x5354_4250
"""Marks a SQLite file as a store of this program ("STBP" in ASCII)."""

EMPTY: Final = 0
"""Version of a file without tables."""

TABLES: Final = """
-- Messages, edits and deletions that came in. The body is kept while a message waits. Afterwards
-- the row only serves to recognise duplicates, edits and deletions.
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
    expires_at INTEGER,
    -- Key of the message that an edit or a deletion is about, resolved through earlier edits.
    target_author TEXT,
    target_timestamp INTEGER,
    -- Turn of an earlier message that answers this one as well.
    turn_id INTEGER,
    -- For an edit: row whose answer the answer to this row replaces.
    replaces INTEGER,
    -- For a request to answer a question again: turn of the last answer to that question.
    retries INTEGER,
    -- The message of a person that this one quotes.
    quote_author TEXT,
    quote_timestamp INTEGER,
    UNIQUE (account, author, timestamp, kind)
) STRICT;
CREATE INDEX inbox_waiting ON inbox (id) WHERE state = 'waiting';
CREATE INDEX inbox_age ON inbox (received_at);
CREATE INDEX inbox_targets ON inbox (target_author, target_timestamp)
WHERE target_timestamp IS NOT NULL;
CREATE INDEX inbox_joined ON inbox (turn_id) WHERE turn_id IS NOT NULL;
CREATE INDEX inbox_replacing ON inbox (replaces) WHERE replaces IS NOT NULL;
CREATE INDEX inbox_retrying ON inbox (retries) WHERE retries IS NOT NULL;
CREATE INDEX inbox_quoting ON inbox (quote_author, quote_timestamp)
WHERE quote_timestamp IS NOT NULL;
CREATE INDEX inbox_of_chat ON inbox (chat, id) WHERE kind = 'message';
CREATE INDEX inbox_questions ON inbox (chat, id)
WHERE outcome IN ('answered', 'failed', 'retried', 'bug', 'stopped');

-- Sources of turns in addition to their own messages: messages of other people, and things that
-- earlier turns made. A turn is named by its inbox row, which outlives its history.
CREATE TABLE sources (
    turn_id INTEGER NOT NULL REFERENCES inbox (id) ON DELETE CASCADE,
    source_id INTEGER NOT NULL REFERENCES inbox (id) ON DELETE CASCADE,
    via TEXT NOT NULL CHECK (via IN ('overheard', 'catch_up', 'turn', 'fact')),
    PRIMARY KEY (turn_id, source_id, via)
) STRICT, WITHOUT ROWID;
CREATE INDEX sources_read ON sources (source_id);

-- Messages of people in groups to each other, by their rows of the inbox. Kept until a turn that
-- was told them (`turn_id`) has ended.
CREATE TABLE overheard (
    id INTEGER PRIMARY KEY REFERENCES inbox (id) ON DELETE CASCADE,
    chat TEXT NOT NULL,
    author_name TEXT,
    text TEXT NOT NULL,
    sent_at INTEGER NOT NULL,
    turn_id INTEGER
) STRICT;
CREATE INDEX overheard_of_chat ON overheard (chat, id);
CREATE INDEX overheard_of_turn ON overheard (turn_id) WHERE turn_id IS NOT NULL;
-- Groups whose members can ask what they missed, and the words that are kept for that.
CREATE TABLE catch_up_groups (chat TEXT PRIMARY KEY) STRICT, WITHOUT ROWID;
CREATE TABLE kept_words (
    id INTEGER PRIMARY KEY REFERENCES inbox (id) ON DELETE CASCADE,
    chat TEXT NOT NULL REFERENCES catch_up_groups (chat) ON DELETE CASCADE,
    author_name TEXT,
    text TEXT NOT NULL,
    sent_at INTEGER NOT NULL
) STRICT;
CREATE INDEX kept_words_of_chat ON kept_words (chat, id);

-- Files of messages in the workspaces of chats. Without a message, the file is to be deleted.
CREATE TABLE workspace_files (
    chat TEXT NOT NULL,
    name TEXT NOT NULL,
    message_id INTEGER REFERENCES inbox (id) ON DELETE CASCADE,
    PRIMARY KEY (chat, name)
) STRICT, WITHOUT ROWID;
CREATE INDEX workspace_files_of_message ON workspace_files (message_id);

-- A turn has the id of the inbox row that it answers. Rows of `messages` with role 'tool' and no
-- content are calls that have started and not ended. Ids of messages, exchanges and outgoing
-- messages are never reused, because callers hold them while rows may be deleted.
CREATE TABLE turns (
    id INTEGER PRIMARY KEY,
    chat TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('running', 'answered', 'failed', 'stopped')),
    attempts INTEGER NOT NULL,
    started_at INTEGER NOT NULL,
    progress_timestamp INTEGER,
    progress_edits INTEGER NOT NULL DEFAULT 0,
    expires_at INTEGER,
    notices TEXT
) STRICT;
-- With the state, so that loading a history reads only the turns that belong to it.
CREATE INDEX turns_of_chat ON turns (chat, id, state);
CREATE INDEX turns_age ON turns (started_at);
CREATE INDEX turns_expiry ON turns (expires_at) WHERE expires_at IS NOT NULL;
CREATE TABLE messages (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    turn_id INTEGER NOT NULL REFERENCES turns (id) ON DELETE CASCADE,
    role TEXT NOT NULL CHECK (role IN ('user', 'assistant', 'tool')),
    content TEXT,
    tool_calls TEXT,
    tool_call_id TEXT,
    state TEXT,
    created_at INTEGER NOT NULL,
    -- For a message of a helper: the call that the helper works on.
    helper_of INTEGER,
    -- For a call that has ended: what the audit calls its outcome.
    outcome TEXT
) STRICT;
CREATE INDEX messages_of_turn ON messages (turn_id, id);
-- Images without a message belong to the first message of their turn.
CREATE TABLE images (
    id INTEGER PRIMARY KEY,
    turn_id INTEGER NOT NULL REFERENCES turns (id) ON DELETE CASCADE,
    chat TEXT NOT NULL,
    message_id INTEGER,
    content_type TEXT NOT NULL,
    data BLOB NOT NULL
) STRICT;
CREATE INDEX images_of_turn ON images (turn_id);
-- With the chat, so that a history finds its few images without a look at every message.
CREATE INDEX images_of_chat ON images (chat, turn_id);
-- Files that tools produced, until they are sent with the answer.
CREATE TABLE turn_files (
    id INTEGER PRIMARY KEY,
    turn_id INTEGER NOT NULL REFERENCES turns (id) ON DELETE CASCADE,
    name TEXT NOT NULL,
    content_type TEXT NOT NULL,
    data BLOB NOT NULL
) STRICT;
CREATE INDEX turn_files_of_turn ON turn_files (turn_id);
-- Without a reference to the turn: with a retention of 0 days a turn is deleted when it ends,
-- and its signatures are still to be checked.
CREATE TABLE exchanges (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    turn_id INTEGER NOT NULL,
    completion_id TEXT NOT NULL,
    request_sha256 TEXT NOT NULL,
    response_sha256 TEXT NOT NULL,
    state TEXT NOT NULL
        CHECK (state IN ('waiting', 'proven', 'wrong', 'missing', 'unattested')),
    kind TEXT NOT NULL DEFAULT '',
    words TEXT NOT NULL DEFAULT '',
    model TEXT NOT NULL DEFAULT 'default'
) STRICT;
CREATE INDEX exchanges_of_turn ON exchanges (turn_id);
CREATE INDEX exchanges_waiting ON exchanges (id) WHERE state = 'waiting';
CREATE TABLE audit (
    id INTEGER PRIMARY KEY,
    at INTEGER NOT NULL,
    chat TEXT NOT NULL,
    author TEXT NOT NULL,
    turn_id INTEGER NOT NULL,
    tool TEXT NOT NULL,
    arguments_sha256 TEXT NOT NULL,
    outcome TEXT NOT NULL,
    duration_ms INTEGER NOT NULL,
    allowed_by TEXT
) STRICT;
CREATE INDEX audit_age ON audit (at);

-- Questions to people about open calls; a question has the id of its call. A call that was begun
-- never begins again.
CREATE TABLE questions (
    id INTEGER PRIMARY KEY REFERENCES messages (id) ON DELETE CASCADE,
    turn_id INTEGER NOT NULL,
    chat TEXT NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('call', 'choice', 'plan')),
    terms TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('open', 'answered', 'begun')),
    -- Of its last message, and of those before it.
    signal_timestamp INTEGER,
    earlier TEXT,
    asked_at INTEGER,
    expires_at INTEGER,
    answer TEXT,
    -- The answer of the last vote, if another one may follow.
    chosen TEXT,
    answered_by TEXT
) STRICT;
CREATE INDEX questions_open ON questions (turn_id) WHERE state = 'open';
-- Tools that need no question in a chat; the message that allowed them takes them back.
CREATE TABLE grants (
    id INTEGER PRIMARY KEY,
    chat TEXT NOT NULL,
    subject TEXT NOT NULL,
    version TEXT NOT NULL,
    given_by TEXT NOT NULL,
    expires_at INTEGER NOT NULL,
    inbox_id INTEGER REFERENCES inbox (id) ON DELETE SET NULL,
    UNIQUE (chat, subject)
) STRICT;
-- Polls that phones still show as open, so that the bot can end them.
CREATE TABLE polls (
    chat TEXT NOT NULL,
    signal_timestamp INTEGER NOT NULL,
    PRIMARY KEY (chat, signal_timestamp)
) STRICT, WITHOUT ROWID;

-- Messages of the bot. The parts of an answer carry the inbox row that they answer, so the unique
-- index refuses a second answer. Texts and files are deleted once they are sent.
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
    reminder_id INTEGER REFERENCES reminders (id) ON DELETE SET NULL,
    UNIQUE (inbox_id, part)
) STRICT;
CREATE INDEX outbox_waiting ON outbox (id) WHERE state = 'waiting';
CREATE INDEX outbox_given_up ON outbox (chat) WHERE state = 'given_up';
CREATE INDEX outbox_age ON outbox (created_at);
CREATE INDEX outbox_of_chat ON outbox (chat, created_at);
CREATE INDEX outbox_expiry ON outbox (expires_at)
WHERE expires_at IS NOT NULL AND (state != 'sent' OR quote IS NOT NULL);
CREATE INDEX outbox_of_reminder ON outbox (reminder_id) WHERE reminder_id IS NOT NULL;
CREATE TABLE attachments (
    id INTEGER PRIMARY KEY,
    outbox_id INTEGER NOT NULL REFERENCES outbox (id) ON DELETE CASCADE,
    name TEXT NOT NULL,
    content_type TEXT NOT NULL,
    data BLOB NOT NULL
) STRICT;
CREATE INDEX attachments_of_part ON attachments (outbox_id);
-- Sends with unknown timestamps: the reply was lost, or a crash led to a second send.
-- A row outlives its message, because phones may still confirm it.
CREATE TABLE doubts (
    outbox_id INTEGER REFERENCES outbox (id) ON DELETE SET NULL,
    chat TEXT NOT NULL,
    since INTEGER NOT NULL,
    until INTEGER NOT NULL
) STRICT;
CREATE INDEX doubts_of_message ON doubts (outbox_id);
-- Timestamps that phones confirmed. The person is empty if the message was sent elsewhere.
CREATE TABLE confirmations (
    timestamp INTEGER NOT NULL,
    person TEXT NOT NULL,
    PRIMARY KEY (timestamp, person)
) STRICT, WITHOUT ROWID;

CREATE TABLE facts (
    id INTEGER PRIMARY KEY,
    chat TEXT NOT NULL,
    number INTEGER NOT NULL,
    text TEXT NOT NULL,
    turn_id INTEGER NOT NULL REFERENCES inbox (id) ON DELETE CASCADE,
    call TEXT NOT NULL,
    said_at INTEGER NOT NULL,
    expires_at INTEGER,
    UNIQUE (chat, number),
    UNIQUE (turn_id, call)
) STRICT;
CREATE INDEX facts_age ON facts (said_at);
CREATE INDEX facts_expiry ON facts (expires_at) WHERE expires_at IS NOT NULL;
-- Numbers are never reused in a chat.
CREATE TABLE memories (
    chat TEXT PRIMARY KEY,
    last_number INTEGER NOT NULL DEFAULT 0,
    is_off INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;
CREATE TABLE instructions (
    chat TEXT PRIMARY KEY,
    text TEXT NOT NULL,
    turn_id INTEGER REFERENCES inbox (id) ON DELETE SET NULL,
    expires_at INTEGER
) STRICT, WITHOUT ROWID;
CREATE INDEX instructions_from ON instructions (turn_id);

-- Time zones, and the last number of a person's reminders: numbers are never reused.
CREATE TABLE clocks (
    person TEXT PRIMARY KEY,
    zone TEXT,
    last_number INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;
-- The text is deleted once a delivered reminder is done or has disappeared. A yearly reminder
-- outlives the inbox row of its turn.
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
    -- For a question: the row as which it was asked last.
    inbox_id INTEGER,
    failures INTEGER NOT NULL DEFAULT 0,
    turn_id INTEGER REFERENCES inbox (id) ON DELETE SET NULL,
    call_id TEXT,
    cancelled_in INTEGER,
    cancelled_by TEXT,
    UNIQUE (person, number),
    UNIQUE (turn_id, call_id)
) STRICT;
CREATE INDEX reminders_due ON reminders (due_at, id) WHERE state = 'waiting';
CREATE INDEX reminders_asked ON reminders (inbox_id) WHERE inbox_id IS NOT NULL;
CREATE INDEX reminders_expiry ON reminders (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX reminders_age ON reminders (ended_at) WHERE ended_at IS NOT NULL;

-- Codes of strangers; `note` is the outgoing message with the code.
CREATE TABLE pairings (
    person TEXT PRIMARY KEY,
    code TEXT NOT NULL UNIQUE,
    number TEXT,
    name TEXT,
    expires_at INTEGER NOT NULL,
    note INTEGER NOT NULL
) STRICT;
CREATE TABLE people (
    person TEXT PRIMARY KEY,
    number TEXT,
    name TEXT,
    since INTEGER NOT NULL,
    greeted INTEGER NOT NULL DEFAULT 0,
    admin INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE TABLE token_usage (
    person TEXT NOT NULL,
    day INTEGER NOT NULL,
    chat TEXT NOT NULL,
    model TEXT NOT NULL,
    prompt_tokens INTEGER NOT NULL,
    completion_tokens INTEGER NOT NULL,
    is_estimated INTEGER NOT NULL,
    PRIMARY KEY (person, day, chat, model)
) STRICT, WITHOUT ROWID;
-- What the bot remembers about itself, by name.
CREATE TABLE metadata (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
"""


LONG_MEMORY: Final = """
-- Words of people to the bot, and its answers, for searching. They go with their turn.
CREATE TABLE said (
    id INTEGER PRIMARY KEY,
    turn_id INTEGER NOT NULL REFERENCES turns (id) ON DELETE CASCADE,
    chat TEXT NOT NULL,
    by_bot INTEGER NOT NULL,
    author_name TEXT,
    text TEXT NOT NULL,
    sent_at INTEGER NOT NULL
) STRICT;
CREATE INDEX said_in_turn ON said (turn_id);
CREATE INDEX said_in_chat ON said (chat, id);
-- The index of `said` (even rows) and of `kept_words` (odd rows). It holds no text, only where each
-- word is. `secure-delete` removes the words of a deleted text at once, not when SQLite next merges
-- its lists. Triggers keep the index right however a row goes. `indexed` is a
-- function of the connection (`words.py`).
CREATE VIRTUAL TABLE said_words USING fts5(
    words, content = '', tokenize = 'unicode61 remove_diacritics 2'
);
INSERT INTO said_words (said_words, rank) VALUES ('secure-delete', 1);
CREATE TRIGGER said_comes AFTER INSERT ON said BEGIN
    INSERT INTO said_words (rowid, words)
    VALUES (2 * NEW.id, indexed(NEW.text));
END;
CREATE TRIGGER said_goes AFTER DELETE ON said BEGIN
    INSERT INTO said_words (said_words, rowid, words)
    VALUES ('delete', 2 * OLD.id, indexed(OLD.text));
END;
CREATE TRIGGER kept_words_come AFTER INSERT ON kept_words BEGIN
    INSERT INTO said_words (rowid, words)
    VALUES (2 * NEW.id + 1, indexed(NEW.text));
END;
CREATE TRIGGER kept_words_go AFTER DELETE ON kept_words BEGIN
    INSERT INTO said_words (said_words, rowid, words)
    VALUES ('delete', 2 * OLD.id + 1, indexed(OLD.text));
END;
CREATE TRIGGER kept_words_change AFTER UPDATE OF text ON kept_words BEGIN
    INSERT INTO said_words (said_words, rowid, words)
    VALUES ('delete', 2 * OLD.id + 1, indexed(OLD.text));
    INSERT INTO said_words (rowid, words)
    VALUES (2 * NEW.id + 1, indexed(NEW.text));
END;
INSERT INTO said_words (rowid, words)
SELECT 2 * id + 1, indexed(text) FROM kept_words;
-- Of earlier turns: answers, and in private chats people's words behind their time.
INSERT INTO said (turn_id, chat, by_bot, text, sent_at)
SELECT turns.id, chat, role = 'assistant',
    iif(role = 'user', substr(content, instr(content, '] ') + 2), content), created_at
FROM turns JOIN messages ON turn_id = turns.id
WHERE turns.state = 'answered' AND helper_of IS NULL AND content IS NOT NULL
    AND tool_calls IS NULL AND (role = 'assistant' OR role = 'user' AND chat LIKE 'direct:%')
ORDER BY messages.id;

-- Summaries of the oldest turns of chats. Each one is made of the turns from the first to the last
-- alone, and goes with any of them.
CREATE TABLE summaries (
    id INTEGER PRIMARY KEY,
    chat TEXT NOT NULL,
    first_turn INTEGER NOT NULL,
    last_turn INTEGER NOT NULL,
    text TEXT NOT NULL
) STRICT;
CREATE INDEX summaries_of_chat ON summaries (chat, last_turn);
CREATE TRIGGER summaries_go AFTER DELETE ON turns BEGIN
    DELETE FROM summaries WHERE chat = OLD.chat AND OLD.id BETWEEN first_turn AND last_turn;
END;

-- Emoji that people put on the answer of a turn; `told_to` is the later turn that was told them.
CREATE TABLE reactions (
    id INTEGER PRIMARY KEY,
    turn_id INTEGER NOT NULL REFERENCES turns (id) ON DELETE CASCADE,
    person TEXT NOT NULL,
    chat TEXT NOT NULL,
    name TEXT,
    emoji TEXT NOT NULL,
    sent_at INTEGER NOT NULL,
    told_to INTEGER,
    UNIQUE (turn_id, person)
) STRICT;
CREATE INDEX reactions_of_chat ON reactions (chat, sent_at);
CREATE INDEX reactions_told ON reactions (told_to) WHERE told_to IS NOT NULL;
-- Whether the text is an emoji, for the message that the quote names.
ALTER TABLE outbox ADD COLUMN is_reaction INTEGER NOT NULL DEFAULT 0;
-- The source of a file that is still to be made and sent with the message.
ALTER TABLE outbox ADD COLUMN unmade TEXT;

-- What left the machine for a turn; equal entries are one row.
CREATE TABLE outgoing (
    id INTEGER PRIMARY KEY,
    turn_id INTEGER NOT NULL REFERENCES turns (id) ON DELETE CASCADE,
    kind TEXT NOT NULL,
    target TEXT NOT NULL,
    detail TEXT NOT NULL,
    is_proven INTEGER NOT NULL,
    requests INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    UNIQUE (turn_id, kind, target, detail, is_proven)
) STRICT;
"""


LATE_INDEX: Final = """
-- Rows of `said` are indexed together, some seconds after their commit: an answer does not wait.
-- `metadata` says up to which row that is done, so ids must never be reused.
CREATE TABLE said_3 (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    turn_id INTEGER NOT NULL REFERENCES turns (id) ON DELETE CASCADE,
    chat TEXT NOT NULL,
    by_bot INTEGER NOT NULL,
    author_name TEXT,
    text TEXT NOT NULL,
    sent_at INTEGER NOT NULL
) STRICT;
INSERT INTO said_3 SELECT * FROM said;
DROP TABLE said;
ALTER TABLE said_3 RENAME TO said;
CREATE INDEX said_in_turn ON said (turn_id);
INSERT INTO metadata SELECT 'indexed_said', coalesce(max(id), 0) FROM said;
CREATE TRIGGER said_goes AFTER DELETE ON said
WHEN OLD.id <= (SELECT CAST(value AS INTEGER) FROM metadata WHERE name = 'indexed_said') BEGIN
    INSERT INTO said_words (said_words, rowid, words)
    VALUES ('delete', 2 * OLD.id, indexed(OLD.text));
END;
-- As one tree; `number` is the place of an entry in its turn.
CREATE TABLE outgoing_3 (
    turn_id INTEGER NOT NULL REFERENCES turns (id) ON DELETE CASCADE,
    kind TEXT NOT NULL,
    target TEXT NOT NULL,
    detail TEXT NOT NULL,
    is_proven INTEGER NOT NULL,
    number INTEGER NOT NULL,
    requests INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    PRIMARY KEY (turn_id, kind, target, detail, is_proven)
) STRICT, WITHOUT ROWID;
INSERT INTO outgoing_3
SELECT turn_id, kind, target, detail, is_proven, id, requests, bytes FROM outgoing;
DROP TABLE outgoing;
ALTER TABLE outgoing_3 RENAME TO outgoing;
"""


def create(db: Session) -> None:
    """Create version 1 in an empty file."""
    db.run(TABLES)
    db.run(f"PRAGMA application_id = {APPLICATION_ID}")


def add_long_memory(db: Session) -> None:
    """Add search in past messages, summaries, reactions, and the lists of outgoing data."""
    db.run(LONG_MEMORY)


def index_later(db: Session) -> None:
    """Move search indexing out of the commit of a turn, so that it writes less."""
    db.run(LATE_INDEX)


Migrations = tuple[Callable[[Session], None], ...]

MIGRATIONS: Final[Migrations] = (create, add_long_memory, index_later)


def version_of(db: Session) -> int:
    """Return the schema version of a file."""
    return int(db.value("PRAGMA user_version"))


def migrate(db: Session, migrations: Migrations = MIGRATIONS) -> None:
    """Create the schema, or bring it up to date.

    Raises:
        StoreUnreadable: see `require_known`.
    """
    require_known(db, migrations)
    for apply in migrations[version_of(db) :]:
        apply(db)
    db.run(f"PRAGMA user_version = {len(migrations)}")


def require_known(db: Session, migrations: Migrations = MIGRATIONS) -> None:
    """Refuse every file except an empty one and stores that this version can read or upgrade.

    Raises:
        StoreUnreadable: the file is from a newer version, from a build before the first release, or
            a database of another program.
    """
    application_id = db.value("PRAGMA application_id")
    tables = db.value("SELECT count(*) FROM sqlite_schema")
    found = version_of(db)
    if found > len(migrations) and application_id == APPLICATION_ID:
        raise StoreUnreadable(
            f"the store has schema {found}, this version knows {len(migrations)}: update the bot"
        )
    if (tables or found) and application_id != APPLICATION_ID:
        raise StoreUnreadable(
            "the store is from a build before the first release, or not from this bot: move the"
            " file away, and the bot starts with an empty store"
        )


def require_current(db: Session) -> None:
    """Refuse every schema but this version's, and change nothing.

    Raises:
        StoreUnreadable: the file was made by another version of the program.
    """
    require_known(db)
    if version_of(db) < len(MIGRATIONS):
        raise StoreUnreadable("the store is from an earlier version: start the bot once")
