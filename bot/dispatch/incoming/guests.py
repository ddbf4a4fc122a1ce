"""Those who come: strangers at the door, people who are back with a new key, groups."""

from bot.dispatch.incoming.groups import GroupPermissions
from bot.dispatch.incoming.identities import Identities
from bot.dispatch.incoming.message_requests import MessageRequests
from bot.dispatch.incoming.pairing import Pairing
from bot.messaging.events import GroupChanged, IdentityChanged, IncomingMessage


class Guests:
    """What is to be done at the door beside taking messages.

    Args:
        pairing: gives strangers a code, where a code lets people in.
        requests: accepts message requests.
        group_permissions: groups.
        identities: keys.
    """

    def __init__(
        self,
        *,
        pairing: Pairing,
        requests: MessageRequests,
        group_permissions: GroupPermissions,
        identities: Identities,
    ) -> None:
        self._pairing = pairing
        self._requests = requests
        self._group_permissions = group_permissions
        self._identities = identities

    async def stranger(self, message: IncomingMessage) -> None:
        """Give a stranger a code, where a code lets people in; nothing of the message is kept."""
        await self._pairing.stranger(message)

    async def welcome(self, message: IncomingMessage) -> None:
        """Take a message of somebody who may talk as a sign: of trust, of a request."""
        if not message.chat.is_group:
            self._requests.accept(message.author.aci)
        await self._identities.seen(message.author.aci)

    async def group_changed(self, event: GroupChanged) -> None:
        """Look at a group anew."""
        await self._group_permissions.changed(event)

    async def identity_changed(self, event: IdentityChanged) -> None:
        """Deal with a new key."""
        await self._identities.changed(event)
