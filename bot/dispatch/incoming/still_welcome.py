"""Whether what somebody asked for a while ago may still be said, where they asked for it."""

from dataclasses import dataclass

from bot.dispatch.incoming.access import Access
from bot.dispatch.incoming.groups import GroupPermissions
from bot.dispatch.incoming.identities import Identities
from bot.messaging.events import Person
from conversation_store.models import StoredReminder


@dataclass(frozen=True, slots=True)
class StillWelcome:
    """Looks at today's rights: those of the day when it was asked for count no more.

    Attributes:
        access: who may talk to the bot.
        groups: where it may write, and who is there.
        identities: whose key counts.
    """

    access: Access
    groups: GroupPermissions
    identities: Identities

    async def is_welcome(self, reminder: StoredReminder) -> bool:
        """Whether a reminder may be said: its person may talk, and in a group is still there."""
        person = Person(reminder.person, reminder.person_number)
        if not self.access.may_talk(person):
            return False
        if reminder.chat.is_group:
            is_there = await self.groups.has_member(reminder.chat, person)
            if not is_there or not await self.groups.may_write(reminder.chat):
                return False
        return await self.identities.may_talk(person)
