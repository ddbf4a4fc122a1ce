"""The people on the other side of a look-alike of the Signal side: everything but the wire.

They write to the bot (`say`, `edit`, `delete`, `react`, ...). The bot's other actions are recorded
here (`typing`, `reactions`, ...), the same for every protocol.
"""

import asyncio
import hashlib
import itertools
import mimetypes
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from bot.signal.account import Profile, TrustLevel
from bot.signal.events import Person
from bot.signal.frames import Account
from conversation_store.models import ChatId, Quote
from tests.fakes.json_rpc_server import Json
from tests.fakes.signal_frames import (
    data_message,
    edit_frame,
    identity_frame,
    message_frame,
    note_frame,
    quote_of,
    receipt_frame,
    target_of,
)

WAIT_SECONDS: Final = 30.0
SAFETY_NUMBER_DIGITS: Final = 60

ADA: Final = Person(aci="7f3c1a52-6b1e-4a0e-9a55-3a1e1b6f0d11", number="+15550100001", name="Ada")


@dataclass(frozen=True, slots=True)
class SharedFile:
    """File that a person sends to the bot; the sender states its type and name."""

    content_type: str
    data: bytes = field(repr=False)
    name: str | None = None
    voice_note: bool = False


@dataclass(frozen=True, slots=True)
class Reacted:
    """Emoji that the bot put on a message; author by ACI, timestamp in ms."""

    chat: ChatId
    emoji: str
    author: str
    timestamp: int


@dataclass(slots=True)
class Group:
    """Group that the bot knows, with the other people in it and the ACIs of its admins."""

    name: str = "Team"
    members: dict[str, Person] = field(default_factory=dict)
    admins: set[str] = field(default_factory=set)
    is_member: bool = True
    is_invited: bool = False
    only_admins_write: bool = False


@dataclass(slots=True)
class Peer:
    """Person whose key the Signal side knows, with its trust in that key."""

    person: Person
    safety_number: str
    trust: TrustLevel = TrustLevel.UNVERIFIED
    waiting: list[Json] = field(default_factory=list)


class SignalPeople(ABC):
    """All people who talk to the bot, and the actions of the bot that they saw.

    Attributes:
        account: the bot's.
        groups: by id.
        files: people's files that the bot has not deleted, by id.
        peers: people whose key is known, by ACI.
        typing: the chats in which it began (True) or stopped (False) typing.
        reactions: its emoji.
        receipts: messages that it marked as read, with the ACIs of their authors.
        deleted: chats and its own messages that it deleted for everyone there.
        profile: its public profile.
        pins: of its registration lock, in the order in which they were set; None: removed.
        accepted_requests: ACIs of people whose message request it accepted.
        ended_polls: chats and its own polls that it ended there.
        has_polls: it knows polls, as signal-cli does from 0.13.23 on.
        trusted: ACIs whose key it trusted, with the safety number that was compared, or None.
    """

    def __init__(self, account: Account) -> None:
        self.account = account
        self.groups: dict[str, Group] = {}
        self.files: dict[str, bytes] = {}
        self.peers: dict[str, Peer] = {}
        self.typing: list[tuple[ChatId, bool]] = []
        self.reactions: list[Reacted] = []
        self.receipts: list[tuple[str, tuple[int, ...]]] = []
        self.deleted: list[tuple[ChatId, int]] = []
        self.profile = Profile()
        self.pins: list[str | None] = []
        self.accepted_requests: list[str] = []
        self.ended_polls: list[tuple[ChatId, int]] = []
        self.has_polls = False
        self.trusted: list[tuple[str, str | None]] = []
        self._file_numbers = itertools.count(1)
        self._key_numbers = itertools.count(1)
        self._changed = asyncio.Condition()
        self._last_timestamp = 0

    @abstractmethod
    async def push(self, frame: Json) -> None:
        """Deliver a raw frame (`{"envelope": ..., "account": ...}`)."""

    @abstractmethod
    def text_sent(self, timestamp: int) -> str:
        """Return the bot's text in the message with this timestamp; empty if there is none."""

    async def until(self, happened: Callable[[], bool], *, seconds: float = WAIT_SECONDS) -> None:
        """Wait until a condition holds; check it after each action of the bot."""
        async with asyncio.timeout(seconds), self._changed:
            await self._changed.wait_for(happened)

    # What people do

    async def say(
        self,
        text: str | None,
        *,
        author: Person = ADA,
        group: str | None = None,
        timestamp: int | None = None,
        mention: bool = False,
        quote: int | Quote | None = None,
        files: Sequence[SharedFile] = (),
        expires_seconds: int = 0,
        view_once: bool = False,
    ) -> int:
        """Write to the bot, privately or in a group, and return the message's timestamp.

        Args:
            text: what to write; None without words.
            author: who writes.
            group: id of the group to write in; a new one comes into being.
            timestamp: of the message, in ms; a repeated one makes a duplicate.
            mention: mention the bot before the text.
            quote: the message that it replies to: one of the bot by its timestamp, or any other.
            files: its attachments.
            expires_seconds: the chat's timer for disappearing messages.
            view_once: its file may be looked at once.
        """
        data = data_message(
            self.account,
            timestamp or self._new_timestamp(),
            text,
            group=self._enter(group, author),
            mention=mention,
            quote=self._quote_of(quote),
            files=[self.share(file) for file in files],
            expires_seconds=expires_seconds,
            view_once=view_once,
        )
        return await self._tell(author, message_frame(self.account, author, data))

    async def edit(
        self,
        text: str,
        target: int,
        *,
        author: Person = ADA,
        group: str | None = None,
        mention: bool = False,
        quote: int | Quote | None = None,
        expires_seconds: int = 0,
    ) -> int:
        data = data_message(
            self.account,
            self._new_timestamp(),
            text,
            group=self._enter(group, author),
            mention=mention,
            quote=self._quote_of(quote),
            expires_seconds=expires_seconds,
        )
        return await self._tell(author, edit_frame(self.account, author, target, data))

    async def delete(
        self,
        target: int,
        *,
        author: Person = ADA,
        group: str | None = None,
        target_author: Person | None = None,
    ) -> int:
        """Delete a message for everyone; with `target_author`, as an admin of the group."""
        if target_author is None:
            return await self._do(author, group, remoteDelete={"timestamp": target})
        return await self._do(author, group, adminDelete=target_of(target_author, target))

    async def react(
        self,
        emoji: str,
        timestamp: int,
        *,
        author: Person = ADA,
        group: str | None = None,
        removed: bool = False,
    ) -> int:
        target = target_of(self.account, timestamp)
        reaction: Json = {"emoji": emoji, **target, "isRemove": removed}
        return await self._do(author, group, reaction=reaction)

    async def vote(
        self,
        options: Sequence[int],
        timestamp: int,
        *,
        author: Person = ADA,
        group: str | None = None,
    ) -> int:
        vote: Json = {
            "author": self.account.number,
            "authorNumber": self.account.number,
            "authorUuid": self.account.aci,
            "targetSentTimestamp": timestamp,
            "optionIndexes": [*options],
            "voteCount": 1,
        }
        return await self._do(author, group, pollVote=vote)

    async def deliver_receipt(self, timestamp: int, person: Person = ADA) -> None:
        await self._tell(
            person, receipt_frame(self.account, person, self._new_timestamp(), timestamp)
        )

    async def change_group(
        self,
        group_id: str,
        *,
        author: Person = ADA,
        members: Iterable[Person] = (),
        admins: Iterable[str] | None = None,
        invited: bool | None = None,
        only_admins_write: bool | None = None,
    ) -> int:
        """Make or change a group, and tell the bot that something has changed there.

        Args:
            group_id: of the group; a new one comes into being.
            author: the member who does it.
            members: all other members from now on.
            admins: ACIs of its admins.
            invited: True: the bot is invited and not in it; False: it has been added.
            only_admins_write: whether it is an announcement group.
        """
        where = self._enter(group_id, author)
        group = self.groups[group_id]
        group.members |= {person.aci: person for person in members}
        if admins is not None:
            group.admins = set(admins)
        if invited is not None:
            group.is_invited, group.is_member = invited, not invited
        if only_admins_write is not None:
            group.only_admins_write = only_admins_write
        return await self._do(author, None, groupInfo=(where or {}) | {"type": "UPDATE"})

    async def change_identity(self, person: Person = ADA) -> str:
        """Reinstall a person's Signal; return the new safety number.

        Until the bot trusts the new key, sends to the person fail, and the person's actions wait;
        an exception frame comes in place of each.
        """
        peer = self.meet(person)
        peer.safety_number = self._new_safety_number(person)
        peer.trust = TrustLevel.UNTRUSTED
        await self.push(identity_frame(self.account, person, self._new_timestamp()))
        return peer.safety_number

    async def note_to_self(
        self,
        text: str,
        *,
        replaces: int | None = None,
        files: Sequence[SharedFile] = (),
    ) -> int:
        """Write, as the owner of the bot's account, a note to self, or edit one."""
        data = data_message(
            self.account,
            self._new_timestamp(),
            text,
            files=[self.share(file) for file in files],
        )
        return await self._push_timed(note_frame(self.account, data, replaces=replaces))

    async def delete_note(self, target: int) -> int:
        data = data_message(self.account, self._new_timestamp(), None)
        return await self._push_timed(
            note_frame(self.account, data | {"remoteDelete": {"timestamp": target}})
        )

    # What the Signal side does for them

    def meet(self, person: Person) -> Peer:
        """Know a person's key from now on."""
        known = self.peers.get(person.aci)
        if known is None:
            known = self.peers[person.aci] = Peer(person, self._new_safety_number(person))
        return known

    def trusts(self, aci: str) -> bool:
        """Return whether sends to a person work; an unknown key is trusted on first use."""
        peer = self.peers.get(aci)
        return peer is None or peer.trust is not TrustLevel.UNTRUSTED

    async def trust_key(self, aci: str, safety_number: str | None) -> bool:
        """Trust a key, if that is its safety number; deliver what waited for it."""
        peer = self.peers.get(aci)
        if peer is None or safety_number not in {None, peer.safety_number}:
            return False
        peer.trust = TrustLevel.UNVERIFIED if safety_number is None else TrustLevel.VERIFIED
        self.trusted.append((aci, safety_number))
        waiting, peer.waiting = peer.waiting, []
        for frame in waiting:
            await self.push(frame)
        return True

    def join(self, group_id: str) -> bool:
        """Accept an invitation for the bot; False if there is none."""
        group = self.groups.get(group_id)
        if group is None or not group.is_invited:
            return False
        group.is_invited, group.is_member = False, True
        return True

    def leave(self, group_id: str) -> bool:
        """Leave a group or refuse an invitation for the bot; False if there is neither."""
        group = self.groups.get(group_id)
        if group is None or not (group.is_member or group.is_invited):
            return False
        group.is_invited = group.is_member = False
        return True

    def change_profile(self, change: Profile) -> None:
        self.profile = Profile(
            name=self.profile.name if change.name is None else change.name,
            about=self.profile.about if change.about is None else change.about,
            picture=self.profile.picture if change.picture is None else change.picture,
        )

    # Helpers

    async def _announce(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def _do(self, author: Person, group: str | None, **what: object) -> int:
        where = self._enter(group, author)
        data = data_message(self.account, self._new_timestamp(), None, group=where) | what
        return await self._tell(author, message_frame(self.account, author, data))

    async def _tell(self, author: Person, frame: Json) -> int:
        """Deliver what a person does, now or once the person's key is trusted."""
        peer = self.meet(author)
        if peer.trust is not TrustLevel.UNTRUSTED:
            return await self._push_timed(frame)
        peer.waiting.append(frame)
        timestamp: int = frame["envelope"]["timestamp"]
        await self.push(identity_frame(self.account, author, timestamp))
        return timestamp

    async def _push_timed(self, frame: Json) -> int:
        await self.push(frame)
        timestamp: int = frame["envelope"]["timestamp"]
        return timestamp

    def _enter(self, group_id: str | None, author: Person) -> Json | None:
        if group_id is None:
            return None
        group = self.groups.setdefault(group_id, Group())
        group.members[author.aci] = author
        return {"groupId": group_id, "groupName": group.name, "revision": 1, "type": "DELIVER"}

    def share(self, file: SharedFile) -> Json:
        """Put a file where the bot finds it, and return how a frame names it."""
        extension = mimetypes.guess_extension(file.content_type) or ""
        file_id = f"file-{next(self._file_numbers)}{extension}"
        self._keep_file(file_id, file.data)
        return {
            "contentType": file.content_type,
            "filename": file.name,
            "id": file_id,
            "size": len(file.data),
            "width": None,
            "height": None,
            "caption": None,
            "uploadTimestamp": None,
            "isVoiceNote": file.voice_note,
        }

    def _keep_file(self, file_id: str, data: bytes) -> None:
        self.files[file_id] = data

    def _quote_of(self, quote: int | Quote | None) -> Json | None:
        if quote is None:
            return None
        if isinstance(quote, int):
            return quote_of(self.account, quote, self.text_sent(quote))
        return quote_of(self._named(quote.author), quote.timestamp, quote.text)

    def _named(self, aci: str) -> Account | Person:
        if aci == self.account.aci:
            return self.account
        peer = self.peers.get(aci)
        return Person(aci) if peer is None else peer.person

    def _new_timestamp(self) -> int:
        self._last_timestamp = max(time.time_ns() // 1_000_000, self._last_timestamp + 1)
        return self._last_timestamp

    def _new_safety_number(self, person: Person) -> str:
        seed = f"{person.aci} {next(self._key_numbers)}".encode()
        number = int.from_bytes(hashlib.sha512(seed).digest())
        return f"{number % 10**SAFETY_NUMBER_DIGITS:0{SAFETY_NUMBER_DIGITS}}"
