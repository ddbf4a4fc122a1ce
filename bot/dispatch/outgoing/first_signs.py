"""How long people wait for a first sign that somebody is there.

Measured from when the bot received a message until Signal has taken the first sign in its chat:
typing, a reaction, a read receipt, a progress message, or the answer. Where typing is to be seen
already when a message comes, its sign is there at once. Counted is every message that this process
received and is going to answer; what an earlier one has left may have had its sign then.
"""

from collections.abc import Callable
from typing import Final

from bot.observability.metrics import FIRST_SIGN_SECONDS
from conversation_store.models import ChatId

MAX_CHATS: Final = 20_000
"""Chats that wait for a sign at the same time; what comes in others is not measured."""

MAX_IN_CHAT: Final = 100
"""Messages of one of them that are measured."""


class FirstSigns:
    """The messages that have had no sign yet.

    Args:
        clock: seconds since 1970.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._waiting: dict[ChatId, list[int]] = {}

    def expected(self, chat: ChatId, received_at: int) -> None:
        """Take note of a message, received at that time in ms, that is to have a sign."""
        if chat in self._waiting or len(self._waiting) < MAX_CHATS:
            waiting = self._waiting.setdefault(chat, [])
            if len(waiting) < MAX_IN_CHAT:
                waiting.append(received_at)

    def given(self, chat: ChatId) -> None:
        """Measure what waited in a chat: there is a sign now."""
        for received_at in self._waiting.pop(chat, ()):
            FIRST_SIGN_SECONDS.observe(max(0.0, self._clock() - received_at / 1_000))
