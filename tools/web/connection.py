"""The connection of one exchange: its address is checked, and its bytes are counted.

aiohttp's `socket_factory` sees each address right before a connection is opened, also those of
literals and of names that have changed. The sockets that it returns read within an allowance.
"""

import asyncio
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any, Final

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from tools.base import ToolError
from tools.web.guard import AddressRefused, Permits

Lookup = Callable[[str], Awaitable[Sequence[str]]]
"""Returns a name's addresses, the best first; raises OSError if it has none."""

MAX_HEAD_BYTES: Final = 65_536
MAX_ADDRESSES_TRIED: Final = 4
_READ_BYTES: Final = 16_384  # of one read: parsing 3,000 chunks at once is long enough
_THREADS: Final = 8


@dataclass(slots=True)
class Allowance:
    """Number of bytes that a server may still send: first a head, then a body as well.

    HTTP permits endless interim answers (1xx), headers, chunk extensions and trailers, which the
    caller never sees.
    """

    left: int = MAX_HEAD_BYTES
    used_up: bool = False

    def next_read(self, size: int) -> int:
        """Return how many bytes may be read at once; raises OSError if the allowance is gone."""
        if self.left <= 0:
            self.used_up = True
            raise OSError
        return min(size, _READ_BYTES)


@dataclass(frozen=True, slots=True)
class Way(AbstractResolver):
    """How a server may be reached; refuses a name if one of its addresses is not permitted.

    Attributes:
        seconds: for the lookup, and as much again for the connection with its TLS handshake.
    """

    permits: Permits
    lookup: Lookup
    seconds: float

    def connector(
        self, host: str, allowance: Allowance, tls: ssl.SSLContext | None
    ) -> aiohttp.TCPConnector:
        """Return a connector for one request to a host.

        Its requests raise AddressRefused, or ToolError for a name that cannot be looked up.
        """

        def open_socket(info: tuple[Any, ...]) -> socket.socket:
            family, kind, protocol, _, target = info
            self.check(host, target[0])
            opened = _BoundedSocket(family, kind, protocol)
            opened.allowance = allowance
            return opened

        return aiohttp.TCPConnector(
            socket_factory=open_socket,
            resolver=self,
            use_dns_cache=False,
            force_close=True,
            ssl=tls if tls is not None else True,
        )

    def check(self, host: str, address: str) -> None:
        """Raise AddressRefused for an address of a host that is not permitted."""
        with suppress(ValueError):
            if self.permits(ip_address(address)):
                return
        # Not an OSError: aiohttp would try the next address.
        raise AddressRefused(f"{host} is not on the public internet, so I may not ask it.")

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Return the addresses of a name, for aiohttp."""
        try:
            async with asyncio.timeout(self.seconds):
                found = await self.lookup(host)
        except TimeoutError:
            raise ToolError(too_slow(host, self.seconds)) from None
        except OSError:
            found = ()
        if not found:
            raise ToolError(
                f"There is no server named {host}, or its address cannot be found right now."
            )
        for address in found:
            self.check(host, address)
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=0,
                flags=socket.AI_NUMERICHOST,
            )
            for address in found[:MAX_ADDRESSES_TRIED]
        ]

    async def close(self) -> None:
        """Do nothing."""


class _BoundedSocket(socket.socket):
    allowance: Allowance

    def recv(self, size: int, flags: int = 0, /) -> bytes:
        received = super().recv(self.allowance.next_read(size), flags)
        self.allowance.left -= len(received)
        return received

    def recv_into(self, buffer: Any, size: int = 0, flags: int = 0, /) -> int:
        count = super().recv_into(buffer, self.allowance.next_read(size or len(buffer)), flags)
        self.allowance.left -= count
        return count


def too_slow(host: str, seconds: float) -> str:
    """Return a sentence about a connection that was not opened in time."""
    return f"No connection to {host} within {seconds:g} seconds."


class Resolver:
    """Asks the system's resolver, which blocks and cannot be cancelled.

    Its threads are daemons. Threads of an executor would delay the end of the process while they
    wait for a dead name server.
    """

    def __init__(self) -> None:
        self._free = asyncio.Semaphore(_THREADS)

    async def look_up(self, name: str) -> Sequence[str]:
        """Return a name's addresses in the order of RFC 6724.

        Waits for a free thread; the caller sets the bound.

        Raises:
            OSError: the name is unknown, or no name server answered.
        """
        await self._free.acquire()
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Sequence[str]] = loop.create_future()

        def settle(found: Sequence[str] | OSError) -> None:
            self._free.release()
            if answer.cancelled():
                return
            if isinstance(found, OSError):
                answer.set_exception(found)
            else:
                answer.set_result(found)

        def ask() -> None:
            found = _ask_system(name)
            with suppress(RuntimeError):  # the loop may be closed by now
                loop.call_soon_threadsafe(settle, found)

        threading.Thread(target=ask, daemon=True).start()
        return await answer


def _ask_system(name: str) -> Sequence[str] | OSError:
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except UnicodeError:  # a label that is too long for IDNA, and so for DNS
        return socket.gaierror(socket.EAI_NONAME, "not a name")
    except OSError as error:
        return error
    return tuple(dict.fromkeys(str(entry[4][0]) for entry in found))
