"""No file and no connection can be opened any more: the bot lives on, and goes on afterwards."""

import asyncio
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.daemon_process import Daemon, daemon, environment
from tests.e2e.running_bot import world
from tests.e2e.scraped import ANY_PORT
from tests.e2e.test_conversation import CALCULATE
from tests.e2e.traces import gone, there
from tests.fakes.openai_server import script, text, tool_calls

BUSY_SHARE = 0.5
FLOOD = 200
BOUND = 160


def used(bot: Daemon) -> int:
    try:
        return len(list(Path(f"/proc/{bot._process.pid}/fd").iterdir()))
    except PermissionError:
        pytest.skip("only root may look into the bot")


def cpu_seconds(bot: Daemon) -> float:
    fields = Path(f"/proc/{bot._process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def at_most(bot: Daemon, descriptors: int) -> Iterator[None]:
    """Limit the bot to so many open files and connections inside the block."""
    pid = bot._process.pid
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (descriptors, before[1]))
    yield
    resource.prlimit(pid, resource.RLIMIT_NOFILE, before)


async def health(port: int) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
    try:
        return await reader.read()
    finally:
        writer.close()


@pytest.mark.full
async def test_a_conversation_needs_no_further_descriptor_and_neither_does_the_store() -> None:
    async with world() as here, daemon(environment(here), folder=here.folder) as bot:
        await here.signal.say("hello")
        await here.answer()
        with at_most(bot, used(bot)):
            for number in range(30):
                await here.signal.say(f"number {number}")
                assert (await here.answer()).text.endswith(f"number {number}")
            await here.signal.say("sesquipedalian", expires_seconds=1)
            await here.answer()
            await gone(here, "sesquipedalian")
            await here.signal.say("!clear")
            assert "afresh" in (await here.answer()).text


@pytest.mark.full
async def test_bot_without_descriptors_idles_and_then_goes_on_by_itself() -> None:
    async with world(text("here I am")) as here:
        settings = environment(here, HEALTH__LISTEN=ANY_PORT, LOG__LEVEL="debug")
        async with daemon(settings, folder=here.folder) as bot:
            port = await bot.port()
            await bot.event("signal.connected")
            with at_most(bot, used(bot)):
                await here.signal.say("is anybody there?")
                await there(here, "is anybody there?")
                await bot.event("llm.retry")
                began, cpu = time.monotonic(), cpu_seconds(bot)
                asked = [asyncio.create_task(health(port)) for _ in range(20)]
                # With the connection to Signal a descriptor comes free, which another takes.
                await here.signal.go_away()
                await bot.event("library.warning", times=2)
                await here.signal.come_back()
                await bot.event("signal.failed", times=4)
                share = (cpu_seconds(bot) - cpu) / (time.monotonic() - began)
                assert share < BUSY_SHARE
            assert (await here.answer()).text == "here I am"
            answers = await asyncio.gather(*asked)
            assert all(answer.startswith(b"HTTP/1.1 200") for answer in answers)
            assert not bot.events("app.bug")


async def test_a_tool_that_cannot_start_is_said_to_the_model_and_works_later() -> None:
    steps = (text("hello"), *(tool_calls(CALCULATE), text("done")) * 2)
    async with world(script(*steps)) as here, daemon(environment(here), folder=here.folder) as bot:
        await here.signal.say("hello")
        await here.answer()
        with at_most(bot, used(bot)):
            await here.signal.say("how much is it?")
            assert (await here.answer()).text == "done"
        assert "5461" not in str(here.model.requests[-1]["messages"])
        await here.signal.say("and now?")
        assert (await here.answer()).text == "done"
        assert "5461" in str(here.model.requests[-1]["messages"])


async def test_flood_of_health_connections_leaves_descriptors_for_signal_and_the_model() -> None:
    async with world(text("here I am")) as here:
        settings = environment(here, HEALTH__LISTEN=ANY_PORT)
        async with daemon(settings, folder=here.folder) as bot:
            port = await bot.port()
            await bot.event("signal.connected")
            with at_most(bot, BOUND):
                flood = [await asyncio.open_connection("127.0.0.1", port) for _ in range(FLOOD)]
                await here.signal.go_away()
                await bot.event("signal.reconnecting")
                await here.signal.come_back()
                await here.signal.say("is anybody there?")
                assert (await here.answer()).text == "here I am"
                assert used(bot) < BOUND / 2
                for _, writer in flood:
                    writer.close()
            assert not bot.events("library.warning")


def test_limit_is_raised_as_far_as_possible_and_a_low_one_is_reported() -> None:
    program = (
        "import resource; from bot.observability.process import prepare_descriptors;"
        "prepare_descriptors(model_connections=32);"
        "print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])"
    )
    for hard, says in ((4_096, False), (256, True)):
        done = subprocess.run(
            [sys.executable, "-c", program],
            preexec_fn=lambda hard=hard: resource.setrlimit(  # type: ignore[misc]
                resource.RLIMIT_NOFILE, (128, hard)
            ),
            capture_output=True,
            text=True,
            timeout=20,
            check=True,
        )
        assert str(hard) in done.stdout
        assert ("descriptors.few" in done.stdout) is says
