"""Questions of the model's to people, one for each call that asks one.

Sent at least once, answered at most once: every change is conditional on the state before it.
"""

import json
from collections.abc import Sequence

from conversation_store import inbox, suspended, turns
from conversation_store.connections import Execute, Row
from conversation_store.models import (
    AcceptedMessage,
    ChatId,
    OpenPoll,
    QuestionKind,
    StoredQuestion,
)
from conversation_store.sections.section import Section, reads, writes

COLUMNS = (
    "id, turn_id, chat, asker, kind, options, multiple, earlier, signal_timestamp, asked_at,"
    " expires_at, answer, chosen"
)

ANSWER = "question"
"""How a message ends that answers a question."""


class QuestionStore(Section):
    """Questions to people for whose answers a turn waits."""

    @writes
    def find_or_open(
        self,
        execute: Execute,
        turn_id: int,
        tool_call_id: str,
        *,
        chat: ChatId,
        asker: str,
        kind: QuestionKind,
        options: Sequence[str],
        multiple: bool,
    ) -> StoredQuestion | None:
        """Return the question of an open call, made now if there is none yet.

        Args:
            execute: runs a statement.
            turn_id: the turn.
            tool_call_id: the call; None is returned when it is not open.
            chat: where to ask.
            asker: ACI of the person that the turn answers.
            kind: what is asked for.
            options: what may be chosen.
            multiple: whether several of them may be.
        """
        open_call = turns.open_call(execute, turn_id, tool_call_id)
        if open_call is None:
            return None
        execute(
            "INSERT INTO questions (id, turn_id, chat, asker, kind, options, multiple, state)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, 'open') ON CONFLICT DO NOTHING",
            (
                *(open_call, turn_id, chat, asker, kind),
                *(json.dumps(list(options), ensure_ascii=False), int(multiple)),
            ),
        )
        return _found(execute, open_call)

    @writes
    def mark_asked(
        self, execute: Execute, question: StoredQuestion, *, is_poll: bool = False
    ) -> None:
        """Remember a question's messages, when it was sent and until when its answer counts.

        Args:
            execute: runs a statement.
            question: which.
            is_poll: phones show it as a poll, which is to be ended one day.
        """
        if is_poll:
            execute(
                "INSERT INTO polls VALUES (?, ?) ON CONFLICT DO NOTHING",
                (question.chat, question.signal_timestamp),
            )
        execute(
            "UPDATE questions SET signal_timestamp = ?, earlier = ?, asked_at = ?, expires_at = ?"
            " WHERE id = ?",
            (
                question.signal_timestamp,
                json.dumps(question.earlier) if question.earlier else None,
                question.asked_at,
                question.expires_at,
                question.id,
            ),
        )

    @writes
    def choose_for_now(
        self,
        execute: Execute,
        question: int,
        chosen: str | None,
        *,
        by: str,
        expires_at: int,
    ) -> None:
        """Keep what the model is told if no other vote follows until a time (ms).

        Args:
            execute: runs a statement.
            question: which, as long as it is open.
            chosen: what the model is told; None: the vote was taken back.
            by: ACI of the person who voted.
            expires_at: until when another answer counts.
        """
        execute(
            "UPDATE questions SET chosen = ?, answered_by = ?, expires_at = ?"
            " WHERE id = ? AND state = 'open'",
            (chosen, by, expires_at, question),
        )

    async def answer(
        self,
        question: int,
        answer: str,
        *,
        by: str | None = None,
        message: AcceptedMessage | None = None,
    ) -> bool:
        """Answer an open question; return whether this answer is the one that counts.

        Args:
            question: which.
            answer: what the model is told.
            by: ACI of the person who answered; None: nobody did.
            message: the message that answers, which owes no other answer then.
        """
        counts = await self._answer(question, answer, by, message)
        if message is not None:
            self._context.leave_no_words(have_disappeared=self._context.has_disappeared(message))
        return counts

    @writes
    def _answer(
        self,
        execute: Execute,
        question: int,
        answer: str,
        by: str | None,
        message: AcceptedMessage | None,
    ) -> bool:
        rows = list(
            execute(
                "UPDATE questions SET state = 'answered', answer = ?,"
                " answered_by = coalesce(?, answered_by),"
                " answered_at = ? WHERE id = ? AND state = 'open' RETURNING turn_id",
                (answer, by, self._context.now_ms(), question),
            )
        )
        for (turn_id,) in rows:
            # What a person has answered got somewhere, however often it was begun.
            execute("UPDATE turns SET attempts = 0 WHERE id = ?", (turn_id,))
            if message is not None:
                inbox.close(execute, message.id, ANSWER)
        return bool(rows)

    @reads
    def open(self, execute: Execute) -> tuple[StoredQuestion, ...]:
        """Return the questions that were sent and have no answer."""
        rows = list(
            execute(
                f"SELECT {COLUMNS} FROM questions"  # noqa: S608
                " WHERE state = 'open' AND signal_timestamp IS NOT NULL ORDER BY id"
            )
        )
        return tuple(_question(row) for row in rows)

    @reads
    def polls(self, execute: Execute) -> tuple[OpenPoll, ...]:
        """Return the polls that phones still show as open, the oldest first."""
        rows = execute(
            "SELECT chat, signal_timestamp, EXISTS (SELECT 1 FROM questions WHERE state = 'open'"
            " AND questions.chat = polls.chat"
            " AND questions.signal_timestamp = polls.signal_timestamp)"
            " FROM polls ORDER BY signal_timestamp"
        )
        return tuple(
            OpenPoll(ChatId.parse(chat), timestamp, bool(is_asked))
            for chat, timestamp, is_asked in rows
        )

    @writes
    def forget_poll(self, execute: Execute, poll: OpenPoll) -> None:
        """Note that phones show a poll as ended, or that it cannot be ended."""
        execute(
            "DELETE FROM polls WHERE chat = ? AND signal_timestamp = ?", (poll.chat, poll.timestamp)
        )

    @reads
    def suspended_turns(self, execute: Execute) -> frozenset[int]:
        """Return the turns that wait for nothing but people's answers."""
        return suspended.turn_ids(execute)

    @reads
    def suspended_turn(self, execute: Execute, turn_id: int) -> AcceptedMessage | None:
        """Return the messages of a turn that waits, if they still owe an answer."""
        return next(iter(inbox.waiting(execute, turn_id)), None)

    @reads
    def turn_of(self, execute: Execute, inbox_id: int) -> int:
        """Return the turn that answers a message, or would."""
        return inbox.turn_of(execute, inbox_id)


def _found(execute: Execute, question: int) -> StoredQuestion:
    (row,) = execute(f"SELECT {COLUMNS} FROM questions WHERE id = ?", (question,))  # noqa: S608
    return _question(row)


def _question(row: Row) -> StoredQuestion:
    id_, turn_id, chat, asker, kind, options, multiple, earlier, *rest = row
    return StoredQuestion(
        id_,
        turn_id,
        ChatId.parse(chat),
        asker,
        QuestionKind(kind),
        tuple(json.loads(options)),
        bool(multiple),
        tuple(json.loads(earlier or "[]")),
        *rest,
    )
