"""Asks a sandbox several things and prints how that went, as JSON on one line.

Raises AssertionError when a process goes on although the sandbox is closed.

`python -m tests.fakes.sandbox_caller required|available MODULE DEED…`; a MODULE with
`@FOLDER` behind it works there.
"""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Final

from structlog.testing import capture_logs

from tests.processes import end_of
from tools.sandbox.errors import SandboxBug, WorkError
from tools.sandbox.pool import Limits, Sandbox, SandboxPolicy

FILE_BYTES: Final = 1_000_000


def descendants(pid: int) -> list[int]:
    children = [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return [*children, *(one for child in children for one in descendants(child))]


async def outcome(sandbox: Sandbox, deed: str) -> str:
    try:
        return await sandbox.call(deed)
    except (WorkError, SandboxBug) as error:
        return f"{type(error).__name__}: {error}"


async def main(walls: str, module: str, deeds: list[str]) -> None:
    with capture_logs() as logs:
        policy = SandboxPolicy(required=walls == "required")
        name, _, folder = module.partition("@")
        limits = Limits(call_seconds=5, folder=folder or None, file_bytes=FILE_BYTES)
        async with Sandbox(name, limits, policy=policy) as sandbox:
            outcomes = [await outcome(sandbox, deed) for deed in deeds]
            started = descendants(os.getpid())
        for process in started:
            await end_of(process)
    missing = [log["kind"] for log in logs if log["event"] == "sandbox.wall_missing"]
    print(json.dumps({"outcomes": outcomes, "logged": missing}))  # noqa: T201


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
