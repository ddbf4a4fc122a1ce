"""Emoji that people put on answers of the bot, for the next turn of the chat.

A reaction belongs to the turn of the answer and is deleted with it. A turn that was told a reaction
was also told the first words of that answer, so the answer is one of its sources.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from conversation_store import deletion
from conversation_store.connections import Session
from conversation_store.database import Aggregate, of_aggregate, reads, writes
from conversation_store.models import ChatId

MAX_KEPT: Final = 50
"""Reactions of a chat; older ones are deleted."""
MAX_TOLD: Final = 10
"""Reactions that are told with one message; the model never learns of older reactions."""
WORDS: Final = 200
"""Characters of an answer that are read."""

ANSWER_SQL: Final = """
    WITH RECURSIVE version (at) AS (
        SELECT ?2
        UNION SELECT signal_timestamp FROM outbox JOIN version ON replaces = at
            WHERE chat = ?1 AND kind = 'text' AND state = 'sent'
    )
    SELECT inbox_id FROM outbox JOIN turns ON turns.id = inbox_id
    WHERE outbox.chat = ?1 AND signal_timestamp IN version AND kind != 'removal' AND NOT is_reaction
        AND turns.state IN ('answered', 'failed')
    ORDER BY outbox.id DESC LIMIT 1
"""
"""Finds the turn of an answer, also by an earlier version of the message."""

TRIM_SQL: Final = """
    DELETE FROM reactions WHERE chat = ?1 AND id NOT IN
        (SELECT id FROM reactions WHERE chat = ?1 ORDER BY sent_at DESC LIMIT ?2)
"""

UNTOLD_SQL: Final = """
    SELECT id, emoji, name, sent_at, substr((SELECT content FROM messages
        WHERE messages.turn_id = reactions.turn_id AND role = 'assistant' AND helper_of IS NULL
        ORDER BY messages.id DESC LIMIT 1), 1, ?2)
    FROM reactions WHERE chat = ?1 AND told_to IS NULL ORDER BY sent_at DESC LIMIT ?3
"""


@dataclass(frozen=True, slots=True)
class NewReaction:
    """A reaction as it comes in, or its removal.

    Attributes:
        answer_at: Signal's timestamp of a message of the answer.
        sent_at: Signal's timestamp of the reaction.
        name: of the person, in a group.
    """

    chat: ChatId
    answer_at: int
    person: str
    emoji: str
    sent_at: int
    name: str | None = None


@dataclass(frozen=True, slots=True)
class AnswerReaction:
    """A person's reaction to an answer, and the first words of that answer.

    Attributes:
        name: of the person, in a group.
    """

    id: int
    emoji: str
    name: str | None
    sent_at: int
    answer: str


def waiting(db: Session, chat: ChatId) -> tuple[AnswerReaction, ...]:
    """Return the newest reactions that no turn was told yet, oldest first."""
    rows = db.run(UNTOLD_SQL, chat, WORDS, MAX_TOLD)
    return tuple(
        AnswerReaction(id_, emoji, name, sent_at, answer or "")
        for id_, emoji, name, sent_at, answer in reversed(rows)
    )


def take(db: Session, chat: str, told: Sequence[AnswerReaction], turn_id: int) -> None:
    """Tell reactions to a turn. If one is gone since, delete the turn at its end."""
    if not told:
        return
    for reaction in told:
        rows = db.run(
            "SELECT turn_id, expires_at FROM reactions JOIN turns ON turns.id = turn_id"
            " WHERE reactions.id = ? AND sent_at = ?",
            *(reaction.id, reaction.sent_at),
        )
        for answer, expires_at in rows:
            deletion.add(db, turn_id, answer, deletion.TURN, expires_at)
        if not rows:
            deletion.forget_at_end(db, turn_id)
    newest = max(reaction.sent_at for reaction in told)
    db.run(
        "UPDATE reactions SET told_to = ? WHERE chat = ? AND told_to IS NULL AND sent_at <= ?",
        *(turn_id, chat, newest),
    )


class ReactionStore(Aggregate):
    """Reactions of people to answers."""

    waiting = reads(of_aggregate(waiting))

    @writes
    def keep(self, db: Session, new: NewReaction) -> None:
        """Keep a reaction instead of the person's earlier one, if the answer is stored."""
        self._context.with_reactions.add(new.chat)
        for (turn_id,) in db.run(ANSWER_SQL, new.chat, new.answer_at):
            db.run(
                "INSERT INTO reactions (turn_id, person, chat, name, emoji, sent_at)"
                " VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET name = excluded.name,"
                " emoji = excluded.emoji, sent_at = excluded.sent_at, told_to = NULL"
                " WHERE excluded.sent_at > sent_at",
                *(turn_id, new.person, new.chat, new.name, new.emoji, new.sent_at),
            )
            db.run(TRIM_SQL, new.chat, MAX_KEPT)

    @writes
    def remove(self, db: Session, taken_back: NewReaction) -> None:
        """Delete a person's reaction, unless it is newer than its removal."""
        for (turn_id,) in db.run(ANSWER_SQL, taken_back.chat, taken_back.answer_at):
            db.run(
                "DELETE FROM reactions WHERE turn_id = ? AND person = ? AND sent_at <= ?",
                *(turn_id, taken_back.person, taken_back.sent_at),
            )
