"""Calls a tool of a workspace and prints, as JSON on one line, what it says and what is left.

`python -m tests.fakes.workspace_caller`
"""

import asyncio
import json
import tempfile
from pathlib import Path

from structlog.testing import capture_logs

from tests.executing import run_call
from tests.integration.test_sandbox import AskNobody, Ignore
from tools.base import Caller, ToolRequest
from tools.catalog import WORKSPACE, open_tools
from tools.executor import RateLimits, ToolExecutor
from tools.sandbox.pool import SandboxPolicy
from tools.settings import ToolsSettings, WorkspaceSettings
from tools.workspace.workspaces import Workspaces


async def main(folder: Path) -> None:
    policy = SandboxPolicy()
    settings = ToolsSettings(workspace=WorkspaceSettings(**{"for": "everyone"}))
    async with (
        Workspaces(folder, settings.workspace, str, policy) as workspaces,
        open_tools(settings, policy, workspaces=workspaces) as registry,
    ):
        limits = RateLimits(per_person=10, per_bot=10)
        executor = ToolExecutor(registry, limits=limits, timeout_seconds=10)
        request = ToolRequest("call_1", "list_files", "{}", Caller("ada", "chat"))
        result = await run_call(executor, request, Ignore(), AskNobody())
        left = [tool.name for tool in registry.offered_by(WORKSPACE) or ()]
        reason = registry.absent.get(WORKSPACE, "")
    print(json.dumps({"said": result.content, "left": left, "reason": reason}))  # noqa: T201


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name, capture_logs():
        asyncio.run(main(Path(name)))
