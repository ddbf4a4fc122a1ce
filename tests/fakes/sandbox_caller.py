"""Asks a sandbox several things and prints how that went, as JSON on one line.

`python -m tests.fakes.sandbox_caller required|available MODULE DEED…`
"""

import asyncio
import json
import sys

from structlog.testing import capture_logs

from tools.errors import ToolError
from tools.sandbox.policy import SandboxPolicy
from tools.sandbox.pool import Limits, Sandbox, SandboxBug


async def outcome(sandbox: Sandbox, deed: str) -> str:
    try:
        return await sandbox.call(deed)
    except (ToolError, SandboxBug) as error:
        return f"{type(error).__name__}: {error}"


async def main(walls: str, module: str, deeds: list[str]) -> None:
    with capture_logs() as logs:
        policy = SandboxPolicy(required=walls == "required")
        async with Sandbox(module, Limits(call_seconds=5), policy=policy) as sandbox:
            outcomes = [await outcome(sandbox, deed) for deed in deeds]
    missing = [log["kind"] for log in logs if log["event"] == "sandbox.wall_missing"]
    print(json.dumps({"outcomes": outcomes, "logged": missing}))  # noqa: T201


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
