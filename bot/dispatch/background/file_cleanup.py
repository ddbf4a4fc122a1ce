"""Files that nobody will look at any more leave the Signal side, which never deletes any itself."""

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import Final

import structlog

from bot.errors import SignalError
from bot.messaging.events import IncomingMessage
from bot.messaging.messenger import Messenger
from conversation_store.models import ReceivedFile, ReceivedMessage

log = structlog.get_logger()

DISCARD_SECONDS: Final = 10.0

MAX_WAITING: Final = 50_000
"""Files that wait to be deleted; of more, the oldest stay on the Signal side."""


class FileCleanup:
    """Deletes files in the background, one after the other.

    Args:
        side: where they are.
    """

    def __init__(self, side: Messenger) -> None:
        self._side = side
        self._waiting: deque[ReceivedFile] = deque(maxlen=MAX_WAITING)
        self._more = asyncio.Event()

    def files_of(self, *messages: IncomingMessage | ReceivedMessage) -> None:
        """Delete what came with messages."""
        self.add(file for message in messages for file in message.files)

    def add(self, files: Iterable[ReceivedFile]) -> None:
        """Delete files."""
        self._waiting.extend(files)
        if self._waiting:
            self._more.set()

    async def run(self) -> None:
        """Delete what there is to delete, until cancelled."""
        while True:
            await self._more.wait()
            self._more.clear()
            while self._waiting:
                await self._discard(self._waiting.popleft())

    async def _discard(self, file: ReceivedFile) -> None:
        try:
            async with asyncio.timeout(DISCARD_SECONDS):
                await self._side.discard_file(file)
        except (SignalError, TimeoutError) as error:
            log.info("file.not_discarded", reason=type(error).__name__)
