"""The machine's clock jumps: nothing is lost by it, and nothing stays for longer."""

import time
from dataclasses import dataclass, field
from datetime import UTC, datetime

import apsw

from bot.dispatch.background.steady_clock import SteadyClock
from tests.e2e.running_bot import World, running_bot, world
from tests.e2e.traces import gone, rows_with
from tests.fakes.signal_frames import data_message, message_frame
from tests.fakes.signal_side import ADA, BOT

YEARS = 10 * 365 * 86_400.0
SECRET = "sesquipedalian"


@dataclass(slots=True)
class Wall:
    """The machine's clock, which may be wrong."""

    ahead: float = 0.0
    clock: SteadyClock = field(init=False)

    def __post_init__(self) -> None:
        self.clock = SteadyClock(wall=self.seconds)

    def seconds(self) -> float:
        return time.time() + self.ahead


async def exchange(here: World, words: str, *, expires_seconds: int = 0) -> None:
    await here.signal.say(words, expires_seconds=expires_seconds)
    await here.answer()


def dates_in(here: World) -> str:
    """Return what the model was told about the time, last."""
    messages = here.model.requests[-1]["messages"]
    return f"{messages[0]['content']} {messages[-1]['content']}"


async def test_a_jump_ahead_lets_nothing_disappear_but_what_is_due() -> None:
    wall = Wall()
    async with world() as here, running_bot(here.settings(), clock=wall.clock):
        await exchange(here, "this stays")
        await exchange(here, "this stays for an hour", expires_seconds=3_600)
        wall.ahead = YEARS
        await exchange(here, SECRET, expires_seconds=1)
        await gone(here, SECRET)
        assert rows_with(here, "this stays for an hour")
        await exchange(here, "what did I say?")
        assert "this stays" in str(here.model.requests[-1])
        assert f"{datetime.now(UTC):%Y}" in dates_in(here)
        assert f"{datetime.now(UTC).year + 10}" not in dates_in(here)


async def test_whoever_writes_has_no_say_in_what_time_it_is() -> None:
    wall = Wall()
    async with world() as here, running_bot(here.settings(), clock=wall.clock):
        await exchange(here, "this stays")
        wall.ahead = YEARS
        frame = message_frame(BOT, ADA, data_message(BOT, int(wall.seconds() * 1_000), "hello"))
        for told_by_the_server in ("serverReceivedTimestamp", "serverDeliveredTimestamp"):
            del frame["envelope"][told_by_the_server]
        await here.signal.push(frame)
        await here.answer()
        assert f"{datetime.now(UTC):%Y}" in dates_in(here)
        assert f"{datetime.now(UTC).year + 10}" not in dates_in(here)


async def test_a_jump_back_keeps_nothing_for_longer() -> None:
    wall = Wall()
    async with world() as here, running_bot(here.settings(), clock=wall.clock):
        await exchange(here, SECRET, expires_seconds=2)
        wall.ahead = -YEARS
        await exchange(here, "hello", expires_seconds=1)
        await gone(here, SECRET)
        await gone(here, "hello")


async def test_a_start_with_a_clock_that_is_years_ahead_purges_nothing() -> None:
    async with world() as here:
        async with running_bot(here.settings()):
            await exchange(here, "this stays")
        async with running_bot(here.settings(), clock=Wall(YEARS).clock):
            await exchange(here, "what did I say?")
            assert "this stays" in str(here.model.requests[-1])
        async with running_bot(here.settings()):
            await exchange(here, "and now?")
            assert "this stays" in str(here.model.requests[-1])


async def test_a_start_with_a_clock_that_is_years_behind_goes_on_from_the_newest_message() -> None:
    async with world() as here:
        async with running_bot(here.settings()):
            await exchange(here, "this stays")
            await exchange(here, SECRET, expires_seconds=2)
        async with running_bot(here.settings(), clock=Wall(-YEARS).clock):
            await exchange(here, "what did I say?")
            await gone(here, SECRET)
            assert "this stays" in str(here.model.requests[-1])


async def test_what_came_while_the_clock_was_ahead_disappears_soon_after_it_is_right() -> None:
    wall = Wall(YEARS)
    async with world() as here, running_bot(here.settings(), clock=wall.clock):
        await here.signal.say(SECRET, expires_seconds=600)
        await here.answer()
        assert newest(here) > time.time() + YEARS / 2
        wall.ahead = 0.0
        await exchange(here, "hello")
        assert newest(here) <= time.time()
        assert latest_timer(here) <= time.time() + 600


def newest(here: World) -> float:
    return _number(here, "SELECT max(received_at) FROM inbox")


def latest_timer(here: World) -> float:
    return _number(here, "SELECT max(expires_at) FROM turns")


def _number(here: World, sql: str) -> float:
    database = apsw.Connection(str(here.folder / "store.db"))
    try:
        ((milliseconds,),) = database.execute(sql)
    finally:
        database.close()
    assert isinstance(milliseconds, int)
    return milliseconds / 1_000
