"""What people say in groups whose members can ask what they have missed.

A group has opted in, or nothing of it is kept here. What is kept is bounded in number, bytes and
days, and goes with its timer, with its deletion, and at once when the group opts out. So do the
turns that were told it: the functions that forget something return them.
"""

from collections.abc import Sequence
from typing import Final

from conversation_store.connections import Execute
from conversation_store.models import ChatId, Missed, OverheardMessage, ReceivedMessage

MAX_MESSAGES: Final = 500
"""Of a group; the oldest go."""
MAX_BYTES: Final = 64 * 1024
"""UTF-8 bytes of them all."""
MAX_MESSAGE_BYTES: Final = 4 * 1024
"""Of one; the rest of it is cut off."""
MAX_DAYS: Final = 7
DAY_MS: Final = 86_400_000

TRIM_SQL: Final = """
    DELETE FROM kept_words WHERE chat = ?1 AND id <= (
        SELECT id FROM (
            SELECT id, row_number() OVER newest AS count,
                sum(octet_length(text)) OVER newest AS size
            FROM kept_words WHERE chat = ?1 WINDOW newest AS (ORDER BY id DESC)
        )
        WHERE count > ?2 OR size > ?3 ORDER BY id DESC LIMIT 1
    )
"""

WROTE_SQL: Final = """
    SELECT min(at), max(at) FROM (
        SELECT received_at AS at FROM inbox
        WHERE chat = ?1 AND author = ?2 AND kind = 'message'
        UNION ALL SELECT heard_at FROM overheard WHERE chat = ?1 AND author = ?2
        UNION ALL SELECT heard_at FROM kept_words WHERE chat = ?1 AND author = ?2
    )
    WHERE at < ?3
"""


def is_on(execute: Execute, chat: ChatId) -> bool:
    """Whether a group has opted in."""
    return bool(list(execute("SELECT 1 FROM catch_up_groups WHERE chat = ?", (chat,))))


def groups(execute: Execute) -> tuple[ChatId, ...]:
    """Return the groups that have opted in."""
    return tuple(ChatId.parse(chat) for (chat,) in execute("SELECT chat FROM catch_up_groups"))


def switch_on(execute: Execute, chat: ChatId) -> None:
    """Keep from now on what is said in a group."""
    execute("INSERT OR IGNORE INTO catch_up_groups (chat) VALUES (?)", (chat,))


def switch_off(execute: Execute, chat: ChatId) -> list[int]:
    """Keep no more, and forget what was kept; return the turns that were told any of it."""
    execute("DELETE FROM catch_up_groups WHERE chat = ?", (chat,))
    return _told(execute, "DELETE FROM caught_up WHERE chat = ? RETURNING turn_id", (chat,))


def keep(execute: Execute, message: ReceivedMessage) -> None:
    """Keep a message of a group that has opted in, cut to what fits; a duplicate is kept once."""
    if not (message.chat.is_group and message.text.strip() and is_on(execute, message.chat)):
        return
    execute(
        "INSERT INTO kept_words (account, chat, author, timestamp, author_name, text, sent_at,"
        " heard_at, expires_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
        (
            *(message.account, message.chat, message.author, message.timestamp),
            *(message.author_name, _cut(message.text), message.sent_at),
            *(message.received_at, message.expires_at),
        ),
    )
    execute(TRIM_SQL, (message.chat, MAX_MESSAGES, MAX_BYTES))


def change(
    execute: Execute, edit: ReceivedMessage, author: str | None, timestamp: int | None
) -> None:
    """Let a message read as an edit says; what a turn was told stays as it was told."""
    execute(
        "UPDATE kept_words SET text = ? WHERE account = ? AND chat = ? AND author = ?"
        " AND timestamp = ?",
        (_cut(edit.text), edit.account, edit.chat, author, timestamp),
    )


def forget(execute: Execute, chat: ChatId, author: str | None, timestamp: int | None) -> list[int]:
    """Forget a message; return the turns that were told it."""
    key = (chat, author, timestamp)
    execute("DELETE FROM kept_words WHERE chat = ? AND author = ? AND timestamp = ?", key)
    sql = "DELETE FROM caught_up WHERE chat = ? AND author = ? AND timestamp = ? RETURNING turn_id"
    return _told(execute, sql, key)


def forget_question(execute: Execute, chat: ChatId, row: int) -> list[int]:
    """Forget the messages that the turn of a row answers; return the turns that were told them."""
    told: list[int] = []
    keys = execute(
        "SELECT author, timestamp FROM inbox WHERE kind = 'message' AND (id = ? OR turn_id = ?)",
        (row, row),
    )
    for author, timestamp in list(keys):
        told += forget(execute, chat, author, timestamp)
    return told


def forget_chat(execute: Execute, chat: ChatId) -> list[int]:
    """Forget what is kept of a group, which stays opted in; return the turns that were told it."""
    execute("DELETE FROM kept_words WHERE chat = ?", (chat,))
    return _told(execute, "DELETE FROM caught_up WHERE chat = ? RETURNING turn_id", (chat,))


def missed(
    execute: Execute, chat: ChatId, person: str, *, turn_id: int, hours: int, now_ms: int
) -> Missed | None:
    """Return what was said in a group since somebody wrote there last, and note who was told.

    Args:
        execute: runs a statement.
        chat: a group that has opted in.
        person: who asks, by ACI.
        turn_id: the turn in which it is asked, whose messages do not count as written.
        hours: how far to look back instead, if it is not 0; not to before the person is known to
            have written there, because it may have joined only then.
        now_ms: the time.

    Returns:
        None where nothing is known that the person has written there.
    """
    asked = list(execute("SELECT received_at FROM inbox WHERE id = ?", (turn_id,)))
    asked_at = next((at for (at,) in asked), now_ms)
    ((first, last),) = execute(WROTE_SQL, (chat, person, asked_at))
    if first is None:
        return None
    since = max(first, asked_at - hours * 3_600_000) if hours else last
    # Of what was heard in the same moment, only the person's own words are known to them for sure.
    rows = execute(
        "SELECT id, author_name, text, sent_at FROM kept_words WHERE chat = ?1"
        " AND (heard_at > ?2 OR (heard_at = ?2 AND author != ?3))"
        " AND heard_at > ?4 AND (expires_at IS NULL OR expires_at > ?5)"
        " AND (author, timestamp) NOT IN"
        " (SELECT author, timestamp FROM inbox WHERE id = ?6 OR turn_id = ?6) ORDER BY id",
        (chat, since, person, now_ms - MAX_DAYS * DAY_MS, now_ms, turn_id),
    )
    return Missed(since, tuple(OverheardMessage(*row) for row in rows))


def tell(
    execute: Execute, messages: Sequence[OverheardMessage], turn_id: int
) -> tuple[OverheardMessage, ...]:
    """Return those of some messages that are still kept, to a turn, which goes with them now."""
    told = []
    for message in messages:
        keys = list(
            execute(
                "INSERT OR IGNORE INTO caught_up (turn_id, chat, author, timestamp)"
                " SELECT ?2, chat, author, timestamp FROM kept_words WHERE id = ?1"
                " AND EXISTS (SELECT 1 FROM turns WHERE id = ?2) RETURNING 1",
                (message.id, turn_id),
            )
        )
        if keys or _was_told(execute, message.id, turn_id):
            told.append(message)
            execute(
                "UPDATE turns SET expires_at = min(coalesce(expires_at, at), at)"
                " FROM (SELECT expires_at AS at FROM kept_words WHERE id = ?)"
                " WHERE turns.id = ? AND at IS NOT NULL",
                (message.id, turn_id),
            )
    return tuple(told)


def expire(execute: Execute, now_ms: int) -> None:
    """Forget what has disappeared; turns that were told it have its timer."""
    execute("DELETE FROM kept_words WHERE expires_at <= ?", (now_ms,))


def next_expiry(execute: Execute) -> int | None:
    """Return when the next message disappears."""
    sql = "SELECT min(expires_at) FROM kept_words WHERE expires_at IS NOT NULL"
    ((expires_at,),) = execute(sql)
    return None if expires_at is None else int(expires_at)


def purge(execute: Execute, before: int, at_most: int) -> int:
    """Forget what is older than a time; return how much that was."""
    sql = (
        "DELETE FROM kept_words WHERE id IN"
        " (SELECT id FROM kept_words WHERE heard_at < ? LIMIT ?) RETURNING id"
    )
    return len(list(execute(sql, (before, at_most))))


def _cut(text: str) -> str:
    return text.encode()[:MAX_MESSAGE_BYTES].decode(errors="ignore")


def _was_told(execute: Execute, message_id: int, turn_id: int) -> bool:
    rows = execute(
        "SELECT 1 FROM caught_up JOIN kept_words USING (chat, author, timestamp)"
        " WHERE id = ? AND turn_id = ?",
        (message_id, turn_id),
    )
    return bool(list(rows))


def _told(execute: Execute, sql: str, values: Sequence[str | int | None]) -> list[int]:
    return sorted({turn_id for (turn_id,) in execute(sql, values)})
