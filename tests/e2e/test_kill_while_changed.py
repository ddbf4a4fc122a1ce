"""`kill -9` while people write in pieces, edit and delete: the last words are what is answered.

What was deleted, has disappeared or reads otherwise by now is known nowhere in the end.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final

import apsw
import pytest

from bot.chat.handler import GIVEN_UP
from tests.e2e.daemon_process import HASTY, Daemon, daemon, ends_when_told, environment
from tests.e2e.restless import QUESTIONS, WORDS, Restless, Said
from tests.e2e.running_bot import World, world
from tests.e2e.stored import copied
from tests.e2e.test_kill import LIFE_SECONDS, End, Fate
from tests.e2e.traces import files_of, gone
from tests.fakes.signal_side import Sent

ORDINARY_KILLS: Final = 2
FULL_KILLS: Final = 150
SETTLE_SECONDS: Final = 0.03
FILE_IS_GONE: Final = "I could not get it from Signal."


@pytest.mark.parametrize(
    "kills", [ORDINARY_KILLS, pytest.param(FULL_KILLS, marks=pytest.mark.full)]
)
async def test_the_last_words_of_every_message_are_answered_however_often_the_bot_is_killed(
    kills: int, capsys: pytest.CaptureFixture[str]
) -> None:
    async with world() as here:
        trial = Trial(here, seed=kills)
        for _ in range(kills):
            await trial.live_and_be_killed()
        await trial.live_in_peace()
    with capsys.disabled():
        print(f"\n{trial.summary()}")  # noqa: T201 - the counts are part of the result


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the inbox."""

    id: int
    timestamp: int
    kind: str
    outcome: str | None
    turn_id: int


@dataclass(frozen=True, slots=True)
class Part:
    """A row of the outbox."""

    inbox_id: int
    chat: str
    kind: str
    text: str | None
    state: str
    signal_timestamp: int | None


@dataclass(frozen=True, slots=True)
class Stored:
    """What a store says: messages, what is to be sent and was, and every word in it."""

    rows: tuple[Row, ...] = ()
    parts: tuple[Part, ...] = ()
    words: frozenset[str] = frozenset()

    def row(self, kind: str, timestamp: int) -> Row | None:
        """Return what came in with a timestamp."""
        fits = (row for row in self.rows if (row.kind, row.timestamp) == (kind, timestamp))
        return next(fits, None)


class Trial:
    """Lives of a daemon, one after the other, on the same store and under the same traffic.

    Args:
        here: both sides of the daemon.
        seed: of the traffic, and of how and when the lives end.
    """

    def __init__(self, here: World, *, seed: int) -> None:
        self._here = here
        self._fates = Random(seed)
        self._fate: Fate | None = None
        self._ends: Counter[End] = Counter()
        self._people = Restless(here.signal, Random(seed), self._step)
        self._store = Stored()
        self._answered: set[frozenset[str]] = set()
        here.model.handler = self._people.model
        here.signal.data_dir = here.folder / "signal-cli"
        self._settings = environment(
            here,
            ACCESS__GROUPS="mention",
            BOT__SETTLE_SECONDS=str(SETTLE_SECONDS),
            SIGNAL__DATA_DIR=str(here.signal.data_dir),
            TOOLS__AUDIT_ARGUMENTS="keep",
            LLM__CONTEXT_TOKENS="3000",
            LOG__LEVEL="error",
        )

    async def live_and_be_killed(self) -> None:
        """Start the daemon, kill it, and look at what is left."""
        fate = self._fate = Fate(self._fates)
        self._ends[fate.end] += 1
        await self._people.write_everywhere()
        async with asyncio.timeout(LIFE_SECONDS):
            async with daemon(self._settings, folder=self._here.folder, module=HASTY) as running:
                await fate.befall(running)
        await self._look(running)

    async def live_in_peace(self) -> None:
        """Start the daemon, let it finish, and tell it to stop."""
        self._fate = None
        last_words = await self._people.last_words()
        async with daemon(self._settings, folder=self._here.folder, module=HASTY) as running:
            await self._here.signal.until(
                lambda: last_words <= {word for sent in self._sent() for word in _words(sent.text)}
            )
            for said in self._people.said.values():
                if said.disappears:
                    await gone(self._here, said.name)
            assert await ends_when_told(running, self._here)
        await self._look(running)
        self._check_answers()
        self._check_traces()

    def summary(self) -> str:
        """Return what happened in all lives together."""
        ends = ", ".join(f"{count} {end}" for end, count in sorted(self._ends.items()))
        outcomes = Counter(f"{row.kind} {row.outcome}" for row in self._store.rows)
        return f"{self._ends.total()} kills ({ends}): {dict(sorted(outcomes.items()))}"

    def _step(self) -> None:
        if self._fate is not None:
            self._fate.step()

    def _sent(self) -> list[Sent]:
        return [sent for sent in self._here.signal.sent if not sent.text.startswith("🔧")]

    # After every life

    async def _look(self, running: Daemon) -> None:
        await self._here.signal.wait_until_alone()
        before, self._store = self._store, read(self._here.folder / "store.db")
        assert not running.stderr
        known = {row.id for row in before.rows if row.outcome is not None}
        now = {row.id for row in self._store.rows if row.outcome is not None}
        assert known <= now, "Answered, then not"
        again = self._answered & {asked for asked in self._people.asked if asked}
        assert not again, "Asked again for a finished answer"
        self._people.asked.clear()
        self._answered |= {_words(sent.text) for sent in self._sent()}
        for said in self._people.said.values():
            if self._is_deleted(said):
                assert self._store.words.isdisjoint(said.all_words), "Deleted, and still known"

    def _is_deleted(self, said: Said) -> bool:
        row = self._store.row("deletion", said.deletion) if said.deletion else None
        return row is not None and row.outcome == "deleted"

    # In the end

    def _check_answers(self) -> None:
        assert not [row for row in self._store.rows if row.outcome is None]
        assert {part.state for part in self._store.parts} == {"sent"}
        marked = Counter(part.signal_timestamp for part in self._store.parts)
        assert marked.most_common(1)[0][1] == 1
        for said in self._people.said.values():
            row = self._store.row("message", said.timestamp)
            if said.addressed and row is not None and not self._is_deleted(said):
                self._check_answer(said, row)

    def _check_answer(self, said: Said, row: Row) -> None:
        """What people were last sent about a message is about how it reads now."""
        edits = [self._store.row("edit", timestamp) for timestamp in said.edits]
        rows = [row, *(edit for edit in edits if edit is not None)]
        last = max(number for number, edit in enumerate([row, *edits]) if edit is not None)
        turns = {row.turn_id for row in rows}
        if any(row.outcome == "deleted" for row in self._store.rows if row.turn_id in turns):
            return  # a piece of the same turn was taken back, and with it what was not sent
        texts = {sent.timestamp: sent.text for sent in self._here.signal.sent}
        about = [part for part in self._store.parts if part.inbox_id in turns]
        about = [part for part in about if part.kind == "text"]
        if said.chat.is_group and not about:
            return  # what its turn was told of others was taken back, and with it what was not sent
        assert about, f"No answer: {said} {rows}"
        newest = max(part.inbox_id for part in about)
        answer = " ".join(
            texts[part.signal_timestamp or 0] for part in about if part.inbox_id == newest
        )
        # A file is deleted once it was read; what begins afresh after that has to do without it.
        right = said.words(last) in answer or answer == GIVEN_UP or FILE_IS_GONE in answer
        assert right or said.disappears, f"{answer} is no answer to {said} {rows}"

    def _check_traces(self) -> None:
        """Nobody can read any more what is not to be read any more."""
        left = files_of(self._here)
        for said in self._people.said.values():
            forgotten = said.all_words if said.disappears or self._is_deleted(said) else []
            for words in forgotten:
                assert words not in self._store.words
                assert words.encode() not in left, f"{words} in the raw file: {said}"


def read(path: Path) -> Stored:
    """Read a store that nobody has open."""
    with copied(path) as database:
        return _tables(database)


def _tables(database: apsw.Connection) -> Stored:
    def select(sql: str) -> list[tuple[Any, ...]]:
        return database.execute(sql).fetchall()

    tables = [name for (name,) in select("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    if "facts" not in tables:
        return Stored()  # killed before its first commit
    rows = select(
        "SELECT id, timestamp, kind, outcome, coalesce(turn_id, id) FROM inbox ORDER BY id"
    )
    parts = select(
        "SELECT inbox_id, chat, kind, text, state, signal_timestamp FROM outbox"
        " WHERE inbox_id IS NOT NULL ORDER BY id"
    )
    return Stored(
        rows=tuple(Row(*row) for row in rows),
        parts=tuple(Part(*part) for part in parts),
        words=frozenset(_all_words(select, tables)),
    )


def _all_words(select: Any, tables: list[str]) -> Iterator[str]:
    """Yield every word but those of a running turn that is to be forgotten when it has ended.

    Such a turn was told a group's line that was deleted since. The next life ends it, and the check
    of traces in the end finds what it has left.
    """
    leaving = "SELECT id FROM turns WHERE state = 'running' AND expires_at = 0"
    for table in tables:
        columns = {name for _, name, *_ in select(f"PRAGMA table_info({table})")}
        derived = "turn_id" in columns and table not in {"inbox", "overheard"}
        kept = f" WHERE turn_id IS NULL OR turn_id NOT IN ({leaving})" if derived else ""
        for row in select(f"SELECT * FROM {table}{kept}"):
            yield from WORDS.findall(str(row))


def _words(text: str) -> frozenset[str]:
    return frozenset(QUESTIONS.findall(text))
