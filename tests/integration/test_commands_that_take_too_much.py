"""The pause after a command that exceeded a bound."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic

from tests.executing import Person, an_executor, run_call
from tests.integration.test_jail import NO_BUBBLEWRAP
from tools.base import Caller, Decision, ToolRequest
from tools.commands import PAUSE_SECONDS, open_commands
from tools.registry import Registry
from tools.sandbox.pool import SandboxPolicy
from tools.settings import COMMANDS, CommandSettings, WorkspaceSettings
from tools.workspace.workspaces import Workspaces

pytestmark = NO_BUBBLEWRAP

FLOOD = "for i in $(seq 80); do sleep 5 & done; wait"


class Calls:
    """Calls tools as the bot does."""

    def __init__(self, registry: Registry) -> None:
        self._executor = an_executor(registry)

    async def run_command(self, **arguments: str) -> str:
        request = ToolRequest(
            "call_1", "run_command", json.dumps(arguments), Caller("ada", "chat", is_admin=True)
        )
        result = await run_call(self._executor, request, person=Person(Decision.YES))
        assert result.outcome == "ok", result.content
        return result.content


@asynccontextmanager
async def commands(folder: Path) -> AsyncIterator[Calls]:
    settings = CommandSettings(approval="never")
    async with (
        Workspaces(folder, WorkspaceSettings(), str, SandboxPolicy()) as workspaces,
        open_commands(workspaces, settings) as tools,
    ):
        registry = Registry()
        registry.offer(COMMANDS, tools)
        yield Calls(registry)


async def test_floods_of_processes_are_followed_by_a_pause(
    tmp_path: Path,
) -> None:
    async with commands(tmp_path) as calls:
        begun = monotonic()
        for _ in range(2):
            assert "more than 64 processes" in await calls.run_command(command=FLOOD)
        assert monotonic() - begun >= 2 * PAUSE_SECONDS


async def test_a_command_that_took_its_whole_time_is_followed_by_no_pause(tmp_path: Path) -> None:
    async with commands(tmp_path) as calls:
        await calls.run_command(command="true")  # finds out the kind of jail
        begun = monotonic()
        await calls.run_command(command="sleep 9", timeout_seconds="1")
        assert monotonic() - begun < 1 + PAUSE_SECONDS
