"""What the bot asks of signal-cli-rest-api besides sending texts, over whatever HTTP session."""

import base64
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Literal, TypeVar
from urllib.parse import quote as quoted

from pydantic import TypeAdapter

from bot.errors import SignalRejected
from bot.messaging.account import (
    DEVICES,
    IDENTITIES,
    Group,
    OwnIdentity,
    PeerIdentity,
    Profile,
    own_identity,
    peer_identity,
)
from bot.messaging.events import Account
from bot.messaging.messenger import FileTooBig
from bot.messaging.rest_answers import GROUP, group_of
from bot.messaging.rest_http import AnswerTooBig
from conversation_store.models import ChatId, ReceivedFile

T = TypeVar("T")

Change = Literal["POST", "PUT", "DELETE"]


class RestRequests(ABC):
    """The requests about groups, files, keys, the profile, and signs of life.

    Args:
        account: the bot's.
    """

    def __init__(self, account: Account) -> None:
        self._account = account

    @abstractmethod
    async def _ask(self, path: str, answer: TypeAdapter[T]) -> T:
        """Ask for something that is JSON."""

    @abstractmethod
    async def _fetch(self, path: str) -> bytes:
        """Ask for something that is bytes."""

    @abstractmethod
    async def _change(self, how: Change, path: str, body: dict[str, Any] | None = None) -> None:
        """Have something done whose answer tells nothing."""

    @abstractmethod
    async def _show(self, chat: ChatId, how: Change, path: str, body: dict[str, Any]) -> None:
        """Have something done in a chat that phones confirm as they confirm a message."""

    # Messages

    async def delete(self, chat: ChatId, timestamp: int) -> None:
        """Delete an own message for everyone."""
        body = {"timestamp": timestamp}
        await self._show(chat, "DELETE", self._of_account("remote-delete"), body)

    async def end_poll(self, chat: ChatId, timestamp: int) -> None:
        """Let nobody vote any more in an own poll."""
        body = {"poll_timestamp": str(timestamp)}
        await self._show(chat, "DELETE", self._of_account("polls"), body)

    async def react(self, chat: ChatId, emoji: str, *, author: str, timestamp: int) -> None:
        """Put an emoji on somebody's message."""
        body = {"reaction": emoji, "target_author": author, "timestamp": timestamp}
        await self._show(chat, "POST", self._of_account("reactions"), body)

    async def show_typing(self, chat: ChatId, *, stop: bool = False) -> None:
        """Let a chat see that an answer is being written; nobody sees it in a note to self."""
        if chat.value not in self._account.names:
            body = {"recipient": self._recipient(chat)}
            how: Change = "DELETE" if stop else "PUT"
            await self._change(how, self._of_account("typing-indicator"), body)

    async def mark_read(self, person: str, timestamps: Sequence[int]) -> None:
        """Tell a person that messages were read; the server takes one after the other."""
        if person in self._account.names:
            return
        for timestamp in timestamps:
            body = {"recipient": person, "receipt_type": "read", "timestamp": timestamp}
            await self._change("POST", self._of_account("receipts"), body)

    # Files

    async def fetch_file(self, chat: ChatId, file: ReceivedFile, *, max_bytes: int) -> bytes:
        """Return the bytes of a file that came with a message of a chat."""
        if file.size is not None and file.size > max_bytes:
            raise FileTooBig("The file is too big.")
        try:
            data = await self._fetch(_file_path(file))
        except AnswerTooBig:
            raise FileTooBig("The file is too big.") from None
        if len(data) > max_bytes:
            raise FileTooBig("The file is too big.")
        return data

    async def discard_file(self, file: ReceivedFile) -> None:
        """Delete the server's copy of a file; one that it does not have is no error."""
        with suppress(SignalRejected):
            await self._change("DELETE", _file_path(file))

    # Groups

    async def group(self, chat: ChatId) -> Group | None:
        """Return what a group is now; None for one that the server does not know."""
        try:
            row = await self._ask(f"{self._of_group(chat)}?expand=true", GROUP)
        except SignalRejected:
            return None
        return None if row is None else group_of(row, self._account)

    async def join_group(self, chat: ChatId) -> None:
        """Accept the invitation to a group."""
        await self._change("POST", f"{self._of_group(chat)}/join")

    async def leave_group(self, chat: ChatId) -> None:
        """Leave a group, or refuse the invitation to it."""
        await self._change("POST", f"{self._of_group(chat)}/quit")

    # Keys

    async def peer_identity(self, person: str) -> PeerIdentity | None:
        """Return the newest key of a person; None where none is known."""
        identities = await self._ask(self._of_account("identities"), IDENTITIES)
        return peer_identity(person, identities)

    async def trust(self, person: str, *, safety_number: str | None) -> None:
        """Trust the new key of a person."""
        proof: dict[str, Any] = {"trust_all_known_keys": True}
        if safety_number is not None:
            proof = {"verified_safety_number": safety_number}
        path = f"{self._of_account('identities')}/trust/{quoted(person, safe='')}"
        await self._change("PUT", path, proof)

    async def own_identity(self) -> OwnIdentity:
        """Ask for the account's own ACI, identity key and linked devices."""
        identities = await self._ask(self._of_account("identities"), IDENTITIES)
        devices = await self._ask(self._of_account("devices"), DEVICES)
        return own_identity(self._account.number, identities, devices)

    # The account before people

    async def set_profile(self, profile: Profile) -> None:
        """Set name and picture, with or without the line below.

        Raises:
            SignalRejected: one of the two is missing: the server would remove what is there.
        """
        if profile == Profile():
            return
        if profile.name is None or profile.picture is None:
            raise SignalRejected("signal-cli-rest-api sets name and picture only together.")
        picture = base64.b64encode(profile.picture).decode()
        body = {"name": profile.name, "base64_avatar": picture}
        if profile.about is not None:
            body["about"] = profile.about
        await self._change("PUT", self._of_account("profiles"), body)

    # Names on the server

    def _recipient(self, chat: ChatId) -> str:
        if chat.is_group:
            return _group_id(chat)
        return self._account.number if chat.value in self._account.names else chat.value

    def _of_account(self, what: str) -> str:
        return f"/v1/{what}/{self._account.number}"

    def _of_group(self, chat: ChatId) -> str:
        return f"{self._of_account('groups')}/{_group_id(chat)}"


def _group_id(chat: ChatId) -> str:
    """The server's name of a group: its internal id, encoded once more."""
    return "group." + base64.b64encode(chat.value.encode()).decode()


def _file_path(file: ReceivedFile) -> str:
    return f"/v1/attachments/{quoted(file.id, safe='')}"
