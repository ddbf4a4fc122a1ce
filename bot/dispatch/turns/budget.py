"""How many tokens a person's questions may take in a day."""

import time
from collections.abc import Callable
from typing import Final, Protocol

from cachetools import LRUCache

from bot.messaging.events import Person
from conversation_store.token_usage import DAY_MS

USED_UP: Final = (
    "For today you have used up what I may read and write for one person. I go on at 00:00 UTC, in"
    " {wait}."
)
STOPPED: Final = (
    "I had to stop before I was done: for today you have used up what I may read and write for one"
    " person. Ask me again after 00:00 UTC, in {wait}."
)

MAX_TOLD: Final = 10_000
"""People who are known to have heard it; of those who came first, some may hear it again."""


class People(Protocol):
    """Who has a budget. Implemented by `bot.dispatch.incoming.access.Access`."""

    @property
    def tokens_per_day(self) -> int:
        """What everybody may use; 0: there is no bound."""
        ...

    def is_admin(self, person: Person) -> bool:
        """Whether somebody administers the bot, and has no bound."""
        ...


class Spending(Protocol):
    """What was used. Implemented by `conversation_store.sections.usage.UsageStore`."""

    async def spent_today(self, person: str) -> int:
        """Return how many tokens a person's questions have taken today."""
        ...


class TokenBudget:
    """Says whether a person's next question is still answered, and how far.

    It is asked before each request to a model, so only the last one goes beyond the bound.

    Args:
        people: who has a budget, and which.
        spending: what was used.
        clock: seconds since 1970.
    """

    def __init__(
        self, people: People, spending: Spending, *, clock: Callable[[], float] = time.time
    ) -> None:
        self._people = people
        self._spending = spending
        self._clock = clock
        self._told: LRUCache[str, int] = LRUCache(MAX_TOLD)

    def of(self, person: Person) -> int:
        """Return how many tokens somebody may use in a day; 0: there is no bound."""
        return 0 if self._people.is_admin(person) else self._people.tokens_per_day

    async def refusal(self, person: Person) -> str | None:
        """Return what somebody is told who has used up everything; None who has not.

        It is said once a day; after that it is empty.
        """
        if await self._has_left(person):
            self._told.pop(person.aci, None)
            return None
        today = self._now_ms // DAY_MS
        if self._told.get(person.aci) == today:
            return ""
        self._told[person.aci] = today
        return USED_UP.format(wait=self.wait)

    async def stops(self, person: Person, unstored: Callable[[], int]) -> str | None:
        """Return what somebody is told whose turn may ask no model any more; None if it may.

        Args:
            person: who pays for the turn.
            unstored: tokens that the turn has taken and that are not stored yet.
        """
        if await self._has_left(person, unstored):
            return None
        self._told[person.aci] = self._now_ms // DAY_MS
        return STOPPED.format(wait=self.wait)

    async def _has_left(self, person: Person, unstored: Callable[[], int] = int) -> bool:
        limit = self.of(person)
        if not limit:
            return True
        stored = await self._spending.spent_today(person.aci)
        return stored + unstored() < limit

    @property
    def wait(self) -> str:
        """How long it is until the next day, as `5 h 20 min`."""
        left_ms = DAY_MS - self._now_ms % DAY_MS
        hours, minutes = divmod(-(-left_ms // 60_000), 60)
        return f"{hours} h {minutes} min" if hours else f"{minutes} min"

    @property
    def _now_ms(self) -> int:
        return int(self._clock() * 1_000)
