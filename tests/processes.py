"""Running a program to its end, as a person at a terminal would."""

import asyncio
import os
import select
from collections.abc import Mapping
from pathlib import Path
from typing import Final

RUN_SECONDS: Final = 15.0
END_SECONDS: Final = 5.0


async def end_of(pid: int) -> None:
    """Wait until a process has ended, even if it is no child of ours."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        ready, _, _ = await asyncio.to_thread(select.select, [process], (), (), END_SECONDS)
    finally:
        os.close(process)
    assert ready, "The process goes on."


async def run_process(
    *command: str | Path, folder: Path, environment: Mapping[str, str] | None = None
) -> tuple[str, str, int | None]:
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=folder,
        env={"PATH": os.environ["PATH"], **(environment or {})},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(RUN_SECONDS):
            output, errors = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    return output.decode(), errors.decode(), process.returncode
