"""What a person has missed in a group: told to its members alone, which Signal is asked for.

Membership is asked for each time, and whoever cannot be found among the members is told nothing,
also not that there is such a group.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from bot.chat.prompt import overheard_line
from bot.errors import SignalError
from bot.signal.events import Person
from bot.signal.messenger import Messenger
from conversation_store.heard import CatchUpStore
from conversation_store.models import ChatId, OverheardMessage
from tools.errors import ToolError

MAX_GROUPS: Final = 50
"""Groups whose members are looked at for one private question."""
GROUP_SECONDS: Final = 6.0
"""For asking Signal about all of them; less than a tool may take."""
MAX_TOLD_BYTES: Final = 16_000
"""UTF-8 bytes of the messages that are told at once, the newest of them."""

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


@dataclass(frozen=True, slots=True)
class _Place:
    """A group that a person is in."""

    chat: ChatId
    name: str


@dataclass(eq=False, repr=False, slots=True)
class GroupTalk:
    """Tells people what they have missed."""

    book: CatchUpStore
    messenger: Messenger

    async def missed(
        self, person: Person, chat: ChatId, group: str, hours: int, *, turn_id: int
    ) -> str:
        """Return what somebody has missed, for the model.

        Args:
            person: who asks.
            chat: where; in a group it is about that group.
            group: the name of a group, asked in private; empty where there is only one.
            hours: how far to look back; 0: to when the person last wrote there.
            turn_id: the turn in which it is asked.

        Raises:
            ToolError: there is nothing to tell.
        """
        place = await (self._here(person, chat) if chat.is_group else self._meant(person, group))
        found = await self.book.missed(place.chat, person.aci, turn_id=turn_id, hours=hours)
        if found is None:
            raise ToolError(NEVER_WROTE)
        since = f"{datetime.fromtimestamp(found.since / 1_000, UTC):%Y-%m-%d %H:%M} UTC"
        messages = [one for one in found.messages if not one.text.lstrip().startswith("!")]
        newest = _newest(messages)
        told = await self.book.tell(newest, turn_id)
        if not told:
            return NOTHING.format(since=since)
        lines = [TOLD.format(name=place.name or NAMELESS, since=since)]
        if len(newest) < len(messages):
            lines.append(LEFT_OUT.format(count=len(messages) - len(newest)))
        return "\n".join((*lines, *map(overheard_line, told)))

    async def _here(self, person: Person, chat: ChatId) -> _Place:
        if not await self.book.is_on(chat):
            raise ToolError(NOT_HERE)
        try:
            async with asyncio.timeout(GROUP_SECONDS):
                place = await self._place(person, chat)
        except (SignalError, TimeoutError):
            raise ToolError(CANNOT_TELL) from None
        if place is None:
            raise ToolError(CANNOT_TELL)
        return place

    async def _meant(self, person: Person, name: str) -> _Place:
        """Return the group of a name that somebody is in."""
        places = await self._places(person)
        if not places:
            raise ToolError(NOWHERE)
        wanted = name.strip().casefold()
        named = [place for place in places if not wanted or place.name.strip().casefold() == wanted]
        if len(named) != 1:
            names = ", ".join(sorted(place.name or NAMELESS for place in places))
            raise ToolError(WHICH.format(names=names))
        return named[0]

    async def _places(self, person: Person) -> list[_Place]:
        """Return the groups with something to tell that somebody is in, as far as Signal says."""
        chats = (await self.book.groups())[:MAX_GROUPS]
        looks: list[asyncio.Task[_Place | None]] = []
        try:
            async with asyncio.timeout(GROUP_SECONDS), asyncio.TaskGroup() as tasks:
                looks = [tasks.create_task(self._place_or_none(person, chat)) for chat in chats]
        except TimeoutError:
            raise ToolError(CANNOT_TELL) from None
        return [place for look in looks if (place := look.result()) is not None]

    async def _place_or_none(self, person: Person, chat: ChatId) -> _Place | None:
        try:
            return await self._place(person, chat)
        except SignalError:
            return None

    async def _place(self, person: Person, chat: ChatId) -> _Place | None:
        """Return a group that the bot and somebody are in now."""
        group = await self.messenger.group(chat)
        if group is None or not group.is_member or not _is_in(person, group.members):
            return None
        return _Place(chat, " ".join(group.name.split()))


def _is_in(person: Person, members: frozenset[str]) -> bool:
    return person.aci in members or (person.number is not None and person.number in members)


def _newest(messages: Sequence[OverheardMessage]) -> Sequence[OverheardMessage]:
    """Return as many of the last messages as may be told at once."""
    first, room = len(messages), MAX_TOLD_BYTES
    while first:
        room -= len(overheard_line(messages[first - 1]).encode())
        if room < 0:
            break
        first -= 1
    return messages[first:]
