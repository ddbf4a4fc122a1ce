"""Groups: the bot's right to write, its invitations, and leaving groups of strangers.

The bot answers the same people in groups as in private chats. So a group of strangers is a
nuisance, not a danger, and the bot leaves a group only if certainly no member wants it there.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import Final, TypeVar

import structlog
from cachetools import TTLCache

from bot.backoff import Backoff
from bot.chat.access import Access
from bot.errors import SignalError, SignalRejected, SignalUntrusted
from bot.signal.account import Group
from bot.signal.events import GroupChanged, Person
from bot.signal.messenger import Messenger
from conversation_store.models import ChatId
from conversation_store.store import ConversationStore

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
    """Time limit of retries.

    Attributes:
        seconds: no attempt begins later than this after the first.
        backoff: the pause between two attempts.
    """

    seconds: float
    backoff: Backoff = RETRY

    async def call(self, request: Callable[[], Awaitable[T]]) -> T:
        """Return the result of a request that is safe to repeat.

        Raises:
            SignalError: the request was refused, or failed until the time was over.
        """
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
    """The groups that the bot is in or is invited to.

    Attributes:
        number: of the bot's account.
    """

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
        """Whether the bot may write in a chat, by the rights of its group.

        A message addressed the bot there, so from now on the group counts as a home. If the Signal
        side does not know, the bot tries: Signal refuses forbidden messages.
        """
        if not chat.is_group:
            return True
        await self._feel_at_home(chat)
        group = await self._soon(chat)
        return group is None or not group.only_admins_write or self.number in group.admins

    async def has_member(self, chat: ChatId, person: Person) -> bool:
        """Whether a person is in a group; yes if the Signal side does not know."""
        group = await self._soon(chat)
        return group is None or bool(group.members & {person.aci, person.number})

    async def is_group_admin(self, chat: ChatId, person: Person) -> bool:
        """Whether a person administers a group; no if the Signal side does not know."""
        group = await self._try("group.unknown", partial(self._group, chat))
        return group is not None and bool(group.admins & {person.aci, person.number})

    async def changed(self, event: GroupChanged) -> None:
        """Ask about a changed group: accept an admin's invitation, or leave a group of strangers.

        This asks the Signal side, so run it in the chat's urgent queue, never in a delivery.

        Raises:
            StoreError: the process cannot go on.
        """
        self._known.pop(event.chat, None)
        self._changes += 1
        group = await self._try("group.unknown", partial(self._group, event.chat))
        if group is None:
            return
        if group.is_invited:
            await self._answer_invitation(event)
        elif group.is_member and not await self._is_home(event.chat, group):
            log.info("group.left", reason="no_admin_in_it")
            await self._try("group.leave_failed", partial(self.side.leave_group, event.chat))

    async def _answer_invitation(self, event: GroupChanged) -> None:
        if not self.access.is_admin(event.author):
            log.info("group.not_joined", reason="not_invited_by_an_admin")
            return
        await self._feel_at_home(event.chat)
        await self._try("group.join_failed", partial(self.side.join_group, event.chat))

    async def _is_home(self, chat: ChatId, group: Group) -> bool:
        """Whether the bot may stay in a group."""
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

    async def _soon(self, chat: ChatId) -> Group | None:
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
