"""systemd's end of sd_notify(3): a datagram socket that keeps all notifications."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

DATAGRAM_BYTES: Final = 4096
WAIT_SECONDS: Final = 30.0


class NotifySocket:
    """Made by `notify_socket`.

    Attributes:
        address: as `$NOTIFY_SOCKET` has it.
        said: the lines of each datagram so far.
    """

    def __init__(self, address: Path, listening: socket.socket) -> None:
        self.address = str(address)
        self.said: list[list[str]] = []
        self._listening = listening
        self._news = asyncio.Event()

    @property
    def lines(self) -> list[str]:
        return [line for lines in self.said for line in lines]

    @property
    def statuses(self) -> list[str]:
        """The words for people so far."""
        return [line.removeprefix("STATUS=") for line in self.lines if line.startswith("STATUS=")]

    async def line(self, wanted: str, *, times: int = 1) -> None:
        """Wait until a line was sent this many times."""
        await self.until(lambda: self.lines.count(wanted) >= times)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            while not condition():
                self._news.clear()
                await self._news.wait()

    def take(self) -> None:
        while True:
            try:
                text = self._listening.recv(DATAGRAM_BYTES)
            except BlockingIOError:
                return
            self.said.append(text.decode().splitlines())
            self._news.set()


@asynccontextmanager
async def notify_socket(address: Path, *, deaf: bool = False) -> AsyncIterator[NotifySocket]:
    """Listen at a path; a deaf socket reads nothing until asked, so that it can fill up."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as listening:
        listening.bind(str(address))
        played = NotifySocket(address, listening)
        if deaf:
            yield played
            return
        loop = asyncio.get_running_loop()
        loop.add_reader(listening, played.take)
        try:
            yield played
        finally:
            loop.remove_reader(listening)
