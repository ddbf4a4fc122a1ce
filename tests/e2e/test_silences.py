"""signal-cli is silent for some seconds, and drops the requests of this time.

Interrupted messages reach the phones soon after, once, and slow sends are awaited.
"""

import asyncio
import itertools
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest

from bot.signal.events import Person
from tests.e2e.running_bot import World, running_bot
from tests.fakes.openai_server import echo, openai_server
from tests.fakes.signal_cli import FallingSilent
from tests.fakes.signal_side import Sent

SILENCE_SECONDS: Final = 7.0
BETWEEN_SECONDS: Final = 6.0
SLOW_SECONDS: Final = 20.0
ON_THE_PHONES_SECONDS: Final = 15.0
QUESTIONS_PER_SECOND: Final = 4
EVERY_NTH_IN_A_GROUP: Final = 5


def person(number: int) -> Person:
    return Person(aci=f"{number:08x}-0000-4000-8000-000000000000")


@asynccontextmanager
async def world() -> AsyncIterator[tuple[World, FallingSilent]]:
    with tempfile.TemporaryDirectory(prefix="stb-") as name:
        path = Path(name) / "signal.sock"
        async with FallingSilent.listen(path) as side, openai_server(echo) as model:
            yield World(side, model, Path(name)), side


async def all_sent(side: FallingSilent) -> AsyncIterator[Sent]:
    """The messages of the bot, without an end."""
    while True:
        yield await side.next_sent(seconds=60.0)


class Phones:
    """All phones with their messages and times; they confirm at once."""

    def __init__(self, side: FallingSilent) -> None:
        self._side = side
        self.got_at: dict[str, float] = {}

    async def got_all_at(self, texts: Collection[str]) -> float:
        """Wait until all of that arrived, and return when the last did."""
        expected = set(texts)
        await self._side.until(lambda: self.got_at.keys() >= expected, seconds=60)
        return max(self.got_at[text] for text in expected)

    async def watch(self) -> None:
        async for sent in all_sent(self._side):
            self.got_at[sent.text.split()[-1]] = time.monotonic()
            if not sent.chat.is_group:
                await self._side.deliver_receipt(sent.timestamp, Person(aci=sent.chat.value))


@pytest.mark.full
async def test_after_two_silences_everything_is_on_the_phones_within_seconds_and_once() -> None:
    async def be_slow(sent: Sent) -> None:
        if sent.text.endswith("slow"):
            await asyncio.sleep(SLOW_SECONDS)

    asked: list[str] = []
    async with world() as (here, side), asyncio.TaskGroup() as tasks:
        settings = here.settings(access={"groups": "always"})
        async with running_bot(settings):
            side.on_send = be_slow
            phones = Phones(side)
            watching = tasks.create_task(phones.watch())
            asking = tasks.create_task(ask(side, asked))
            for number, group in enumerate((None, "U2xvd0dyb3VwU2xvd0dyb3VwU2xvd0dyb3VwU2xvd0c=")):
                await side.say(f"{number}slow", author=person(9_000 + number), group=group)
            for _ in range(2):
                await asyncio.sleep(BETWEEN_SECONDS)
                side.silent = True
                await asyncio.sleep(SILENCE_SECONDS)
                side.silent = False
                over = time.monotonic()
                assert await phones.got_all_at(asked) - over < ON_THE_PHONES_SECONDS
            asking.cancel()
            everything = {*asked, "0slow", "1slow"}
            await phones.got_all_at(everything)
            watching.cancel()
    got = Counter(sent.text.split()[-1] for sent in side.sent)
    assert got == Counter(everything)


async def ask(side: FallingSilent, asked: list[str]) -> None:
    """Write as new people all the time, sometimes in a group."""
    for number in itertools.count():
        group = f"{number:044}" if number % EVERY_NTH_IN_A_GROUP == 0 else None
        await side.say(f"q{number}", author=person(number), group=group)
        asked.append(f"q{number}")
        await asyncio.sleep(1 / QUESTIONS_PER_SECOND)
