"""Groups: where the bot may write, which invitations it accepts, where it does not stay.

Whoever may not talk to the bot is not answered in a group either; so a group of strangers is a
nuisance, not a danger, and the bot leaves one only where it is sure that nobody wants it there.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol, TypeVar

import structlog

from bot.dispatch.background.retry_until import RetryUntil
from bot.errors import SignalError
from bot.messaging.account import Group
from bot.messaging.events import GroupChanged, Person
from bot.messaging.messenger import Messenger
from conversation_store.models import ChatId
from conversation_store.store import ConversationStore

log = structlog.get_logger()

T = TypeVar("T")

GROUP_SECONDS: Final = 600.0
"""How long what is known of a group counts; changes that are seen make it forgotten before."""

MAX_GROUPS: Final = 1_000
"""Groups known at once; above it the oldest knowledge goes."""

RIGHTS_SECONDS: Final = 5.0
"""How long an answer waits to know whether it may be written."""

RETRY_UNTIL: Final = RetryUntil(seconds=120.0)

HISTORY_BYTES: Final = 2**20
"""Enough to see that there is any."""


class SignsSide(Protocol):
    """Where signs of life are given. Implemented by every Messenger."""

    async def show_typing(self, chat: ChatId, *, stop: bool = False) -> None:
        """Let a chat see that an answer is being written, or no longer."""
        ...

    async def react(self, chat: ChatId, emoji: str, *, author: str, timestamp: int) -> None:
        """Put an emoji on somebody's message."""
        ...

    async def mark_read(self, person: str, timestamps: Sequence[int]) -> None:
        """Tell a person that messages were read."""
        ...


@dataclass(frozen=True, slots=True)
class _Known:
    """What a group was when it was asked for."""

    group: Group | None
    until: float


class GroupPermissions:
    """The groups that the bot is in or is invited to.

    Args:
        side: the Signal side.
        store: remembers in which groups the bot is at home.
        number: of the bot's account.
        admins: returns the numbers or ACIs of those who administer the bot.
        retry: how long the Signal side is asked.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        side: Messenger,
        store: ConversationStore,
        *,
        number: str,
        admins: Callable[[], frozenset[str]],
        retry: RetryUntil = RETRY_UNTIL,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._side = side
        self._store = store
        self._number = number
        self._admins = admins
        self._retry = retry
        self._clock = clock
        self._known: dict[ChatId, _Known] = {}
        self._changes = 0
        self._homes: set[ChatId] = set()

    async def may_write(self, chat: ChatId) -> bool:
        """Whether the bot's words are welcome in a chat, by the rights of its group.

        Asked for what addresses the bot there, so the group counts as one that wants it. Where
        the Signal side does not tell, a message is tried: Signal refuses what is not allowed.
        """
        if not chat.is_group:
            return True
        await self._feel_at_home(chat)
        group = await self._soon(chat)
        return group is None or not group.only_admins_write or self._number in group.admins

    async def has_member(self, chat: ChatId, person: Person) -> bool:
        """Whether somebody is in a group; where the Signal side does not tell: yes."""
        group = await self._soon(chat)
        return group is None or bool(group.members & {person.aci, person.number})

    async def is_group_admin(self, chat: ChatId, person: Person) -> bool:
        """Whether somebody administers a group; where the Signal side does not tell: no."""
        group = await self._try("group.unknown", partial(self._group, chat))
        return group is not None and bool(group.admins & {person.aci, person.number})

    async def changed(self, event: GroupChanged) -> None:
        """Look at a group anew: accept an admin's invitation, leave where nobody is known.

        It asks the Signal side, so it is a job of the chat's mailbox, never part of a delivery.

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
            await self._try("group.leave_failed", partial(self._side.leave_group, event.chat))

    async def _answer_invitation(self, event: GroupChanged) -> None:
        if not self._is_admin(event.author):
            log.info("group.not_joined", reason="not_invited_by_an_admin")
            return
        await self._feel_at_home(event.chat)
        await self._try("group.join_failed", partial(self._side.join_group, event.chat))

    async def _is_home(self, chat: ChatId, group: Group) -> bool:
        """Whether the bot may stay in a group."""
        if not self._admins() or group.members & self._admins():
            return True
        if chat in self._homes or await self._store.get_metadata(_home(chat)) is not None:
            return True
        return bool((await self._store.turns.history(chat, max_bytes=HISTORY_BYTES)).turns)

    async def _feel_at_home(self, chat: ChatId) -> None:
        if chat in self._homes:
            return
        await self._store.set_metadata(_home(chat), "yes")
        if len(self._homes) >= MAX_GROUPS:
            self._homes.clear()
        self._homes.add(chat)

    async def _soon(self, chat: ChatId) -> Group | None:
        """Return what a group is, without waiting long for it."""
        try:
            async with asyncio.timeout(RIGHTS_SECONDS):
                return await self._group(chat)
        except (SignalError, TimeoutError) as error:
            log.info("group.unknown", reason=type(error).__name__)
            return None

    async def _group(self, chat: ChatId) -> Group | None:
        known = self._known.get(chat)
        if known is not None and known.until > self._clock():
            return known.group
        changes = self._changes
        group = await self._side.group(chat)
        if changes == self._changes:
            self._known.pop(chat, None)
            if len(self._known) >= MAX_GROUPS:
                del self._known[next(iter(self._known))]
            self._known[chat] = _Known(group, self._clock() + GROUP_SECONDS)
        return group

    async def _try(self, failure: str, question: Callable[[], Awaitable[T]]) -> T | None:
        try:
            return await self._retry.call(question)
        except SignalError as error:
            log.warning(failure, reason=type(error).__name__)
            return None

    def _is_admin(self, person: Person) -> bool:
        return bool(self._admins() & {person.aci, person.number})


class SignsByRights:
    """Signs of life, but none in a group where the bot may not write."""

    def __init__(self, side: SignsSide, group_permissions: GroupPermissions) -> None:
        self._side = side
        self._group_permissions = group_permissions

    async def show_typing(self, chat: ChatId, *, stop: bool = False) -> None:
        """Let a chat see that an answer is being written, or no longer."""
        if await self._group_permissions.may_write(chat):
            await self._side.show_typing(chat, stop=stop)

    async def react(self, chat: ChatId, emoji: str, *, author: str, timestamp: int) -> None:
        """Put an emoji on somebody's message."""
        if await self._group_permissions.may_write(chat):
            await self._side.react(chat, emoji, author=author, timestamp=timestamp)

    async def mark_read(self, person: str, timestamps: Sequence[int]) -> None:
        """Tell a person that messages were read, which nobody else sees."""
        await self._side.mark_read(person, timestamps)


def _home(chat: ChatId) -> str:
    return f"home {chat}"
