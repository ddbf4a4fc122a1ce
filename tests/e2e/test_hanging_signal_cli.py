"""A signal-cli of the bot's own that lives and does not answer: ended, started again, and said."""

import asyncio
import os
import signal
import tempfile
from pathlib import Path
from typing import Final

import pytest

from tests.e2e.daemon_process import daemon, environment
from tests.e2e.running_bot import world
from tests.e2e.scraped import ANY_PORT, readiness, scrape
from tests.fakes.openai_server import text
from tests.fakes.signal_cli_program import install, starts, texts_sent
from tests.integration.test_spawned import alive, until

PROMISED_SECONDS: Final = 40.0


@pytest.mark.full  # it takes the times that the bot really waits
async def test_dead_signal_cli_restarts_within_40_seconds_and_messages_are_answered() -> None:
    with tempfile.TemporaryDirectory(prefix="stb-") as name:
        programs = install(Path(name))
        async with world(text("Here I am.")) as here:
            settings = environment(
                here,
                SIGNAL__URL="spawn:",
                PATH=f"{programs}:{os.environ['PATH']}",
                HEALTH__LISTEN=ANY_PORT,
            )
            async with daemon(settings, folder=here.folder) as bot:
                port = await bot.port()
                await until(lambda: texts_sent(programs) == ["Here I am."])
                [first] = starts(programs)
                os.kill(first["pid"], signal.SIGSTOP)
                async with asyncio.timeout(PROMISED_SECONDS):
                    await until(lambda: bot.events("signal_cli.silent"))
                    well, words = (await readiness(port))["signal"]
                    assert (well, "does not answer" in words) == (False, True)
                    await until(lambda: len(starts(programs)) == 2)
                assert bot.events("signal_cli.hangs")
                assert not alive(first["pid"])
                # Each start has a message that waited at Signal.
                await until(lambda: texts_sent(programs) == ["Here I am."] * 2)
                assert (await readiness(port))["signal"] == (True, "Connected.")
                scraped = await scrape(port)
                assert scraped.value("signal_cli_restarts_total", reason="silent") == 1
