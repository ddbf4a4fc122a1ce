"""Messages of a running bot to systemd."""

import asyncio
from pathlib import Path

from bot.observability.systemd import service_manager
from tests.e2e.running_bot import running_bot, world
from tests.fakes.notify_socket import NotifySocket, notify_socket
from tests.fakes.openai_server import held, script, text


async def status(systemd: NotifySocket, wanted: str) -> None:
    """Wait until this is its status line."""
    await systemd.until(lambda: systemd.statuses[-1:] == [wanted])


async def test_its_status_follows_the_connection_and_the_answers_in_progress(
    tmp_path: Path,
) -> None:
    think = asyncio.Event()
    async with (
        world(script(held(think, text("Here I am.")))) as here,
        notify_socket(tmp_path / "notify") as systemd,
    ):
        manager = service_manager({"NOTIFY_SOCKET": systemd.address})
        async with running_bot(here.settings(), manager=manager):
            await status(systemd, "Connected to Signal; answers in progress: 0.")
            await here.signal.say("hello")
            await status(systemd, "Connected to Signal; answers in progress: 1.")
            think.set()
            await here.answer()
            await here.signal.go_away()
            await status(systemd, "Not connected to Signal; answers in progress: 0.")


async def test_watchdog_is_not_fed_over_a_stuck_connection(tmp_path: Path) -> None:
    async with world() as here, notify_socket(tmp_path / "notify") as systemd:
        manager = service_manager({"NOTIFY_SOCKET": systemd.address, "WATCHDOG_USEC": "90000"})
        async with running_bot(here.settings(), manager=manager, stuck_seconds=0.0):
            await here.signal.say("hello")
            await here.answer()
        await systemd.line("STOPPING=1")
        assert "WATCHDOG=1" not in systemd.lines
