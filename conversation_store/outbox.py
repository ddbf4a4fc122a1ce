"""Messages on their way out, with the files that go with them.

The parts of an answer carry the inbox row that they answer. The answer to an edit replaces the
earlier answer message by message: additional messages are sent as new ones, and messages that are
left over are deleted for everyone.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from typing import Final, Literal

from conversation_store import history
from conversation_store.connections import Row, Session, Value
from conversation_store.database import (
    Aggregate,
    of_aggregate,
    reads,
    reads_aside,
    writes,
    writes_and_scrubs_if_gone,
    writes_later,
)
from conversation_store.models import (
    DAY_MS,
    Attachment,
    ChatId,
    OutgoingMessage,
    Quote,
    StyledText,
    StyleRange,
    TextStyle,
)

MAX_ANSWER_EDITS: Final = 10
"""Signal's apps show no more edits of a message. After that an answer is sent as a new message."""

UNSENT_MS: Final = 3_600_000
"""How long an answer may still be sent after its question has disappeared."""

WITHDRAWN: Final = "state = 'given_up' AND text IS NULL"
"""Condition for the empty row of a message that was deleted while it may have been on its way."""

Kind = Literal["text", "files", "removal"]


@dataclass(frozen=True, slots=True)
class FileToMake:
    """A file that is made after the answer is stored, and then sent with one of its messages.

    Attributes:
        source: the text that is turned into the file.
        is_alone: it is the only file of its message, which Signal then does not edit.
        part: number of the message. Edits carry no files, so after an edit the file follows.
    """

    source: str
    part: int = 0
    is_alone: bool = False


@dataclass(frozen=True, slots=True)
class NewAnswer:
    """The answer to a message, as it is to be stored.

    Attributes:
        row: inbox row of the message.
        parts: its texts; without any, an earlier answer stays as it is.
        attachments: sent with the first part, or after the last one if the first is an edit.
        quote: shown above the first part.
        replaces: inbox row whose answer it replaces.
        expires_at: when no copy of it may be left, unless it is sent.
        removals: Signal's timestamps of messages that are deleted for everyone after it.
        reaction: an emoji instead of texts, for the message that `quote` names.
        to_make: a further file of it.
    """

    row: int
    chat: ChatId
    parts: tuple[str | StyledText, ...]
    attachments: tuple[Attachment, ...] = ()
    quote: Quote | None = None
    replaces: int | None = None
    expires_at: int | None = None
    removals: tuple[int, ...] = ()
    reaction: str = ""
    to_make: FileToMake | None = None


NOTHING: Final = StyledText("")


@dataclass(frozen=True, slots=True)
class _Draft:
    """A message as it is to be stored."""

    kind: Kind
    part: StyledText = NOTHING
    attachments: tuple[Attachment, ...] = ()
    replaces: int | None = None
    edits: int = 0
    quote: Quote | None = None
    unmade: str | None = None
    is_reaction: bool = False


def waiting(db: Session) -> tuple[OutgoingMessage, ...]:
    """Return the messages that are still to be sent, in order."""
    rows = db.run(
        "SELECT id, chat, text, attempts, styles, quote, replaces, reminder_id NOT NULL,"
        " is_reaction, unmade FROM outbox WHERE state = 'waiting' ORDER BY id"
    )
    return tuple(_outgoing(row, _attachments(db, row[0])) for row in rows)


class OutboxStore(Aggregate):
    """Messages on their way out."""

    unfinished = reads_aside(of_aggregate(waiting))

    @reads
    def removals(self, db: Session, chat: ChatId) -> tuple[OutgoingMessage, ...]:
        """Return the deletions for everyone in a chat that wait to be sent."""
        rows = db.run(
            "SELECT id, replaces FROM outbox INDEXED BY outbox_waiting WHERE state = 'waiting'"
            " AND kind = 'removal' AND chat = ? ORDER BY id",
            chat,
        )
        return tuple(
            OutgoingMessage(row, chat, "", 0, replaces=to, urgent=True) for row, to in rows
        )

    @reads
    def said(self, db: Session, chat: ChatId, signal_timestamp: int) -> str:
        """Return the answer that a message of the bot is a part of; empty if it is not stored."""
        found: str | None = db.value(
            "SELECT content FROM outbox JOIN messages ON turn_id = inbox_id"
            " WHERE outbox.chat = ? AND signal_timestamp = ? AND role = 'assistant'"
            " AND content IS NOT NULL ORDER BY messages.id DESC LIMIT 1",
            *(chat, signal_timestamp),
        )
        return found or ""

    @writes
    def add_note(self, db: Session, chat: ChatId, text: str) -> OutgoingMessage:
        """Store a message to be sent that is not an answer."""
        return note(db, chat, text, self._now_ms())

    @reads
    def as_waiting(self, db: Session, part: OutgoingMessage) -> OutgoingMessage | None:
        """Return a message as it may be sent now, without a quote that has disappeared.

        Return None if its question was deleted or disappeared long ago; for a reaction, as soon as
        its message has disappeared.
        """
        sql = "SELECT quote NOT NULL FROM outbox WHERE id = ? AND state = 'waiting'"
        for (quotes,) in db.run(sql, part.id):
            if quotes or not part.is_reaction:
                return part if quotes else replace(part, quote=None)
        return None

    @writes_and_scrubs_if_gone
    def mark_sent(
        self,
        db: Session,
        part: OutgoingMessage,
        signal_timestamp: int,
        *,
        by_receipt: bool = False,
    ) -> tuple[OutgoingMessage | None, bool]:
        """Mark a part as sent, and delete its content; the history has the answer.

        Args:
            by_receipt: the timestamp settles a doubt. A reply to a later send settles none.

        Returns:
            the deletion for everyone, to be sent, if the part was deleted while it was sent.
        """
        rows = _mark_sent(db, part.id, signal_timestamp)
        if by_receipt:
            settle_doubt(db, part.id, signal_timestamp)
        withdrawal = None
        if not rows:  # phones will confirm it all the same
            db.run("INSERT OR IGNORE INTO confirmations VALUES (?, '')", signal_timestamp)
            if (part.text or part.attachments) and not part.is_reaction:
                withdrawal = removal(db, part.chat, signal_timestamp, self._now_ms())
        return withdrawal, any(at is not None and at <= self._now_ms() for (at,) in rows)

    @writes
    def add_file(
        self, db: Session, part: OutgoingMessage, file: Attachment | None
    ) -> OutgoingMessage | None:
        """Add the file that was to be made, or None if that failed, and return the message.

        Return None if the message was deleted in the meantime, or is empty without the file.
        """
        sql = "UPDATE outbox SET unmade = NULL WHERE id = ? AND state = 'waiting' RETURNING id"
        if not db.run(sql, part.id):
            return None
        files = (*part.attachments, *(() if file is None else (file,)))
        if not part.text and not files:
            db.run("DELETE FROM outbox WHERE id = ?", part.id)
            return None
        if file is not None and file.is_voice_note:  # phones do not take edits of these
            db.run("UPDATE outbox SET kind = 'files' WHERE id = ?", part.id)
        if file is not None:
            db.insert("attachments", outbox_id=part.id, **asdict(file))
        return replace(part, attachments=files, unmade=None)

    @writes
    def mark_failed(self, db: Session, part: OutgoingMessage, *, give_up: bool) -> None:
        """Count a send in doubt. A part that is given up keeps its text."""
        db.run(
            "UPDATE outbox SET attempts = attempts + 1, state = ?"
            " WHERE id = ? AND state = 'waiting'",
            *("given_up" if give_up else "waiting", part.id),
        )


def _mark_sent(db: Session, part: int, signal_timestamp: int) -> list[Row]:
    """Mark a message as sent, without its content; return when it disappears, if it is there."""
    db.run("DELETE FROM attachments WHERE outbox_id = ?", part)
    return db.run(
        "UPDATE outbox SET state = 'sent', text = NULL, styles = NULL, quote = NULL,"
        " unmade = NULL,"
        " signal_timestamp = ?, attempts = attempts + 1"
        f" WHERE id = ? AND NOT ({WITHDRAWN}) RETURNING expires_at",
        *(signal_timestamp, part),
    )


def add_answer(db: Session, answer: NewAnswer, now_ms: int) -> tuple[OutgoingMessage, ...]:
    """Store the one answer to a message."""
    standing = _take_standing(db, answer) if answer.replaces is not None and answer.parts else []
    drafts = _drafts(answer, standing)
    drafts += [_Draft("removal", replaces=timestamp) for timestamp in answer.removals]
    if drafts:
        # A reaction needs the message's key alone.
        key = replace(answer.quote, text="") if answer.quote and answer.reaction else answer.quote
        drafts[0] = replace(drafts[0], quote=key)
    return tuple(
        _add(
            db,
            draft,
            answer.chat,
            now_ms,
            place=(answer.row, number),
            expires_at=answer.expires_at,
        )
        for number, draft in enumerate(drafts)
    )


def follow_up(db: Session, row: int, chat: ChatId, text: str, now_ms: int) -> OutgoingMessage:
    """Add a message after the answer to a message."""
    number = db.value("SELECT max(part) + 1 FROM outbox WHERE inbox_id = ?", row) or 0
    return _add(db, _Draft("text", StyledText(text)), chat, now_ms, place=(row, number))


def removal(db: Session, chat: ChatId, timestamp: int, now_ms: int) -> OutgoingMessage:
    """Add the deletion of one of the bot's messages for everyone."""
    return _add(db, _Draft("removal", replaces=timestamp), chat, now_ms)


def note(
    db: Session, chat: ChatId, text: str, now_ms: int, expires_at: int | None = None
) -> OutgoingMessage:
    """Add a message that is not an answer; see `NewAnswer` for `expires_at`."""
    return _add(db, _Draft("text", StyledText(text)), chat, now_ms, expires_at=expires_at)


def said_since(db: Session, row: int, chat: ChatId) -> bool:
    """Return whether the bot said something else in a chat since it received a message."""
    rows = db.run(
        "SELECT 1 FROM outbox INDEXED BY outbox_of_chat WHERE created_at >="
        " (SELECT received_at FROM inbox WHERE inbox.id = ?1)"
        " AND chat = ?2 AND inbox_id IS NOT ?1 LIMIT 1",
        *(row, chat),
    )
    return bool(rows)


def drop(db: Session, condition: str, *values: Value) -> None:
    """Delete messages that were not sent.

    An empty row stays of a message that may be on its way: if it arrives, it is deleted for
    everyone.

    Args:
        condition: SQL over `outbox`.
    """
    rows = db.run(
        "UPDATE outbox SET state = 'given_up', text = NULL, styles = NULL, quote = NULL,"
        " unmade = NULL, inbox_id = NULL, reminder_id = NULL, expires_at = NULL"
        f" WHERE state = 'waiting' AND kind = 'text' AND NOT is_reaction AND {condition}"
        " RETURNING id",
        *values,
    )
    for (row,) in rows:
        db.run("DELETE FROM attachments WHERE outbox_id = ?", row)
    db.run(f"DELETE FROM outbox WHERE state != 'sent' AND {condition}", *values)


def settle_doubt(db: Session, part: int, timestamp: int) -> None:
    """Delete the latest doubt about a message that a timestamp fits; others may be copies."""
    db.run(
        "DELETE FROM doubts WHERE rowid = (SELECT rowid FROM doubts WHERE outbox_id = ?1"
        " AND since <= ?2 AND until > ?2 ORDER BY since DESC, rowid LIMIT 1)",
        *(part, timestamp),
    )


def expire(db: Session, now_ms: int) -> None:
    """Delete messages that have disappeared.

    Quoted words and given-up answers are deleted at once, answers that still wait after a while.
    """
    db.run("UPDATE outbox SET quote = NULL WHERE expires_at <= ? AND quote NOT NULL", now_ms)
    drop(
        db,
        "expires_at <= ? AND (state = 'given_up' OR expires_at <= ?)",
        *(now_ms, now_ms - UNSENT_MS),
    )


def last_answer(db: Session, root: int) -> tuple[int, str, int] | None:
    """Return row, outcome and time of the last answer to a message and its edits.

    Args:
        root: the row that was answered first.
    """
    rows = db.run(
        "SELECT inbox.id, coalesce(outcome, ''), max(created_at) FROM inbox"
        " JOIN outbox ON outbox.inbox_id = inbox.id"
        " WHERE inbox.id = ?1 OR inbox.replaces = ?1"
        " GROUP BY inbox.id ORDER BY inbox.id DESC LIMIT 1",
        root,
    )
    return rows[0] if rows else None


def seen(db: Session, rows: Sequence[int], since_ms: int) -> list[int]:
    """Return Signal's timestamps of the visible messages of some answers.

    Args:
        since_ms: older answers are left out.
    """
    found = db.run(
        "SELECT signal_timestamp FROM outbox WHERE inbox_id IN (SELECT value FROM json_each(?1))"
        " AND state = 'sent' AND kind != 'removal' AND NOT is_reaction AND created_at >= ?2"
        " AND signal_timestamp NOT IN (SELECT replaces FROM outbox WHERE replaces NOT NULL"
        " AND state = 'sent' AND inbox_id IN (SELECT value FROM json_each(?1))) ORDER BY id",
        *(json.dumps(rows), since_ms),
    )
    return [timestamp for (timestamp,) in found]


def _take_standing(db: Session, answer: NewAnswer) -> list[Row]:
    """Return the messages that an answer replaces, and drop unsent ones.

    Returns:
        timestamp and number of edits of each message that people see: of a part that was sent, or
        of the message that an unsent part was to replace. In addition, whether it has a text. A
        message that was deleted for everyone, with another question of its turn, is left out.
    """
    last = last_answer(db, answer.replaces or 0)
    if last is None or last[0] == answer.row:
        return []
    found = db.run(
        "SELECT iif(state = 'sent', signal_timestamp, replaces),"
        " iif(state = 'sent', edits, max(0, edits - 1)), kind = 'text' FROM outbox"
        " WHERE inbox_id = ? AND NOT is_reaction"
        " AND iif(state = 'sent', kind != 'removal', replaces NOT NULL)"
        " AND NOT EXISTS (SELECT 1 FROM outbox AS removal WHERE removal.kind = 'removal'"
        "  AND removal.chat = outbox.chat AND removal.created_at >= outbox.created_at"
        "  AND removal.replaces = iif(outbox.state = 'sent', outbox.signal_timestamp,"
        "   outbox.replaces))"
        " ORDER BY part",
        last[0],
    )
    drop(db, "inbox_id = ?", last[0])
    return [] if any(edits >= MAX_ANSWER_EDITS for _, edits, _ in found) else found


def _drafts(answer: NewAnswer, standing: Sequence[Row]) -> list[_Draft]:
    editable = [(timestamp, edits) for timestamp, edits, has_text in standing if has_text]
    drafts: list[_Draft] = []
    later: list[_Draft] = []
    if answer.reaction:
        drafts.append(_Draft("text", StyledText(answer.reaction), is_reaction=True))
    to_make = answer.to_make
    is_apart = to_make is not None and to_make.is_alone
    for number, part in enumerate(answer.parts):
        text = StyledText(part) if isinstance(part, str) else part
        unmade = to_make.source if to_make and to_make.part == number else None
        if number < len(editable):
            timestamp, edits = editable[number]
            drafts.append(_Draft("text", text, (), timestamp, edits + 1))
            later += [_Draft("files", unmade=unmade)] if unmade else []
        else:
            files = () if number or is_apart else answer.attachments
            drafts.append(_Draft("text", text, files, unmade=unmade))
    if answer.attachments and (editable or not answer.parts or is_apart):
        drafts.append(_Draft("files", attachments=answer.attachments))
    left_over = [timestamp for timestamp, _ in editable[len(answer.parts) :]]
    left_over += [timestamp for timestamp, _, has_text in standing if not has_text]
    removals = (_Draft("removal", replaces=timestamp) for timestamp in left_over)
    return [*drafts, *later, *removals]


def _add(
    db: Session,
    draft: _Draft,
    chat: ChatId,
    now_ms: int,
    *,
    place: tuple[int | None, int] = (None, 0),
    expires_at: int | None = None,
) -> OutgoingMessage:
    """Store a message; `place` is the row that it answers and the number of the part."""
    styles, text, quote = draft.part.styles, draft.part.text, draft.quote
    outbox_id = db.value(
        "INSERT INTO outbox (inbox_id, part, chat, kind, text, styles, quote, state, created_at,"
        " replaces, edits, expires_at, unmade, is_reaction)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, 'waiting', ?, ?, ?, ?, ?, ?) RETURNING id",
        *(*place, chat, draft.kind, text),
        _json([astuple(style) for style in styles]),
        _json(astuple(quote) if quote else ()),
        *(now_ms, draft.replaces, draft.edits, expires_at, draft.unmade),
        draft.is_reaction,
    )
    for file in draft.attachments:
        db.insert("attachments", outbox_id=outbox_id, **asdict(file))
    return OutgoingMessage(
        outbox_id,
        chat,
        text,
        0,
        draft.attachments,
        tuple(styles),
        quote,
        draft.replaces,
        is_reaction=draft.is_reaction,
        unmade=draft.unmade,
    )


def _json(value: Iterable[object]) -> str | None:
    return json.dumps(value, ensure_ascii=False) if value else None


def _outgoing(row: Row, attachments: tuple[Attachment, ...]) -> OutgoingMessage:
    id_, chat, text, attempts, styles, quote, replaces, urgent, is_reaction, unmade = row
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
        bool(is_reaction),
        unmade,
    )


def _attachments(db: Session, part: int) -> tuple[Attachment, ...]:
    sql = "SELECT name, content_type, data FROM attachments WHERE outbox_id = ? ORDER BY id"
    return tuple(Attachment(*row) for row in db.run(sql, part))


KEPT_MS: Final = DAY_MS
"""Signal's apps delete a message for everyone within a day."""

FRESH_MS: Final = 3_600_000
"""Receipts younger than this may come before their row is marked."""

LATE_START_MS: Final = 10_000
"""signal-cli begins no request later than this after the bot stopped waiting for it, or after the
start of a bot that was killed while it waited.

Must be shorter than the wait for a receipt, so that a retry never overlaps the original send."""

SETTLED_MS: Final = 60_000
"""This long after its last question, a waiting turn sends nothing more."""

ELSEWHERE: Final = ""
"""In place of a person: the timestamp is of a known message, so a receipt proves nothing."""


@dataclass(frozen=True, slots=True)
class Doubt:
    """A send with an unknown result.

    Attributes:
        row: its message in the outbox; None for progress and questions.
        since: the earliest timestamp that it can have.
        until: its timestamp is earlier than this.
        timestamp: Signal's timestamp of the later send of the same message.
        is_edit: the message replaces an earlier one.
        is_given_up: the bot sends the message no more; a receipt may still settle it.
        is_withdrawn: the message was deleted; if it has arrived, it is deleted for everyone.
        is_change: it is a reaction or a deletion, of which no copy stays.
    """

    row: int | None
    chat: ChatId
    since: int
    until: int
    timestamp: int | None = None
    is_edit: bool = False
    is_given_up: bool = False
    is_withdrawn: bool = False
    is_change: bool = False


class DoubtStore(Aggregate):
    """Sends in doubt and receipts of phones."""

    @writes
    def load(self, db: Session) -> tuple[tuple[Doubt, ...], tuple[tuple[int, str], ...]]:
        """Return the sends in doubt at a start, before this process has sent anything.

        Returns:
            in addition, the timestamps that phones confirmed, each with the person.
        """
        now_ms = self._now_ms()
        waiting = _first_waiting(db, now_ms) + _withdrawn(db, now_ms)
        for doubt in waiting + _running_turns(db, now_ms):
            _note(db, doubt)
        sends = db.run(
            "SELECT outbox_id, doubts.chat, since, until,"
            " iif(state = 'sent', signal_timestamp, NULL), replaces NOT NULL,"
            f" coalesce(state = 'given_up', 0), coalesce({WITHDRAWN}, 0)"
            " FROM doubts LEFT JOIN outbox ON outbox.id = outbox_id WHERE until >= ?",
            now_ms - KEPT_MS,
        )
        confirmed = db.run(
            # The known timestamps may be many; `known` finds them when asked.
            "SELECT timestamp, person FROM confirmations WHERE person != ?",
            ELSEWHERE,
        )
        doubts = (Doubt(row, ChatId.parse(chat), *rest) for row, chat, *rest in sends)
        return (*doubts, *_changes(db, now_ms)), tuple(confirmed)

    @reads_aside
    def known(self, db: Session, timestamps: Sequence[int]) -> frozenset[int]:
        """Return which of these timestamps belong to stored messages."""
        rows = db.run(
            "WITH asked AS (SELECT value FROM json_each(?))"
            " SELECT signal_timestamp FROM outbox WHERE signal_timestamp IN asked"
            " UNION SELECT progress_timestamp FROM turns WHERE progress_timestamp IN asked"
            " UNION SELECT signal_timestamp FROM questions WHERE signal_timestamp IN asked"
            " UNION SELECT timestamp FROM confirmations WHERE person = '' AND timestamp IN asked",
            json.dumps(list(timestamps)),
        )
        return frozenset(timestamp for (timestamp,) in rows)

    @writes_later
    def confirm(self, db: Session, timestamp: int, person: str) -> None:
        """Keep a receipt, for it comes only once."""
        db.run("INSERT OR IGNORE INTO confirmations VALUES (?, ?)", timestamp, person)

    @writes_later
    def note(self, db: Session, doubt: Doubt) -> None:
        """Note a send in doubt; does not wait for the disk."""
        _note(db, doubt)

    @writes_and_scrubs_if_gone
    def settle_given_up(self, db: Session, part: int, timestamp: int) -> tuple[None, bool]:
        """Mark a message as sent that was given up before a phone confirmed it."""
        settle_doubt(db, part, timestamp)
        rows = _mark_sent(db, part, timestamp)
        return None, any(at is not None and at <= self._now_ms() for (at,) in rows)

    @writes
    def remove_copy(
        self, db: Session, part: int | None, chat: ChatId, copy: int
    ) -> OutgoingMessage | None:
        """Store the deletion of a second copy, and return it to be sent at once.

        People see only one of two equal edits. Phones ignore edits of a version that was replaced,
        so for an edit the row takes the earlier timestamp, and nothing is deleted.

        Args:
            part: the message's row in the outbox; None for progress or a question.
            copy: Signal's timestamp of the copy.
        """
        db.run("INSERT OR IGNORE INTO confirmations VALUES (?, ?)", copy, ELSEWHERE)
        if part is not None and db.value("SELECT replaces NOT NULL FROM outbox WHERE id = ?", part):
            sql = "UPDATE outbox SET signal_timestamp = min(signal_timestamp, ?) WHERE id = ?"
            db.run(sql, copy, part)
            return None
        return replace(removal(db, chat, copy, self._now_ms()), urgent=True)


def purge(db: Session, now_ms: int) -> None:
    """Delete doubts that are too old for a deletion, and receipts that can settle no doubt."""
    db.run("DELETE FROM doubts WHERE until < ?", now_ms - KEPT_MS)
    fresh = now_ms - FRESH_MS
    earliest = db.value(
        "SELECT min(?, coalesce((SELECT min(since) FROM doubts), ?),"
        " coalesce((SELECT min(created_at) FROM outbox WHERE state = 'waiting'), ?))",
        *(fresh, fresh, fresh),
    )
    db.run(
        "DELETE FROM confirmations WHERE timestamp > ? OR timestamp < ?",
        *(now_ms + FRESH_MS, earliest),
    )


def _note(db: Session, doubt: Doubt) -> None:
    place = (doubt.row, doubt.chat, doubt.since)
    db.run("DELETE FROM doubts WHERE outbox_id IS ? AND chat = ? AND since = ?", *place)
    db.run(
        "INSERT INTO doubts (outbox_id, chat, since, until)"
        " VALUES ((SELECT id FROM outbox WHERE id = ?), ?, ?, ?)",
        *(*place, doubt.until),
    )


def _possible(row: int | None, chat: str, since: int, now_ms: int) -> Doubt:
    """Return a send that an earlier process may have begun; the clock may have been turned back."""
    return Doubt(row, ChatId.parse(chat), since, max(now_ms, since) + LATE_START_MS)


def _first_waiting(db: Session, now_ms: int) -> list[Doubt]:
    """Return the first waiting part of each answer, without reactions and deletions.

    The bot sends parts one after the other, so only the first can be in doubt. Signal's timestamps
    grow, so it is younger than the parts before it. Doubts of earlier processes are stored.
    """
    rows = db.run(
        "SELECT id, chat, max(created_at, coalesce((SELECT max(signal_timestamp) + 1"
        "  FROM outbox AS earlier WHERE earlier.inbox_id = outbox.inbox_id"
        "  AND earlier.part < outbox.part AND earlier.state = 'sent'), 0),"
        " coalesce((SELECT max(until) FROM doubts WHERE outbox_id = outbox.id), 0))"
        " FROM outbox WHERE kind != 'removal' AND NOT is_reaction AND id IN"
        " (SELECT min(id) FROM outbox WHERE state = 'waiting' GROUP BY chat, inbox_id)"
        " ORDER BY id"
    )
    return [_possible(row, chat, since, now_ms) for row, chat, since in rows]


def _withdrawn(db: Session, now_ms: int) -> list[Doubt]:
    """Return the messages that were deleted while they may have been on their way."""
    rows = db.run(
        f"SELECT id, chat, created_at FROM outbox WHERE {WITHDRAWN} AND created_at >= ?",
        now_ms - KEPT_MS,
    )
    return [_possible(row, chat, since, now_ms) for row, chat, since in rows]


def _changes(db: Session, now_ms: int) -> list[Doubt]:
    """Return reactions, and deletions of the bot's messages: their own timestamps are unknown."""
    earliest = db.value("SELECT min(since) FROM doubts")
    rows = db.run(
        "SELECT chat, created_at FROM outbox"
        " WHERE (is_reaction OR kind = 'removal') AND (state = 'waiting' OR created_at >= ?)",
        earliest,
    )
    return [replace(_possible(None, chat, since, now_ms), is_change=True) for chat, since in rows]


def _running_turns(db: Session, now_ms: int) -> list[Doubt]:
    """Return the turns that ran tools: they may have sent progress or questions without a note."""
    rows = db.run(
        "SELECT chat, started_at, min(?1, coalesce((SELECT max(asked_at) FROM questions"
        f" WHERE questions.turn_id = turns.id AND turns.id IN ({history.SUSPENDED})) + ?2, ?1))"
        " FROM turns WHERE state = 'running' AND EXISTS"
        " (SELECT 1 FROM messages WHERE turn_id = turns.id AND role = 'tool')",
        *(now_ms + LATE_START_MS, SETTLED_MS),
    )
    return [Doubt(None, ChatId.parse(chat), since, until) for chat, since, until in rows]
