"""What does it cost to have files and commands walled off?

Calls go through the executor as in a turn, without a person's yes. Their cost is the time beyond
the same program without walls, which is started and waited for in the same way.
"""

import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.platform import BenchmarkFailed
from benchmarks.report import Figure
from tools.base import Caller, Decision, ToolRequest, ToolResult
from tools.catalog import CATALOG, open_tools
from tools.executor import RateLimits, ToolExecutor
from tools.question import CallQuestion
from tools.sandbox.pool import SandboxPolicy
from tools.settings import CommandSettings, ToolsSettings, WorkspaceSettings
from tools.workspace.workspaces import Workspaces

CALLS: Final = 50
QUICK_CALLS: Final = 3
SECONDS: Final = 10.0
NOTHING: Final[Mapping[str, str]] = {"command": "true"}
WRITE: Final[Mapping[str, str]] = {"file_path": "notes.txt", "content": "some words\n" * 100}


async def _yes(_: ToolRequest, __: CallQuestion) -> Decision:
    return Decision.YES


async def _unstored(_: ToolRequest | ToolResult) -> None:
    return


async def measure(*, quick: bool) -> Sequence[Figure]:
    """Return the times of first and later calls."""
    calls = QUICK_CALLS if quick else CALLS
    async with _executor() as executor:
        first_file = await _milliseconds(executor, "write_file", WRITE)
        files = [await _milliseconds(executor, "write_file", WRITE) for _ in range(calls)]
        first_command = await _milliseconds(executor, "run_command", NOTHING)
        commands = [await _milliseconds(executor, "run_command", NOTHING) for _ in range(calls)]
        bare = [await _bare_milliseconds() for _ in range(calls)]
    without = statistics.median(bare)
    return (
        Figure("first file in a workspace", first_file, "ms", at_most=150),
        Figure("file in a workspace, p50", statistics.median(files), "ms", at_most=30),
        Figure("first command, beyond the program", first_command - without, "ms", at_most=150),
        Figure(
            "command, beyond the program, p50",
            statistics.median(commands) - without,
            "ms",
            at_most=30,
        ),
        Figure("the program without walls, p50", without, "ms"),
    )


@asynccontextmanager
async def _executor() -> AsyncIterator[ToolExecutor]:
    sandboxes = SandboxPolicy()
    settings = ToolsSettings(
        disabled=frozenset(CATALOG),
        workspace=WorkspaceSettings(**{"for": "everyone"}),
        commands=CommandSettings(approval="never"),
    )
    with tempfile.TemporaryDirectory() as folder:
        workspaces = Workspaces(Path(folder), settings.workspace, str, sandboxes)
        async with workspaces, open_tools(settings, sandboxes, workspaces=workspaces) as registry:
            limits = RateLimits(per_person=100_000, per_bot=100_000)
            yield ToolExecutor(registry, limits=limits, timeout_seconds=SECONDS)


async def _milliseconds(executor: ToolExecutor, tool: str, arguments: Mapping[str, str]) -> float:
    request = ToolRequest(
        "call_1", tool, json.dumps(arguments), Caller("somebody", "here", is_admin=True)
    )
    run = partial(executor.execute, request, ask=_yes, starting=_unstored, finished=_unstored)
    begun = time.perf_counter()
    result = await run()
    taken = time.perf_counter() - begun
    if result.outcome != "ok":
        raise BenchmarkFailed(f"{tool}: {result.content}")
    return taken * 1_000


async def _bare_milliseconds() -> float:
    begun = time.perf_counter()
    process = await asyncio.create_subprocess_exec("sh", "-c", NOTHING["command"])
    await process.wait()
    return (time.perf_counter() - begun) * 1_000
