"""Groups: the bot's right to write, its invitations, and leaving groups of strangers.

The bot answers the same people in groups as in private chats. So a group of strangers is a
nuisance, not a danger, and the bot leaves a group only if certainly no member wants it there.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Final, TypeVar

import structlog
from cachetools import TTLCache

from bot.backoff import Backoff
from bot.chat.access import Access
from bot.chat.prompt import latest, overheard_line
from bot.signal.account import Group
from bot.signal.errors import SignalError, SignalRejected, SignalUntrusted
from bot.signal.events import GroupChanged, Person
from bot.signal.messenger import Messenger
from conversation_store.heard import CatchUpStore
from conversation_store.models import ChatId
from conversation_store.store import ConversationStore
from tools.base import ToolError

log = structlog.get_logger()

T = TypeVar("T")

RETRY: Final = Backoff(first_seconds=1.0, longest_seconds=30.0)

GROUP_SECONDS: Final = 600.0
"""How long an answer about a group counts, unless the group changes."""

MAX_GROUPS: Final = 1_000
"""Groups in memory; when full, the oldest is removed."""

RIGHTS_SECONDS: Final = 5.0
"""How long an answer waits for the rights of its group."""

HISTORY_BYTES: Final = 2**20
"""Enough to see whether there is any history."""


@dataclass(frozen=True, slots=True)
class RetryUntil:
    """Retries of a request; the last attempt begins at most `seconds` after the first."""

    seconds: float
    backoff: Backoff = RETRY

    async def call(self, request: Callable[[], Awaitable[T]]) -> T:
        """Return the result of a request that is safe to repeat; raises SignalError."""
        return await self.backoff.retry(
            request,
            on=(SignalError,),
            final=(SignalRejected, SignalUntrusted),
            asked=lambda error: error.retry_after_seconds,
            within_seconds=self.seconds,
        )


RETRY_UNTIL: Final = RetryUntil(seconds=120.0)


@dataclass(eq=False, repr=False, slots=True)
class GroupPermissions:
    """The groups that the bot is in or is invited to with its account's number."""

    side: Messenger
    store: ConversationStore
    access: Access
    _: KW_ONLY
    number: str
    retry: RetryUntil = RETRY_UNTIL
    clock: Callable[[], float] = time.monotonic
    _known: TTLCache[ChatId, Group | None] = field(init=False)
    _changes: int = field(default=0, init=False)
    _homes: set[ChatId] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        self._known = TTLCache(MAX_GROUPS, GROUP_SECONDS, timer=self.clock)

    async def may_write(self, chat: ChatId) -> bool:
        """Whether the bot may write in a group.

        A message addressed the bot there, so from now on the group counts as a home. If the Signal
        side does not know, the bot tries: Signal refuses forbidden messages.
        """
        await self._feel_at_home(chat)
        group = await self._group_in_time(chat)
        return group is None or not group.only_admins_write or self.number in group.admins

    async def has_member(self, chat: ChatId, person: Person) -> bool:
        """Whether a person is in a group; yes if the Signal side does not know."""
        group = await self._group_in_time(chat)
        return group is None or person.is_in(group.members)

    async def is_group_admin(self, chat: ChatId, person: Person) -> bool:
        """Whether a person administers a group; no if the Signal side does not know."""
        group = await self._try("group.unknown", partial(self._group, chat))
        return group is not None and person.is_in(group.admins)

    async def changed(self, event: GroupChanged) -> None:
        """Ask about a changed group: accept an admin's invitation, or leave a group of strangers.

        This asks the Signal side, so run it in the chat's urgent queue, never in a delivery.
        """
        self._known.pop(event.chat, None)
        self._changes += 1
        group = await self._try("group.unknown", partial(self._group, event.chat))
        if group is None:
            return
        if group.is_invited and not self.access.is_admin(event.author):
            log.info("group.not_joined", reason="not_invited_by_an_admin")
        elif group.is_invited:
            await self._feel_at_home(event.chat)
            await self._try("group.join_failed", partial(self.side.join_group, event.chat))
        elif group.is_member and not await self._is_home(event.chat, group):
            log.info("group.left", reason="no_admin_in_it")
            await self._try("group.leave_failed", partial(self.side.leave_group, event.chat))

    async def _is_home(self, chat: ChatId, group: Group) -> bool:
        admins = self.access.admins
        if not admins or group.members & admins:
            return True
        if chat in self._homes or await self.store.get_metadata(_home(chat)) is not None:
            return True
        return bool((await self.store.turns.history(chat, max_bytes=HISTORY_BYTES)).turns)

    async def _feel_at_home(self, chat: ChatId) -> None:
        if chat in self._homes:
            return
        await self.store.set_metadata(_home(chat), "yes")
        if len(self._homes) >= MAX_GROUPS:
            self._homes.clear()
        self._homes.add(chat)

    async def _group_in_time(self, chat: ChatId) -> Group | None:
        """Return a group within `RIGHTS_SECONDS`, or None."""
        try:
            async with asyncio.timeout(RIGHTS_SECONDS):
                return await self._group(chat)
        except (SignalError, TimeoutError) as error:
            log.info("group.unknown", reason=type(error).__name__)
            return None

    async def _group(self, chat: ChatId) -> Group | None:
        with suppress(KeyError):
            return self._known[chat]
        changes = self._changes
        group = await self.side.group(chat)
        if changes == self._changes:
            self._known[chat] = group
        return group

    async def _try(self, failure: str, question: Callable[[], Awaitable[T]]) -> T | None:
        try:
            return await self.retry.call(question)
        except SignalError as error:
            log.warning(failure, reason=type(error).__name__)
            return None


def _home(chat: ChatId) -> str:
    return f"home {chat}"


MAX_GROUPS_ASKED: Final = 50
"""Groups whose members the bot checks for one private question."""
ANSWER_SECONDS: Final = 6.0
"""Time to ask Signal about all of these groups; less than a tool may take."""
MAX_TOLD_BYTES: Final = 16_000
"""UTF-8 bytes of the messages told at once; only the newest fit."""

NOT_HERE: Final = (
    "This group keeps nothing for that. An admin of the group can change it with !catchup on; what"
    " was said before is not known."
)
NOWHERE: Final = (
    "The person is in no group that keeps something for that. An admin of a group can change it"
    " with !catchup on, sent there."
)
CANNOT_TELL: Final = (
    "Signal does not say right now who is in that group, so nothing is told of it. Try again later."
)
WHICH: Final = "Ask which group is meant. The person can ask about: {names}."
NEVER_WROTE: Final = (
    "As far as is known, the person has not written in that group yet. Only what was said after"
    " somebody's own message there is told."
)
NOTHING: Final = "Nothing was written there since {since}."
TOLD: Final = "In the group {name}, since {since}, oldest first:"
LEFT_OUT: Final = "[{count} earlier messages are left out.]"
NAMELESS: Final = "without a name"


_Place = tuple[ChatId, str]
"""A group that a person is in, with its name."""


@dataclass(eq=False, repr=False, slots=True)
class GroupTalk:
    """Tells members what they missed in a group; asks Signal each time if they are members."""

    book: CatchUpStore
    messenger: Messenger

    async def missed(
        self, person: Person, chat: ChatId, group: str, hours: int, *, turn_id: int
    ) -> str:
        """Return the messages that a person has missed, for the model; ToolError without any.

        Args:
            chat: where the person asks; in a group it is about that group.
            group: the name of a group, asked in private; empty if there is only one.
            hours: how far to look back; 0: since the person last wrote there.
        """
        if chat.is_group:
            here, name = await self._here(person, chat)
        else:
            here, name = await self._meant(person, group)
        found = await self.book.missed(here, person.aci, turn_id=turn_id, hours=hours)
        if found is None:
            raise ToolError(NEVER_WROTE)
        since = f"{datetime.fromtimestamp(found[0] / 1_000, UTC):%Y-%m-%d %H:%M} UTC"
        messages = [one for one in found[1] if not one.text.lstrip().startswith("!")]
        lines = [overheard_line(message) for message in messages]
        left_out = len(messages) - len(latest(lines, MAX_TOLD_BYTES))
        told = await self.book.tell(messages[left_out:], turn_id)
        if not told:
            return NOTHING.format(since=since)
        lines = [TOLD.format(name=name or NAMELESS, since=since)]
        if left_out:
            lines.append(LEFT_OUT.format(count=left_out))
        return "\n".join((*lines, *map(overheard_line, told)))

    async def _here(self, person: Person, chat: ChatId) -> _Place:
        if not await self.book.is_on(chat):
            raise ToolError(NOT_HERE)
        with suppress(TimeoutError):
            async with asyncio.timeout(ANSWER_SECONDS):
                if place := await self._place(person, chat):
                    return place
        raise ToolError(CANNOT_TELL)

    async def _meant(self, person: Person, name: str) -> _Place:
        places = await self._places(person)
        if not places:
            raise ToolError(NOWHERE)
        wanted = name.strip().casefold()
        named = [place for place in places if not wanted or place[1].casefold() == wanted]
        if len(named) != 1:
            names = ", ".join(sorted(name or NAMELESS for _, name in places))
            raise ToolError(WHICH.format(names=names))
        return named[0]

    async def _places(self, person: Person) -> list[_Place]:
        """Return the person's groups with kept messages, as far as Signal knows them."""
        chats = (await self.book.groups())[:MAX_GROUPS_ASKED]
        looks: list[asyncio.Task[_Place | None]] = []
        try:
            async with asyncio.timeout(ANSWER_SECONDS), asyncio.TaskGroup() as tasks:
                looks = [tasks.create_task(self._place(person, chat)) for chat in chats]
        except TimeoutError:
            raise ToolError(CANNOT_TELL) from None
        return [place for look in looks if (place := look.result()) is not None]

    async def _place(self, person: Person, chat: ChatId) -> _Place | None:
        """Return a group if the bot and the person are now in it, according to Signal."""
        group = None
        with suppress(SignalError):
            group = await self.messenger.group(chat)
        if group is None or not group.is_member or not person.is_in(group.members):
            return None
        return chat, " ".join(group.name.split())
