"""Reading from a file descriptor without blocking the event loop."""

import asyncio
import os
from typing import Final

READ_BYTES: Final = 4_096


async def read_some(descriptor: int) -> bytes:
    """Wait for input and return it; nothing at its end. Takes a terminal, a pipe or a file."""
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    try:
        loop.add_reader(descriptor, readable.set)
    except PermissionError:  # a plain file or /dev/null: never waits, so epoll refuses it
        return os.read(descriptor, READ_BYTES)
    try:
        await readable.wait()
        return os.read(descriptor, READ_BYTES)
    finally:
        loop.remove_reader(descriptor)
