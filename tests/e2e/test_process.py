"""The daemon as a process: start, stop, failures, and its visible parts."""

import asyncio
import signal
import socket
import sys
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from bot import __version__
from bot.signal.json_rpc import MAX_LINE_BYTES
from conversation_store.models import ChatId
from conversation_store.store import open_store
from tests.e2e.daemon_process import daemon, environment, run_command
from tests.e2e.running_bot import World, world
from tests.e2e.scraped import ANY_PORT, readiness
from tests.fakes.signal_side import ADA
from tests.processes import run_process

STORE_KEY: Final = "a key that nobody may see"


# Start and stop -----------------------------------------------------------------------------------


@pytest.mark.long
async def test_signal_side_may_be_away_at_start_in_between_and_at_the_end() -> None:
    async with world() as here:
        await here.signal.go_away()
        async with daemon(environment(here, LOG__LEVEL="debug"), folder=here.folder) as bot:
            await bot.event("signal.failed", times=3)
            await here.signal.say("hello")
            await here.signal.come_back()
            assert (await here.answer()).text.endswith("hello")
            for line in (b"{", b"\xff\xfe", b"[]", b"null", b"x" * (MAX_LINE_BYTES + 1)):
                await here.signal.push_line(line)
            await here.signal.say("and now?")
            assert (await here.answer()).text.endswith("and now?")
            tried = len(bot.events("signal.failed"))
            await here.signal.go_away()
            await bot.event("signal.failed", times=tried + 1)
            bot.send_signal(signal.SIGTERM)
            assert await bot.exit_code() == 0
    levels = [event["level"] for event in bot.events("signal.failed")][: tried + 1]
    assert levels == ["warning", *["debug"] * (tried - 1), "warning"]
    assert "Traceback" not in "\n".join(bot.stderr)


# Mistakes of people --------------------------------------------------------------------------


async def test_each_wrong_setting_has_its_line_without_its_value(tmp_path: Path) -> None:
    settings = {
        "SIGNAL__PHONE_NUMBER": "0151 sesame",
        "LLM__API_KEY": "schlüssel sesame",
        "STORE__PTH": "sesame",
    }
    code, out, err = await run_command(["run"], settings, folder=tmp_path)
    assert (code, out) == (2, "")
    named = {line.split(":")[0] for line in err.splitlines()}
    assert named == settings.keys()
    assert "sesame" not in err


@pytest.mark.long
@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("STORE__KEY", "the key does not fit"),
        ("STORE__PATH", "is a folder"),
        ("HEALTH__LISTEN", "cannot be listened on: Address already in use"),
    ],
)
async def test_a_failed_start_is_explained_in_one_line(setting: str, said: str) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        async with world() as here:
            async with open_store(here.folder / "store.db", key="another key"):
                pass
            values = {
                "STORE__KEY": STORE_KEY,
                "STORE__PATH": str(here.folder),
                "HEALTH__LISTEN": f"127.0.0.1:{taken.getsockname()[1]}",
            }
            settings = environment(here, STORE__KEY="another key")
            settings |= {setting: values[setting]}
            code, _, err = await run_command(["run"], settings, folder=here.folder)
    assert (code, err.count("\n")) == (1, 1)
    assert err.startswith(f"{setting}: ")
    assert said in err


@pytest.mark.long
async def test_a_second_daemon_leaves_the_store_alone() -> None:
    async with world() as here, daemon(environment(here), folder=here.folder) as first:
        await first.event("app.started")
        code, _, err = await run_command(["run"], environment(here), folder=here.folder)
        assert (code, err.count("\n")) == (1, 1)
        assert err.startswith(
            "STORE__PATH: another process uses this store; stop that process first"
        )
        code, _, err = await run_command(
            ["backup", "missing/copy.db"], environment(here), folder=here.folder
        )
        assert code == 1
        assert err.startswith(
            "backup: the copy cannot be written: No such file or directory (from "
        )
        await here.signal.say("hello")
        assert (await here.answer()).text.endswith("hello")


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ("--version", f"signal-tee-bot {__version__}"),
        ("--help", "usage: signal-tee-bot"),
        ("completion bash", "complete"),
    ],
)
async def test_version_help_and_completion_need_no_settings_and_import_nothing_heavy(
    arguments: str, shown: str, tmp_path: Path
) -> None:
    settings = {"PYTHONPROFILEIMPORTTIME": "1"}
    program = (sys.executable, "-m", "bot", *arguments.split())
    out, err, code = await run_process(*program, folder=tmp_path, environment=settings)
    assert (code, shown in out) == (0, True)
    imported = {line.rsplit("|", 1)[-1].strip() for line in err.splitlines()}
    assert "bot.cli.main" in imported
    assert imported.isdisjoint({"pydantic", "httpx2", "aiohttp", "apsw", "structlog", "bot.app"})


# What others see ----------------------------------------------------------------------------------


@pytest.mark.long
async def test_a_readiness_check_asks_the_model_once_for_a_while() -> None:
    async with world() as here:
        settings = environment(here, HEALTH__LISTEN=ANY_PORT)
        async with daemon(settings, folder=here.folder) as bot:
            port = await bot.port()
            await bot.event("signal.connected")
            assert all(ok for ok, _ in (await readiness(port)).values())
            asked = _listings(here)
            assert all(ok for ok, _ in (await readiness(port)).values())
            assert _listings(here) == asked  # the second check uses the first result


@pytest.mark.full
async def test_a_backup_under_traffic_is_a_store_that_opens() -> None:
    async with world() as here:
        settings = environment(here, STORE__KEY=STORE_KEY)
        async with daemon(settings, folder=here.folder):
            writing = asyncio.create_task(keep_asking(here))
            await here.signal.until(lambda: len(here.signal.sent) >= 20)
            code, _, err = await run_command(["backup", "copy.db"], settings, folder=here.folder)
            sent = len(here.signal.sent)
            await here.signal.until(lambda: len(here.signal.sent) > sent)
            writing.cancel()
        assert (code, err) == (0, "")
        async with open_store(here.folder / "copy.db", key=STORE_KEY) as copy:
            assert (await copy.turns.history(ChatId.direct(ADA.aci), max_bytes=100_000)).turns


async def keep_asking(here: World) -> None:
    while True:
        await here.asked("hello")


def _listings(here: World) -> int:
    """Return how often the model's endpoint was asked what it has."""
    return sum(request.path == "/v1/models" for request in here.model.received)
