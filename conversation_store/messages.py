"""Messages, edits and deletions that came in, each a row of `inbox`.

A row has its body while it waits; afterwards it only serves to recognise duplicates and the targets
of edits and deletions. Edits and deletions name their target by the timestamp of the original
message, not of an earlier edit. So one query finds a message and its edits (versions).
Messages that people in a group wrote to each other have a row as well; see `heard`.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from conversation_store import heard
from conversation_store.connections import Row, Session
from conversation_store.database import Aggregate, of_aggregate, reads, reads_aside, writes
from conversation_store.models import (
    AcceptedMessage,
    ChatId,
    ReceivedFile,
    ReceivedMessage,
    ReceivedQuote,
)

UNDONE: Final = "undone"
"""Outcome of a question that its author took back together with the answer."""
RETRIED: Final = "retried"
"""Outcome of a request to answer an earlier question again."""
MERGED: Final = "merged"
"""Outcome of an edit whose words an earlier message has taken."""
OVERTAKEN: Final = "overtaken"
"""Outcome of a message, or an edit, that came after a later edit of the message."""
ANSWER: Final = "question"
"""Outcome of a message that answered a question of the model."""
APPROVAL: Final = "approval"
"""Outcome of a message that answered a question about a call, or tried to."""

NOT_EDITED: Final = frozenset({heard.OVERHEARD, UNDONE, RETRIED, MERGED})
"""Outcomes of rows that an edit does not change. Without another row, the edit is a message."""

COLUMNS: Final = (
    "id, account, author, timestamp, kind, chat, body, received_at, expires_at, replaces"
)
STORED: Final = (
    "text", "author_number", "author_name", "sent_at", "view_once", "edited", "mentions_bot",
)  # fmt: skip
STORED_OF_QUOTE: Final = ("timestamp", "author", "by_bot", "text", "file", "file_name")
"""The other attributes of a quote are found out for each use."""


@dataclass(frozen=True, slots=True)
class Version:
    """A row with words of a message: the message itself, or an edit of it.

    Attributes:
        turn_id: its own turn, or the turn that it joined.
    """

    id: int
    waiting: bool
    outcome: str | None
    turn_id: int


def waiting(db: Session, turn_id: int | None = None) -> tuple[AcceptedMessage, ...]:
    """Return the messages that owe an answer, in order, each with the messages that joined it.

    Args:
        turn_id: return only the messages of this turn.
    """
    one_turn = "" if turn_id is None else " AND (id = ?1 OR turn_id = ?1)"
    rows = db.run(
        f"SELECT {COLUMNS}, turn_id, EXISTS (SELECT 1 FROM turns WHERE turns.id = inbox.id)"
        f" FROM inbox WHERE state = 'waiting'{one_turn} ORDER BY id",
        *(() if turn_id is None else (turn_id,)),
    )
    ids = {row[0] for row in rows}
    joined: dict[int, list[AcceptedMessage]] = {}
    first = []
    for *columns, joins, begun in rows:
        accepted = replace(_accepted(columns), begun=bool(begun))
        if joins in ids:
            joined.setdefault(joins, []).append(accepted)
        else:
            first.append(accepted)
    return tuple(replace(one, joined=tuple(joined.get(one.id, ()))) for one in first)


class MessageStore(Aggregate):
    """Messages, edits and deletions that came in."""

    overheard = reads(of_aggregate(heard.waiting))
    unfinished = reads_aside(of_aggregate(waiting))

    @writes
    def accept(
        self,
        db: Session,
        messages: Sequence[ReceivedMessage],
        *,
        unverified: frozenset[str] = frozenset(),
    ) -> tuple[AcceptedMessage | None, ...]:
        """Store messages, edits and deletions that now owe an answer.

        Args:
            unverified: ACIs of authors whose words are not kept for catch-up.

        Returns:
            one for each; None for duplicates and messages that were deleted or edited before.
        """
        accepted = tuple(insert(db, message) for message in messages)
        for message, one in zip(messages, accepted, strict=True):
            if message.author in unverified or not self._context.retention_days:
                continue
            if message.kind == "edit":
                heard.change_kept(db, message.text, version_ids(db, message))
            elif message.kind == "message" and message.chat.is_group and one is not None:
                heard.keep(db, message, one.id)
        return accepted

    @writes
    def overhear(self, db: Session, messages: Sequence[ReceivedMessage]) -> None:
        """Keep what people say to each other for the chat's next turn; bounded for each chat."""
        for message in messages if self._context.retention_days else ():
            if is_deleted(db, message):
                continue
            row = _insert(db, message, outcome=heard.OVERHEARD)
            if row is not None:
                heard.add(db, message, row)
                heard.keep(db, message, row)

    @reads
    def is_past(self, db: Session, message: ReceivedMessage) -> bool:
        """Return whether a message was deleted or edited before it came."""
        if is_deleted(db, message, target(db, message)[1]):
            return True
        own_id = id_of(db, message)
        return own_id is not None and outcome(db, own_id) == OVERTAKEN

    @reads
    def find_target(self, db: Session, message: ReceivedMessage) -> int | None:
        """Return the row that an edit or a deletion is about: the latest version that waits.

        Overheard words, questions taken back and requests to answer again do not count.
        """
        own_id = id_of(db, message)
        found = [
            version
            for version in versions(db, message)
            if version.id != own_id and version.outcome not in NOT_EDITED
        ]
        if not found:
            return None
        # Not an earlier version: later ones would be answered after this edit, in its place. Not a
        # later one either: it was accepted together with this edit and takes its words.
        waiting = [
            version.id
            for version in found
            if version.waiting and (own_id is None or version.id < own_id)
        ]
        return max(waiting, default=found[0].id)

    @reads
    def knows_target(self, db: Session, message: ReceivedMessage) -> bool:
        """Return whether an edit or a deletion is about anything that the store knows."""
        return bool(version_ids(db, message) or quoting(db, message))

    @reads
    def waiting_of(
        self, db: Session, accepted: Sequence[AcceptedMessage]
    ) -> tuple[AcceptedMessage, ...]:
        """Return the messages that still owe an answer, with their current words."""
        rows = db.run(
            f"SELECT {COLUMNS} FROM inbox WHERE state = 'waiting'"
            " AND id IN (SELECT value FROM json_each(?)) ORDER BY id",
            json.dumps([one.id for one in accepted]),
        )
        return tuple(map(_accepted, rows))


def insert(db: Session, message: ReceivedMessage) -> AcceptedMessage | None:
    """Store a message that owes an answer.

    Returns:
        None for a duplicate, and for a message that was deleted or edited before it came.
    """
    about = target(db, message)
    if is_deleted(db, message, about[1]):
        return None
    row = _insert(db, message, about)
    if row is None:
        return None
    if _is_overtaken(db, message, about[1]):
        close(db, row, OVERTAKEN)
        return None
    return AcceptedMessage(row, message)


def _insert(
    db: Session,
    message: ReceivedMessage,
    about: tuple[str | None, int | None] = (None, None),
    outcome: str | None = None,
) -> int | None:
    quote = message.quote
    is_quote = quote is not None and not quote.by_bot
    found: int | None = db.value(
        "INSERT INTO inbox (account, author, timestamp, kind, chat, body, received_at, state,"
        " outcome, expires_at, target_author, target_timestamp, quote_author, quote_timestamp)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING RETURNING id",
        *(message.account, message.author, message.timestamp, message.kind, message.chat),
        None if outcome else _body(message),
        message.received_at,
        "done" if outcome else "waiting",
        *(outcome, message.expires_at, *about),
        quote.author if quote is not None and is_quote else None,
        quote.timestamp if quote is not None and is_quote else None,
    )
    return found


def insert_key(db: Session, edit: ReceivedMessage) -> None:
    """Store only the key of an edit of overheard words, for later edits and deletions of it."""
    about = target(db, edit)
    if not is_deleted(db, edit, about[1]):
        _insert(db, replace(edit, quote=None), about, heard.OVERHEARD)


def _is_overtaken(db: Session, message: ReceivedMessage, about: int | None) -> bool:
    """Return whether edits of a message came before it; redirect them to the original message.

    Args:
        about: if the message is an edit itself, the timestamp that it is about.
    """
    if message.kind == "deletion":
        return False
    rows = db.run(
        "UPDATE inbox SET target_timestamp = ? WHERE target_author = ? AND target_timestamp = ?"
        " AND account = ? AND chat = ? AND kind = 'edit' RETURNING id",
        message.timestamp if about is None else about,
        *(message.author, message.timestamp, message.account, message.chat),
    )
    return bool(rows)


def is_deleted(db: Session, message: ReceivedMessage, about: int | None = None) -> bool:
    """Return whether a message, or the message that it edits (`about`), was deleted before.

    A deletion by another person counts only after it was carried out.
    """
    if message.kind == "deletion":
        return False
    rows = db.run(
        "SELECT 1 FROM inbox WHERE target_author = ? AND target_timestamp IN (?, ?)"
        " AND account = ? AND chat = ? AND kind = 'deletion'"
        " AND (author = target_author OR outcome = 'deleted')",
        *(message.author, message.timestamp, about, message.account, message.chat),
    )
    return bool(rows)


def change(db: Session, row: int, message: ReceivedMessage) -> None:
    """Replace the words of a message that waits."""
    db.run(
        "UPDATE inbox SET body = ?, expires_at = ? WHERE id = ? AND state = 'waiting'",
        *(_body(message), message.expires_at, row),
    )


def reopen(db: Session, answer: AcceptedMessage) -> None:
    """Let a message that was closed wait again, with new words."""
    db.run("UPDATE inbox SET state = 'waiting', outcome = NULL WHERE id = ?", answer.id)
    change(db, answer.id, answer.message)


def join(db: Session, row: int, turn_id: int) -> None:
    """Add a message to the turn of an earlier one."""
    db.run("UPDATE inbox SET turn_id = ? WHERE id = ?", turn_id, row)


def part(db: Session, turn_id: int, outcome: str) -> None:
    """Separate messages with an outcome from the turn that they were added to."""
    db.run("UPDATE inbox SET turn_id = NULL WHERE turn_id = ? AND outcome = ?", turn_id, outcome)


def turn_of(db: Session, row: int) -> int:
    """Return the turn that answers a message, or would."""
    found: int | None = db.value("SELECT turn_id FROM inbox WHERE id = ?", row)
    return row if found is None else found


def outcome(db: Session, row: int) -> str | None:
    """Return how a message ended; None while it waits."""
    found: str | None = db.value("SELECT outcome FROM inbox WHERE id = ?", row)
    return found


def close(db: Session, row: int, outcome: str) -> None:
    """End a message."""
    db.run("UPDATE inbox SET state = 'done', body = NULL, outcome = ? WHERE id = ?", outcome, row)


def close_joined(db: Session, turn_id: int) -> None:
    """End the messages that a turn answers in addition to its first."""
    db.run(
        "UPDATE inbox SET state = 'done', body = NULL, outcome = 'joined'"
        " WHERE turn_id = ? AND state = 'waiting'",
        turn_id,
    )


def versions(db: Session, about: ReceivedMessage) -> tuple[Version, ...]:
    """Return the message that an edit or a deletion is about, and its edits, oldest first."""
    author, timestamp = target(db, about)
    rows = db.run(
        "SELECT id, state = 'waiting', outcome, coalesce(turn_id, id) FROM inbox"
        " WHERE account = ? AND author = ? AND timestamp = ? AND chat = ? AND kind = 'message'"
        " UNION ALL SELECT * FROM (SELECT id, state = 'waiting', outcome, coalesce(turn_id, id)"
        " FROM inbox WHERE target_author = ? AND target_timestamp = ? AND account = ?"
        " AND chat = ? AND kind = 'edit' ORDER BY id)",
        *(about.account, author, timestamp, about.chat),
        *(author, timestamp, about.account, about.chat),
    )
    return tuple(Version(row, bool(waits), ended, turn) for row, waits, ended, turn in rows)


def version_ids(db: Session, about: ReceivedMessage) -> list[int]:
    """Return the rows of `versions`."""
    return [version.id for version in versions(db, about)]


def quoting(db: Session, about: ReceivedMessage) -> list[tuple[int, int]]:
    """Return the messages that quote the target of an edit or a deletion, each with its turn.

    The target may be a message that the bot never received.
    """
    author, timestamp = target(db, about)
    rows = db.run(
        "SELECT id, coalesce(turn_id, id) FROM inbox WHERE quote_author = ?1 AND chat = ?2"
        " AND quote_timestamp IN (SELECT ?3 UNION SELECT ?4 UNION SELECT timestamp FROM inbox"
        " WHERE target_author = ?1 AND target_timestamp = ?3 AND kind = 'edit' AND chat = ?2)",
        *(author, about.chat, timestamp, about.target_timestamp),
    )
    return [(row, turn_id) for row, turn_id in rows]


def quoted_expiry(db: Session, message: ReceivedMessage) -> int | None:
    """Return when the quoted message disappears; None if that is not known."""
    if message.quote is None:
        return None
    found: int | None = db.value(
        "SELECT min(expires_at) FROM inbox"
        " WHERE account = ? AND author = ? AND timestamp = ? AND chat = ?",
        *(message.account, message.quote.author, message.quote.timestamp, message.chat),
    )
    return found


def unquote(db: Session, rows: Iterable[int]) -> None:
    """Delete the quoted text of messages that wait."""
    db.run(
        "UPDATE inbox SET body = json_set(body, '$.quote.text', '')"
        " WHERE body IS NOT NULL AND id IN (SELECT value FROM json_each(?))",
        json.dumps(list(rows)),
    )


def target(db: Session, message: ReceivedMessage) -> tuple[str | None, int | None]:
    """Return author and own timestamp of the message that an edit or a deletion is about."""
    if message.kind == "message" or message.target_timestamp is None:
        return None, None
    author = message.author if message.kind == "edit" else message.target_author
    found: int | None = db.value(
        "SELECT target_timestamp FROM inbox WHERE account = ? AND author = ? AND timestamp = ?"
        " AND kind = 'edit' AND chat = ?",
        *(message.account, author, message.target_timestamp, message.chat),
    )
    return author, message.target_timestamp if found is None else found


def came_between(db: Session, turn_id: int, chat: ChatId) -> bool:
    """Return whether another message for the bot came into the chat after a turn's first one."""
    rows = db.run(
        "SELECT 1 FROM inbox INDEXED BY inbox_of_chat WHERE id > ?1 AND chat = ?2"
        " AND kind = 'message' AND (turn_id IS NOT ?1"
        " OR outcome IN ('question', 'approval')) AND outcome IS NOT 'overheard' LIMIT 1",
        *(turn_id, chat),
    )
    return bool(rows)


def take_expired(db: Session, now_ms: int) -> tuple[AcceptedMessage, ...]:
    """Empty the messages that have disappeared before their turn began, and return them.

    The ids of their files are left, so that the files can be deleted.
    """
    expired = []
    for row in db.run(
        f"SELECT {COLUMNS} FROM inbox WHERE state = 'waiting' AND outcome IS NULL"
        " AND expires_at <= ?"
        " AND NOT EXISTS (SELECT 1 FROM turns WHERE turns.id = coalesce(turn_id, inbox.id))"
        " ORDER BY id",
        now_ms,
    ):
        accepted = _accepted(row)
        files = tuple(replace(file, name=None) for file in accepted.message.files)
        message = replace(accepted.message, text="", files=files, quote=None)
        change(db, accepted.id, message)
        db.run("UPDATE inbox SET outcome = 'expired' WHERE id = ?", accepted.id)
        expired.append(replace(accepted, message=message))
    return tuple(expired)


def id_of(db: Session, message: ReceivedMessage) -> int | None:
    """Return the row of a message; None if it is not stored."""
    found: int | None = db.value(
        "SELECT id FROM inbox WHERE account = ? AND author = ? AND timestamp = ? AND kind = ?",
        *(message.account, message.author, message.timestamp, message.kind),
    )
    return found


def _body(message: ReceivedMessage) -> str:
    body: dict[str, Any] = {name: getattr(message, name) for name in STORED}
    if message.files:
        body["files"] = [asdict(file) for file in message.files]
    if message.quote is not None:
        body["quote"] = {name: getattr(message.quote, name) for name in STORED_OF_QUOTE}
    if message.target_timestamp is not None:
        body["target_author"] = message.target_author
        body["target_timestamp"] = message.target_timestamp
    return json.dumps(body, ensure_ascii=False)


def _accepted(row: Sequence[Any] | Row) -> AcceptedMessage:
    id_, account, author, timestamp, kind, chat, body, received_at, expires_at, replaces = row
    known = json.loads(body)
    quote = known.pop("quote", None)
    message = ReceivedMessage(
        account=account,
        author=author,
        timestamp=timestamp,
        kind=kind,
        chat=ChatId.parse(chat),
        received_at=received_at,
        expires_at=expires_at,
        files=tuple(ReceivedFile(**file) for file in known.pop("files", ())),
        quote=None if quote is None else ReceivedQuote(**quote),
        **known,
    )
    return AcceptedMessage(id_, message, replaces=replaces)
