"""The sign that something is being done: one message a turn, edited as more tools run."""

import asyncio
from collections.abc import Iterable
from typing import Final, Protocol

import structlog

from bot.errors import SignalError
from bot.messaging.events import ChatId

log = structlog.get_logger()

PROGRESS_SECONDS: Final = 5.0
"""A progress message that takes longer is not worth waiting for."""

MAX_EDITS: Final = 9
"""Signal lets a message be edited ten times; one is left for whoever needs it."""


class ProgressChannel(Protocol):
    """Where progress is shown. Implemented by every Messenger."""

    async def send(self, chat: ChatId, text: str, *, replaces: int | None = None) -> int:
        """Send or edit a message and return Signal's timestamp of it."""
        ...


class Progress:
    """The progress message of one turn. A failure to show it never harms the turn.

    Args:
        channel: where it is shown.
        chat: the turn's chat.
        timestamp: of the message, when a run before a restart has already sent it.
    """

    def __init__(self, channel: ProgressChannel, chat: ChatId, timestamp: int | None) -> None:
        self._channel = channel
        self._chat = chat
        self._timestamp = timestamp
        self._names: dict[str, None] = {}
        self._edits = 0
        self._showing = asyncio.Lock()

    async def show(self, names: Iterable[str]) -> int | None:
        """Add tools to the message; return the timestamp of what was sent, if anything."""
        async with self._showing:
            return await self._show(names)

    async def _show(self, names: Iterable[str]) -> int | None:
        added = [name for name in names if name not in self._names]
        self._names.update(dict.fromkeys(added))
        if not added or self._edits >= MAX_EDITS:
            return None
        first = self._timestamp is None
        text = f"🔧 Using {', '.join(self._names)}…"
        try:
            async with asyncio.timeout(PROGRESS_SECONDS):
                self._timestamp = await self._channel.send(
                    self._chat, text, replaces=self._timestamp
                )
        except (SignalError, TimeoutError) as error:
            log.info("progress.not_shown", reason=type(error).__name__)
            return None
        self._edits += not first
        return self._timestamp
