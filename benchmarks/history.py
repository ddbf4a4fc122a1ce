"""Does a turn get slower as the store grows?

The same chats with the same history, once in a store of 1,000 messages and once in one of
1,000,000, where a chat's messages lie far apart. Loads of the two stores alternate, so that both
meet the same machine.
"""

import random
import sqlite3
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.platform import folder_on_disk
from benchmarks.report import Figure
from conversation_store.models import ChatId
from conversation_store.store import ConversationStore, open_store

SMALL: Final = 1_000
LARGE: Final = 1_000_000
QUICK_LARGE: Final = 10_000
TURNS_PER_CHAT: Final = 20
LOADS: Final = 2_000
QUICK_LOADS: Final = 50
HISTORY_BYTES: Final = 72_000
"""The room that the default of LLM__CONTEXT_TOKENS leaves."""

TURNS_SQL: Final = """
    WITH RECURSIVE numbers (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n + 1 < ?)
    INSERT INTO turns (id, chat, state, attempts, started_at)
    SELECT n + 1, 'direct:' || (n % ?), 'answered', 1, n FROM numbers
"""
MESSAGES_SQL: Final = """
    INSERT INTO messages (turn_id, role, content, created_at)
    SELECT turns.id, said.column1, said.column2, turns.started_at
    FROM turns, (VALUES ('user', ?), ('assistant', ?)) AS said
    ORDER BY turns.id
"""
QUESTION: Final = "[2026-01-01 12:00 UTC] " + "What do you think of the weather in Lisbon? " * 2
ANSWER: Final = "It is mild there, with some rain and a good deal of sun. " * 5


async def measure(*, quick: bool) -> Sequence[Figure]:
    """Return the median of many loads in each store, and their ratio."""
    large, loads = (QUICK_LARGE, QUICK_LOADS) if quick else (LARGE, LOADS)
    async with folder_on_disk() as folder:
        small_path, large_path = folder / "small.db", folder / "large.db"
        await _fill(small_path, SMALL)
        await _fill(large_path, large)
        async with open_store(small_path) as small_store, open_store(large_path) as large_store:
            small_ms, large_ms = await _alternate(small_store, large_store, large, loads)
    return (
        Figure(f"history load, {SMALL:,} messages", small_ms, "ms"),
        Figure(f"history load, {large:,} messages", large_ms, "ms"),
        Figure("history load, large to small", large_ms / small_ms, "times", at_most=1.5),
    )


async def _alternate(
    small: ConversationStore, large: ConversationStore, large_messages: int, loads: int
) -> tuple[float, float]:
    dice = random.Random(1)
    small_times, large_times = [], []
    for _ in range(loads):
        small_times.append(await _load(small, dice.randrange(_chats(SMALL))))
        large_times.append(await _load(large, dice.randrange(_chats(large_messages))))
    return statistics.median(small_times) * 1000, statistics.median(large_times) * 1000


async def _load(store: ConversationStore, chat: int) -> float:
    began = time.perf_counter()
    turns = (
        await store.turns.history(ChatId.parse(f"direct:{chat}"), max_bytes=HISTORY_BYTES)
    ).turns
    seconds = time.perf_counter() - began
    assert len(turns) == TURNS_PER_CHAT
    return seconds


async def _fill(path: Path, messages: int) -> None:
    async with open_store(path):
        pass
    database = sqlite3.connect(path)
    with database:
        database.execute(TURNS_SQL, (messages // 2, _chats(messages)))
        database.execute(MESSAGES_SQL, (QUESTION, ANSWER))
    database.close()


def _chats(messages: int) -> int:
    return messages // 2 // TURNS_PER_CHAT
