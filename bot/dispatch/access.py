"""Who may talk to the bot, and how much.

`may_talk` looks at the envelope alone, so that nothing of a stranger is ever stored. `spend`
counts what was accepted.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final, Literal

from bot.messaging.events import IncomingMessage, Person

WINDOW_SECONDS: Final = 60.0

MAX_WINDOWS: Final = 10_000
"""People counted at once; above it, windows that are over are forgotten."""


class Allowance(Enum):
    """What a person's rate leaves for this message."""

    WITHIN = "within"
    FIRST_OVER = "first_over"
    OVER = "over"


@dataclass(slots=True)
class _Window:
    """One person's current minute."""

    ends_at: float
    count: int = 0


class Access:
    """Decides who is answered.

    Args:
        policy: `open`: everybody; `allowlist`: those in `allowed` and `admins`; `pairing`: those,
            and whoever was let in by a code.
        allowed: numbers or ACIs. A number counts only where Signal tells it, and people can hide
            theirs; an ACI always does.
        admins: numbers or ACIs.
        groups: `mention`: only messages that address the bot; `always`; `off`.
        messages_per_minute: for each person.
        clock: monotonic seconds.

    Attributes:
        pairing: whether codes let people in.
        paired: ACIs of those who were let in by a code.
    """

    def __init__(
        self,
        *,
        policy: Literal["open", "allowlist", "pairing"],
        allowed: frozenset[str],
        admins: frozenset[str],
        groups: Literal["mention", "always", "off"],
        messages_per_minute: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.paired: frozenset[str] = frozenset()
        self.pairing = policy == "pairing"
        self._everybody = policy == "open"
        self._allowed = allowed | admins
        self._admins = admins
        self._groups = groups
        self._messages_per_minute = messages_per_minute
        self._clock = clock
        self._windows: dict[str, _Window] = {}

    def may_talk(self, person: Person) -> bool:
        """Whether anything that this person sends is looked at."""
        return (
            self._everybody
            or _is_one_of(person, self._allowed)
            or (self.pairing and person.aci in self.paired)
        )

    def addressed(self, message: IncomingMessage) -> bool:
        """Whether a message is meant for the bot; what else is said in a group is overheard."""
        if not message.chat.is_group:
            return True
        if self._groups == "mention":
            return message.addresses_bot
        return self._groups == "always"

    @property
    def listens(self) -> bool:
        """Whether what is said to others in a group is of use: where only some of it is for us."""
        return self._groups == "mention"

    def is_admin(self, person: Person) -> bool:
        """Whether this person administers the bot."""
        return _is_one_of(person, self._admins)

    def spend(self, person: str) -> Allowance:
        """Count one message of a person (by ACI) and say what the rate allows."""
        now = self._clock()
        window = self._windows.get(person)
        if window is None or window.ends_at <= now:
            self._forget_ended(now)
            window = self._windows[person] = _Window(now + WINDOW_SECONDS)
        window.count += 1
        if window.count <= self._messages_per_minute:
            return Allowance.WITHIN
        if window.count == self._messages_per_minute + 1:
            return Allowance.FIRST_OVER
        return Allowance.OVER

    def _forget_ended(self, now: float) -> None:
        if len(self._windows) >= MAX_WINDOWS:
            self._windows = {
                person: window for person, window in self._windows.items() if window.ends_at > now
            }


def _is_one_of(person: Person, people: frozenset[str]) -> bool:
    return person.aci in people or (person.number is not None and person.number in people)
