"""systemd's end of sd_notify(3): a datagram socket that remembers what was said, and by whom."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

DATAGRAM_BYTES: Final = 4096
CREDENTIALS: Final = struct.Struct("3i")  # struct ucred of unix(7): pid, uid, gid
WAIT_SECONDS: Final = 15.0


@dataclass(frozen=True, slots=True)
class Said:
    """One datagram."""

    pid: int
    lines: tuple[str, ...]


class NotifySocket:
    """Made by `notify_socket`.

    Attributes:
        address: as `$NOTIFY_SOCKET` has it.
        said: all datagrams so far.
    """

    def __init__(self, address: str, listening: socket.socket) -> None:
        self.address = address
        self.said: list[Said] = []
        self._listening = listening
        self._news = asyncio.Event()

    @property
    def lines(self) -> list[str]:
        """All lines so far."""
        return [line for said in self.said for line in said.lines]

    @property
    def statuses(self) -> list[str]:
        """The words for people so far."""
        return [line.removeprefix("STATUS=") for line in self.lines if line.startswith("STATUS=")]

    async def line(self, wanted: str, *, times: int = 1) -> None:
        """Wait until a line was said that often."""
        await self.until(lambda: self.lines.count(wanted) >= times)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until what was said makes something true."""
        async with asyncio.timeout(WAIT_SECONDS):
            while not condition():
                await self.news()

    async def news(self) -> None:
        """Wait for the next datagram."""
        self._news.clear()
        await self._news.wait()

    def take(self) -> None:
        """Take what lies in the socket."""
        while True:
            try:
                text, ancillary, _, _ = self._listening.recvmsg(
                    DATAGRAM_BYTES, socket.CMSG_SPACE(CREDENTIALS.size)
                )
            except BlockingIOError:
                return
            pid, _, _ = CREDENTIALS.unpack(ancillary[0][2])
            self.said.append(Said(pid, tuple(text.decode().splitlines())))
            self._news.set()


@asynccontextmanager
async def notify_socket(address: Path | str, *, deaf: bool = False) -> AsyncIterator[NotifySocket]:
    """Listen at a path, or at an abstract name that begins with `@`.

    Args:
        address: where.
        deaf: takes nothing until it is asked to, so that the socket can be full.
    """
    name = str(address)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        listening.bind("\0" + name[1:] if name.startswith("@") else name)
        played = NotifySocket(name, listening)
        if deaf:
            yield played
            return
        loop = asyncio.get_running_loop()
        loop.add_reader(listening, played.take)
        try:
            yield played
        finally:
            loop.remove_reader(listening)
