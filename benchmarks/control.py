"""Protocol between a benchmark and the processes that it starts: JSON lines in and out."""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any

Json = dict[str, Any]


async def obey(carry_out: Callable[[Json], Awaitable[Json]], *, ready: Json) -> None:
    """Say that this process is ready, then carry out commands from stdin until it ends.

    Stdin ends with the benchmark, however that ends, so no process is left behind.
    """
    commands = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(commands), sys.stdin
    )
    _say(ready)
    async for line in commands:
        _say(await carry_out(json.loads(line)))


def _say(value: Json) -> None:
    print(json.dumps(value), flush=True)
