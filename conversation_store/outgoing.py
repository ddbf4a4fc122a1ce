"""Parts of answers on their way out, with the files that go with them."""

from collections.abc import Sequence

from conversation_store.database import Execute
from conversation_store.models import OutgoingMessage, StoredAttachment


def answer(
    execute: Execute,
    *,
    inbox_id: int,
    chat: str,
    parts: Sequence[str],
    attachments: Sequence[StoredAttachment],
    now_ms: int,
) -> tuple[OutgoingMessage, ...]:
    """Add the one answer to a message; files go with its first part."""
    return tuple(
        _add(
            execute,
            inbox_id=inbox_id,
            number=number,
            chat=chat,
            text=text,
            attachments=() if number else tuple(attachments),
            now_ms=now_ms,
        )
        for number, text in enumerate(parts)
    )


def follow_up(
    execute: Execute, *, inbox_id: int, chat: str, text: str, now_ms: int
) -> OutgoingMessage:
    """Add a message behind the answer that a message has already."""
    ((number,),) = execute("SELECT max(part) + 1 FROM outbox WHERE inbox_id = ?", (inbox_id,))
    return _add(
        execute,
        inbox_id=inbox_id,
        number=number or 0,
        chat=chat,
        text=text,
        attachments=(),
        now_ms=now_ms,
    )


def _add(
    execute: Execute,
    *,
    inbox_id: int,
    number: int,
    chat: str,
    text: str,
    attachments: tuple[StoredAttachment, ...],
    now_ms: int,
) -> OutgoingMessage:
    ((outbox_id,),) = execute(
        "INSERT INTO outbox (inbox_id, part, chat, text, state, created_at)"
        " VALUES (?, ?, ?, ?, 'waiting', ?) RETURNING id",
        (inbox_id, number, chat, text, now_ms),
    )
    for file in attachments:
        execute(
            "INSERT INTO attachments (outbox_id, name, content_type, data) VALUES (?, ?, ?, ?)",
            (outbox_id, file.name, file.content_type, file.data),
        )
    return OutgoingMessage(outbox_id, chat, text, 0, attachments)


def mark_sent(execute: Execute, part: int, signal_timestamp: int) -> None:
    """Mark a part as sent and forget what was in it."""
    execute("DELETE FROM attachments WHERE outbox_id = ?", (part,))
    execute(
        "UPDATE outbox SET state = 'sent', text = NULL, signal_timestamp = ?,"
        " attempts = attempts + 1 WHERE id = ?",
        (signal_timestamp, part),
    )


def mark_failed(execute: Execute, part: int, *, give_up: bool) -> None:
    """Count a failed attempt; a part that is given up keeps what is in it."""
    execute(
        "UPDATE outbox SET attempts = attempts + 1, state = ? WHERE id = ?",
        ("given_up" if give_up else "waiting", part),
    )


def waiting(execute: Execute) -> tuple[OutgoingMessage, ...]:
    """Return what is still to be sent, in its order."""
    rows = list(
        execute("SELECT id, chat, text, attempts FROM outbox WHERE state = 'waiting' ORDER BY id")
    )
    return tuple(
        OutgoingMessage(id_, chat, text, attempts, _attachments(execute, id_))
        for id_, chat, text, attempts in rows
    )


def forget_given_up(execute: Execute, chat: str) -> None:
    """Forget a chat's answers that could not be sent."""
    execute("DELETE FROM outbox WHERE chat = ? AND state = 'given_up'", (chat,))


def purge(execute: Execute, before: int) -> None:
    """Forget what is older than a time, but nothing that is still to be sent."""
    execute("DELETE FROM outbox WHERE created_at < ? AND state != 'waiting'", (before,))


def _attachments(execute: Execute, part: int) -> tuple[StoredAttachment, ...]:
    rows = execute(
        "SELECT name, content_type, data FROM attachments WHERE outbox_id = ? ORDER BY id", (part,)
    )
    return tuple(StoredAttachment(*row) for row in rows)
