"""Disk full, signal-cli gone, model down, alone and together: the bot comes back by itself.

During the outage `/readyz` names the broken parts; afterwards every message has its one answer,
in the order of each chat.
"""

import asyncio
import re
import signal
from collections import defaultdict
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from typing import Final

import apsw
import pytest

from bot import app
from bot.errors import MessagesLost
from bot.foundation import Start
from bot.observability import metrics
from bot.signal.events import Person
from conversation_store.models import ChatId
from tests.e2e import scraped
from tests.e2e.daemon_process import Daemon, daemon, environment
from tests.e2e.running_bot import World, world
from tests.e2e.stored import read_store
from tests.fakes.notify_socket import notify_socket

READY_SECONDS: Final = 30.0
ROOM_AFTER_SECONDS: Final = 10.0
MOST_ROUNDS: Final = 25
ROUND_SECONDS: Final = 0.4

STORE: Final = "store"
MODEL: Final = "llm"
SIGNAL: Final = "signal"
PARTS: Final = (STORE, MODEL, SIGNAL)
"""Names in `/readyz`, in the order in which the parts fail here."""

NOTICED: Final = {STORE: "store.refuses", SIGNAL: "signal.reconnecting"}
BACK: Final = {STORE: "store.takes_again", SIGNAL: "signal.connected"}
STARTS: Final = {STORE: 1, SIGNAL: 2}
"""Log events of an outage and of its end, and how often the latter is logged by then; the first
connection of Signal counts too. Each readiness check asks the model."""

PEOPLE: Final = tuple(
    Person(aci=f"0d1e2f30-0000-4000-8000-{n:012}", name=f"Person {n}") for n in range(4)
)
GROUP: Final = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
WORD: Final = re.compile(r"\bw\d+\b")


@dataclass
class People:
    """People who write numbered words, some of them in a group; `said` has those of each chat."""

    here: World
    said: defaultdict[ChatId, list[str]] = field(default_factory=lambda: defaultdict(list))
    count: int = 0

    async def write(self) -> None:
        for person in PEOPLE:
            for group in (None, GROUP) if person is PEOPLE[0] else (None,):
                self.count += 1
                chat = ChatId.direct(person.aci) if group is None else ChatId.group(group)
                self.said[chat].append(f"w{self.count}")
                await self.here.signal.say(f"w{self.count}", author=person, group=group)

    async def answered(self) -> None:
        """Wait until each chat has read each of its words once, in order."""
        await self.here.signal.until(lambda: self.told() == self.said)

    def told(self) -> dict[ChatId, list[str]]:
        texts: defaultdict[ChatId, list[str]] = defaultdict(list)
        for sent in self.here.signal.sent:
            texts[sent.chat] += WORD.findall(sent.text)
        return texts


@pytest.mark.long
@pytest.mark.parametrize(
    "parts",
    [*(pytest.param((part,), marks=pytest.mark.full) for part in PARTS), PARTS],
    ids="+".join,
)
async def test_after_outages_everything_is_answered_once_and_in_order(
    parts: tuple[str, ...],
) -> None:
    async with world() as here:
        people = People(here)
        settings = environment(here, ACCESS__GROUPS="always", HEALTH__LISTEN=scraped.ANY_PORT)
        async with daemon(settings, folder=here.folder) as bot:
            port = await bot.port()
            await people.write()
            await people.answered()
            await all_noted(port)
            async with AsyncExitStack() as outages:
                for part in parts:
                    if part == STORE:
                        bot.leave_no_room()
                        outages.callback(bot.make_room)
                        await until_refused(bot, people)
                    elif part == SIGNAL:
                        await here.signal.go_away()
                        outages.push_async_callback(here.signal.come_back)
                    else:
                        await here.model.stop()
                        outages.push_async_callback(here.model.start)
                    await people.write()
                for part in NOTICED.keys() & parts:
                    await bot.event(NOTICED[part])
                assert (await readiness(port, without=set(parts))).keys() == set(PARTS)
                measured = await scraped.scrape(port)
                assert measured.value("store_writable") == (STORE not in parts)
            for part in BACK.keys() & parts:
                await bot.event(BACK[part], times=STARTS[part])
            await readiness(port, without=set())
            await people.write()
            await people.answered()
            bot.send_signal(signal.SIGTERM)
            assert await bot.exit_code() == 0
        kept = read_store(here.folder / "store.db")
        assert len(kept.outcomes) == people.count
        assert kept.answered == kept.outcomes.keys()
        assert kept.states == {"sent"}
        assert people.told() == people.said


@pytest.mark.long
async def test_messages_during_a_full_disk_survive_a_kill() -> None:
    async with world() as here, notify_socket(here.folder / "notify") as systemd:
        settings = environment(here, NOTIFY_SOCKET=systemd.address)
        async with daemon(settings, folder=here.folder) as bot:
            await here.asked("one")
            bot.leave_no_room()
            await here.signal.say("two")
            await bot.event("store.refuses")
            await here.signal.until(lambda: not here.signal.subscribed)
            await systemd.until(lambda: systemd.statuses[-1].startswith("Takes no messages: the "))
            await here.signal.say("three")
            await bot.killed()
        async with daemon(environment(here), folder=here.folder):
            await here.signal.wait_for(lambda sent: sent.text.endswith("three"))


@pytest.mark.full
async def test_shutdown_on_a_full_disk_waits_for_room_for_read_messages() -> None:
    async with world() as here:
        settings = environment(here)
        async with daemon(settings, folder=here.folder) as bot:
            await here.asked("one")
            bot.leave_no_room()
            await here.signal.say("two")
            await bot.event("store.refuses")
            bot.send_signal(signal.SIGTERM)
            await bot.event("app.stopping")
            asyncio.get_running_loop().call_later(ROOM_AFTER_SECONDS, bot.make_room)
            assert await bot.exit_code() == 0
            assert bot.events("app.messages_lost") == []
        async with daemon(settings, folder=here.folder):
            await here.signal.wait_for(lambda sent: sent.text.endswith("two"))


async def test_messages_not_stored_before_a_shutdown_are_counted_and_fail_the_exit() -> None:
    told_to_stop, ready = asyncio.Event(), asyncio.Event()
    before = lost_messages()
    async with world() as here:
        settings = here.settings()
        bot = asyncio.create_task(
            app.run(
                Start(settings),
                told_to_stop=told_to_stop,
                ready=ready.set,
                bounds=app.Bounds(grace_seconds=0.1, store_seconds=0.1),
            )
        )
        await ready.wait()
        other_program = apsw.Connection(str(settings.store.path))
        other_program.execute("BEGIN IMMEDIATE")
        await here.signal.say("hello")
        await here.signal.until(lambda: here.signal.undelivered == 0)
        told_to_stop.set()
        while lost_messages() == before:  # noqa: ASYNC110 - a counter has no event
            await asyncio.sleep(0.01)
        other_program.close()
        with pytest.raises(MessagesLost, match="could not take 1 message "):
            await bot
        assert lost_messages() == before + 1


def lost_messages() -> float:
    value: float = metrics.INTAKE.labels("lost")._value.get()
    return value


async def until_refused(bot: Daemon, people: People) -> None:
    """Write in all chats until the store refuses writes; its log may have had room left."""
    for _ in range(MOST_ROUNDS):
        await people.write()
        with suppress(TimeoutError):
            async with asyncio.timeout(ROUND_SECONDS):
                await bot.event(NOTICED[STORE])
                return


async def readiness(port: int, *, without: set[str]) -> dict[str, str]:
    """Wait until `/readyz` reports exactly these parts as broken; return its words by part."""
    async with asyncio.timeout(READY_SECONDS):
        while True:
            checks = await scraped.readiness(port)
            if {name for name, (ok, _) in checks.items() if not ok} == without:
                return {name: words for name, (_, words) in checks.items()}


async def all_noted(port: int) -> None:
    """Wait until the bot has recorded all its messages as sent; until then some may be in doubt."""
    async with asyncio.timeout(READY_SECONDS):
        while (await scraped.scrape(port)).value("unsent_messages"):
            pass
