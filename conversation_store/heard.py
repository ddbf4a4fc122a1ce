"""Messages of people in groups to each other.

Overheard words wait for the next turn of their chat and are deleted when that turn has ended. In
groups that have opted in to catch-up, the last words are also kept for members who missed them.
Both belong to a row of `inbox` that has the key, the time and the timer of the message.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from conversation_store import deletion
from conversation_store.connections import Session
from conversation_store.database import (
    Aggregate,
    of_aggregate,
    reads,
    reads_aside,
    writes,
    writes_and_scrubs,
)
from conversation_store.models import DAY_MS, ChatId, OverheardMessage, ReceivedMessage

OVERHEARD: Final = "overheard"
"""Outcome of messages that were not for the bot, and of edits of them."""

OVERHEARD_ROWS: Final = 50
"""Messages of a chat that wait for a turn; older ones are deleted."""
OVERHEARD_BYTES: Final = 8 * 1024
"""UTF-8 bytes of all of them."""

MAX_MESSAGES: Final = 500
"""Messages of a group that are kept for catch-up; older ones are deleted."""
MAX_BYTES: Final = 64 * 1024
"""UTF-8 bytes of all of them."""
MAX_MESSAGE_BYTES: Final = 4 * 1024
"""UTF-8 bytes of one; the rest is cut off."""
MAX_DAYS: Final = 7

TRIM_SQL: Final = """
    DELETE FROM {table} WHERE id IN (SELECT id FROM {table} WHERE chat = ?1{also}) AND id <= (
        SELECT id FROM (
            SELECT id, row_number() OVER newest AS count,
                sum(octet_length(text)) OVER newest AS size
            FROM {table} WHERE chat = ?1{also} WINDOW newest AS (ORDER BY id DESC)
        )
        WHERE count > ?2 OR size > ?3 ORDER BY id DESC LIMIT 1
    )
"""
TRIM_KEPT: Final = TRIM_SQL.format(table="kept_words", also="")
TRIM_OVERHEARD: Final = TRIM_SQL.format(table="overheard", also=" AND turn_id IS NULL")


def _is_on(db: Session, chat: ChatId) -> bool:
    """Return whether a group has opted in."""
    return bool(db.run("SELECT 1 FROM catch_up_groups WHERE chat = ?", chat))


class CatchUpStore(Aggregate):
    """Groups that have opted in to catch-up, and the messages that are kept for them."""

    is_on = reads(of_aggregate(_is_on))

    @property
    def kept_days(self) -> int:
        """How many days something is kept at most; 0 keeps nothing."""
        return min(MAX_DAYS, self._context.retention_days)

    @reads
    def groups(self, db: Session) -> tuple[ChatId, ...]:
        """Return the groups that have opted in."""
        return tuple(ChatId.parse(chat) for (chat,) in db.run("SELECT chat FROM catch_up_groups"))

    @writes
    def switch_on(self, db: Session, chat: ChatId) -> None:
        """Keep messages of a group from now on."""
        db.run("INSERT OR IGNORE INTO catch_up_groups (chat) VALUES (?)", chat)

    @writes_and_scrubs
    def switch_off(self, db: Session, chat: ChatId) -> None:
        """Delete a group's kept and waiting words, and everything derived from the kept ones.

        A turn that runs is deleted when it ends.
        """
        db.run("DELETE FROM catch_up_groups WHERE chat = ?", chat)
        forget_waiting(db, chat)
        deletion.forget_told(db, deletion.told_in_catch_up(db, chat))

    @reads_aside
    def missed(
        self, db: Session, chat: ChatId, person: str, *, turn_id: int, hours: int
    ) -> tuple[int, tuple[OverheardMessage, ...]] | None:
        """Return the messages in a group since a person wrote there last. `tell` hands them out.

        Args:
            turn_id: the turn that asks; its messages do not count as written.
            hours: if not 0, how far to look back instead, but never to before the person's first
                known message there: they may have joined only then.

        Returns:
            that time and the messages; None if the person is not known to have written there.
        """
        now = self._now_ms()
        asked_at = db.value("SELECT received_at FROM inbox WHERE id = ?", turn_id) or now
        ((first, last),) = db.run(
            "SELECT min(received_at), max(received_at) FROM inbox"
            " WHERE chat = ? AND author = ? AND kind = 'message' AND received_at < ?",
            *(chat, person, asked_at),
        )
        if first is None:
            return None
        since = max(first, asked_at - hours * 3_600_000) if hours else last
        # If several messages came at that moment, the person certainly knows only their own.
        rows = db.run(
            "SELECT id, author_name, text, sent_at FROM kept_words JOIN inbox USING (id)"
            " WHERE kept_words.chat = ?1"
            " AND (received_at > ?2 OR (received_at = ?2 AND author != ?3))"
            " AND received_at > ?4 AND (expires_at IS NULL OR expires_at > ?5)"
            " AND id != ?6 AND turn_id IS NOT ?6 ORDER BY id",
            *(chat, since, person, now - MAX_DAYS * DAY_MS, now, turn_id),
        )
        return since, tuple(OverheardMessage(*row) for row in rows)

    @writes
    def tell(
        self, db: Session, messages: Sequence[OverheardMessage], turn_id: int
    ) -> tuple[OverheardMessage, ...]:
        """Return the messages that are still kept, and note that the turn knows them."""
        told = []
        for message in messages:
            for (expires_at,) in db.run(
                "SELECT expires_at FROM kept_words JOIN inbox USING (id) WHERE id = ?1"
                " AND EXISTS (SELECT 1 FROM turns WHERE turns.id = ?2)",
                *(message.id, turn_id),
            ):
                deletion.add(db, turn_id, message.id, deletion.CATCH_UP, expires_at)
                told.append(message)
        return tuple(told)


def add(db: Session, message: ReceivedMessage, row: int) -> None:
    """Keep the beginning of a message for the chat's next turn."""
    _add(db, "overheard", message, row, OVERHEARD_BYTES)
    db.run(TRIM_OVERHEARD, message.chat, OVERHEARD_ROWS, OVERHEARD_BYTES)


def keep(db: Session, message: ReceivedMessage, row: int) -> None:
    """Keep the beginning of a message for catch-up, if its group has opted in."""
    if message.text.strip() and _is_on(db, message.chat):
        _add(db, "kept_words", message, row, MAX_MESSAGE_BYTES)
        db.run(TRIM_KEPT, message.chat, MAX_MESSAGES, MAX_BYTES)


def _add(db: Session, table: str, message: ReceivedMessage, row: int, max_bytes: int) -> None:
    db.run(
        f"INSERT INTO {table} (id, chat, author_name, text, sent_at) VALUES (?, ?, ?, ?, ?)",
        *(row, message.chat, message.author_name, _cut(message.text, max_bytes), message.sent_at),
    )


def waiting(db: Session, chat: ChatId) -> tuple[OverheardMessage, ...]:
    """Return the words that no turn was told yet, oldest first."""
    rows = db.run(
        "SELECT id, author_name, text, sent_at FROM overheard"
        " WHERE chat = ? AND turn_id IS NULL ORDER BY id",
        chat,
    )
    return tuple(OverheardMessage(*row) for row in rows)


def take(db: Session, messages: Sequence[OverheardMessage], turn_id: int) -> None:
    """Tell messages to a turn. If one was deleted since, delete the turn at its end."""
    for message in messages:
        rows = db.run(
            "UPDATE overheard SET turn_id = ? WHERE id = ?"
            " RETURNING (SELECT expires_at FROM inbox WHERE inbox.id = overheard.id)",
            *(turn_id, message.id),
        )
        for (expires_at,) in rows:
            deletion.add(db, turn_id, message.id, deletion.OVERHEARD, expires_at)
        if not rows:
            deletion.forget_at_end(db, turn_id)


def forget_waiting(db: Session, chat: ChatId) -> None:
    """Delete the words that no turn of a chat was told yet."""
    db.run("DELETE FROM overheard WHERE chat = ? AND turn_id IS NULL", chat)


def forget(db: Session, rows: Iterable[int]) -> None:
    """Delete the words of messages."""
    for row in rows:
        db.run("DELETE FROM overheard WHERE id = ?", row)
        db.run("DELETE FROM kept_words WHERE id = ?", row)


def change_kept(db: Session, text: str, rows: Iterable[int]) -> None:
    """Replace the words that are kept of a message after an edit; turns keep what they were told.

    Args:
        rows: the versions of the message.
    """
    for row in rows:
        db.run("UPDATE kept_words SET text = ? WHERE id = ?", _cut(text, MAX_MESSAGE_BYTES), row)


def change_overheard(db: Session, text: str, rows: Iterable[int]) -> None:
    """Replace overheard words after an edit, unless a turn was told them already."""
    for row in rows:
        db.run(
            "UPDATE overheard SET text = ? WHERE id = ? AND turn_id IS NULL",
            *(_cut(text, OVERHEARD_BYTES), row),
        )


def _cut(text: str, max_bytes: int) -> str:
    return text.encode()[:max_bytes].decode(errors="ignore")
