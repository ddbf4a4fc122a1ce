"""The door: access, keys, groups, limits and loops decide together who may talk, and where."""

import asyncio
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import structlog
from cachetools import LRUCache

from bot.chat.access import Access, LoopGuard, LoopVerdict
from bot.chat.groups import GroupPermissions
from bot.chat.identities import Identities
from bot.errors import SignalError, SignalUnavailable
from bot.observability import logs
from bot.observability.logs import LogId
from bot.signal.events import Person
from bot.signal.messenger import Messenger
from conversation_store.models import ReceivedMessage, StoredReminder

log = structlog.get_logger()

ACCEPT_SECONDS: Final = 10.0

MAX_IN_FLIGHT: Final = 4
"""Requests that are being accepted at once; more wait for their person's next message."""

MAX_KNOWN: Final = 10_000
"""People with an accepted request in memory."""

TOO_FAST: Final = "You are writing faster than I can answer. Please wait a minute."


class Refusal(NamedTuple):
    """Reason to refuse a message, and the text for the person, if any."""

    outcome: str
    text: str | None = None


@dataclass(eq=False, repr=False, slots=True)
class MessageRequests:
    """Accepts each person's request once, in the background; a failure harms nothing."""

    messenger: Messenger
    tasks: asyncio.TaskGroup
    _known: LRUCache[str, None] = field(default_factory=lambda: LRUCache(MAX_KNOWN), init=False)
    _in_flight: int = field(default=0, init=False)

    def accept(self, person: str) -> None:
        """Accept the request of a person, by ACI, if there may be one."""
        if person not in self._known and self._in_flight < MAX_IN_FLIGHT:
            self._known[person] = None
            self._in_flight += 1
            self.tasks.create_task(self._accept(person))

    async def _accept(self, person: str) -> None:
        try:
            async with asyncio.timeout(ACCEPT_SECONDS):
                await self.messenger.accept_request(person)
        except SignalUnavailable:
            self._known.pop(person, None)
        except (SignalError, TimeoutError) as error:
            log.info("message_request.not_accepted", reason=type(error).__name__)
        finally:
            self._in_flight -= 1


@dataclass(frozen=True, slots=True)
class Door:
    """Decides who may talk, and where the bot may."""

    access: Access
    identities: Identities
    groups: GroupPermissions
    loops: LoopGuard

    def hears(self, person: Person) -> bool:
        """Whether a person may talk, as far as is known without asking the Signal side."""
        return self.access.may_talk(person) and self.identities.is_verified(person.aci)

    def refusal(
        self, message: ReceivedMessage, *, is_command: bool, is_exempt: bool
    ) -> Refusal | None:
        """Count a message, and return the reason to refuse it, or None.

        Args:
            is_exempt: the rate limit does not apply to it.
        """
        excess = self.access.spend(message.author)
        match self._verdict(message, is_command=is_command):
            case LoopVerdict.FIRST_SILENCE:
                log.warning("intake.loop", **names_of(message))
                return Refusal("loop", self.loops.notice(message.chat, message.author))
            case LoopVerdict.SILENCE:
                return Refusal("loop")
        if is_exempt or not excess:
            return None
        return Refusal("rate_limited", TOO_FAST if excess == 1 else None)

    def _verdict(self, message: ReceivedMessage, *, is_command: bool) -> LoopVerdict:
        if self.access.is_admin(author_of(message)):
            return LoopVerdict.TALK
        if is_command:
            self.loops.release(message.chat, message.author)
        return self.loops.verdict(message.chat, message.author)

    async def silence(self, message: ReceivedMessage) -> str | None:
        """Return the reason to leave a message without an answer, for its row, or None."""
        if message.chat.is_group and not await self.groups.may_write(message.chat):
            return "may_not_write"
        may_talk = await self.identities.may_talk(author_of(message))
        return None if may_talk else "unverified"

    async def welcomes(self, reminder: StoredReminder) -> bool:
        """Whether a reminder's person may talk now, and in a group is still a member."""
        person = Person(reminder.person, reminder.person_number)
        if not self.access.may_talk(person):
            return False
        if reminder.chat.is_group:
            is_there = await self.groups.has_member(reminder.chat, person)
            if not is_there or not await self.groups.may_write(reminder.chat):
                return False
        return await self.identities.may_talk(person)


def author_of(message: ReceivedMessage) -> Person:
    """Return the author of a message."""
    return Person(message.author, message.author_number, message.author_name)


def names_of(message: ReceivedMessage) -> dict[str, LogId | None]:
    """Return the ids of a message's chat and author for the log."""
    return {"chat": logs.chat_id(message.chat), "person": logs.person_id(message.author)}
