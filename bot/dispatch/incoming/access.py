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


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessRules:
    """What the operator says about who may talk.

    Attributes:
        policy: `open`: everybody; `allowlist`: those in `allowed` and `admins`; `pairing`: those,
            and whoever was let in by a code.
        allowed: numbers or ACIs. A number counts only where Signal tells it, and people can hide
            theirs; an ACI always does.
        admins: numbers or ACIs.
        groups: `mention`: only messages that address the bot; `always`; `off`.
        messages_per_minute: for each person.
        tokens_per_day: for each person, admins exempt; 0: no bound.
        owner: the number of the account itself, where only it is answered.
    """

    policy: Literal["open", "allowlist", "pairing"]
    allowed: frozenset[str]
    admins: frozenset[str]
    groups: Literal["mention", "always", "off"]
    messages_per_minute: int
    tokens_per_day: int = 0
    owner: str | None = None


class Access:
    """Decides who is answered.

    Args:
        rules: what the operator says.
        clock: monotonic seconds.

    Attributes:
        rules: others may take their place at any time; they count from the next message on.
        paired: ACIs of those who were let in by a code.
        paired_admins: of those among them who administer the bot.
    """

    def __init__(self, rules: AccessRules, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.rules = rules
        self.paired: frozenset[str] = frozenset()
        self.paired_admins: frozenset[str] = frozenset()
        self._clock = clock
        self._windows: dict[str, _Window] = {}

    @property
    def tokens_per_day(self) -> int:
        """What everybody but admins may use in a day; 0: there is no bound."""
        return self.rules.tokens_per_day

    @property
    def pairing(self) -> bool:
        """Whether codes let people in."""
        return self.rules.policy == "pairing"

    def may_talk(self, person: Person) -> bool:
        """Whether anything that this person sends is looked at."""
        return (
            self.rules.policy == "open"
            or _is_one_of(person, self.rules.allowed)
            or self.is_admin(person)
            or (self.pairing and person.aci in self.paired)
        )

    def addressed(self, message: IncomingMessage) -> bool:
        """Whether a message is meant for the bot; what else is said in a group is overheard."""
        if not message.chat.is_group:
            return True
        if self.rules.groups == "mention":
            return message.addresses_bot
        return self.rules.groups == "always"

    @property
    def listens(self) -> bool:
        """Whether what is said to others in a group is of use: where only some of it is for us."""
        return self.rules.groups == "mention"

    def is_admin(self, person: Person) -> bool:
        """Whether this person administers the bot."""
        return _is_one_of(person, self.admins) or (
            self.rules.owner is not None and person.number == self.rules.owner
        )

    @property
    def admins(self) -> frozenset[str]:
        """Numbers or ACIs of everybody who administers the bot, but for the account itself."""
        return self.rules.admins | (self.paired_admins if self.pairing else frozenset())

    def spend(self, person: str) -> Allowance:
        """Count one message of a person (by ACI) and say what the rate allows."""
        now = self._clock()
        window = self._windows.get(person)
        if window is None or window.ends_at <= now:
            self._forget_ended(now)
            window = self._windows[person] = _Window(now + WINDOW_SECONDS)
        window.count += 1
        if window.count <= self.rules.messages_per_minute:
            return Allowance.WITHIN
        if window.count == self.rules.messages_per_minute + 1:
            return Allowance.FIRST_OVER
        return Allowance.OVER

    def _forget_ended(self, now: float) -> None:
        if len(self._windows) >= MAX_WINDOWS:
            self._windows = {
                person: window for person, window in self._windows.items() if window.ends_at > now
            }


def _is_one_of(person: Person, people: frozenset[str]) -> bool:
    return person.aci in people or (person.number is not None and person.number in people)
