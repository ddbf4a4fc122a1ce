"""Facts that the bot was asked to remember, each in one chat and with the turns it came from.

A fact goes with any of these turns. Turns that were told a fact hold its words, so they go with it,
also when the fact itself was struck before.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Final

from conversation_store import fact_sources
from conversation_store.connections import Execute, Row
from conversation_store.models import ChatId, Fact, NotRemembered, ShownFacts

MAX_FACTS: Final = 500
"""Of one chat; what is searched, listed and exported is bounded by it."""

SHOWN_FACTS: Final = 20
SHOWN_FACT_BYTES: Final = 200
"""A longer fact is found by searching alone."""
SHOWN_BYTES: Final = 2_000
"""UTF-8 bytes of all facts that the model is always shown in a chat."""


def add(
    execute: Execute, chat: ChatId, text: str, *, turn_id: int, call: str, now_ms: int
) -> Fact | NotRemembered:
    """Remember a fact from a turn that runs and return it.

    The same call is carried out once. What is remembered already keeps its number, and comes from
    the new turn from now on.
    """
    if is_off(execute, chat):
        return NotRemembered.OFF
    source = fact_sources.of(execute, chat, turn_id, text)
    if source is None or (source.expires_at is not None and source.expires_at <= now_ms):
        return NotRemembered.KEPT_NOWHERE
    sql = "SELECT number, said_at, expires_at FROM remembered WHERE turn_id = ? AND call = ?"
    if done := list(execute(sql, (turn_id, call))):
        ((number, said_at, expires_at),) = done
        return Fact(number, text, said_at, expires_at)
    number = _number_of(execute, chat, text)
    if number is None:
        sql = "SELECT count(text) FROM remembered WHERE chat = ?"
        ((count,),) = execute(sql, (chat,))
        if count >= MAX_FACTS:
            return NotRemembered.FULL
        number = _next_number(execute, chat)
    ((fact_id,),) = execute(
        "INSERT INTO remembered (chat, number, text, turn_id, call, said_at, expires_at)"
        " VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (chat, number) DO UPDATE SET"
        " text = excluded.text, turn_id = excluded.turn_id, call = excluded.call,"
        " said_at = excluded.said_at, expires_at = excluded.expires_at RETURNING id",
        (chat, number, text, turn_id, call, source.said_at, source.expires_at),
    )
    execute("DELETE FROM remembered_from WHERE fact_id = ?", (fact_id,))
    for one in source.turns:
        execute("INSERT INTO remembered_from (turn_id, fact_id) VALUES (?, ?)", (one, fact_id))
    if source.turns != {turn_id}:
        _tell(execute, turn_id, fact_id, source.expires_at)
    return Fact(number, text, source.said_at, source.expires_at)


def version(execute: Execute, chat: ChatId) -> int | None:
    """Return what is another number after each change of a chat's facts; None where it uses none.

    Facts that disappear change nothing before they are forgotten; see `ShownFacts.until`.
    """
    rows = list(execute("SELECT version FROM memories WHERE chat = ? AND NOT is_off", (chat,)))
    return next((found for (found,) in rows), None)


def shown(execute: Execute, chat: ChatId, now_ms: int) -> ShownFacts:
    """Return what the model is always shown in a chat: the newest short facts that fit."""
    rows = list(
        execute(
            "SELECT number, text, said_at, expires_at, octet_length(text) FROM remembered"
            " WHERE chat = ?1 AND text IS NOT NULL AND (expires_at IS NULL OR expires_at > ?2)"
            " AND NOT EXISTS (SELECT 1 FROM memories WHERE chat = ?1 AND is_off)"
            " ORDER BY number DESC",
            (chat, now_ms),
        )
    )
    facts: list[Fact] = []
    room = SHOWN_BYTES
    for number, text, said_at, _, size in rows:
        if len(facts) < SHOWN_FACTS and size <= min(SHOWN_FACT_BYTES, room):
            facts.insert(0, Fact(number, text, said_at))
            room -= size
    expiry = (row[3] for row in rows if row[3] is not None)
    return ShownFacts(tuple(facts), len(rows) - len(facts), min(expiry, default=None))


def of_chat(execute: Execute, chat: ChatId, now_ms: int) -> tuple[Fact, ...]:
    """Return all facts of a chat in the order of their numbers."""
    rows = execute(
        "SELECT number, text, said_at, expires_at FROM remembered"
        " WHERE chat = ? AND text IS NOT NULL AND (expires_at IS NULL OR expires_at > ?)"
        " ORDER BY number",
        (chat, now_ms),
    )
    return tuple(Fact(*row) for row in rows)


def tell(
    execute: Execute, chat: ChatId, numbers: Sequence[int], turn_id: int, now_ms: int
) -> tuple[Fact, ...]:
    """Return facts, in this order, to a turn, which goes with them from now on."""
    found: dict[int, Row] = {
        row[0]: row
        for row in execute(
            "SELECT number, text, said_at, expires_at, id FROM remembered"
            " WHERE chat = ? AND text IS NOT NULL"
            " AND (expires_at IS NULL OR expires_at > ?)"
            " AND number IN (SELECT value FROM json_each(?))"
            " AND EXISTS (SELECT 1 FROM turns WHERE turns.id = ?)",
            (chat, now_ms, json.dumps(list(numbers)), turn_id),
        )
    }
    told = [found[number] for number in numbers if number in found]
    for _, _, _, expires_at, fact_id in told:
        _tell(execute, turn_id, fact_id, expires_at)
    return tuple(Fact(*row[:4]) for row in told)


def strike(execute: Execute, chat: ChatId, number: int) -> bool:
    """Forget a fact of a chat; False where the chat never had one of that number.

    What was said about it stays as long as the turns in which it was said.
    """
    execute("UPDATE remembered SET text = NULL WHERE chat = ? AND number = ?", (chat, number))
    sql = "SELECT 1 FROM memories WHERE chat = ? AND ? BETWEEN 1 AND last_number"
    return bool(list(execute(sql, (chat, number))))


def strike_all(execute: Execute, chat: ChatId) -> int:
    """Forget all facts of a chat; return how many that were."""
    sql = "UPDATE remembered SET text = NULL WHERE chat = ? AND text IS NOT NULL RETURNING id"
    return len(list(execute(sql, (chat,))))


def is_off(execute: Execute, chat: ChatId) -> bool:
    """Whether nothing is to be remembered in a chat, and nothing that was is to be used."""
    return bool(list(execute("SELECT 1 FROM memories WHERE chat = ? AND is_off", (chat,))))


def switch(execute: Execute, chat: ChatId, *, on: bool) -> None:
    """Switch the memory of a chat on or off; what it holds stays."""
    execute(
        "INSERT INTO memories (chat, is_off) VALUES (?, ?)"
        " ON CONFLICT (chat) DO UPDATE SET is_off = excluded.is_off",
        (chat, not on),
    )


def forget_from(execute: Execute, turn_id: int) -> list[int]:
    """Forget the facts that came from a turn; return the turns that were told any of them."""
    sql = "SELECT fact_id FROM remembered_from WHERE turn_id = ?"
    return _forget(execute, list(execute(sql, (turn_id,))))


def hand_on(execute: Execute, turn_id: int, heir: int) -> None:
    """Let the facts of a turn come from another one, which answers the same question anew."""
    sql = "UPDATE OR REPLACE remembered_from SET turn_id = ? WHERE turn_id = ?"
    execute(sql, (heir, turn_id))


def expire(execute: Execute, now_ms: int) -> list[int]:
    """Forget the facts that have disappeared; return the turns that were told any of them."""
    sql = "SELECT id FROM remembered WHERE expires_at <= ?"
    return _forget(execute, list(execute(sql, (now_ms,))))


def next_expiry(execute: Execute) -> int | None:
    """Return when the next fact disappears."""
    ((expires_at,),) = execute(
        "SELECT min(expires_at) FROM remembered WHERE expires_at IS NOT NULL"
    )
    return None if expires_at is None else int(expires_at)


def purge(execute: Execute, before: int, at_most: int) -> tuple[int, list[int]]:
    """Forget facts that were said before a time.

    Returns:
        how many those were, and the turns that were told any of them.
    """
    sql = "SELECT id FROM remembered WHERE said_at < ? LIMIT ?"
    rows = list(execute(sql, (before, at_most)))
    return len(rows), _forget(execute, rows)


def purge_chats(execute: Execute) -> None:
    """Forget which chats had facts, where none is left and nobody has switched the memory off."""
    execute(
        "DELETE FROM memories WHERE NOT is_off"
        " AND NOT EXISTS (SELECT 1 FROM remembered WHERE remembered.chat = memories.chat)"
    )


def _forget(execute: Execute, rows: Iterable[Row]) -> list[int]:
    ids = json.dumps([fact_id for (fact_id,) in rows])
    if ids == "[]":
        return []
    told = list(
        execute(
            "SELECT DISTINCT turn_id FROM recalled"
            " WHERE fact_id IN (SELECT value FROM json_each(?))",
            (ids,),
        )
    )
    # After `!clear` nothing else knows of the calls that remembered them.
    execute(
        "UPDATE audit SET arguments = NULL WHERE arguments IS NOT NULL AND turn_id IN"
        " (SELECT turn_id FROM remembered WHERE id IN (SELECT value FROM json_each(?)))",
        (ids,),
    )
    execute("DELETE FROM remembered WHERE id IN (SELECT value FROM json_each(?))", (ids,))
    return [turn_id for (turn_id,) in told]


def _tell(execute: Execute, turn_id: int, fact_id: int, expires_at: int | None) -> None:
    execute(
        "INSERT OR IGNORE INTO recalled (turn_id, fact_id) VALUES (?, ?)",
        (turn_id, fact_id),
    )
    if expires_at is not None:
        execute(
            "UPDATE turns SET expires_at = min(coalesce(expires_at, ?1), ?1) WHERE id = ?2",
            (expires_at, turn_id),
        )


def _number_of(execute: Execute, chat: ChatId, text: str) -> int | None:
    """Return the number of a fact that says the same, letter for letter but for its case."""
    sql = "SELECT number, text FROM remembered WHERE chat = ? AND text IS NOT NULL"
    rows = list(execute(sql, (chat,)))
    same = text.casefold()
    return next((number for number, known in rows if known.casefold() == same), None)


def _next_number(execute: Execute, chat: ChatId) -> int:
    ((number,),) = execute(
        "INSERT INTO memories (chat, last_number) VALUES (?, 1)"
        " ON CONFLICT (chat) DO UPDATE SET last_number = last_number + 1 RETURNING last_number",
        (chat,),
    )
    return int(number)
