"""systemd's part in a socket with Accept=yes: each connection is the streams of a new process."""

import asyncio
import socket
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path


@asynccontextmanager
async def service_for_each_connection(path: Path, *command: str) -> AsyncIterator[list[Process]]:
    """Listen inside the block, and provide the processes so far; kill remaining ones at the end."""
    processes: list[Process] = []

    async def accept_all(listener: socket.socket) -> None:
        while True:
            connection, _ = await asyncio.get_running_loop().sock_accept(listener)
            with connection:
                connection.setblocking(True)
                processes.append(
                    await asyncio.create_subprocess_exec(
                        *command,
                        stdin=connection.fileno(),
                        stdout=connection.fileno(),
                        stderr=DEVNULL,
                    )
                )

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        listener.setblocking(False)
        accepting = asyncio.create_task(accept_all(listener))
        try:
            yield processes
        finally:
            accepting.cancel()
            for process in processes:
                if process.returncode is None:
                    process.kill()
                await process.wait()
