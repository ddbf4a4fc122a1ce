"""`kill -9` while answers are on their way: nothing is lost, and phones that confirm see it once.

Signal has taken an answer before the bot is told so. Whatever is in flight at a kill stands
unmarked in the store, whether it arrived or not.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from random import Random
from typing import Final

import pytest

from bot.messaging.events import Person
from tests.e2e.daemon_process import HASTY, Daemon, daemon, environment
from tests.e2e.phones import SignalWithPhones
from tests.e2e.running_bot import World, world
from tests.e2e.stored import copied
from tests.fakes.openai_server import Request, text, tool_calls

GROUP: Final = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
PROMPT, LATE, NEVER = (
    tuple(Person(aci=f"0d1e2f3{kind}-0000-4000-8000-{n:012}", name=f"{n}") for n in range(3))
    for kind in range(3)
)
WRITERS: Final = (
    *((person, None) for person in (*PROMPT, *LATE, *NEVER)),
    *((person, GROUP) for person in PROMPT),
)
TOLD_LATE_SECONDS: Final = (0.15, 0.25)
LIFE_SECONDS: Final = 20.0
MAX_UNANSWERED: Final = 6
"""Nobody writes on and on without an answer; the bot refuses what a full mailbox cannot hold."""

PEACE_SECONDS: Final = 90.0
"""To a phone that never confirms, whatever it missed is sent again and again, one by one."""


@pytest.mark.parametrize(
    ("kills", "seed"),
    [(1, 0), *(pytest.param(50, seed, marks=pytest.mark.full) for seed in range(1, 5))],
)
async def test_an_answer_in_flight_at_a_kill_is_seen_once_where_a_phone_confirms(
    kills: int, seed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    async with phones() as (here, signal):
        trial = _Trial(here, signal, Random(seed))
        for _ in range(kills):
            await trial.live_and_be_killed()
        await trial.live_in_peace()
        seen = {sent.text for sent in signal.visible()}
    assert trial.said <= seen, "Lost"
    assert not trial.twice(), "Seen twice"
    with capsys.disabled():
        print(f"\n{trial.summary()}")  # noqa: T201 - the counts are part of the result


@asynccontextmanager
async def phones() -> AsyncIterator[tuple[World, SignalWithPhones]]:
    """Provide a world whose people's phones confirm what they get."""
    async with world() as plain:
        await plain.signal.go_away()
        signal = SignalWithPhones(plain.signal.path)
        await signal.come_back()
        try:
            yield replace(plain, signal=signal), signal
        finally:
            await signal.go_away()


class _Trial:
    """Lives of a daemon that is killed while its answers are on their way.

    Attributes:
        said: the answers that people are owed.
        by: who asked for each.
        at: when each question was written, its timestamp in ms.
        unread: answers to questions that were in a socket at a kill, and never accepted.
        unheard: answers whose receipts were in a socket, or not yet stored, at a kill.
    """

    def __init__(self, here: World, signal: SignalWithPhones, random: Random) -> None:
        self.said: set[str] = set()
        self.by: dict[str, Person] = {}
        self.at: dict[str, int] = {}
        self.unread: set[str] = set()
        self.unheard: set[str] = set()
        self._here = here
        self._signal = signal
        self._random = random
        self._settings = environment(
            here, ACCESS__GROUPS="always", LOG__LEVEL="error", BOT__STEERING="false"
        )
        signal.away = frozenset(person.aci for person in (*LATE, *NEVER))
        here.model.handler = _answer

    async def live_and_be_killed(self) -> None:
        """Write in every chat, and kill the daemon when some answers are on their way."""
        signal = self._signal
        signal.tells_after_seconds = self._random.choice(TOLD_LATE_SECONDS)
        for writer, group in WRITERS:
            if self._unanswered(writer) < MAX_UNANSWERED:
                await self._write(writer, group)
        enough = len(signal.sent) + self._random.randint(1, len(WRITERS))
        async with self._living() as running:
            await signal.until(lambda: len(signal.sent) >= enough, seconds=LIFE_SECONDS)
            await asyncio.sleep(self._random.uniform(0, signal.tells_after_seconds))
            await running.killed()
        self._note_unread()
        self._note_unheard()

    def _note_unread(self) -> None:
        """Find the questions of this life that the bot had not stored yet: nobody repeats them."""
        with copied(self._here.folder / "store.db") as database:
            accepted = {one for (one,) in database.execute("SELECT timestamp FROM inbox")}
        known = accepted | self._signal.unread()
        lost = {words for words in self.said if self.at[words] not in known}
        self.said -= lost
        self.unread |= lost

    def _note_unheard(self) -> None:
        """Find the receipts of this life that no later one can know of: nobody sends them again."""
        heard = self._signal.heard()
        with copied(self._here.folder / "store.db") as database:
            stored = database.execute(
                "SELECT timestamp FROM confirmations UNION SELECT signal_timestamp FROM outbox"
            ).fetchall()
        lost = heard - {timestamp for (timestamp,) in stored}
        self.unheard |= {one.text for one in self._signal.sent if one.timestamp in lost}

    def summary(self) -> str:
        """Return what happened in all lives together."""
        sends = [sent for sent in self._signal.sent if not sent.text.startswith("🔧")]
        return (
            f"{len(self.said)} answers in {len(sends)} sends, {len(self._signal.deleted)} copies"
            f" deleted; just before a kill came {len(self.unheard)} receipts and"
            f" {len(self.unread)} questions"
        )

    async def live_in_peace(self) -> None:
        """Let everything be answered, and phones that were away come back."""
        signal = self._signal
        async with self._living():
            await signal.until(self._is_all_answered, seconds=PEACE_SECONDS)
            signal.away = frozenset(person.aci for person in NEVER)
            await signal.confirm_everything()
            for person in (*PROMPT, *LATE):
                await self._write(person, None)
            await signal.until(self._is_all_answered, seconds=PEACE_SECONDS)
            with suppress(TimeoutError):
                await signal.until(lambda: not self.twice(), seconds=PEACE_SECONDS)

    def twice(self) -> set[str]:
        """Return what somebody sees twice whose phone has confirmed it and was heard."""
        seen = Counter(sent.text for sent in self._signal.visible())
        twice = {words for words, times in seen.items() if times > 1} - self.unheard
        return {words for words in twice if self.by[words] not in NEVER}

    def _unanswered(self, person: Person) -> int:
        sent = {one.text for one in self._signal.sent}
        return sum(self.by[words] == person for words in self.said - sent)

    def _is_all_answered(self) -> bool:
        return self.said <= {sent.text for sent in self._signal.sent}

    @asynccontextmanager
    async def _living(self) -> AsyncIterator[Daemon]:
        async with daemon(self._settings, folder=self._here.folder, module=HASTY) as running:
            yield running
        await self._signal.wait_until_alone()

    async def _write(self, person: Person, group: str | None) -> None:
        name = f"q{len(self.by)}"
        words = f"{name}: {'what is 2*3?' if self._random.random() < 0.2 else 'hello'}"
        self.said.add(f"{name} heard")
        self.by[f"{name} heard"] = person
        self.at[f"{name} heard"] = await self._signal.say(words, author=person, group=group)


async def _answer(request: Request, writer: asyncio.StreamWriter) -> None:
    """Answer with the question's name, after a calculation where one is asked for."""
    messages = request.body["messages"]
    asked = next(m["content"] for m in reversed(messages) if m["role"] == "user")
    if "2*3" in asked and messages[-1]["role"] != "tool":
        await tool_calls(("calculate", {"expression": "2*3"}))(request, writer)
        return
    await text(f"{asked.rsplit(': ', 1)[0].rsplit(maxsplit=1)[-1]} heard")(request, writer)
