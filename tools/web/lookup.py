"""Names to addresses, in threads of its own: a slow name server holds up nothing else."""

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final

Lookup = Callable[[str], Awaitable[Sequence[str]]]
"""Returns a name's addresses, the best first; raises OSError where there is none."""

_THREADS: Final = 8


class Resolver:
    """Asks the system's resolver, which blocks and cannot be cancelled.

    Its threads are daemons: one that waits for a dead name server does not hold up the end of the
    process, as one of an executor would. Made with a running loop.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._free = asyncio.Semaphore(_THREADS)

    async def look_up(self, name: str) -> Sequence[str]:
        """Return a name's addresses, in the order in which RFC 6724 would try them.

        Waits for a free thread; the caller sets the bound.

        Raises:
            OSError: the name is unknown, or nobody could be asked.
        """
        await self._free.acquire()
        answer: asyncio.Future[Sequence[str]] = self._loop.create_future()
        threading.Thread(target=self._ask, args=(name, answer), daemon=True).start()
        return await answer

    def _ask(self, name: str, answer: asyncio.Future[Sequence[str]]) -> None:
        addresses: Sequence[str] = ()
        failure: OSError | None = None
        try:
            found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
            addresses = tuple(dict.fromkeys(str(entry[4][0]) for entry in found))
        except UnicodeError:  # a label that is too long for IDNA, and so for DNS
            failure = socket.gaierror(socket.EAI_NONAME, "not a name")
        except OSError as error:
            failure = error
        with suppress(RuntimeError):  # the loop may be closed by now
            self._loop.call_soon_threadsafe(self._settle, answer, addresses, failure)

    def _settle(
        self,
        answer: asyncio.Future[Sequence[str]],
        addresses: Sequence[str],
        failure: OSError | None,
    ) -> None:
        self._free.release()
        if answer.cancelled():
            return
        if failure is None:
            answer.set_result(addresses)
        else:
            answer.set_exception(failure)
