"""Two bots that answer each other are stopped; people never are.

A bot gives itself away by answering again and again faster than a person reads and types. Only
the first message behind an answer is looked at, so somebody who fires off many messages without
waiting for answers is no bot; and one message that took its time proves a person. In a group
everybody is looked at alone, for there the others write while the bot answers one of them.
"""

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final

LOOP_SECONDS: Final = 2.0
"""Nobody reads an answer and writes the next message in less, many times in a row."""

TYPED_PER_SECOND: Final = 15.0
"""Characters; about twice what the fastest on a phone type. Two bots with slow models are found by
the length of what they write."""

TYPING_SECONDS: Final = 10.0
"""Somebody who pastes a long text takes longer than this, from one answer to the next paste."""

AT_ONCE: Final = 3
FASTER_THAN_TYPED: Final = 1
"""What a message adds to the suspicion; the second sign is weaker, for people paste and dictate."""

LEAST_LIMIT: Final = 10

FIRST_SILENCE_SECONDS: Final = 600.0
LONGEST_SILENCE_SECONDS: Final = 86_400.0

MAX_KNOWN: Final = 10_000
"""People in chats that are remembered; above it, those that were silent longest are forgotten."""


class Verdict(Enum):
    """What is to be done about a message."""

    TALK = "talk"
    FIRST_SILENCE = "first_silence"
    """Say `notice` and nothing else."""
    SILENCE = "silence"


@dataclass(slots=True)
class _Partner:
    """What is known of somebody in a chat; times are on the guard's clock."""

    answered_at: float | None = None
    suspicion: int = 0
    silent_until: float = 0.0
    silence_seconds: float = FIRST_SILENCE_SECONDS / 2


class LoopGuard:
    """Finds out who answers like a bot.

    Admins are not to be asked about: they are never silenced.

    Args:
        messages_per_minute: what a person may send. Half of it, and at least `LEAST_LIMIT`, is how
            many messages that come at once after an answer, one after the other, make a bot.
        clock: monotonic seconds.

    Attributes:
        messages_per_minute: may be changed at any time.
    """

    def __init__(
        self, *, messages_per_minute: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.messages_per_minute = messages_per_minute
        self._clock = clock
        self._partners: OrderedDict[tuple[str, str], _Partner] = OrderedDict()

    @property
    def _limit(self) -> float:
        return AT_ONCE * max(LEAST_LIMIT, self.messages_per_minute // 2)

    def answered(self, chat: str, author: str) -> None:
        """Note that an answer to somebody (by ACI) went out in a chat."""
        self._partner(chat, author).answered_at = self._clock()

    def verdict(self, chat: str, author: str, length: int) -> Verdict:
        """Judge a message of so many characters that has just come in."""
        partner = self._partners.get((chat, author))
        if partner is None:
            return Verdict.TALK
        now = self._clock()
        if now < partner.silent_until:
            return Verdict.SILENCE
        if partner.answered_at is None:
            return Verdict.TALK
        added = _suspicion(now - partner.answered_at, length)
        partner.answered_at = None
        partner.suspicion = partner.suspicion + added if added else 0
        if partner.suspicion < self._limit:
            return Verdict.TALK
        partner.suspicion = 0
        partner.silence_seconds = min(2 * partner.silence_seconds, LONGEST_SILENCE_SECONDS)
        partner.silent_until = now + partner.silence_seconds
        return Verdict.FIRST_SILENCE

    def notice(self, chat: str, author: str) -> str:
        """Return what is said once, when a silence begins."""
        minutes = round(self._partner(chat, author).silence_seconds / 60)
        return (
            "This looks like two bots talking to each other."
            f" I will not answer you here for {minutes} minutes."
        )

    def _partner(self, chat: str, author: str) -> _Partner:
        partner = self._partners.setdefault((chat, author), _Partner())
        self._partners.move_to_end((chat, author))
        if len(self._partners) > MAX_KNOWN:
            self._partners.popitem(last=False)
        return partner


def _suspicion(seconds: float, length: int) -> int:
    """How much a message that comes so long after an answer looks like a bot's; 0: a person's."""
    if seconds < LOOP_SECONDS:
        return AT_ONCE
    if seconds < min(length / TYPED_PER_SECOND, TYPING_SECONDS):
        return FASTER_THAN_TYPED
    return 0
