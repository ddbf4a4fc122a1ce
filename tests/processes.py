"""Running a program to its end, as a person at a terminal would."""

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

RUN_SECONDS: Final = 15.0


async def run_process(
    *command: str | Path, folder: Path, environment: Mapping[str, str] | None = None
) -> tuple[str, str, int | None]:
    """Return what it printed, what it complained about, and its exit code."""
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
