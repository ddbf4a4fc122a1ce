"""systemd's watchdog is fed while the connection to Signal moves, and only then."""

from pathlib import Path

from bot.observability.systemd import service_manager
from tests.e2e.running_bot import running_bot, world
from tests.fakes.notify_socket import notify_socket


async def test_who_answers_over_a_connection_that_stands_still_is_not_fed(tmp_path: Path) -> None:
    async with world() as here, notify_socket(tmp_path / "notify") as systemd:
        manager = service_manager({"NOTIFY_SOCKET": systemd.address, "WATCHDOG_USEC": "90000"})
        async with running_bot(here.settings(), manager=manager, stuck_seconds=0.0):
            await here.signal.say("hello")
            await here.answer()
        await systemd.line("STOPPING=1")
        assert "WATCHDOG=1" not in systemd.lines
