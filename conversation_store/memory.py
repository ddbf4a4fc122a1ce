"""Facts and instructions that people gave the bot for a chat.

A fact comes from the turn that stored it, and disappears no later than anything that turn has read.
A turn that is told a fact has read something of the fact's turn.
"""

import json
from dataclasses import asdict
from typing import Final, NamedTuple

from conversation_store import deletion, full_text, reactions, reminders
from conversation_store.connections import Session
from conversation_store.database import (
    Aggregate,
    of_aggregate,
    reads,
    reads_aside,
    writes,
    writes_and_scrubs,
    writes_and_scrubs_soon,
)
from conversation_store.models import ChatId, Fact, Instructions, NotRemembered, StoredReminder
from conversation_store.reactions import AnswerReaction

MAX_FACTS: Final = 500
"""Facts of one chat; bounds what is searched, listed and exported."""

SHOWN_FACTS: Final = 20
SHOWN_FACT_BYTES: Final = 200
"""Longer facts are found by searching only."""
SHOWN_BYTES: Final = 2_000
"""UTF-8 bytes of all facts that the model always sees in a chat."""

OF_CHAT: Final = "chat = ?1 AND (expires_at IS NULL OR expires_at > ?2)"

SAID_SQL: Final = """
    SELECT min(received_at) FROM inbox WHERE id = ?1 OR turn_id = ?1 OR id IN
        (SELECT source_id FROM sources WHERE turn_id = ?1 AND via NOT IN ('turn', 'fact'))
"""
"""When people wrote the first of the messages that a turn has read."""


NOTED_SQL: Final = f"""
    SELECT
        (SELECT text FROM instructions WHERE {OF_CHAT}),
        (SELECT count(*) FROM facts WHERE {OF_CHAT}
            AND NOT EXISTS (SELECT 1 FROM memories WHERE chat = ?1 AND is_off)),
        EXISTS (SELECT 1 FROM catch_up_groups WHERE ?3 OR chat = ?1),
        (SELECT zone FROM clocks WHERE person = ?4)
"""


class Noted(NamedTuple):
    """The additions of a chat to the prompt.

    Attributes:
        instructions: the wishes of its people.
        facts: the facts that the model always sees, by number; empty if the chat's memory is off.
        more_facts: how many further facts there are.
        zone: the person's time zone, if it is known.
        reactions: to answers, for the next turn.
        rung: reminders that came since the last turn.
        has_catch_up: its group, or for a private chat any group, has opted in to catch-up.
    """

    instructions: str | None
    facts: tuple[Fact, ...]
    more_facts: int
    zone: str | None
    reactions: tuple[AnswerReaction, ...]
    rung: tuple[StoredReminder, ...]
    has_catch_up: bool


def _is_off(db: Session, chat: ChatId) -> bool:
    """Return whether the memory of a chat is off: it stores and uses no facts."""
    return bool(db.run("SELECT 1 FROM memories WHERE chat = ? AND is_off", chat))


class MemoryStore(Aggregate):
    """Facts, each of one chat: of a person in private, or of a group."""

    is_off = reads(of_aggregate(_is_off))

    @writes
    def remember(
        self, db: Session, chat: ChatId, text: str, *, turn_id: int, call: str
    ) -> Fact | NotRemembered:
        """Remember something from a turn that runs, once for each call, and return it.

        A fact that is known already keeps its number, and comes from the new turn from now on.

        Args:
            chat: facts are never told in another chat.
            turn_id: the fact is deleted together with the turn's messages.
        """
        if not self._context.retention_days:
            return "kept_nowhere"
        if _is_off(db, chat):
            return "off"
        turns = db.run("SELECT expires_at FROM turns WHERE id = ?", turn_id)
        if not turns or (turns[0][0] is not None and turns[0][0] <= self._now_ms()):
            return "kept_nowhere"
        for known in db.run(
            "SELECT number, text, said_at, expires_at FROM facts WHERE turn_id = ? AND call = ?",
            *(turn_id, call),
        ):
            return Fact(*known)
        known_as = _number_of(db, chat, text)
        if known_as is None:
            if db.value("SELECT count(*) FROM facts WHERE chat = ?", chat) >= MAX_FACTS:
                return "full"
            number = db.value(
                "INSERT INTO memories (chat, last_number) VALUES (?, 1)"
                " ON CONFLICT (chat) DO UPDATE SET last_number = last_number + 1"
                " RETURNING last_number",
                chat,
            )
        else:
            number = known_as
            db.run("DELETE FROM facts WHERE chat = ? AND number = ?", chat, number)
        fact = Fact(number, text, db.value(SAID_SQL, turn_id), turns[0][0])
        db.insert("facts", chat=chat, turn_id=turn_id, call=call, **asdict(fact))
        return fact

    async def recall(
        self, chat: ChatId, query: str, limit: int, *, turn_id: int
    ) -> tuple[Fact, ...] | NotRemembered:
        """Find facts of a chat for a turn, best first; without words the newest."""
        numbers = await self._find(chat, query, limit)
        if isinstance(numbers, str):
            return numbers
        return await self._tell(chat, numbers, turn_id) if numbers else ()

    @reads_aside
    def _find(self, db: Session, chat: ChatId, query: str, limit: int) -> list[int] | NotRemembered:
        if _is_off(db, chat):
            return "off"
        facts = _of_chat(db, chat, self._now_ms())
        if not query.strip():
            return [fact.number for fact in facts[: -limit - 1 : -1]]
        texts = [fact.text for fact in facts]
        return [facts[place].number for place in full_text.best(texts, query, limit)]

    @writes
    def _tell(
        self, db: Session, chat: ChatId, numbers: list[int], turn_id: int
    ) -> tuple[Fact, ...]:
        rows = db.run(
            f"SELECT number, text, said_at, expires_at, turn_id FROM facts WHERE {OF_CHAT}"
            " AND number IN (SELECT value FROM json_each(?3))"
            " AND EXISTS (SELECT 1 FROM turns WHERE turns.id = ?4)",
            *(chat, self._now_ms(), json.dumps(numbers), turn_id),
        )
        found = {row[0]: row for row in rows}
        told = [found[number] for number in numbers if number in found]
        for *_, expires_at, source in told:
            deletion.add(db, turn_id, source, deletion.TURN, expires_at)
            deletion.add(db, turn_id, source, deletion.FACT, expires_at)
        return tuple(Fact(*row[:4]) for row in told)

    @property
    def retention_days(self) -> int:
        """How many days facts are kept, as messages are."""
        return self._context.retention_days

    @reads
    def noted(self, db: Session, chat: ChatId, person: str = "") -> Noted:
        """Return the additions of a chat and of a person in it to the prompt, in one read."""
        now = self._now_ms()
        rows = db.run(NOTED_SQL, chat, now, not chat.is_group, person)
        ((wishes, count, has_catch_up, zone),) = rows
        facts = _shown(db, chat, now) if count else ()
        has_reacted = self._context.with_reactions.may_have(db, chat)
        reacted = reactions.waiting(db, chat) if has_reacted else ()
        rung = reminders.rung(db, chat)
        return Noted(wishes, facts, count - len(facts), zone, reacted, rung, bool(has_catch_up))

    @reads
    def of_chat(self, db: Session, chat: ChatId) -> tuple[Fact, ...]:
        """Return all facts of a chat by number, even if its memory is off."""
        return _of_chat(db, chat, self._now_ms())

    @writes_and_scrubs
    def forget(self, db: Session, chat: ChatId, number: int) -> bool:
        """Delete a fact and the reminders made from it.

        Returns:
            False if the chat never had a fact of that number.
        """
        _forget(db, "chat = ? AND number = ?", chat, number)
        return bool(
            db.run(
                "SELECT 1 FROM memories WHERE chat = ? AND ? BETWEEN 1 AND last_number",
                *(chat, number),
            )
        )

    @writes_and_scrubs
    def forget_all(self, db: Session, chat: ChatId) -> int:
        """Delete all facts of a chat and the reminders made from them.

        Returns:
            how many facts there were.
        """
        return _forget(db, "chat = ?", chat)

    @writes
    def switch(self, db: Session, chat: ChatId, *, on: bool) -> None:
        """Switch the memory of a chat on or off; its facts stay."""
        db.run(
            "INSERT INTO memories (chat, is_off) VALUES (?, ?)"
            " ON CONFLICT (chat) DO UPDATE SET is_off = excluded.is_off",
            *(chat, not on),
        )


class InstructionStore(Aggregate):
    """Instructions for the bot in chats: language, tone, role. Deleted with their message."""

    @reads
    def of_chat(self, db: Session, chat: ChatId) -> Instructions | None:
        """Return a chat's instructions; None if it has none."""
        rows = db.run(
            f"SELECT text, expires_at FROM instructions WHERE {OF_CHAT}", chat, self._now_ms()
        )
        return next((Instructions(*row) for row in rows), None)

    @writes_and_scrubs_soon
    def put(self, db: Session, chat: ChatId, text: str, row: int) -> Instructions | None:
        """Replace a chat's instructions, and return the new ones.

        Args:
            row: inbox row of the message that gives them, which is being answered.

        Returns:
            None if the message is gone; then nothing is stored.
        """
        rows = db.run(
            "INSERT OR REPLACE INTO instructions (chat, text, turn_id, expires_at)"
            " SELECT ?, ?, id, expires_at FROM inbox WHERE id = ? AND state = 'waiting'"
            " RETURNING text, expires_at",
            *(chat, text, row),
        )
        return next((Instructions(*row) for row in rows), None)

    @writes_and_scrubs
    def end(self, db: Session, chat: ChatId) -> bool:
        """Delete a chat's instructions; False if it had none."""
        return bool(db.run("DELETE FROM instructions WHERE chat = ? RETURNING chat", chat))


def _forget(db: Session, where: str, *values: str | int) -> int:
    rows = db.run(f"DELETE FROM facts WHERE {where} RETURNING turn_id", *values)
    deletion.forget_reminders_of_facts(db, {turn_id for (turn_id,) in rows})
    return len(rows)


def purge(db: Session, before: int, at_most: int) -> int:
    """Delete facts that were said before a time, and the turns that were told them."""
    rows = db.run(
        "DELETE FROM facts WHERE id IN (SELECT id FROM facts WHERE said_at < ? LIMIT ?)"
        " RETURNING turn_id",
        *(before, at_most),
    )
    if rows:
        deletion.end_readers(db, {turn_id for (turn_id,) in rows})
    return len(rows)


def purge_chats(db: Session) -> None:
    """Delete the counters of chats without facts, unless the memory is off there."""
    db.run("DELETE FROM memories WHERE NOT is_off AND chat NOT IN (SELECT chat FROM facts)")


def _of_chat(db: Session, chat: ChatId, now_ms: int) -> tuple[Fact, ...]:
    rows = db.run(
        f"SELECT number, text, said_at, expires_at FROM facts WHERE {OF_CHAT} ORDER BY number",
        *(chat, now_ms),
    )
    return tuple(Fact(*row) for row in rows)


def _shown(db: Session, chat: ChatId, now_ms: int) -> tuple[Fact, ...]:
    """Return the newest short facts."""
    rows = db.run(
        f"SELECT number, text, said_at FROM facts WHERE {OF_CHAT} AND octet_length(text) <= ?3"
        " ORDER BY number DESC LIMIT ?4",
        *(chat, now_ms, SHOWN_FACT_BYTES, SHOWN_FACTS),
    )
    facts: list[Fact] = []
    room = SHOWN_BYTES
    for row in rows:
        fact = Fact(*row)
        if (size := len(fact.text.encode())) <= room:
            facts.insert(0, fact)
            room -= size
    return tuple(facts)


def _number_of(db: Session, chat: ChatId, text: str) -> int | None:
    """Return the number of a fact with the same letters, in any case."""
    same = text.casefold()
    rows = db.run("SELECT number, text FROM facts WHERE chat = ?", chat)
    return next((number for number, known in rows if known.casefold() == same), None)
