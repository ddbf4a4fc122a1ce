"""Disk full, signal-cli gone, model down, alone and together: the bot comes back by itself.

Meanwhile `/readyz` names what is wrong; afterwards everything that people wrote has its one answer,
in the order of each chat.
"""

import asyncio
import signal
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import (
    AsyncExitStack,
    asynccontextmanager,
    suppress,
)
from itertools import combinations
from pathlib import Path
from random import Random
from typing import Final

import apsw
import pytest

from bot import app
from bot.errors import MessagesLost
from bot.foundation import Start
from bot.observability import metrics
from conversation_store.models import ChatId
from tests.e2e import scraped
from tests.e2e.daemon_process import Daemon, daemon, environment
from tests.e2e.disks import image_disk, memory_disk, mounted
from tests.e2e.running_bot import World, world
from tests.e2e.stored import read_store
from tests.e2e.traffic import GROUP, PEOPLE, Traffic, answers
from tests.fakes.notify_socket import notify_socket

READY_SECONDS: Final = 15.0
BEFORE: Final = 20
ROOM_AFTER_SECONDS: Final = 10.0
ALL_NOTED: Final = b"\nsignal_tee_bot_unsent_messages 0.0\n"

STORE: Final = "store"
MODEL: Final = "llm"
SIGNAL: Final = "signal"
PARTS: Final = (STORE, MODEL, SIGNAL)
"""As `/readyz` calls them, in the order in which they fail here."""

MOST_ROUNDS: Final = 25
ROUND_SECONDS: Final = 0.4
NOTICED: Final = {STORE: "store.refuses", SIGNAL: "signal.reconnecting"}
BACK: Final = {STORE: "store.takes_again", SIGNAL: "signal.connected"}
STARTS: Final = {STORE: 1, SIGNAL: 2}
"""What the log says of an outage and of its end, and how often by then: the first connection is
none. Each readiness check asks the model."""

CHATS: Final = (
    *(ChatId.direct(person.aci) for person in PEOPLE),
    ChatId.group(GROUP),
)
OUTAGES: Final = [
    *(
        pytest.param(parts, marks=pytest.mark.full)
        for count in (1, 2)
        for parts in combinations(PARTS, count)
    ),
    PARTS,
]
"""Two at once add little to one and three."""

Fill = Callable[[Daemon], None]


@pytest.mark.parametrize("parts", OUTAGES, ids="+".join)
async def test_after_outages_everything_is_answered_once_and_in_order(
    parts: tuple[str, ...],
) -> None:
    async with world() as here:
        store = here.folder / "store.db"
        await live_through(here, parts, store, Daemon.leave_no_room, Daemon.make_room)


@pytest.mark.full
async def test_bot_waits_for_a_full_disk_while_other_parts_are_down() -> None:
    async with world() as here:
        with mounted(memory_disk(here.folder / "disk")) as disk:
            store = disk.folder / "store.db"
            await live_through(
                here, PARTS, store, lambda _: disk.fill(), lambda _: disk.make_room()
            )


@pytest.mark.full
async def test_read_only_disk_is_named_and_the_start_after_its_repair_answers() -> None:
    async with world() as here:
        people = Traffic(here.signal, Random(1), lambda: None)
        people.goes_on = False
        here.model.handler = people.model
        image, folder = here.folder / "image", here.folder / "disk"
        settings = bot_settings(here, folder / "store.db")
        with mounted(image_disk(folder, image)) as disk:
            async with daemon(settings, folder=here.folder) as bot:
                port = await bot.port()
                await everybody_writes(people)
                await all_answered(here, people)
                await all_noted(port)  # else the next start first looks for proof of what was sent
                answered = {question.timestamp for question in people.said}
                disk.turn_read_only()
                await everybody_writes(people)
                assert "Nothing can be stored" in (await readiness(port, without={STORE}))[STORE]
                await bot.killed()
            # signal-cli loses frames to a dead process, until it notices the end.
            await here.signal.wait_until_alone()
        with mounted(image_disk(folder, image)) as disk:
            assert read_store(disk.folder / "store.db").answered == answered
            async with daemon(settings, folder=here.folder) as bot:
                await everybody_writes(people)
                await last_answered(here, people)
                assert await readiness(await bot.port(), without=set())


async def test_messages_during_a_full_disk_survive_a_kill() -> None:
    async with world() as here, notify_socket(here.folder / "notify") as systemd:
        settings = environment(here, NOTIFY_SOCKET=systemd.address)
        async with daemon(settings, folder=here.folder) as bot:
            await here.signal.say("one")
            await here.answer()
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
            await here.signal.say("one")
            await here.answer()
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


@pytest.mark.full
async def test_messages_lost_by_a_shutdown_on_a_full_disk_are_counted_and_reported() -> None:
    async with world() as here, daemon(environment(here), folder=here.folder) as bot:
        await here.signal.say("one")
        await here.answer()
        bot.leave_no_room()
        await here.signal.say("two")
        await bot.event("store.refuses")
        bot.send_signal(signal.SIGTERM)
        assert await bot.exit_code(seconds=45) == 1
        assert [event["count"] for event in bot.events("app.messages_lost")] == [1]
        assert "could not take 1 message " in "\n".join(bot.stderr)


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


async def until_refused(bot: Daemon, people: Traffic) -> None:
    """Write in all chats until the store takes nothing, because its log may have had room left."""
    for _ in range(MOST_ROUNDS):
        with suppress(TimeoutError):
            async with asyncio.timeout(ROUND_SECONDS):
                await bot.event(NOTICED[STORE])
                return
        await everybody_writes(people)


# The story ----------------------------------------------------------------------------------------


async def live_through(
    here: World, parts: tuple[str, ...], store: Path, fill: Fill, make_room: Fill
) -> None:
    """Parts fail under traffic and come back, and every answer is checked."""
    people = Traffic(here.signal, Random(len(parts)), lambda: None)
    here.model.handler = people.model
    async with daemon(bot_settings(here, store), folder=here.folder) as bot:
        port = await bot.port()
        await people.write_everywhere(lambda _: True)
        await here.signal.until(lambda: len(here.signal.sent) >= BEFORE)
        await people.last_words()
        await all_answered(here, people)
        await all_noted(port)
        async with AsyncExitStack() as outages:
            for part in parts:
                if part == STORE:
                    fill(bot)
                    outages.callback(make_room, bot)
                else:
                    await outages.enter_async_context(away(here, part))
                await everybody_writes(people)
                if part == STORE:
                    await until_refused(bot, people)
            for part in NOTICED.keys() & parts:
                await bot.event(NOTICED[part])
            assert (await readiness(port, without=set(parts))).keys() == set(PARTS)
        for part in BACK.keys() & parts:
            await bot.event(BACK[part], times=STARTS[part])
        await readiness(port, without=set())
        await everybody_writes(people)
        await all_answered(here, people)
        bot.send_signal(signal.SIGTERM)
        assert await bot.exit_code() == 0
    kept = read_store(store)
    assert kept.outcomes.keys() == {question.timestamp for question in people.said}
    assert kept.answered == kept.outcomes.keys()
    assert {part.state for part in kept.parts} == {"sent"}
    assert told(here) == expected(people)


def bot_settings(here: World, store: Path) -> dict[str, str]:
    """Return the settings of a bot with an open door and a health server."""
    return environment(
        here,
        ACCESS__GROUPS="always",
        STORE__PATH=str(store),
        HEALTH__LISTEN=scraped.ANY_PORT,
    )


@asynccontextmanager
async def away(here: World, part: str) -> AsyncIterator[None]:
    """Stop the Signal side, or the model, inside the block."""
    if part == SIGNAL:
        await here.signal.go_away()
        yield
        await here.signal.come_back()
    else:
        await here.model.stop()
        yield
        await here.model.start()


async def everybody_writes(people: Traffic) -> None:
    for chat in CHATS:
        await people.write(chat, "are you there?")


async def all_answered(here: World, people: Traffic) -> None:
    await here.signal.until(lambda: told(here) == expected(people))


def told(here: World) -> dict[ChatId, list[str]]:
    """Return the messages of each chat, in order."""
    texts: defaultdict[ChatId, list[str]] = defaultdict(list)
    for sent in answers(here.signal.sent):
        texts[sent.chat].append(sent.text)
    return texts


def expected(people: Traffic) -> dict[ChatId, list[str]]:
    """Return the expected messages of each chat, in order."""
    texts: defaultdict[ChatId, list[str]] = defaultdict(list)
    for question in people.said:
        texts[question.chat] += question.answer
    return texts


async def last_answered(here: World, people: Traffic) -> None:
    """Wait until each chat has the answer to its last message."""
    last = {question.chat: question.answer[-1] for question in people.said}

    def are_there() -> bool:
        return last.items() <= {chat: texts[-1] for chat, texts in told(here).items()}.items()

    try:
        await here.signal.until(are_there)
    except TimeoutError:
        raise AssertionError(f"Written: {people.said}. Told: {told(here)}") from None


# The machine --------------------------------------------------------------------------------------


async def readiness(port: int, *, without: set[str]) -> dict[str, str]:
    """Wait until `/readyz` finds fault with exactly these parts; return its words by part."""
    async with asyncio.timeout(READY_SECONDS):
        while True:
            checks = await scraped.readiness(port)
            if {name for name, (ok, _) in checks.items() if not ok} == without:
                return {name: words for name, (_, words) in checks.items()}


async def all_noted(port: int) -> None:
    """Wait until the bot has noted that Signal took all it sent; until then it may be in doubt."""
    async with asyncio.timeout(READY_SECONDS):
        while ALL_NOTED not in (await scraped.get(port, "/metrics"))[1]:
            pass
