"""Calls a tool of a workspace and prints, as JSON on one line, what it says and what is left.

`python -m tests.fakes.workspace_caller`
"""

import asyncio
import json
import tempfile
from pathlib import Path

from structlog.testing import capture_logs

from tests.executing import an_executor, run_call
from tools.base import Caller, ToolRequest
from tools.catalog import WORKSPACE, open_tools
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
        request = ToolRequest("call_1", "list_files", "{}", Caller("ada", "chat"))
        result = await run_call(an_executor(registry), request)
        left = [tool.name for tool in registry.offered_by(WORKSPACE) or ()]
        reason = registry.absent.get(WORKSPACE, "")
    print(json.dumps({"said": result.content, "left": left, "reason": reason}))  # noqa: T201


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name, capture_logs():
        asyncio.run(main(Path(name)))
