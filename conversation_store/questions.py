"""Questions to people about open calls, and tools that they allowed for longer.

A question is sent at least once and answered at most once, and an allowed call begins at most once:
every change depends on the state before it. The message that answers becomes a message of the turn,
so a deletion, an edit or its timer takes the answer back.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Final

from conversation_store import history, messages
from conversation_store.connections import Row, Session
from conversation_store.database import (
    Aggregate,
    of_aggregate,
    reads,
    writes,
    writes_and_scrubs_if_gone,
)
from conversation_store.models import (
    DAY_MS,
    AcceptedMessage,
    ChatId,
    QuestionTerms,
    StoredQuestion,
)

SELECT: Final = (
    "SELECT id, turn_id, chat, kind, terms, signal_timestamp, earlier, asked_at, expires_at,"
    " answer, chosen, state FROM questions WHERE"
)
YES: Final = "yes"
"""Answer that allows a call."""

DECISIONS: Final = frozenset({YES, "no", "silence"})
"""Answers about a call; other answers are words for the model."""


def _find(db: Session, question: int) -> StoredQuestion | None:
    """Return a question; None if it is gone."""
    return next(iter(map(_question, db.run(f"{SELECT} id = ?", question))), None)


class QuestionStore(Aggregate):
    """Questions of turns. A question has the id of the call's row."""

    find = reads(of_aggregate(_find))
    turn_of = reads(of_aggregate(messages.turn_of))

    @writes
    def find_or_open(
        self,
        db: Session,
        turn_id: int,
        tool_call_id: str,
        terms: QuestionTerms,
        *,
        helper: int | None = None,
    ) -> StoredQuestion | None:
        """Return the question of an open call, created on first use; None without a call.

        Args:
            terms: replace those of a question that was not sent yet.
            helper: see `TurnStore.begin_helper`; None if the call is one of the turn itself.
        """
        call = history.open_call(db, turn_id, tool_call_id, helper)
        if call is None:
            return None
        known = asdict(terms)
        kind = known.pop("kind")
        db.run(
            "INSERT INTO questions (id, turn_id, chat, kind, terms, state)"
            " SELECT ?, id, chat, ?, ?, 'open' FROM turns WHERE id = ?"
            " ON CONFLICT DO UPDATE SET terms = excluded.terms"
            " WHERE state = 'open' AND signal_timestamp IS NULL",
            *(call, kind, json.dumps(known, ensure_ascii=False), turn_id),
        )
        return _find(db, call)

    @reads
    def may_join(self, db: Session, question: int) -> bool:
        """Return whether further messages may join the turn of a question, if it is its own."""
        rows = db.run(
            "SELECT 1 FROM questions JOIN messages USING (id) JOIN inbox ON inbox.id ="
            " questions.turn_id WHERE questions.id = ? AND helper_of IS NULL"
            " AND replaces IS NULL AND inbox.kind = 'message'",
            question,
        )
        return bool(rows)

    @writes
    def mark_asked(self, db: Session, question: StoredQuestion, *, is_poll: bool = False) -> None:
        """Store a question's messages, when it was sent and until when its answer counts.

        Args:
            is_poll: phones show it as a poll, which the bot ends later.
        """
        *earlier, last = question.timestamps
        if is_poll:
            db.run("INSERT INTO polls VALUES (?, ?) ON CONFLICT DO NOTHING", *(question.chat, last))
        db.run(
            "UPDATE questions SET signal_timestamp = ?, earlier = ?, asked_at = ?, expires_at = ?"
            " WHERE id = ?",
            *(last, json.dumps(earlier) if earlier else None),
            *(question.asked_at, question.expires_at, question.id),
        )

    @writes
    def choose_for_now(
        self, db: Session, question: int, chosen: str | None, *, by: str, expires_at: int
    ) -> None:
        """Store the answer for the model if no other vote follows until a time (ms).

        Args:
            chosen: None if the vote was taken back.
            by: ACI of the person who voted.
        """
        db.run(
            "UPDATE questions SET chosen = ?, answered_by = ?, expires_at = ?"
            " WHERE id = ? AND state = 'open'",
            *(chosen, by, expires_at, question),
        )

    @writes_and_scrubs_if_gone
    def answer(
        self,
        db: Session,
        question: int,
        answer: str,
        *,
        by: str | None = None,
        message: AcceptedMessage | None = None,
    ) -> tuple[bool, bool]:
        """Answer an open question; False if it had an answer already, or is gone.

        Args:
            answer: text for the model, or the decision about a call.
            by: ACI of the person who answered; None if time ran out.
            message: the message that answers; it owes no other answer then.
        """
        rows = db.run(
            "UPDATE questions SET state = 'answered', answer = ?,"
            " answered_by = coalesce(?, answered_by)"
            " WHERE id = ? AND state = 'open' RETURNING turn_id, kind",
            *(answer, by, question),
        )
        expires_at = None if message is None else message.message.expires_at
        for turn_id, kind in rows:
            if kind != "call":
                # Its turn has made progress, however often it was begun.
                db.run("UPDATE turns SET attempts = 0 WHERE id = ?", turn_id)
            if message is not None:
                _join(db, message.id, turn_id, has_words=kind != "call" or answer not in DECISIONS)
            if expires_at is not None:
                db.run(
                    "UPDATE turns SET expires_at = min(coalesce(expires_at, ?1), ?1) WHERE id = ?2",
                    *(expires_at, turn_id),
                )
        return bool(rows), expires_at is not None and expires_at <= self._now_ms()

    @writes
    def begin(
        self, db: Session, turn_id: int, tool_call_id: str, helper: int | None = None
    ) -> None:
        """Store that an allowed call runs now, so that it never runs again.

        People cannot take back their answers about calls of the turn any more.
        """
        db.run(
            "UPDATE questions SET state = 'begun'"
            " WHERE id = ? AND state = 'answered' AND answer = ?",
            *(history.open_call(db, turn_id, tool_call_id, helper), YES),
        )
        messages.part(db, turn_id, messages.APPROVAL)

    @reads
    def open(self, db: Session) -> tuple[StoredQuestion, ...]:
        """Return the questions that were sent and have no answer."""
        rows = db.run(f"{SELECT} state = 'open' AND signal_timestamp IS NOT NULL ORDER BY id")
        return tuple(map(_question, rows))

    @reads
    def polls(self, db: Session) -> tuple[tuple[ChatId, int, bool], ...]:
        """Return the polls that phones still show as open, the oldest first.

        Returns:
            chat and timestamp of each, and whether its question still waits for an answer.
        """
        rows = db.run(
            "SELECT chat, signal_timestamp, EXISTS (SELECT 1 FROM questions WHERE state = 'open'"
            " AND questions.chat = polls.chat"
            " AND questions.signal_timestamp = polls.signal_timestamp)"
            " FROM polls ORDER BY signal_timestamp"
        )
        return tuple((ChatId.parse(chat), at, bool(asked)) for chat, at, asked in rows)

    @writes
    def forget_poll(self, db: Session, chat: ChatId, timestamp: int) -> None:
        """Note that phones show a poll as ended, or that it cannot be ended."""
        db.run("DELETE FROM polls WHERE chat = ? AND signal_timestamp = ?", chat, timestamp)

    @reads
    def suspended_turns(self, db: Session) -> frozenset[int]:
        """Return the turns that only wait for people's answers."""
        return frozenset(turn_id for (turn_id,) in db.run(history.SUSPENDED))

    @reads
    def deleted_turns(self, db: Session) -> frozenset[int]:
        """Return the turns that only wait for answers, and have read something deleted since."""
        rows = db.run(f"SELECT id FROM turns WHERE expires_at = 0 AND id IN ({history.SUSPENDED})")
        return frozenset(turn_id for (turn_id,) in rows)

    @reads
    def suspended_turn(self, db: Session, turn_id: int) -> AcceptedMessage | None:
        """Return the messages of a turn that waits, if they still owe an answer."""
        return next(iter(messages.waiting(db, turn_id)), None)


@dataclass(frozen=True, slots=True)
class StoredGrant:
    """A tool that runs in a chat without a question until a time."""

    id: int
    subject: str
    expires_at: int


class GrantStore(Aggregate):
    """Tools that run in a chat without a question until a date."""

    @writes
    def give(
        self,
        db: Session,
        chat: ChatId,
        terms: QuestionTerms,
        *,
        by: str,
        days: int,
        message: int | None = None,
    ) -> None:
        """Allow the tools that a question covers, and delete grants that have expired.

        Args:
            terms: of the question; another version of its tools is not allowed.
            by: the person who allows it.
            days: from now on.
            message: row of the message that allows it; without effect if it was deleted since.
        """
        if message is not None and messages.outcome(db, message) == "deleted":
            return
        now = self._now_ms()
        db.run("DELETE FROM grants WHERE expires_at <= ?", now)
        for subject in terms.covers:
            db.run(
                "INSERT OR REPLACE INTO grants"
                " (chat, subject, version, given_by, expires_at, inbox_id)"
                " VALUES (?, ?, ?, ?, ?, ?)",
                *(chat, subject, terms.version, by, now + days * DAY_MS, message),
            )

    @reads
    def giver(self, db: Session, chat: ChatId, subject: str, version: str) -> str | None:
        """Return the person who allowed a tool in a chat; None without a valid grant."""
        found: str | None = db.value(
            "SELECT given_by FROM grants"
            " WHERE chat = ? AND subject = ? AND version = ? AND expires_at > ?",
            *(chat, subject, version, self._now_ms()),
        )
        return found

    @reads
    def of_chat(self, db: Session, chat: ChatId) -> tuple[StoredGrant, ...]:
        """Return the valid grants of a chat in alphabetical order."""
        rows = db.run(
            "SELECT id, subject, expires_at FROM grants WHERE chat = ? AND expires_at > ?"
            " ORDER BY subject",
            *(chat, self._now_ms()),
        )
        return tuple(StoredGrant(*row) for row in rows)

    @writes
    def revoke(self, db: Session, chat: ChatId, grants: Sequence[int]) -> None:
        """Delete grants of a chat."""
        for grant in grants:
            db.run("DELETE FROM grants WHERE chat = ? AND id = ?", chat, grant)


def revoke_given_by(db: Session, rows: Iterable[int]) -> None:
    """Delete the grants that messages gave, because these were edited or deleted."""
    db.run(
        "DELETE FROM grants WHERE inbox_id IN (SELECT value FROM json_each(?))",
        json.dumps(list(rows)),
    )


def end(db: Session, turn_id: int) -> None:
    """End the questions of a turn that has ended without them."""
    db.run(
        "UPDATE questions SET state = 'answered', answer = 'silence'"
        " WHERE state = 'open' AND turn_id = ?",
        turn_id,
    )
    messages.part(db, turn_id, messages.APPROVAL)


def _join(db: Session, row: int, turn_id: int, *, has_words: bool) -> None:
    """Close a message that answers, and add it to the turn, so that it can be taken back.

    Args:
        has_words: the model reads the answer.
    """
    if has_words:
        messages.close(db, row, messages.ANSWER)
        messages.join(db, row, turn_id)
        return
    messages.close(db, row, messages.APPROVAL)
    # A turn that has done something does not start again because of an edited “yes”.
    if not db.run("SELECT 1 FROM questions WHERE turn_id = ? AND state = 'begun'", turn_id):
        messages.join(db, row, turn_id)


def _question(row: Row) -> StoredQuestion:
    id_, turn_id, chat, kind, known, last, earlier, asked_at, expires_at, answer, chosen, state = (
        row
    )
    terms = json.loads(known)
    for name in ("options", "covers"):
        terms[name] = tuple(terms[name])
    return StoredQuestion(
        id_,
        turn_id,
        ChatId.parse(chat),
        QuestionTerms(kind, **terms),
        () if last is None else (*json.loads(earlier or "[]"), last),
        asked_at or 0,
        expires_at or 0,
        answer,
        chosen,
        state == "begun",
    )
