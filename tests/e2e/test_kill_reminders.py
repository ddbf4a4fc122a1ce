"""`kill -9` while many reminders are due at once: each is said once, however often it comes.

Meanwhile the machine's clock jumps, and people change their time zones. A second copy is allowed
only of what Signal had taken and the store had not marked when the process was killed; each is
counted.
"""

import asyncio
import signal
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Final
from zoneinfo import ZoneInfo

import pytest

from bot.messaging.events import Person
from conversation_store.models import ChatId, ReceivedMessage
from conversation_store.store import open_store
from tests.e2e.daemon_process import Daemon, daemon, ends_when_told, environment
from tests.e2e.jumpy_bot import AHEAD
from tests.e2e.phones import SignalWithPhones
from tests.e2e.running_bot import World
from tests.e2e.stored import copied
from tests.e2e.test_kill_in_flight import phones
from tests.fakes.signal_side import BOT, Sent
from tests.unit.stores import now_ms

JUMPY: Final = "tests.e2e.jumpy_bot"
PEOPLE: Final = 10

ORDINARY: Final = (40, 2)
FULL: Final = (1_000, 100)
"""Reminders that are due at once, and kills."""

LIFE_SECONDS: Final = 15.0
START_SECONDS: Final = 0.8
MOMENT_SECONDS: Final = 3.0
"""How long a life waits for a reminder that may be the last; perhaps none is due."""
SOON_SECONDS: Final = 0.02
END_SECONDS: Final = 90.0
SETTLE_SECONDS: Final = 10.0
"""From the last reminder until a second copy that was confirmed is deleted."""

HOUR: Final = 3_600.0
JUMPS: Final = (0.0, 0.0, 240.0, -240.0, 2 * HOUR, -2 * HOUR, 10 * 365 * 24 * HOUR)
ZONES: Final = ("Pacific/Honolulu", "America/New_York", "Europe/Berlin", "Asia/Tokyo")
FIRST_ZONE: Final = "Pacific/Kiritimati"
"""Where every local time comes first; there in the end, everybody is reminded of everything."""


@pytest.mark.parametrize(
    ("reminders", "kills"),
    [
        pytest.param(*ORDINARY, marks=pytest.mark.long),
        pytest.param(*FULL, marks=pytest.mark.full),
    ],
)
async def test_each_of_many_reminders_is_said_once_however_often_the_bot_is_killed(
    reminders: int, kills: int, capsys: pytest.CaptureFixture[str]
) -> None:
    async with phones() as (here, side):
        trial = Trial(here, side, reminders, seed=kills)
        await trial.prepare()
        for _ in range(kills):
            await trial.live_and_be_killed()
        await trial.live_in_peace()
    with capsys.disabled():
        print(f"\n{trial.summary()}")  # noqa: T201 - the counts are part of the result


@dataclass(eq=False)
class Trial:
    """Lives of a daemon, one after the other, with reminders that are due in all of them.

    Attributes:
        here: both sides of the daemon.
        side: the Signal side, where half of the people's phones confirm what they get.
        count: how many reminders there are.
        seed: of how and when the lives end.
        may_come_again: reminders that Signal had and the store did not know of at a kill, each as
            often as that was so.
        unheard: reminders whose receipts were in a socket, or not yet stored, at a kill.
    """

    here: World
    side: SignalWithPhones
    count: int
    seed: int
    kills: int = 0
    may_come_again: Counter[str] = field(default_factory=Counter)
    unheard: set[str] = field(default_factory=set)
    _left: int = 0
    _running: Daemon | None = None

    def __post_init__(self) -> None:
        self._random = Random(self.seed)
        self._people = [Person(f"{n:08x}-0000-4000-8000-000000000000") for n in range(PEOPLE)]
        self._due = asyncio.Event()
        self._settings = environment(self.here, LOG__LEVEL="error")
        self.side.on_send = self._on_send
        self.side.away = frozenset(person.aci for person in self._people[::2])

    async def prepare(self) -> None:
        """Let everybody have reminders, all due within a minute: moments, and local times."""
        due = datetime.now(UTC).replace(microsecond=0)
        async with open_store(self.here.folder / "store.db") as store:
            for person in self._people:
                message = ReceivedMessage(
                    BOT.number, person.aci, now_ms(), ChatId.direct(person.aci), "hi", now_ms()
                )
                (asked,) = await store.messages.accept([message])
                assert asked is not None
                await store.reminders.set_zone(person.aci, ZONES[0], ())
                for number in range(self.count // PEOPLE):
                    moment = due + timedelta(seconds=number % 60)
                    local = moment.replace(tzinfo=None) if number % 2 else None
                    if local is not None:
                        moment = local.replace(tzinfo=ZoneInfo(ZONES[0])).astimezone(UTC)
                    await store.reminders.add(
                        person=person.aci,
                        chat=message.chat,
                        turn=asked.id,
                        call=f"call_{number}",
                        is_question=False,
                        text=f"{person.aci[:8]} {number}",
                        local_at=None if local is None else local.isoformat(),
                        repeat=None,
                        due_at=int(moment.timestamp() * 1_000),
                        at_most=self.count,
                    )
                await store.turns.answer(asked, (), outcome="command")

    async def live_and_be_killed(self) -> None:
        """Start the daemon with some clock, let somebody move, and kill it while it reminds."""
        self._jump(self._random.choice(JUMPS))
        self._left = self._random.randint(1, max(2, 2 * self.count // (3 * self.seed)))
        self._due.clear()
        zone, mover = self._random.choice(ZONES), self._random.choice(self._people)
        await self.side.say(f"!timezone {zone}", author=mover)
        async with asyncio.timeout(LIFE_SECONDS):
            async with daemon(self._settings, folder=self.here.folder, module=JUMPY) as running:
                self._running = running
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._patience()):
                        await self._due.wait()
                self._jump(self._random.choice(JUMPS))
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._random.uniform(0, SOON_SECONDS)):
                        await asyncio.Event().wait()
                await running.killed()
        self._running = None
        self.kills += 1
        await self.side.wait_until_alone()
        for text in self._waiting():
            self.may_come_again[text] += text in self._said_so_far()
        self._note_unheard()

    async def live_in_peace(self) -> None:
        """Let everybody go where every time has come, and be reminded of what is left."""
        self._jump(0.0)
        self._left = -1
        for person in self._people:
            await self.side.say(f"!timezone {FIRST_ZONE}", author=person)
        async with daemon(self._settings, folder=self.here.folder, module=JUMPY) as running:
            with suppress(TimeoutError):
                await self.side.until(
                    lambda: len(self._said_so_far()) == self.count, seconds=END_SECONDS
                )
            missing = self.count - len(self._said_so_far())
            assert not missing, f"{missing} are lost, or late"
            with suppress(TimeoutError):  # the last receipts may still be on their way
                await self.side.until(
                    lambda: self._confirmed_twice() <= self.unheard, seconds=SETTLE_SECONDS
                )
            assert await ends_when_told(running, self.here)
        await self.side.wait_until_alone()
        assert self._waiting() == []
        said = self._said_so_far()
        assert len(said) == self.count, "Lost"
        assert all(said[one] <= 1 + self.may_come_again[one] for one in said), "Said too often"
        confirmed = self._confirmed_twice()
        assert confirmed <= self.unheard, "Seen twice although a phone had confirmed it"

    def summary(self) -> str:
        """Return what happened in all lives together."""
        sends, twice = self._said_so_far(), self._twice()
        return (
            f"{self.kills} kills, {len(sends)} of {self.count} reminders said, none lost;"
            f" {sends.total() - len(sends)} of {sends.total()} sends were repetitions,"
            f" {self.may_come_again.total()} might have been; seen twice:"
            f" {len(twice & self.unheard)} whose receipt came just before a kill, and"
            f" {len(twice - self.unheard)} where phones confirm nothing"
        )

    def _twice(self) -> set[str]:
        """Return the reminders of which people see two copies."""
        seen = self._counted(self.side.visible())
        return {words for words in seen if seen[words] > 1}

    def _confirmed_twice(self) -> set[str]:
        """Return those of them that phones have confirmed."""
        prompt = {person.aci[:8] for person in self._people[1::2]}
        return {words for words in self._twice() if words.split()[0] in prompt}

    async def _on_send(self, sent: Sent) -> None:
        """Kill the daemon at one of its sends: Signal takes the message, and nobody is told."""
        if not sent.text.startswith("⏰"):
            return
        self._left -= 1
        if self._left == 0 and self._running is not None:
            if self._random.random() < 0.7:
                self._running.send_signal(signal.SIGKILL)
            self._due.set()

    def _patience(self) -> float:
        """Return how long a life waits for its moment; some end while they start."""
        is_starting = self._random.random() < 0.2
        return self._random.uniform(0, START_SECONDS) if is_starting else MOMENT_SECONDS

    def _said_so_far(self) -> Counter[str]:
        """Return which reminders people have got, and how often."""
        return self._counted(self.side.sent)

    def _counted(self, sent: Sequence[Sent]) -> Counter[str]:
        return Counter(_words(one.text) for one in sent if one.text.startswith("⏰ "))

    def _note_unheard(self) -> None:
        """Find what phones have confirmed to this life alone, which could not store it in time."""
        with copied(self.here.folder / "store.db") as store:
            stored = store.execute(
                "SELECT timestamp FROM confirmations UNION SELECT signal_timestamp FROM outbox"
            ).fetchall()
        lost = self.side.heard() - {timestamp for (timestamp,) in stored}
        self.unheard |= {_words(one.text) for one in self.side.sent if one.timestamp in lost}

    def _waiting(self) -> list[str]:
        """Return the reminders that the store has still to send."""
        with copied(self.here.folder / "store.db") as store:
            rows = store.execute("SELECT text FROM outbox WHERE state = 'waiting'").fetchall()
        texts = (str(text) for (text,) in rows)
        return [_words(text) for text in texts if text.startswith("⏰ ")]

    def _jump(self, seconds: float) -> None:
        """Let the machine's clock be ahead by so much from now on."""
        new = self.here.folder / f"{AHEAD}.new"
        new.write_text(str(seconds))
        new.replace(self.here.folder / AHEAD)


def _words(text: str) -> str:
    """Return what a reminder says, without what it says about being late."""
    return text.removeprefix("⏰ ").split("\n")[0]
