"""What was received: with its body while it waits, afterwards the keys that tell duplicates.

An edit and a deletion are rows as well. What they are about is a message's own timestamp, found
through its earlier edits when the row is made, so a message and its edits (here: versions) are
found in one step.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from conversation_store.connections import Execute
from conversation_store.models import (
    AcceptedMessage,
    ChatId,
    ReceivedFile,
    ReceivedKind,
    ReceivedMessage,
    ReceivedQuote,
)

QUOTE_STORED: Final = ("timestamp", "author", "by_bot", "text", "has_files")
"""What is kept of a quote; the other attributes are for the moment."""

OVERHEARD: Final = "overheard"
"""How an edit ended of what was said to others."""

UNDONE: Final = "undone"
"""How a question ended that its person took back with its answer."""

RETRIED: Final = "retried"
"""How a message ended that had an earlier question answered anew."""

MERGED: Final = "merged"
"""How an edit ended whose words an earlier message has taken."""

NOT_EDITED: Final = frozenset({OVERHEARD, UNDONE, RETRIED, MERGED})
"""Outcomes of what an edit does not change: without another row, it is a message of its own."""

OVERTAKEN: Final = "overtaken"
"""How a message, or an edit, ended that came after an edit of it."""


@dataclass(frozen=True, slots=True)
class Version:
    """A row that says how a message reads: the message itself, or an edit of it.

    Attributes:
        id: the row.
        waiting: it owes an answer.
        outcome: how it ended.
        turn_id: the turn that answers it, or would: its own, or the one that it joined.
    """

    id: int
    waiting: bool
    outcome: str | None
    turn_id: int


def insert(execute: Execute, message: ReceivedMessage) -> AcceptedMessage | None:
    """Store a message that owes an answer.

    None for a duplicate, for what was deleted, and for what reads otherwise by now.
    """
    target_author, target_timestamp = target(execute, message)
    if is_deleted(execute, message, target_timestamp):
        return None
    rows = list(
        execute(
            "INSERT INTO inbox (account, author, timestamp, kind, chat, body, received_at, state,"
            " expires_at, target_author, target_timestamp)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, 'waiting', ?, ?, ?) ON CONFLICT DO NOTHING RETURNING id",
            (
                message.account,
                message.author,
                message.timestamp,
                message.kind,
                message.chat,
                _body(message),
                message.received_at,
                message.expires_at,
                target_author,
                target_timestamp,
            ),
        )
    )
    accepted = next((AcceptedMessage(inbox_id, message) for (inbox_id,) in rows), None)
    if accepted is not None and _is_overtaken(execute, message, target_timestamp):
        close(execute, accepted.id, OVERTAKEN)
        return None
    return accepted


def _is_overtaken(execute: Execute, message: ReceivedMessage, about: int | None) -> bool:
    """Whether edits of a message, or of an edit (`about` what), came before it.

    They are about the same as it is.
    """
    if message.kind is ReceivedKind.DELETION:
        return False
    rows = list(
        execute(
            "UPDATE inbox SET target_timestamp = ? WHERE target_author = ? AND target_timestamp = ?"
            " AND account = ? AND chat = ? AND kind = 'edit' RETURNING id",
            (
                message.timestamp if about is None else about,
                *(message.author, message.timestamp, message.account, message.chat),
            ),
        )
    )
    return bool(rows)


def is_past(execute: Execute, message: ReceivedMessage) -> bool:
    """Whether nobody will look at a message: it was deleted or edited before it came."""
    if is_deleted(execute, message, target(execute, message)[1]):
        return True
    own_id = _id_of(execute, message)
    return own_id is not None and outcome(execute, own_id) == OVERTAKEN


def is_deleted(execute: Execute, message: ReceivedMessage, about: int | None = None) -> bool:
    """Whether a message, or (`about`) what it is an edit of, was deleted before it came.

    The word of somebody else than its author counts only once it was carried out.
    """
    if message.kind is ReceivedKind.DELETION:
        return False
    rows = list(
        execute(
            "SELECT 1 FROM inbox WHERE target_author = ? AND target_timestamp IN (?, ?)"
            " AND account = ? AND chat = ? AND kind = 'deletion'"
            " AND (author = target_author OR outcome = 'deleted')",
            (message.author, message.timestamp, about, message.account, message.chat),
        )
    )
    return bool(rows)


def change(execute: Execute, inbox_id: int, message: ReceivedMessage) -> None:
    """Let a message that waits read otherwise."""
    execute(
        "UPDATE inbox SET body = ?, expires_at = ? WHERE id = ? AND state = 'waiting'",
        (_body(message), message.expires_at, inbox_id),
    )


def join(execute: Execute, inbox_id: int, turn_id: int) -> None:
    """Let a message be answered by the turn of an earlier one."""
    execute("UPDATE inbox SET turn_id = ? WHERE id = ?", (turn_id, inbox_id))


def turn_of(execute: Execute, inbox_id: int) -> int:
    """Return the turn that answers a message, or would: its own, or the one that it joined."""
    rows = list(execute("SELECT turn_id FROM inbox WHERE id = ?", (inbox_id,)))
    return next((turn_id for (turn_id,) in rows if turn_id is not None), inbox_id)


def part(execute: Execute, turn_id: int) -> None:
    """Let what waits stand for itself again."""
    execute("UPDATE inbox SET turn_id = NULL WHERE turn_id = ? AND state = 'waiting'", (turn_id,))


def replace_answer(execute: Execute, inbox_id: int, root: int) -> None:
    """Let the answer to an edit take the place of an earlier one's."""
    execute("UPDATE inbox SET replaces = ? WHERE id = ?", (root, inbox_id))


def replaced_by(execute: Execute, inbox_id: int) -> int | None:
    """Return the row whose answer the answer to an edit takes the place of."""
    rows = list(execute("SELECT replaces FROM inbox WHERE id = ?", (inbox_id,)))
    return next((root for (root,) in rows), None)


def retry(execute: Execute, inbox_id: int, turn_id: int) -> None:
    """Let a message have the question of an earlier turn answered anew."""
    execute("UPDATE inbox SET retries = ? WHERE id = ?", (turn_id, inbox_id))


def with_retries(execute: Execute, turn_id: int) -> tuple[int, ...]:
    """Return a turn and those that answer its question anew, the first one first."""
    rows = execute(
        "WITH RECURSIVE asked (id) AS (SELECT ? UNION"
        " SELECT inbox.id FROM inbox JOIN asked ON inbox.retries = asked.id)"
        " SELECT id FROM asked ORDER BY id",
        (turn_id,),
    )
    return tuple(id_ for (id_,) in rows)


def is_waiting(execute: Execute, inbox_id: int) -> bool:
    """Whether a message owes an answer."""
    rows = list(execute("SELECT 1 FROM inbox WHERE id = ? AND state = 'waiting'", (inbox_id,)))
    return bool(rows)


def outcome(execute: Execute, inbox_id: int) -> str | None:
    """Return how a message ended; None while it waits."""
    rows = list(execute("SELECT outcome FROM inbox WHERE id = ?", (inbox_id,)))
    return next((found for (found,) in rows), None)


def close(execute: Execute, inbox_id: int, outcome: str) -> None:
    """End a message."""
    execute(
        "UPDATE inbox SET state = 'done', body = NULL, outcome = ? WHERE id = ?",
        (outcome, inbox_id),
    )


def close_joined(execute: Execute, turn_id: int) -> None:
    """End the messages that a turn answers beside its first."""
    execute(
        "UPDATE inbox SET state = 'done', body = NULL, outcome = 'joined'"
        " WHERE turn_id = ? AND state = 'waiting'",
        (turn_id,),
    )


def waiting(execute: Execute, turn_id: int | None = None) -> tuple[AcceptedMessage, ...]:
    """Return what owes an answer, in its order; what joined an earlier message is in that one.

    Args:
        execute: runs a statement.
        turn_id: only what this turn answers; None: all of it.
    """
    one_turn = "" if turn_id is None else " AND (id = ?1 OR turn_id = ?1)"
    rows = list(
        execute(
            "SELECT id, account, author, timestamp, kind, chat, body, received_at, expires_at,"  # noqa: S608
            " replaces, turn_id, EXISTS (SELECT 1 FROM turns WHERE turns.id = inbox.id)"
            f" FROM inbox WHERE state = 'waiting'{one_turn} ORDER BY id",
            () if turn_id is None else (turn_id,),
        )
    )
    first_ids = {row[0] for row in rows}
    joined: dict[int, list[AcceptedMessage]] = {}
    first = []
    for *columns, joins, begun in rows:
        accepted = _accepted(columns, begun=bool(begun))
        if joins in first_ids:
            joined.setdefault(joins, []).append(accepted)
        else:
            first.append(accepted)
    return tuple(replace(one, joined=tuple(joined.get(one.id, ()))) for one in first)


def versions(execute: Execute, about: ReceivedMessage) -> tuple[Version, ...]:
    """Return the message that an edit or a deletion is about and its edits, oldest first."""
    author, timestamp = target(execute, about)
    rows = list(
        execute(
            "SELECT id, state, outcome, turn_id FROM inbox WHERE account = ? AND author = ?"
            " AND timestamp = ? AND chat = ? AND kind = 'message'"
            " UNION ALL SELECT * FROM (SELECT id, state, outcome, turn_id FROM inbox"
            " WHERE target_author = ? AND target_timestamp = ? AND account = ? AND chat = ?"
            " AND kind = 'edit' ORDER BY id)",
            (
                *(about.account, author, timestamp, about.chat),
                *(author, timestamp, about.account, about.chat),
            ),
        )
    )
    return tuple(
        Version(inbox_id, state == "waiting", outcome, inbox_id if turn_id is None else turn_id)
        for inbox_id, state, outcome, turn_id in rows
    )


def target(execute: Execute, message: ReceivedMessage) -> tuple[str | None, int | None]:
    """Return author and own timestamp of the message that an edit or a deletion is about."""
    if message.kind is ReceivedKind.MESSAGE or message.target_timestamp is None:
        return None, None
    author = message.author if message.kind is ReceivedKind.EDIT else message.target_author
    rows = list(
        execute(
            "SELECT target_timestamp FROM inbox WHERE account = ? AND author = ? AND timestamp = ?"
            " AND kind = 'edit' AND chat = ?",
            (message.account, author, message.target_timestamp, message.chat),
        )
    )
    return author, next((found for (found,) in rows), message.target_timestamp)


def find_target(execute: Execute, message: ReceivedMessage) -> int | None:
    """Return the row that an edit or a deletion is about: of several, the latest that waits.

    Words that were overheard are no target: an edit may address the bot for the first time. Neither
    is what was taken back, nor a request to answer something anew.
    """
    own_id = _id_of(execute, message)
    found = [
        version
        for version in versions(execute, message)
        if version.id != own_id and version.outcome not in NOT_EDITED
    ]
    if not found:
        return None
    # Not an earlier one: what waits behind it would be answered after this edit, in its place.
    # Not a later one either: it was accepted together with this edit and takes its words.
    waiting = [
        version.id
        for version in found
        if version.waiting and (own_id is None or version.id < own_id)
    ]
    return max(waiting, default=found[0].id)


def came_between(execute: Execute, turn_id: int, chat: ChatId) -> bool:
    """Whether a message that is not part of a turn came into its chat after the turn's first."""
    rows = list(
        execute(
            "SELECT 1 FROM inbox INDEXED BY inbox_of_chat"
            " WHERE id > ? AND chat = ? AND kind = 'message'"
            " AND turn_id IS NOT ? LIMIT 1",
            (turn_id, chat, turn_id),
        )
    )
    return bool(rows)


def take_expired(execute: Execute, now_ms: int) -> tuple[AcceptedMessage, ...]:
    """Empty the messages that wait, are in no turn, and have disappeared; return them.

    What is left of their files is where they are, so that they can be deleted there.
    """
    rows = list(
        execute(
            "SELECT id, account, author, timestamp, kind, chat, body, received_at, expires_at,"
            " replaces FROM inbox WHERE state = 'waiting' AND outcome IS NULL AND expires_at <= ?"
            " AND NOT EXISTS (SELECT 1 FROM turns WHERE turns.id = coalesce(turn_id, inbox.id))"
            " ORDER BY id",
            (now_ms,),
        )
    )
    expired = []
    for row in rows:
        accepted = _accepted(row)
        files = tuple(replace(file, name=None) for file in accepted.message.files)
        message = replace(accepted.message, text="", files=files, quote=None)
        change(execute, accepted.id, message)
        execute("UPDATE inbox SET outcome = 'expired' WHERE id = ?", (accepted.id,))
        expired.append(replace(accepted, message=message))
    return tuple(expired)


def next_expiry(execute: Execute) -> int | None:
    """Return when the next message that waits and is in no turn disappears."""
    ((expires_at,),) = execute(
        "SELECT min(expires_at) FROM inbox WHERE state = 'waiting' AND outcome IS NULL"
        " AND NOT EXISTS (SELECT 1 FROM turns WHERE turns.id = coalesce(turn_id, inbox.id))"
    )
    return None if expires_at is None else int(expires_at)


def purge(execute: Execute, before: int, at_most: int) -> int:
    """Forget the keys of what is older than a time; return how many that were.

    The newest row stays, so that its number, which turn and answer share, is not given out again.
    """
    sql = (
        "DELETE FROM inbox WHERE id IN (SELECT id FROM inbox WHERE received_at < ?"
        " AND state = 'done' AND id < (SELECT max(id) FROM inbox) LIMIT ?) RETURNING id"
    )
    return len(list(execute(sql, (before, at_most))))


def _id_of(execute: Execute, message: ReceivedMessage) -> int | None:
    rows = list(
        execute(
            "SELECT id FROM inbox WHERE account = ? AND author = ? AND timestamp = ? AND kind = ?",
            (message.account, message.author, message.timestamp, message.kind),
        )
    )
    return next((inbox_id for (inbox_id,) in rows), None)


def _body(message: ReceivedMessage) -> str:
    body: dict[str, Any] = {
        "text": message.text,
        "author_number": message.author_number,
        "author_name": message.author_name,
        "sent_at": message.sent_at,
    }
    if message.files:
        body["files"] = [asdict(file) for file in message.files]
    if message.quote is not None:
        known = asdict(message.quote)
        body["quote"] = {name: known[name] for name in QUOTE_STORED}
    if message.view_once:
        body["view_once"] = True
    if message.edited:
        body["edited"] = True
    if message.target_timestamp is not None:
        body["target_author"] = message.target_author
        body["target_timestamp"] = message.target_timestamp
    return json.dumps(body, ensure_ascii=False)


def _accepted(row: Sequence[Any], *, begun: bool = False) -> AcceptedMessage:
    inbox_id, account, author, timestamp, kind, chat, body, received_at, expires_at, replaces = row
    known = json.loads(body)
    quote = known.get("quote")
    message = ReceivedMessage(
        account=account,
        author=author,
        timestamp=timestamp,
        kind=ReceivedKind(kind),
        chat=ChatId.parse(chat),
        received_at=received_at,
        text=known["text"],
        author_number=known.get("author_number"),
        author_name=known.get("author_name"),
        sent_at=known.get("sent_at", received_at),
        files=tuple(ReceivedFile(**file) for file in known.get("files", ())),
        quote=None if quote is None else ReceivedQuote(**quote),
        expires_at=expires_at,
        view_once=known.get("view_once", False),
        edited=known.get("edited", False),
        target_author=known.get("target_author"),
        target_timestamp=known.get("target_timestamp"),
    )
    return AcceptedMessage(inbox_id, message, begun, replaces=replaces)
