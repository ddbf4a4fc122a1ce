"""Ends a server without losing a connection that asyncio is just accepting.

`Server.close` of Python 3.11 leaves such a connection open behind its back; the warning about it
then hits whichever test comes next.
"""

import asyncio
from typing import Final

STEPS_TO_A_HANDLER: Final = 8
"""Iterations of the event loop between accepting a connection and its handler, and some more."""


async def close_listener(server: asyncio.Server) -> None:
    """Refuse new connections after all earlier ones have reached their handler."""
    for _ in range(STEPS_TO_A_HANDLER):
        await asyncio.sleep(0)
    server.close()
