"""Access: which people the bot answers, how fast they may write, and how much they may use.

`may_talk` looks at the envelope alone, so that nothing of a stranger is ever stored.
"""

import time
from collections.abc import Awaitable, Callable
from dataclasses import KW_ONLY, dataclass, field
from itertools import count
from typing import Final

from cachetools import LRUCache, TTLCache

from bot.config.settings import AccessSettings
from bot.signal.events import IncomingMessage, Person
from conversation_store.models import DAY_MS, ChatId

WINDOW_SECONDS: Final = 60.0

MAX_PEOPLE: Final = 10_000
"""People that each part here remembers at once; when full, it forgets the oldest."""

USED_UP: Final = (
    "You have used up your tokens for today. I answer you again after 00:00 UTC, in {wait}."
)
STOPPED: Final = (
    "I had to stop before I was done: you have used up your tokens for today. Ask me again after"
    " 00:00 UTC, in {wait}."
)

MAX_TURNS: Final = 200
"""A person who writes every 15 seconds reaches this after 50 minutes without a pause."""

PAUSE_SECONDS: Final = 120.0
"""After this long without a message, the count starts again."""

SILENCE_SECONDS: Final = 600.0

TWO_BOTS: Final = (
    "This looks like two bots talking to each other. I will not answer you here for 10 minutes. If"
    " you are a person, send !help, and I go on at once."
)


@dataclass(eq=False, repr=False, slots=True)
class Access:
    """Decides which people the bot answers.

    Attributes:
        settings: may be replaced at any time. A number in them counts only if Signal tells it,
            because people can hide theirs; an ACI always counts.
        account: the bot's own number; its owner is the only person in the note to self.
    """

    settings: AccessSettings
    account: str = ""
    _: KW_ONLY
    clock: Callable[[], float] = time.monotonic
    paired: frozenset[str] = field(default_factory=frozenset, init=False)
    paired_admins: frozenset[str] = field(default_factory=frozenset, init=False)
    _counts: "TTLCache[str, count[int]]" = field(init=False)

    def __post_init__(self) -> None:
        self._counts = TTLCache(MAX_PEOPLE, WINDOW_SECONDS, timer=self.clock)

    @property
    def pairing(self) -> bool:
        """Whether codes let people in."""
        return self.settings.policy == "pairing" and not self.settings.note_to_self

    def may_talk(self, person: Person) -> bool:
        """Whether the bot reads messages of this person."""
        return (
            self.settings.policy == "open"
            or self.settings.note_to_self
            or person.is_in(self.settings.allowed)
            or self.is_admin(person)
            or (self.pairing and person.aci in self.paired)
        )

    def addressed(self, message: IncomingMessage) -> bool:
        """Whether a message is meant for the bot; other messages in a group are overheard."""
        if not message.chat.is_group:
            return True
        if self.settings.groups == "mention":
            return message.addresses_bot
        return self.settings.groups == "always"

    @property
    def listens(self) -> bool:
        """Whether the bot keeps group messages that are meant for others."""
        return self.settings.groups == "mention"

    def is_admin(self, person: Person) -> bool:
        """Whether this person administers the bot."""
        return person.is_in(self.admins) or (
            self.settings.note_to_self and person.number == self.account
        )

    @property
    def admins(self) -> frozenset[str]:
        """Numbers or ACIs of all admins, except the account itself."""
        return self.settings.admins | (self.paired_admins if self.pairing else frozenset())

    def spend(self, person: str) -> int:
        """Count a message of a person (by ACI); return the messages above this minute's limit."""
        sent = next(self._counts.setdefault(person, count(1)))
        return max(0, sent - self.settings.messages_per_minute)


@dataclass(eq=False, repr=False, slots=True)
class TokenBudget:
    """Daily token budget of each person.

    It is checked before each request to a model, so only the last request can exceed it.
    """

    access: Access
    spent_today: Callable[[str], Awaitable[int]]
    _: KW_ONLY
    clock: Callable[[], float] = time.time
    _told: LRUCache[str, int] = field(default_factory=lambda: LRUCache(MAX_PEOPLE), init=False)

    def of(self, person: Person) -> int:
        """Return a person's daily token limit; 0 means no limit."""
        return 0 if self.access.is_admin(person) else self.access.settings.tokens_per_day

    async def refusal(self, person: Person) -> str | None:
        """Return the text for a person whose budget is used up, or None.

        The text is empty after the first time in a day.
        """
        if await self._has_left(person):
            self._told.pop(person.aci, None)
            return None
        today = self._now_ms // DAY_MS
        if self._told.get(person.aci) == today:
            return ""
        self._told[person.aci] = today
        return USED_UP.format(wait=self.until_next_day())

    async def stops(self, person: Person, unstored: Callable[[], int]) -> str | None:
        """Return the text for a person whose budget this turn has used up, or None."""
        if await self._has_left(person, unstored):
            return None
        self._told[person.aci] = self._now_ms // DAY_MS
        return STOPPED.format(wait=self.until_next_day())

    async def _has_left(self, person: Person, unstored: Callable[[], int] = int) -> bool:
        limit = self.of(person)
        if not limit:
            return True
        stored = await self.spent_today(person.aci)
        return stored + unstored() < limit

    def until_next_day(self) -> str:
        """Return the time until the next day, as `5 h 20 min`."""
        left_ms = DAY_MS - self._now_ms % DAY_MS
        hours, minutes = divmod(-(-left_ms // 60_000), 60)
        return f"{hours} h {minutes} min" if hours else f"{minutes} min"

    @property
    def _now_ms(self) -> int:
        return int(self.clock() * 1_000)


@dataclass(slots=True)
class _Partner:
    answered_at: float | None = None
    turns: int = 0
    silent_until: float = 0.0


@dataclass(eq=False, repr=False, slots=True, kw_only=True)
class LoopGuard:
    """Stops two bots that answer each other: counts consecutive turns. Callers exempt admins.

    A person and the bot may take turns for hours, but sooner or later the person pauses. Two bots
    never do. So the bot falls silent towards someone after `MAX_TURNS` answers without a pause. In
    groups it counts each member separately.
    """

    clock: Callable[[], float] = time.monotonic
    _partners: LRUCache[tuple[str, str], _Partner] = field(
        default_factory=lambda: LRUCache(MAX_PEOPLE), init=False
    )

    def answered(self, chat: ChatId, author: str) -> None:
        """Note that an answer to a person (by ACI) went out in a chat."""
        partner = self._partners.setdefault((chat, author), _Partner())
        partner.answered_at = self.clock()

    def refusal(self, chat: ChatId, author: str) -> str | None:
        """Return the notice when a silence begins, "" while it lasts, None without one."""
        partner = self._partners.get((chat, author))
        if partner is None:
            return None
        now = self.clock()
        if now < partner.silent_until:
            return ""
        if partner.answered_at is not None:
            has_paused = now - partner.answered_at >= PAUSE_SECONDS
            partner.turns = 0 if has_paused else partner.turns + 1
            partner.answered_at = None
        if partner.turns < MAX_TURNS:
            return None
        partner.turns = 0
        partner.silent_until = now + SILENCE_SECONDS
        return TWO_BOTS

    def release(self, chat: ChatId, author: str) -> None:
        """End the silence towards someone who sent a command, as the notice says."""
        if (partner := self._partners.get((chat, author))) is not None:
            partner.silent_until = 0.0
