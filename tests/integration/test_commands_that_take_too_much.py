"""How soon the next command runs after one that was ended for what it took."""

from pathlib import Path
from time import monotonic

from tests.integration.test_command_network import ADMIN, commands
from tests.integration.test_jail import NO_BUBBLEWRAP
from tools.commands.tool import PAUSE_SECONDS

pytestmark = NO_BUBBLEWRAP

FLOOD = "for i in $(seq 80); do sleep 5 & done; wait"


async def test_whoever_tries_again_at_once_does_not_start_hundreds_of_processes_a_second(
    tmp_path: Path,
) -> None:
    async with commands(tmp_path, approval="never", network=False) as calls:
        begun = monotonic()
        for _ in range(2):
            assert "more than 64 processes" in await calls.call(ADMIN, "run_command", command=FLOOD)
        assert monotonic() - begun >= 2 * PAUSE_SECONDS


async def test_a_command_that_took_its_whole_time_is_followed_by_no_pause(tmp_path: Path) -> None:
    async with commands(tmp_path, approval="never", network=False) as calls:
        await calls.call(ADMIN, "run_command", command="true")  # finds out the kind of jail
        begun = monotonic()
        await calls.call(ADMIN, "run_command", command="sleep 9", timeout_seconds="1")
        assert monotonic() - begun < 1 + PAUSE_SECONDS
