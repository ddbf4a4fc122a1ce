"""A handler of aiohttp on a free port of loopback."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

from aiohttp import web

STOP_SECONDS: Final = 1.0


@asynccontextmanager
async def served(
    handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]],
) -> AsyncIterator[int]:
    """Serve while the context is open, and yield the port."""
    runner = web.ServerRunner(web.Server(handler), shutdown_timeout=STOP_SECONDS)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()
