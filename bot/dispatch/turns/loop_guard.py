"""Two bots that answer each other are stopped; people are not.

Only the first message behind an answer is looked at. Nothing is held against a quick message by
itself: a quiz is played with single letters, as fast as its questions come. What people do not do,
one time after the other, is

- write a longer text again and again in less time than anybody types it, or fetches it to paste;
- go on for hundreds of rounds without ever looking away for two minutes.

Two bots with fast models are found by the first, with slow ones by the second at the latest. In a
group everybody is looked at alone, for there the others write while the bot answers one of them.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from cachetools import LRUCache

from conversation_store.models import ChatId

TYPED_PER_SECOND: Final = 15.0
"""Characters; about twice what the fastest on a phone type."""

QUICK_CHARACTERS: Final = 10
"""A message has so many for nothing: letters, numbers, yes and no come as fast as fingers are."""

FETCHED_SECONDS: Final = 2.0
"""From one message to the next; nobody finds, copies and sends one text after the other in less."""

THOUGHT_SECONDS: Final = 10.0
"""After an answer; somebody who takes so long has read it, and may have pasted any text."""

PAUSE_SECONDS: Final = 120.0

FASTER_THAN_FETCHED: Final = 10
FASTER_THAN_TYPED: Final = 1
AT_EASE: Final = -2
"""What a message adds to the suspicion. The second sign is weak, for people paste and dictate, and
write while they wait for an answer."""

MIN_LIMIT: Final = 10

MAX_ROUNDS: Final = 500
"""Of a message and its answer, without a pause."""

HOW_TO_GO_ON: Final = "If you are a person, send !help, and I go on at once."

FIRST_SILENCE_SECONDS: Final = 600.0
MAX_SILENCE_SECONDS: Final = 86_400.0

MAX_KNOWN: Final = 10_000
"""People in chats that are remembered; above it, those that were silent longest are forgotten."""


class LoopVerdict(Enum):
    """What is to be done about a message."""

    TALK = "talk"
    FIRST_SILENCE = "first_silence"
    """Say `notice` and nothing else."""
    SILENCE = "silence"


@dataclass(slots=True)
class _Partner:
    """What is known of somebody in a chat; times are on the guard's clock."""

    answered_at: float | None = None
    wrote_at: float | None = None
    suspicion: int = 0
    rounds: int = 0
    silent_until: float = 0.0
    silence_seconds: float = FIRST_SILENCE_SECONDS / 2
    released: bool = False


class LoopGuard:
    """Finds out who answers like a bot.

    Admins are not to be asked about: they are never silenced.

    Args:
        messages_per_minute: what a person may send. Half of it, and at least `MIN_LIMIT`, is how
            many messages that nobody can have fetched, one after the other, make a bot.
        clock: monotonic seconds.

    Attributes:
        messages_per_minute: may be changed at any time.
    """

    def __init__(
        self, *, messages_per_minute: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.messages_per_minute = messages_per_minute
        self._clock = clock
        self._partners: LRUCache[tuple[str, str], _Partner] = LRUCache(MAX_KNOWN)

    @property
    def _limit(self) -> int:
        return FASTER_THAN_FETCHED * max(MIN_LIMIT, self.messages_per_minute // 2)

    def answered(self, chat: ChatId, author: str) -> None:
        """Note that an answer to somebody (by ACI) went out in a chat."""
        self._partner(chat, author).answered_at = self._clock()

    def verdict(self, chat: ChatId, author: str, length: int) -> LoopVerdict:
        """Judge a message of so many characters that has just come in."""
        partner = self._partners.get((chat, author))
        if partner is None:
            return LoopVerdict.TALK
        now = self._clock()
        if now < partner.silent_until:
            return LoopVerdict.SILENCE
        self._weigh(partner, length, now)
        partner.answered_at, partner.wrote_at = None, now
        if partner.suspicion < self._limit and partner.rounds < MAX_ROUNDS:
            return LoopVerdict.TALK
        partner.suspicion = partner.rounds = 0
        partner.silence_seconds = min(2 * partner.silence_seconds, MAX_SILENCE_SECONDS)
        partner.silent_until = now + partner.silence_seconds
        return LoopVerdict.FIRST_SILENCE

    def release(self, chat: ChatId, author: str) -> None:
        """End the first silence of somebody who has sent a command, as the notice says.

        Only the first: a bot may do what it reads.
        """
        partner = self._partners.get((chat, author))
        if partner is not None and not partner.released and self._clock() < partner.silent_until:
            partner.released = True
            partner.silent_until = 0.0

    def notice(self, chat: ChatId, author: str) -> str:
        """Return what is said once, when a silence begins."""
        partner = self._partner(chat, author)
        minutes = round(partner.silence_seconds / 60)
        message = (
            "This looks like two bots talking to each other."
            f" I will not answer you here for {minutes} minutes."
        )
        return message if partner.released else f"{message} {HOW_TO_GO_ON}"

    def _weigh(self, partner: _Partner, length: int, now: float) -> None:
        if partner.answered_at is None:
            return
        behind_answer = now - partner.answered_at
        behind_own = behind_answer if partner.wrote_at is None else now - partner.wrote_at
        partner.rounds = partner.rounds + 1 if behind_answer < PAUSE_SECONDS else 0
        if behind_answer >= THOUGHT_SECONDS:
            partner.suspicion = 0
        else:
            added = _suspicion(behind_answer, behind_own, length)
            partner.suspicion = max(0, partner.suspicion + added)

    def _partner(self, chat: ChatId, author: str) -> _Partner:
        return self._partners.setdefault((chat, author), _Partner())


def _suspicion(behind_answer: float, behind_own: float, length: int) -> int:
    """How much a message looks like a bot's, by the seconds since the answer and since the last."""
    typing_seconds = (length - QUICK_CHARACTERS) / TYPED_PER_SECOND
    if behind_own < min(typing_seconds, FETCHED_SECONDS):
        return FASTER_THAN_FETCHED
    return FASTER_THAN_TYPED if behind_answer < typing_seconds else AT_EASE
