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
from random import Random
from typing import Final

import pytest

from bot.backoff import Backoff
from bot.chat import outbox as outbox_module
from bot.chat.outbox import Outbox
from bot.signal.events import Person
from bot.signal.signal_daemon import DaemonTimeouts, SignalDaemon
from conversation_store.models import ChatId, OutgoingMessage, ReceivedMessage
from conversation_store.store import ConversationStore, open_store
from tests.contract.harnesses import Receiver, in_background
from tests.e2e.running_bot import World, running_bot
from tests.fakes.json_rpc_server import LostReply
from tests.fakes.openai_server import echo, openai_server
from tests.fakes.signal_cli import FallingSilent, SignalCli
from tests.fakes.signal_side import Sent

SILENCE_SECONDS: Final = 7.0
BETWEEN_SECONDS: Final = 6.0
SLOW_SECONDS: Final = 20.0
ON_THE_PHONES_SECONDS: Final = 15.0
QUESTIONS_PER_SECOND: Final = 4
EVERY_NTH_IN_A_GROUP: Final = 5

BOUNDS: Final = DaemonTimeouts(
    request=0.5,
    send=5.0,
    look=0.02,
    backoff=Backoff(first_seconds=0.01, longest_seconds=0.05),
)
"""The real waits, about thirty times as fast."""

RETRY: Final = Backoff(first_seconds=0.02, longest_seconds=0.1)


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


# At random, and thirty times as fast -------------------------------------------------------------


class Chance:
    """Reactions of a fuzzed Signal side to sends, and of phones to messages.

    Args:
        random: decides.
    """

    def __init__(self, side: SignalCli, random: Random) -> None:
        self._side = side
        self._random = random
        self.confirm_soon = {person(number).aci for number in range(0, 12, 2)}

    async def on_send(self, sent: Sent) -> None:
        """Take a while, and lose an answer now and then."""
        await asyncio.sleep(self._random.choice((0.0, 0.01, 0.06)))
        if sent.chat.value in self.confirm_soon and self._random.random() < 0.2:
            raise LostReply

    async def be_silent_now_and_then(self) -> None:
        while True:
            await asyncio.sleep(self._random.uniform(0.0, 0.2))
            self._side.silent = True
            await asyncio.sleep(self._random.uniform(0.0, 0.3))
            self._side.silent = False

    async def confirm(self, tasks: asyncio.TaskGroup) -> None:
        """Half of the phones confirm at once, some late and some never."""
        async for sent in all_sent(self._side):
            if sent.chat.value in self.confirm_soon:
                tasks.create_task(self._confirm(sent, self._random.uniform(0.0, 0.02)))
            elif self._random.random() < 0.5:
                tasks.create_task(self._confirm(sent, self._random.uniform(0.0, 0.5)))

    async def _confirm(self, sent: Sent, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await self._side.deliver_receipt(sent.timestamp, Person(aci=sent.chat.value))


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=pytest.mark.full) for seed in range(1, 4)]
)
async def test_random_silences_lose_nothing_and_repeat_nothing_that_a_phone_confirms(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox_module, "MAX_ATTEMPTS", 100)
    monkeypatch.setattr(outbox_module, "RETRY", RETRY)
    monkeypatch.setattr(outbox_module, "RECEIPT_SECONDS", 0.3)
    monkeypatch.setattr(outbox_module, "PASSED_OVER_SECONDS", 0.3)
    side = SignalCli(tmp_path / "signal-cli.sock")
    chance, receiver = Chance(side, Random(seed)), Receiver()
    await side.come_back()
    messenger = SignalDaemon(side.url, side.account.number, bounds=BOUNDS)
    async with (
        open_store(tmp_path / "store.db") as store,
        in_background(messenger.run(receiver.deliver)),
    ):
        await receiver.until(lambda: messenger.connected)
        side.on_send = chance.on_send
        outbox = Outbox(messenger, store)
        async with asyncio.TaskGroup() as troubles:
            silences = troubles.create_task(chance.be_silent_now_and_then())
            phones = troubles.create_task(chance.confirm(troubles))
            async with asyncio.TaskGroup() as tasks:
                for number in range(12):
                    parts = await to_send(store, number)
                    tasks.create_task(outbox.deliver(parts))
            silences.cancel()
            phones.cancel()
    await side.go_away()
    expected = Counter((person(n).aci, f"{n} {part}") for n in range(12) for part in range(4))
    got = Counter((sent.chat.value, sent.text) for sent in side.sent)
    assert expected.keys() == got.keys()
    assert [one for one in got if got[one] > 1 and one[0] in chance.confirm_soon] == []


async def to_send(store: ConversationStore, number: int) -> tuple[OutgoingMessage, ...]:
    """Store an answer in four parts."""
    chat, author = ChatId.direct(person(number).aci), person(number).aci
    message = ReceivedMessage("+49", author, 1, chat, "q", 1)
    (accepted,) = await store.messages.accept([message])
    assert accepted is not None
    texts = [f"{number} {part}" for part in range(4)]
    return await store.turns.answer(accepted, texts, outcome="command")
