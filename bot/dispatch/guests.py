"""Those who come: strangers at the door, people who are back with a new key, groups."""

import asyncio
from collections.abc import Sequence
from typing import Final, Protocol

import structlog

from bot.dispatch.groups import GroupRooms
from bot.dispatch.identities import Identities
from bot.dispatch.message_requests import MessageRequests
from bot.dispatch.pairing import Pairing
from bot.errors import SignalError
from bot.messaging.events import GroupChanged, IdentityChanged, IncomingFile, IncomingMessage

log = structlog.get_logger()

DISCARD_SECONDS: Final = 10.0

MAX_DISCARDS: Final = 4
"""Messages whose files are being deleted at once; of more, the files stay on the Signal side."""


class FileSide(Protocol):
    """Where files are. Implemented by every Messenger."""

    async def discard_file(self, file: IncomingFile) -> None:
        """Delete a file."""
        ...


class Guests:
    """What is to be done at the door beside taking messages.

    Args:
        pairing: gives strangers a code; None where no code lets anybody in.
        requests: accepts message requests.
        rooms: groups.
        identities: keys.
        files: deletes what nobody will look at.
        tasks: where that is done.
    """

    def __init__(
        self,
        *,
        pairing: Pairing | None,
        requests: MessageRequests,
        rooms: GroupRooms,
        identities: Identities,
        files: FileSide,
        tasks: asyncio.TaskGroup,
    ) -> None:
        self._pairing = pairing
        self._requests = requests
        self._rooms = rooms
        self._identities = identities
        self._files = files
        self._tasks = tasks
        self._discarding = 0

    async def stranger(self, message: IncomingMessage) -> None:
        """Give a stranger a code, where a code lets people in; nothing of the message is kept."""
        if self._pairing is not None:
            await self._pairing.stranger(message)

    async def welcome(self, message: IncomingMessage) -> None:
        """Take a message of somebody who may talk as a sign: of trust, of a request."""
        if not message.chat.is_group:
            self._requests.accept(message.author.aci)
        await self._identities.seen(message.author.aci)

    async def group_changed(self, event: GroupChanged) -> None:
        """Look at a group anew."""
        await self._rooms.changed(event)

    async def identity_changed(self, event: IdentityChanged) -> None:
        """Deal with a new key."""
        await self._identities.changed(event)

    def discard(self, files: Sequence[IncomingFile]) -> None:
        """Delete files that nobody will look at, in the background."""
        if files and self._discarding < MAX_DISCARDS:
            self._discarding += 1
            self._tasks.create_task(self._discard(files))

    async def _discard(self, files: Sequence[IncomingFile]) -> None:
        try:
            async with asyncio.timeout(DISCARD_SECONDS):
                for file in files:
                    await self._files.discard_file(file)
        except (SignalError, TimeoutError) as error:
            log.info("file.not_discarded", reason=type(error).__name__)
        finally:
            self._discarding -= 1
