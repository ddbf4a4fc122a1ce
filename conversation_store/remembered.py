"""Facts that the bot was asked to remember, each in one chat and with the turns it came from.

A fact goes with any of these turns. Turns that were told a fact hold its words, so they go with it.
"""

import json
import re
from collections.abc import Iterable, Sequence
from typing import Final

from conversation_store.connections import Execute, Row
from conversation_store.models import ChatId, Fact, NotRemembered, ShownFacts

MAX_FACTS: Final = 500
"""Of one chat; what is searched, listed and exported is bounded by it."""

SHOWN_FACTS: Final = 20
SHOWN_FACT_BYTES: Final = 200
"""A longer fact is found by searching alone."""
SHOWN_BYTES: Final = 2_000
"""UTF-8 bytes of all facts that the model is always shown in a chat."""

_EARLIER_ROWS: Final = 200
_EARLIER_CHARACTERS: Final = 4_000
"""How far back, and how much of each message, is looked at for where a fact came from."""

_MIN_LETTERS: Final = 4
"""A shorter word without a digit says nothing about where it came from."""


def add(
    execute: Execute, chat: ChatId, text: str, *, turn_id: int, call: str
) -> int | NotRemembered:
    """Remember a fact from a turn that runs and return its number.

    The same call is carried out once. What is remembered already keeps its number, and comes from
    the new turn from now on.
    """
    rows = list(execute("SELECT started_at, expires_at FROM turns WHERE id = ?", (turn_id,)))
    if not rows:
        return NotRemembered.KEPT_NOWHERE
    if is_off(execute, chat):
        return NotRemembered.OFF
    done = list(
        execute("SELECT number FROM remembered WHERE turn_id = ? AND call = ?", (turn_id, call))
    )
    if done:
        return int(done[0][0])
    earlier = _earlier_source(execute, chat, turn_id, text)
    rows += earlier
    expiry = [row[1] for row in rows if row[1] is not None]
    said_at, expires_at = min(row[0] for row in rows), min(expiry, default=None)
    number = _number_of(execute, chat, text)
    if number is None:
        ((count,),) = execute("SELECT count(*) FROM remembered WHERE chat = ?", (chat,))
        if count >= MAX_FACTS:
            return NotRemembered.FULL
        number = _next_number(execute, chat)
    ((fact_id,),) = execute(
        "INSERT INTO remembered (chat, number, text, turn_id, call, said_at, expires_at)"
        " VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (chat, number) DO UPDATE SET"
        " text = excluded.text, turn_id = excluded.turn_id, call = excluded.call,"
        " said_at = excluded.said_at, expires_at = excluded.expires_at RETURNING id",
        (chat, number, text, turn_id, call, said_at, expires_at),
    )
    execute("DELETE FROM remembered_from WHERE fact_id = ?", (fact_id,))
    for source in (turn_id, *(row[2] for row in earlier)):
        execute("INSERT INTO remembered_from (turn_id, fact_id) VALUES (?, ?)", (source, fact_id))
    if earlier:
        _tell(execute, turn_id, fact_id, expires_at)
    return number


def shown(execute: Execute, chat: ChatId, now_ms: int) -> ShownFacts:
    """Return what the model is always shown in a chat: the newest short facts that fit."""
    rows = list(
        execute(
            "SELECT number, text, said_at, octet_length(text) FROM remembered"
            " WHERE chat = ?1 AND (expires_at IS NULL OR expires_at > ?2)"
            " AND NOT EXISTS (SELECT 1 FROM memories WHERE chat = ?1 AND is_off)"
            " ORDER BY number DESC",
            (chat, now_ms),
        )
    )
    facts: list[Fact] = []
    room = SHOWN_BYTES
    for number, text, said_at, size in rows:
        if len(facts) < SHOWN_FACTS and size <= min(SHOWN_FACT_BYTES, room):
            facts.insert(0, Fact(number, text, said_at))
            room -= size
    return ShownFacts(tuple(facts), len(rows) - len(facts))


def of_chat(execute: Execute, chat: ChatId, now_ms: int) -> tuple[Fact, ...]:
    """Return all facts of a chat in the order of their numbers."""
    rows = execute(
        "SELECT number, text, said_at FROM remembered"
        " WHERE chat = ? AND (expires_at IS NULL OR expires_at > ?) ORDER BY number",
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
            "SELECT number, text, said_at, id, expires_at FROM remembered WHERE chat = ?"
            " AND (expires_at IS NULL OR expires_at > ?)"
            " AND number IN (SELECT value FROM json_each(?))"
            " AND EXISTS (SELECT 1 FROM turns WHERE turns.id = ?)",
            (chat, now_ms, json.dumps(list(numbers)), turn_id),
        )
    }
    told = [found[number] for number in numbers if number in found]
    for _, _, _, fact_id, expires_at in told:
        _tell(execute, turn_id, fact_id, expires_at)
    return tuple(Fact(*row[:3]) for row in told)


def strike(execute: Execute, chat: ChatId, number: int) -> bool:
    """Forget a fact of a chat; False where the chat never had one of that number.

    What was said about it stays as long as the turns in which it was said.
    """
    execute("DELETE FROM remembered WHERE chat = ? AND number = ?", (chat, number))
    sql = "SELECT 1 FROM memories WHERE chat = ? AND ? BETWEEN 1 AND last_number"
    return bool(list(execute(sql, (chat, number))))


def strike_all(execute: Execute, chat: ChatId) -> int:
    """Forget all facts of a chat; return how many that were."""
    return len(list(execute("DELETE FROM remembered WHERE chat = ? RETURNING id", (chat,))))


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
    rows = list(execute("SELECT number, text FROM remembered WHERE chat = ?", (chat,)))
    same = text.casefold()
    return next((number for number, known in rows if known.casefold() == same), None)


def _next_number(execute: Execute, chat: ChatId) -> int:
    ((number,),) = execute(
        "INSERT INTO memories (chat, last_number) VALUES (?, 1)"
        " ON CONFLICT (chat) DO UPDATE SET last_number = last_number + 1 RETURNING last_number",
        (chat,),
    )
    return int(number)


def _earlier_source(execute: Execute, chat: ChatId, turn_id: int, text: str) -> list[Row]:
    """Return the earlier turn that a fact came from, as at most one row: start, expiry, id.

    People say something, and then “remember that”. So where a turn has less than half of a fact's
    words itself, the fact came also from the earlier turn that has most of them, half at least.
    """
    words = _telling_words(text)
    rows = list(
        execute(
            "SELECT turns.id, substr(content, 1, ?) FROM turns"
            " JOIN messages ON messages.turn_id = turns.id"
            " WHERE turns.chat = ? AND turns.id <= ? AND content IS NOT NULL"
            " ORDER BY turns.id DESC LIMIT ?",
            (_EARLIER_CHARACTERS, chat, turn_id, _EARLIER_ROWS),
        )
    )
    said: dict[int, str] = {}
    for id_, content in rows:
        said[id_] = f"{said.get(id_, '')} {content.casefold()}"
    has = {id_: sum(word in texts for word in words) for id_, texts in said.items()}
    if has.pop(turn_id, 0) * 2 >= len(words) or not has:
        return []
    best = max(has, key=lambda id_: (has[id_], id_))
    if has[best] * 2 < len(words):
        return []
    return list(execute("SELECT started_at, expires_at, id FROM turns WHERE id = ?", (best,)))


def _telling_words(text: str) -> set[str]:
    return {
        word
        for word in re.findall(r"\w+", text.casefold())
        if len(word) >= _MIN_LETTERS or not word.isalpha()
    }
