"""End each poll on phones when its question has ended.

The store knows each poll from its send until phones show it as ended.
"""

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import structlog

from bot.backoff import Backoff, set_within
from bot.chat.ask import Questions
from bot.signal.errors import SignalError, SignalRejected, SignalTimeout
from conversation_store.models import ChatId

log = structlog.get_logger()

SETTLE_SECONDS: Final = 1.0
"""Pause between two looks at a poll whose question is about to end."""

END_SECONDS: Final = 30.0
"""Time limit of ending a poll, with retries."""

END_RETRY: Final = Backoff(first_seconds=0.5, longest_seconds=5.0)
PAUSE: Final = Backoff(first_seconds=60.0, longest_seconds=3_600.0)
"""Pauses after a poll could not be ended, before the bot tries again."""

MAX_POLL_ENDS: Final = 3
"""The end of a poll is sent at most so often if no phone confirms it: each may have arrived."""

MAX_POLL_AGE_MS: Final = 7 * 86_400_000
"""Older polls stay as they are on phones."""


@dataclass(eq=False, repr=False, slots=True)
class Polls:
    """The polls on phones; `run` ends them."""

    questions: Questions
    _in_doubt: Counter[int] = field(default_factory=Counter, init=False)  # by timestamp

    async def run(self) -> None:
        """End polls until cancelled."""
        questions = self.questions
        while True:
            questions.poll_over.clear()
            polls = await questions.store.questions.polls()
            ended = [await self._end(chat, at) for chat, at, is_asked in polls if not is_asked]
            seconds = None
            if not all(ended):
                seconds = PAUSE.seconds(max(self._in_doubt.values(), default=1))
            elif any(is_asked and not questions.asks(chat, at) for chat, at, is_asked in polls):
                seconds = SETTLE_SECONDS
            await set_within(questions.poll_over, seconds)

    async def _end(self, chat: ChatId, timestamp: int) -> bool:
        """End a poll; return False if this has to be tried again."""
        is_young = timestamp > self.questions.clock() * 1_000 - MAX_POLL_AGE_MS
        try:
            if is_young:
                end = partial(self.questions.channel.end_poll, chat, timestamp)
                async with asyncio.timeout(END_SECONDS):
                    await END_RETRY.retry(
                        end, on=(SignalError,), final=(SignalRejected, SignalTimeout)
                    )
        except SignalRejected as error:
            log.info("poll.not_ended", reason=type(error).__name__)
        except (SignalTimeout, TimeoutError):
            self._in_doubt[timestamp] += 1
            if self._in_doubt[timestamp] < MAX_POLL_ENDS:
                return False
            log.info("poll.end_unconfirmed")
        del self._in_doubt[timestamp]
        await self.questions.store.questions.forget_poll(chat, timestamp)
        return True
