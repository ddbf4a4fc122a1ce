"""Where a fact comes from: the turn that remembers it, and what its words were taken from.

People say something, and then “remember that”. So where the messages of a turn have less than half
of a fact's words, it came also from the earlier turn, and the earlier fact, that has most of them,
if that is more than half.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from operator import itemgetter
from typing import Final

from conversation_store.connections import Execute
from conversation_store.models import ChatId

EARLIER_ROWS: Final = 200
EARLIER_CHARACTERS: Final = 2_000
"""How far back is looked, and at how much of each message."""

MAX_WORDS: Final = 40
"""Of a fact, that are looked for: the longest."""

MIN_LETTERS: Final = 3
"""A shorter word without a digit says nothing about where it was taken from."""

OWN_SQL: Final = """
    WITH RECURSIVE asked (id) AS (
        SELECT ?1 UNION SELECT retries FROM inbox JOIN asked ON inbox.id = asked.id
        WHERE retries NOT NULL
    ),
    said (at, expires_at) AS (
        SELECT received_at, expires_at FROM inbox WHERE id IN asked OR turn_id IN asked
        UNION ALL SELECT heard_at, expires_at FROM overheard WHERE turn_id IN asked
        UNION ALL SELECT heard_at, expires_at FROM caught_up
        JOIN kept_words USING (chat, author, timestamp) WHERE turn_id IN asked
    )
    SELECT
        coalesce((SELECT min(at) FROM said), started_at),
        (SELECT min(expires_at) FROM said),
        expires_at IS 0,
        (
            SELECT group_concat(content, ' ') FROM messages
            WHERE turn_id = ?1 AND role = 'user' AND helper_of IS NULL
        )
    FROM turns WHERE id = ?1
"""
"""What people wrote that a turn knows of, and whether it is to be forgotten when it ends. Not when
its history disappears: it may have been told another fact, which goes earlier."""

TURNS_SQL: Final = """
    SELECT turns.id, started_at, expires_at, substr(content, 1, ?) FROM turns
    JOIN messages ON messages.turn_id = turns.id
    WHERE turns.chat = ? AND turns.id < ? AND content IS NOT NULL
    ORDER BY turns.id DESC LIMIT ?
"""

FACTS_SQL: Final = """
    SELECT text, said_at, expires_at,
        (SELECT json_group_array(turn_id) FROM remembered_from WHERE fact_id = remembered.id)
    FROM remembered WHERE chat = ? AND text IS NOT NULL ORDER BY id DESC
"""


@dataclass(frozen=True, slots=True)
class Source:
    """What a fact came from.

    Attributes:
        turns: when one of them is forgotten, so is the fact.
        said_at: when the first of them began, in ms.
        expires_at: when the first of them disappears.
    """

    turns: frozenset[int]
    said_at: int
    expires_at: int | None

    def with_(self, other: "Source") -> "Source":
        """Return both together."""
        expiry = [at for at in (self.expires_at, other.expires_at) if at is not None]
        return Source(
            self.turns | other.turns,
            min(self.said_at, other.said_at),
            min(expiry, default=None),
        )


def of(execute: Execute, chat: ChatId, turn_id: int, text: str) -> Source | None:
    """Return what a fact comes from that a turn remembers; None where the turn is to be forgotten.

    Args:
        execute: runs a statement.
        chat: of the turn.
        turn_id: it runs.
        text: of the fact.
    """
    rows = list(execute(OWN_SQL, (turn_id,)))
    if not rows or rows[0][2]:
        return None
    said_at, expires_at, _, asked = rows[0]
    own = Source(frozenset({turn_id}), said_at, expires_at)
    words = telling_words(text)
    if shared(words, asked or "") * 2 >= len(words):
        return own
    for earlier in (_earlier_turns(execute, chat, turn_id), _earlier_facts(execute, chat)):
        candidates = ((shared(words, said), source) for said, source in earlier)
        most, source = max(candidates, key=itemgetter(0), default=(0, own))
        if most * 2 > len(words):
            own = own.with_(source)
    return own


def _earlier_turns(execute: Execute, chat: ChatId, before: int) -> Iterator[tuple[str, Source]]:
    """Go through what was said in earlier turns, the latest first."""
    said: dict[int, list[str]] = {}
    sources: dict[int, Source] = {}
    values = (EARLIER_CHARACTERS, chat, before, EARLIER_ROWS)
    for turn_id, started_at, expires_at, content in list(execute(TURNS_SQL, values)):
        said.setdefault(turn_id, []).append(content)
        sources[turn_id] = Source(frozenset({turn_id}), started_at, expires_at)
    for turn_id, source in sources.items():
        yield " ".join(said[turn_id]), source


def _earlier_facts(execute: Execute, chat: ChatId) -> Iterator[tuple[str, Source]]:
    """Go through what is remembered, the latest first: the model is shown it as well."""
    for text, said_at, expires_at, turns in list(execute(FACTS_SQL, (chat,))):
        yield text, Source(frozenset(json.loads(turns)), said_at, expires_at)


def says_half(execute: Execute, turn_id: int, words: set[str]) -> bool:
    """Whether people have written at least half of some words in a turn."""
    sql = (
        "SELECT coalesce(group_concat(content, ' '), '') FROM messages"
        " WHERE turn_id = ? AND role = 'user' AND helper_of IS NULL"
    )
    ((asked,),) = execute(sql, (turn_id,))
    return shared(words, asked) * 2 >= len(words)


def telling_words(text: str) -> set[str]:
    """Return the words of a text by which it is known where it was taken from."""
    words = {
        word
        for word in re.findall(r"\w+", text.casefold())
        if len(word) >= MIN_LETTERS or not word.isalpha()
    }
    return set(sorted(words, key=lambda word: (-len(word), word))[:MAX_WORDS])


def shared(words: set[str], said: str) -> int:
    """Return how many of some words are in what was said."""
    said = said.casefold()
    return sum(word in said for word in words)
