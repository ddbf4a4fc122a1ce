"""Message requests of people who may talk are accepted, so that their phones show who answers."""

import asyncio
from typing import Final

import structlog

from bot.errors import SignalError, SignalUnavailable
from bot.messaging.messenger import Messenger

log = structlog.get_logger()

ACCEPT_SECONDS: Final = 10.0

MAX_IN_FLIGHT: Final = 4
"""Requests that are being accepted at once; more wait for their person's next message."""

MAX_KNOWN: Final = 10_000
"""People whose request is known to be accepted; above it, everybody's is accepted once more."""


class MessageRequests:
    """Accepts each person's request once, in the background; a failure harms nothing.

    Args:
        channel: where they are accepted.
        tasks: where the waiting is done.
    """

    def __init__(self, channel: Messenger, tasks: asyncio.TaskGroup) -> None:
        self._channel = channel
        self._tasks = tasks
        self._known: set[str] = set()
        self._in_flight = 0

    def accept(self, person: str) -> None:
        """Accept the request of a person, by ACI, if there may be one."""
        if person in self._known or self._in_flight >= MAX_IN_FLIGHT:
            return
        if len(self._known) >= MAX_KNOWN:
            self._known.clear()
        self._known.add(person)
        self._in_flight += 1
        self._tasks.create_task(self._accept(person))

    async def _accept(self, person: str) -> None:
        try:
            async with asyncio.timeout(ACCEPT_SECONDS):
                await self._channel.accept_request(person)
        except SignalUnavailable:
            self._known.discard(person)
        except (SignalError, TimeoutError) as error:
            log.info("message_request.not_accepted", reason=type(error).__name__)
        finally:
            self._in_flight -= 1
