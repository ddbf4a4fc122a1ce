"""Out of file descriptors: the bot survives, and works again afterwards."""

import asyncio
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.daemon_process import Daemon, daemon, environment
from tests.e2e.running_bot import world
from tests.e2e.scraped import ANY_PORT
from tests.e2e.test_conversation import CALCULATE
from tests.fakes.openai_server import script, text, tool_calls

FLOOD = 200
BOUND = 160


def used(bot: Daemon) -> int:
    try:
        return len(list(Path(f"/proc/{bot._process.pid}/fd").iterdir()))
    except PermissionError:
        pytest.skip("only root may look into the bot")


@contextmanager
def at_most(bot: Daemon, descriptors: int) -> Iterator[None]:
    """Limit the bot to so many open files and connections inside the block."""
    pid = bot._process.pid
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (descriptors, before[1]))
    yield
    resource.prlimit(pid, resource.RLIMIT_NOFILE, before)


@pytest.mark.long
async def test_bot_without_descriptors_answers_and_everything_works_later() -> None:
    steps = (text("hello"), *(tool_calls(CALCULATE), text("done")) * 2, text("here I am"))
    async with world(script(*steps)) as here:
        settings = environment(here, HEALTH__LISTEN=ANY_PORT)
        async with daemon(settings, folder=here.folder) as bot:
            port = await bot.port()
            await here.signal.say("hello")
            await here.answer()
            with at_most(bot, used(bot)):
                await here.signal.say("how much is it?")
                assert (await here.answer()).text == "done"
            assert "5461" not in str(here.model.requests[-1]["messages"])
            await here.signal.say("and now?")
            assert (await here.answer()).text == "done"
            assert "5461" in str(here.model.requests[-1]["messages"])

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
