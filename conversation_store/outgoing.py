"""Messages on their way out, with the files that go with them.

The parts of an answer are numbered by the inbox row that it answers. The answer to an edit takes
the place of the answer before it, message for message: more messages are new ones, and those that
are left over are removed.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any, Final, Literal

from conversation_store.connections import Execute, Row
from conversation_store.models import (
    Attachment,
    ChatId,
    OutgoingMessage,
    Quote,
    StyledText,
    StyleRange,
    TextStyle,
)

MAX_ANSWER_EDITS: Final = 10
"""Signal's apps show no more edits of a message; from then on an answer is sent anew."""

MACHINE_MS: Final = "CAST(unixepoch('subsec') * 1000 AS INTEGER)"
"""The time in ms by the machine's clock, which signal-cli counts by. The store's own keeps the time
where that one jumps, and may be ahead of it."""

UNSENT_MS: Final = 3_600_000
"""How long an answer may still be sent whose question has disappeared."""

Kind = Literal["text", "files", "removal"]


@dataclass(frozen=True, slots=True)
class _Standing:
    """A message of an earlier answer that people can see.

    Attributes:
        timestamp: Signal's, of its last edit.
        edits: how often it was edited.
        editable: it has a text.
    """

    timestamp: int
    edits: int
    editable: bool


NOTHING: Final = StyledText("")


@dataclass(frozen=True, slots=True)
class _Draft:
    """A message as it is to be stored."""

    kind: Kind
    part: StyledText = NOTHING
    attachments: tuple[Attachment, ...] = ()
    replaces: int | None = None
    edits: int = 0


def answer(
    execute: Execute,
    *,
    inbox_id: int,
    chat: ChatId,
    parts: Sequence[str | StyledText],
    attachments: Sequence[Attachment],
    quote: Quote | None,
    replaces: int | None,
    expires_at: int | None,
    now_ms: int,
    removals: Sequence[int] = (),
) -> tuple[OutgoingMessage, ...]:
    """Add the one answer to a message.

    Args:
        execute: runs a statement.
        inbox_id: the message.
        chat: where to.
        parts: its texts; without any, an earlier answer stays as it is.
        attachments: files that go with the first part, or, where that is an edit, behind the last.
        quote: what the first part replies to.
        replaces: row whose answer it takes the place of.
        expires_at: when no copy of it may be left, once it is given up.
        now_ms: the time.
        removals: Signal's timestamps of messages that are deleted for everyone behind it.
    """
    standing = [] if replaces is None or not parts else _take_standing(execute, replaces, inbox_id)
    drafts = _drafts(parts, tuple(attachments), standing)
    drafts += [_Draft("removal", replaces=timestamp) for timestamp in removals]
    return tuple(
        _add(
            execute,
            draft,
            inbox_id=inbox_id,
            number=number,
            chat=chat,
            quote=quote if number == 0 else None,
            expires_at=expires_at,
            now_ms=now_ms,
        )
        for number, draft in enumerate(drafts)
    )


def follow_up(
    execute: Execute, *, inbox_id: int, chat: ChatId, text: str, now_ms: int
) -> OutgoingMessage:
    """Add a message behind the answer that a message has already."""
    ((number,),) = execute("SELECT max(part) + 1 FROM outbox WHERE inbox_id = ?", (inbox_id,))
    draft = _Draft("text", StyledText(text))
    return _add(execute, draft, inbox_id=inbox_id, number=number or 0, chat=chat, now_ms=now_ms)


def note(
    execute: Execute, *, chat: ChatId, text: str, now_ms: int, expires_at: int | None = None
) -> OutgoingMessage:
    """Add a message that answers none; see `answer` for `expires_at`."""
    draft = _Draft("text", StyledText(text))
    return _add(
        execute,
        draft,
        inbox_id=None,
        number=0,
        chat=chat,
        now_ms=now_ms,
        expires_at=expires_at,
    )


def mark_sent(execute: Execute, part: int, signal_timestamp: int, now_ms: int) -> bool:
    """Mark a part as sent and forget what was in it; return whether it has disappeared by now."""
    execute("DELETE FROM attachments WHERE outbox_id = ?", (part,))
    execute(
        "UPDATE outbox SET state = 'sent', text = NULL, styles = NULL, quote = NULL,"
        " signal_timestamp = ?, attempts = attempts + 1 WHERE id = ?",
        (signal_timestamp, part),
    )
    sql = "SELECT 1 FROM outbox WHERE id = ? AND expires_at <= ?"
    return bool(list(execute(sql, (part, now_ms))))


def said(execute: Execute, chat: ChatId, signal_timestamp: int) -> str:
    """Return the answer that a message of the bot is a part of; empty where none is kept."""
    rows = list(
        execute(
            "SELECT content FROM outbox JOIN messages ON turn_id = inbox_id"
            " WHERE outbox.chat = ? AND signal_timestamp = ? AND role = 'assistant'"
            " AND content IS NOT NULL ORDER BY messages.id DESC LIMIT 1",
            (chat, signal_timestamp),
        )
    )
    return next((content for (content,) in rows), "")


def waiting(execute: Execute) -> tuple[OutgoingMessage, ...]:
    """Return what is still to be sent, in its order."""
    rows = list(
        execute(
            "SELECT id, chat, text, attempts, styles, quote, replaces,"
            " EXISTS (SELECT 1 FROM reminders WHERE outbox_id = outbox.id)"
            " FROM outbox WHERE state = 'waiting' ORDER BY id"
        )
    )
    return tuple(_outgoing(row, _attachments(execute, row[0])) for row in rows)


def as_waiting(execute: Execute, part: OutgoingMessage) -> OutgoingMessage | None:
    """Return a part as it may be sent now; None for one that is not to be sent any more."""
    sql = "SELECT quote NOT NULL FROM outbox WHERE id = ? AND state = 'waiting'"
    rows = list(execute(sql, (part.id,)))
    return next((replace(part, quote=part.quote if quotes else None) for (quotes,) in rows), None)


def said_between(execute: Execute, inbox_id: int, chat: ChatId) -> bool:
    """Whether the bot said something else in a chat since it received a message."""
    rows = list(
        execute(
            "SELECT 1 FROM outbox INDEXED BY outbox_of_chat WHERE created_at >="
            " (SELECT received_at FROM inbox WHERE inbox.id = ?)"
            " AND chat = ? AND inbox_id IS NOT ? LIMIT 1",
            (inbox_id, chat, inbox_id),
        )
    )
    return bool(rows)


def drop_unsent(execute: Execute, inbox_id: int) -> None:
    """Forget the parts of an answer that have not been sent."""
    sql = "SELECT id FROM outbox WHERE inbox_id = ? AND state != 'sent'"
    _delete(execute, execute(sql, (inbox_id,)))


def drop(execute: Execute, parts: Iterable[int]) -> None:
    """Forget messages that have not been sent."""
    _delete(execute, ((part,) for part in parts))


def forget_given_up(execute: Execute, chat: ChatId) -> None:
    """Forget a chat's answers that could not be sent."""
    sql = "SELECT id FROM outbox WHERE chat = ? AND state = 'given_up'"
    _delete(execute, execute(sql, (chat,)))


def expire(execute: Execute, now_ms: int) -> None:
    """Forget what has disappeared.

    The words that an answer quotes go at once, and so does an answer that was given up; one that
    could not be sent yet stays a while.
    """
    execute("UPDATE outbox SET quote = NULL WHERE expires_at <= ? AND quote NOT NULL", (now_ms,))
    sql = (
        "SELECT id FROM outbox WHERE (state = 'given_up' AND expires_at <= ?)"
        " OR (state = 'waiting' AND expires_at <= ?)"
    )
    _delete(execute, execute(sql, (now_ms, now_ms - UNSENT_MS)))


def _delete(execute: Execute, rows: Iterable[Row]) -> None:
    """Forget messages; that there may be copies of them on the phones stays known."""
    ids = (json.dumps([id_ for (id_,) in rows]),)
    execute(
        "INSERT INTO unnamed_sends (chat, since, until, times)"
        " SELECT chat, since, until, copies FROM doubts JOIN outbox ON outbox.id = outbox_id"
        " WHERE outbox_id IN (SELECT value FROM json_each(?))",
        ids,
    )
    execute("DELETE FROM outbox WHERE id IN (SELECT value FROM json_each(?))", ids)


def next_expiry(execute: Execute) -> int | None:
    """Return when the next answer, or what it quotes, disappears."""
    ((expires_at,),) = execute(
        "SELECT min(expires_at + iif(state = 'waiting' AND quote IS NULL, ?, 0)) FROM outbox"
        " WHERE expires_at NOT NULL AND (state != 'sent' OR quote NOT NULL)",
        (UNSENT_MS,),
    )
    return None if expires_at is None else int(expires_at)


def purge(execute: Execute, before: int, at_most: int) -> int:
    """Forget what is older than a time, but nothing that is still to be sent; return how much."""
    sql = (
        "DELETE FROM outbox WHERE id IN (SELECT id FROM outbox"
        " WHERE created_at < ? AND state != 'waiting' LIMIT ?) RETURNING id"
    )
    return len(list(execute(sql, (before, at_most))))


def last_answer(execute: Execute, root: int) -> tuple[int, str, int] | None:
    """Return the last answer to a message and its edits: row, how it ended, and when.

    Args:
        execute: runs a statement.
        root: the row that was answered first.
    """
    rows = list(
        execute(
            "SELECT inbox.id, outcome, max(created_at) FROM inbox"
            " JOIN outbox ON outbox.inbox_id = inbox.id"
            " WHERE inbox.id = ? OR inbox.replaces = ?"
            " GROUP BY inbox.id ORDER BY inbox.id DESC LIMIT 1",
            (root, root),
        )
    )
    return next(((id_, outcome or "", at) for id_, outcome, at in rows), None)


def seen(execute: Execute, inbox_ids: Sequence[int], since_ms: int) -> list[int]:
    """Return Signal's timestamps of what people see of the answers to some messages.

    Args:
        execute: runs a statement.
        inbox_ids: the messages.
        since_ms: older answers are left out.
    """
    ids = json.dumps(inbox_ids)
    rows = execute(
        "SELECT signal_timestamp FROM outbox WHERE inbox_id IN (SELECT value FROM json_each(?1))"
        " AND state = 'sent' AND kind != 'removal' AND created_at >= ?2"
        " AND signal_timestamp NOT IN (SELECT replaces FROM outbox WHERE replaces NOT NULL"
        " AND state = 'sent' AND inbox_id IN (SELECT value FROM json_each(?1))) ORDER BY id",
        (ids, since_ms),
    )
    return [timestamp for (timestamp,) in rows]


def _take_standing(execute: Execute, root: int, inbox_id: int) -> list[_Standing]:
    """Return the messages that an answer takes the place of; what was not sent is dropped."""
    last = last_answer(execute, root)
    if last is None or last[0] == inbox_id:
        return []
    rows = list(
        execute(
            "SELECT kind, state, signal_timestamp, replaces, edits FROM outbox"
            " WHERE inbox_id = ? ORDER BY part",
            (last[0],),
        )
    )
    found = [standing for row in rows if (standing := _standing(row)) is not None]
    drop_unsent(execute, last[0])
    worn_out = any(standing.edits >= MAX_ANSWER_EDITS for standing in found)
    return [] if worn_out else found


def _standing(row: Row) -> _Standing | None:
    """Return what people see of a part: itself, what it was to replace, or nothing."""
    kind, state, signal_timestamp, replaces, edits = row
    if state == "sent":
        return None if kind == "removal" else _Standing(signal_timestamp, edits, kind == "text")
    if replaces is None:
        return None
    return _Standing(replaces, max(0, edits - 1), kind == "text")


def _drafts(
    parts: Sequence[str | StyledText],
    attachments: tuple[Attachment, ...],
    standing: Sequence[_Standing],
) -> list[_Draft]:
    editable = [message for message in standing if message.editable]
    drafts = []
    for number, part in enumerate(parts):
        text = StyledText(part) if isinstance(part, str) else part
        if number < len(editable):
            old = editable[number]
            drafts.append(_Draft("text", text, (), old.timestamp, old.edits + 1))
        else:
            drafts.append(_Draft("text", text, () if number else attachments))
    if attachments and (editable or not parts):
        drafts.append(_Draft("files", attachments=attachments))
    left_over = [*editable[len(parts) :], *(one for one in standing if not one.editable)]
    return [*drafts, *(_Draft("removal", replaces=one.timestamp) for one in left_over)]


def _add(
    execute: Execute,
    draft: _Draft,
    *,
    inbox_id: int | None,
    number: int,
    chat: ChatId,
    now_ms: int,
    quote: Quote | None = None,
    expires_at: int | None = None,
) -> OutgoingMessage:
    styles, text = draft.part.styles, draft.part.text
    ((outbox_id,),) = execute(
        "INSERT INTO outbox (inbox_id, part, chat, kind, text, styles, quote, state, created_at,"  # noqa: S608
        " replaces, edits, expires_at, queued_at)"
        f" VALUES (?, ?, ?, ?, ?, ?, ?, 'waiting', ?, ?, ?, ?, {MACHINE_MS}) RETURNING id",
        (
            inbox_id,
            number,
            chat,
            draft.kind,
            text,
            _json([astuple(style) for style in styles]),
            _json(astuple(quote) if quote else ()),
            now_ms,
            draft.replaces,
            draft.edits,
            expires_at,
        ),
    )
    for file in draft.attachments:
        execute(
            "INSERT INTO attachments (outbox_id, name, content_type, data) VALUES (?, ?, ?, ?)",
            (outbox_id, file.name, file.content_type, file.data),
        )
    return OutgoingMessage(
        outbox_id, chat, text, 0, draft.attachments, tuple(styles), quote, draft.replaces
    )


def _json(value: Sequence[Any]) -> str | None:
    return json.dumps(value, ensure_ascii=False) if value else None


def _outgoing(row: Row, attachments: tuple[Attachment, ...]) -> OutgoingMessage:
    id_, chat, text, attempts, styles, quote, replaces, urgent = row
    return OutgoingMessage(
        id_,
        ChatId.parse(chat),
        text,
        attempts,
        attachments,
        tuple(
            StyleRange(start, length, TextStyle(style))
            for start, length, style in json.loads(styles or "[]")
        ),
        Quote(*json.loads(quote)) if quote else None,
        replaces,
        bool(urgent),
    )


def _attachments(execute: Execute, part: int) -> tuple[Attachment, ...]:
    rows = list(
        execute(
            "SELECT name, content_type, data FROM attachments WHERE outbox_id = ? ORDER BY id",
            (part,),
        )
    )
    return tuple(Attachment(*row) for row in rows)
