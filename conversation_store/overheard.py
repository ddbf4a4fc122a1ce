"""What people say in a group to each other, until a turn that was told it has ended.

A text is there while it waits for a turn or goes with one; afterwards only the key, by which a
duplicate, an edit and a deletion find it.
"""

from collections.abc import Sequence
from typing import Final

from conversation_store.connections import Execute
from conversation_store.models import ChatId, OverheardMessage, ReceivedMessage

OVERHEARD_ROWS: Final = 50
"""Messages of a chat that wait for a turn; the oldest go."""

OVERHEARD_BYTES: Final = 8 * 1024
"""UTF-8 bytes of them all."""


def add(execute: Execute, message: ReceivedMessage) -> None:
    """Keep a message, cut to what fits; a duplicate is kept once."""
    text = message.text.encode()[:OVERHEARD_BYTES].decode(errors="ignore")
    execute(
        "INSERT INTO overheard (account, chat, author, timestamp, author_name, text, sent_at,"
        " heard_at, expires_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
        (
            message.account,
            message.chat,
            message.author,
            message.timestamp,
            message.author_name,
            text,
            message.sent_at,
            message.received_at,
            message.expires_at,
        ),
    )


def trim(execute: Execute, chat: ChatId) -> None:
    """Forget the oldest of a chat that are more than it may have."""
    rows = list(
        execute(
            "SELECT id, octet_length(text) FROM overheard"
            " WHERE chat = ? AND text IS NOT NULL AND turn_id IS NULL ORDER BY id DESC",
            (chat,),
        )
    )
    size = 0
    for count, (id_, length) in enumerate(rows, 1):
        size += length
        if count > OVERHEARD_ROWS or size > OVERHEARD_BYTES:
            _blank(execute, id_)


def waiting(execute: Execute, chat: ChatId) -> tuple[OverheardMessage, ...]:
    """Return what no turn was told yet, oldest first."""
    rows = list(
        execute(
            "SELECT id, author_name, text, sent_at FROM overheard"
            " WHERE chat = ? AND text IS NOT NULL AND turn_id IS NULL ORDER BY id",
            (chat,),
        )
    )
    return tuple(OverheardMessage(*row) for row in rows)


def take(execute: Execute, messages: Sequence[OverheardMessage], turn_id: int) -> int | None:
    """Tell a turn messages; return when the first of them disappears, 0 if one has already."""
    expiry: list[int] = []
    for message in messages:
        rows = list(
            execute(
                "UPDATE overheard SET turn_id = ? WHERE id = ? AND text IS NOT NULL"
                " RETURNING expires_at",
                (turn_id, message.id),
            )
        )
        # Without a row it was forgotten since it was read.
        expiry += [at for (at,) in rows or [(0,)] if at is not None]
    return min(expiry, default=None)


def release(execute: Execute, turn_id: int) -> None:
    """Let what was told to a turn that has not answered be told to the next.

    Of one that has answered it stays known: a part of its answer may still be unsent.
    """
    sql = "UPDATE overheard SET turn_id = NULL WHERE turn_id = ? AND text IS NOT NULL"
    execute(sql, (turn_id,))


def forget_told(execute: Execute, turn_id: int) -> None:
    """Forget the texts that were told to a turn; that it was told them stays known."""
    execute("UPDATE overheard SET text = NULL, author_name = NULL WHERE turn_id = ?", (turn_id,))


def change(
    execute: Execute, message: ReceivedMessage, author: str | None, timestamp: int | None
) -> bool:
    """Let what somebody said read as an edit says; False where nothing is known of it."""
    text = message.text.encode()[:OVERHEARD_BYTES].decode(errors="ignore")
    rows = list(
        execute(
            "UPDATE overheard SET text = CASE WHEN text IS NULL OR turn_id IS NOT NULL THEN text"
            " ELSE ? END"
            " WHERE account = ? AND chat = ? AND author = ? AND timestamp = ? RETURNING id",
            (text, message.account, message.chat, author, timestamp),
        )
    )
    return bool(rows)


def is_known(
    execute: Execute, message: ReceivedMessage, author: str | None, timestamp: int | None
) -> bool:
    """Whether an edit or a deletion is about something that was said in a chat."""
    rows = list(
        execute(
            "SELECT 1 FROM overheard WHERE account = ? AND chat = ? AND author = ?"
            " AND timestamp = ?",
            (message.account, message.chat, author, timestamp),
        )
    )
    return bool(rows)


def told_turn(
    execute: Execute, deletion: ReceivedMessage, author: str | None, timestamp: int | None
) -> int | None:
    """Return the turn that was told what a deletion is about; None where none was."""
    rows = list(
        execute(
            "SELECT turn_id FROM overheard"
            " WHERE account = ? AND chat = ? AND author = ? AND timestamp = ?",
            (deletion.account, deletion.chat, author, timestamp),
        )
    )
    return next((turn_id for (turn_id,) in rows), None)


def forget(
    execute: Execute, deletion: ReceivedMessage, author: str | None, timestamp: int | None
) -> int | None:
    """Forget what somebody said; return the turn that was told it, if one was."""
    rows = list(
        execute(
            "UPDATE overheard SET text = NULL, author_name = NULL"
            " WHERE account = ? AND chat = ? AND author = ? AND timestamp = ? RETURNING turn_id",
            (deletion.account, deletion.chat, author, timestamp),
        )
    )
    return next((turn_id for (turn_id,) in rows), None)


def forget_chat(execute: Execute, chat: ChatId) -> None:
    """Forget what no turn was told yet."""
    execute(
        "UPDATE overheard SET text = NULL, author_name = NULL"
        " WHERE chat = ? AND text IS NOT NULL AND turn_id IS NULL",
        (chat,),
    )


def expire(execute: Execute, now_ms: int) -> None:
    """Forget what has disappeared."""
    execute(
        "UPDATE overheard SET text = NULL, author_name = NULL"
        " WHERE expires_at <= ? AND text IS NOT NULL",
        (now_ms,),
    )


def next_expiry(execute: Execute) -> int | None:
    """Return when the next text disappears."""
    ((expires_at,),) = execute(
        "SELECT min(expires_at) FROM overheard WHERE expires_at IS NOT NULL AND text IS NOT NULL"
    )
    return None if expires_at is None else int(expires_at)


def purge(execute: Execute, before: int, at_most: int) -> int:
    """Forget what is older than a time; return how much that was."""
    sql = (
        "DELETE FROM overheard WHERE id IN"
        " (SELECT id FROM overheard WHERE heard_at < ? LIMIT ?) RETURNING id"
    )
    return len(list(execute(sql, (before, at_most))))


def _blank(execute: Execute, overheard_id: int) -> None:
    execute("UPDATE overheard SET text = NULL, author_name = NULL WHERE id = ?", (overheard_id,))
