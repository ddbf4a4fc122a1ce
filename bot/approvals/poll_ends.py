"""Ends the polls whose question is over, so that nobody votes in vain.

The store knows each poll from when it was sent until phones show it as ended, whatever became of
its question: answered, stopped, forgotten.
"""

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import Final

import structlog

from bot.approvals.asked import AskedQuestions
from bot.backoff import Backoff
from bot.errors import SignalError, SignalRateLimited, SignalRejected
from bot.messaging.messenger import PollSender
from conversation_store.models import OpenPoll
from conversation_store.store import ConversationStore

log = structlog.get_logger()

SETTLE_SECONDS: Final = 1.0
"""Between two looks at a question that nobody listens to any more and that is not over yet."""

END_SECONDS: Final = 30.0
"""For ending one poll, with tries again while there is no connection."""

END_RETRY: Final = Backoff(first_seconds=0.5, longest_seconds=5.0)

PAUSE_SECONDS: Final = 60.0
"""After a poll that could not be ended, until all are tried again."""

MAX_AGE_MS: Final = 7 * 86_400_000
"""Polls that are older are left as they are."""


class PollEnds:
    """Ends polls.

    Args:
        store: knows which.
        asked: the questions that are listened to.
        channel: where polls stand.
        clock: seconds since 1970.
    """

    def __init__(
        self,
        store: ConversationStore,
        asked: AskedQuestions,
        channel: PollSender,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._asked = asked
        self._channel = channel
        self._clock = clock
        self._wanted = asyncio.Event()

    def look(self) -> None:
        """Look for questions that are over, or are about to be."""
        self._wanted.set()

    async def run(self) -> None:
        """End polls as their questions end, until cancelled."""
        while True:
            self._wanted.clear()
            polls = await self._store.questions.polls()
            over = [poll for poll in polls if not poll.is_asked]
            ended = [await self._end(poll) for poll in over]
            seconds = None
            if not all(ended):
                seconds = PAUSE_SECONDS
            elif any(poll.is_asked and self._is_settling(poll) for poll in polls):
                seconds = SETTLE_SECONDS
            await self._until_wanted(seconds)

    def _is_settling(self, poll: OpenPoll) -> bool:
        return self._asked.find(poll.chat, poll.timestamp) is None

    async def _until_wanted(self, seconds: float | None) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._wanted.wait()
        except TimeoutError:
            return

    async def _end(self, poll: OpenPoll) -> bool:
        """End a poll; return whether nothing is left to be done about it."""
        is_young = poll.timestamp > self._clock() * 1_000 - MAX_AGE_MS
        try:
            if is_young:
                end = partial(self._channel.end_poll, poll.chat, poll.timestamp)
                async with asyncio.timeout(END_SECONDS):
                    await END_RETRY.retry(
                        end, on=(SignalError,), final=(SignalRejected, SignalRateLimited)
                    )
        except SignalRejected as error:
            log.info("poll.not_ended", reason=type(error).__name__)
        except (SignalRateLimited, TimeoutError):
            return False
        await self._store.questions.forget_poll(poll)
        return True
