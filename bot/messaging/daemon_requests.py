"""What the bot asks of signal-cli's daemon besides sending texts, over whatever connection.

Parameters and answers are those of signal-cli's JSON-RPC commands of the same names.
"""

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import structlog

from bot.errors import SignalLacks, SignalRejected
from bot.messaging.account import (
    DEVICES,
    IDENTITIES,
    Group,
    Identity,
    OwnIdentity,
    PeerIdentity,
    Profile,
    own_identity,
    own_rows,
    peer_identity,
)
from bot.messaging.events import Account
from bot.messaging.messenger import FileTooBig
from bot.messaging.signal_answers import (
    FILE,
    GROUPS,
    bytes_of,
    group_of,
    read,
    timestamp_of,
)
from conversation_store.models import (
    MAX_ATTACHMENT_BYTES,
    Attachment,
    ChatId,
    Quote,
    ReceivedFile,
    StyleRange,
)

ATTACHMENTS: Final = "attachments"
"""Where in its own folder signal-cli keeps the files that came with messages."""

_FILE_ID: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*", re.ASCII)

log = structlog.get_logger()


class DaemonRequests(ABC):
    """The requests about groups, files, keys, the profile, and signs of life.

    Args:
        account: the bot's.
        data_dir: signal-cli's own folder, where it is within reach.
    """

    def __init__(self, account: Account, data_dir: Path | None) -> None:
        self._account = account
        self._data_dir = data_dir
        self._can_accept_requests = True

    @abstractmethod
    async def _ask(
        self, method: str, params: Mapping[str, Any], *, patiently: bool = False
    ) -> object:
        """Make a request about the bot's account; patiently where it goes out to people."""

    @abstractmethod
    async def _show(
        self, chat: ChatId, method: str, params: dict[str, Any], *, patiently: bool = False
    ) -> None:
        """Make a request about a chat whose outcome phones confirm as they confirm a message."""

    # Messages

    async def delete(self, chat: ChatId, timestamp: int) -> None:
        """Delete an own message for everyone."""
        await self._show(chat, "remoteDelete", {"targetTimestamp": timestamp}, patiently=True)

    async def end_poll(self, chat: ChatId, timestamp: int) -> None:
        """Let nobody vote any more in an own poll."""
        await self._show(chat, "sendPollTerminate", {"pollTimestamp": timestamp}, patiently=True)

    async def react(self, chat: ChatId, emoji: str, *, author: str, timestamp: int) -> None:
        """Put an emoji on somebody's message."""
        params = {"emoji": emoji, "targetAuthor": author, "targetTimestamp": timestamp}
        await self._show(chat, "sendReaction", params)

    async def show_typing(self, chat: ChatId, *, stop: bool = False) -> None:
        """Let a chat see that an answer is being written; nobody sees it in a note to self."""
        if chat.value not in self._account.names:
            timestamp_of(await self._ask("sendTyping", {**self._to(chat), "stop": stop}))

    async def mark_read(self, person: str, timestamps: Sequence[int]) -> None:
        """Tell a person that messages were read."""
        if person not in self._account.names:
            params = {"recipient": person, "targetTimestamp": [*timestamps], "type": "read"}
            timestamp_of(await self._ask("sendReceipt", params))

    def _to(self, chat: ChatId) -> dict[str, Any]:
        if chat.is_group:
            return {"groupId": chat.value}
        if chat.value in self._account.names:
            return {"noteToSelf": True}
        return {"recipient": [chat.value]}

    # Files

    async def fetch_file(self, chat: ChatId, file: ReceivedFile, *, max_bytes: int) -> bytes:
        """Return the bytes of a file that came with a message of a chat."""
        if file.size is not None and file.size > max_bytes:
            raise FileTooBig("The file is too big.")
        where = {"groupId": chat.value} if chat.is_group else {"recipient": chat.value}
        answer = await self._ask("getAttachment", {"id": file.id, **where}, patiently=True)
        return bytes_of(read(FILE, answer), max_bytes=max_bytes)

    async def discard_file(self, file: ReceivedFile) -> None:
        """Delete signal-cli's copy of a file, where its folder is within reach."""
        if self._data_dir is None or not _FILE_ID.fullmatch(file.id):
            return
        try:
            _delete(self._data_dir / ATTACHMENTS, file.id)
        except FileNotFoundError:
            return
        except OSError as error:
            log.warning("signal.file_not_deleted", error=type(error).__name__)

    # Groups

    async def group(self, chat: ChatId) -> Group | None:
        """Return what a group is now; None for one that signal-cli does not know."""
        try:
            rows = read(GROUPS, await self._ask("listGroups", {"groupId": [chat.value]}))
        except SignalRejected:
            return None
        found = (row for row in rows if row.id == chat.value)
        return next((group_of(row, self._account) for row in found), None)

    async def join_group(self, chat: ChatId) -> None:
        """Accept the invitation to a group: to signal-cli, an update that changes nothing."""
        await self._ask("updateGroup", {"groupId": chat.value}, patiently=True)

    async def leave_group(self, chat: ChatId) -> None:
        """Leave a group, or refuse the invitation to it."""
        await self._ask("quitGroup", {"groupId": chat.value}, patiently=True)

    # Keys

    async def peer_identity(self, person: str) -> PeerIdentity | None:
        """Return the newest key of a person; None where none is known."""
        try:
            rows = read(IDENTITIES, await self._ask("listIdentities", {"number": person}))
        except SignalRejected:  # nobody that signal-cli has heard of
            return None
        return peer_identity(person, rows)

    async def trust(self, person: str, *, safety_number: str | None) -> None:
        """Trust the new key of a person."""
        proof: dict[str, Any] = {"trustAllKnownKeys": True}
        if safety_number is not None:
            proof = {"verifiedSafetyNumber": safety_number}
        await self._ask("trust", {"recipient": person, **proof}, patiently=True)

    async def own_identity(self) -> OwnIdentity:
        """Ask for the account's own ACI, identity key and linked devices."""
        identities = await self._own_rows()
        devices = read(DEVICES, await self._ask("listDevices", {}))
        return own_identity(self._account.number, identities, devices)

    async def _own_rows(self) -> list[Identity]:
        """Ask for the identity of the account itself."""
        number = self._account.number
        # The filter saves signal-cli a long list, but it need not find the account itself.
        for params in ({"number": number}, {}):
            listed = read(IDENTITIES, await self._ask("listIdentities", params))
            if rows := own_rows(number, listed):
                return rows
        return []

    # The account before people

    async def accept_request(self, person: str) -> None:
        """Accept the message request of a person; nothing where signal-cli has no way to."""
        if not self._can_accept_requests or person in self._account.names:
            return
        params = {"recipient": [person], "type": "accept"}
        try:
            await self._ask("sendMessageRequestResponse", params)
        except SignalLacks:
            self._can_accept_requests = False
            log.info("signal.requests_not_accepted")

    async def set_profile(self, profile: Profile) -> None:
        """Change what people see of the account; what is None stays."""
        params = {"givenName": profile.name, "about": profile.about, "avatar": _avatar(profile)}
        changes = {name: value for name, value in params.items() if value is not None}
        if changes:
            await self._ask("updateProfile", changes, patiently=True)


def _delete(folder: Path, name: str) -> None:
    """Delete a file in a folder that is signal-cli's, who must not choose another by a link."""
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        os.unlink(name, dir_fd=descriptor)
    finally:
        os.close(descriptor)


def can_discard(data_dir: Path) -> bool:
    """Whether files can be deleted in signal-cli's own folder, by the rights there are now."""
    attachments = data_dir / ATTACHMENTS
    folder = attachments if os.access(attachments, os.F_OK) else data_dir
    return os.access(folder, os.W_OK | os.X_OK) and not attachments.is_symlink()


def message_params(
    text: str,
    *,
    styles: Sequence[StyleRange],
    quote: Quote | None,
    replaces: int | None,
    attachments: Sequence[Attachment],
) -> dict[str, Any]:
    """Return what `send` takes besides where to."""
    params: dict[str, Any] = {"message": text}
    if styles:
        params["textStyle"] = [f"{one.start}:{one.length}:{one.style}" for one in styles]
    if quote is not None:
        params["quoteTimestamp"] = quote.timestamp
        params["quoteAuthor"] = quote.author
        params["quoteMessage"] = quote.text
    if replaces is not None:
        params["editTimestamp"] = replaces
    if attachments:
        params["attachment"] = [attachment.data_uri for attachment in attachments]
    return params


def _avatar(profile: Profile) -> str | None:
    """The picture in the form in which signal-cli takes files that are not on its machine."""
    if profile.picture is None:
        return None
    if len(profile.picture) > MAX_ATTACHMENT_BYTES:
        raise SignalRejected("The picture is too big for signal-cli.")
    return Attachment("picture", "application/octet-stream", profile.picture).data_uri
