"""Events from the Signal side: frozen values, independent of the wire format."""

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from conversation_store.models import ChatId, ReceivedFile, ReceivedQuote


@dataclass(frozen=True, slots=True)
class Person:
    """An author. The ACI is the identity; number and name are often missing and never a key."""

    aci: str
    number: str | None = None
    name: str | None = None

    def is_in(self, people: Collection[str]) -> bool:
        """Whether the ACI or the number is among these."""
        return self.aci in people or (self.number is not None and self.number in people)


class FrameKind(StrEnum):
    """Kind of a frame, for the metrics."""

    MESSAGE = "message"
    EDIT = "edit"
    REACTION = "reaction"
    DELETE = "delete"
    TYPING = "typing"
    RECEIPT = "receipt"
    TIMER = "timer"
    GROUP_UPDATE = "group_update"
    SYNC = "sync"
    CALL = "call"
    STORY = "story"
    POLL = "poll"
    PIN = "pin"
    OWN = "own"
    EMPTY = "empty"
    OTHER_ACCOUNT = "other_account"
    OTHER_CHAT = "other_chat"
    UNTRUSTED_IDENTITY = "untrusted_identity"
    UNDECRYPTABLE = "undecryptable"
    ERROR = "error"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class _Event:
    """An action of a person.

    Attributes:
        account: number of the account that received it.
        timestamp: of the action itself, by the author's clock in ms.
    """

    account: str
    chat: ChatId
    author: Person
    timestamp: int


@dataclass(frozen=True, slots=True)
class IncomingMessage(_Event):
    """A message, identified by its author and timestamp.

    Attributes:
        text: names replace mentions, and the bot's own mention is removed. Empty if only files
            came.
        addresses_bot: the bot is mentioned, or one of its messages is quoted.
        unread: further files on the Signal side that the bot never reads: the file of a long text,
            small pictures of links, and files beyond `MAX_FILES`.
        expires_seconds: the message disappears this long after it was read; 0: never.
        view_once: its files may be looked at once and must never be kept.
        server_timestamp: when Signal's server got it, in ms, if known.
    """

    kind: ClassVar[FrameKind] = FrameKind.MESSAGE

    text: str
    addresses_bot: bool
    files: tuple[ReceivedFile, ...] = ()
    unread: tuple[ReceivedFile, ...] = ()
    quote: ReceivedQuote | None = None
    expires_seconds: int = 0
    view_once: bool = False
    server_timestamp: int | None = None


@dataclass(frozen=True, slots=True)
class Edit:
    """A new version of a message, with the timestamp of the edit.

    `target_timestamp` is that of the message, or of its previous edit.
    """

    kind: ClassVar[FrameKind] = FrameKind.EDIT

    message: IncomingMessage
    target_timestamp: int


@dataclass(frozen=True, slots=True)
class Deletion(_Event):
    """A deletion for everyone, by the message's author or by an alleged admin of the group.

    The caller checks the admin. `target_author` is the ACI of the message's author.
    """

    kind: ClassVar[FrameKind] = FrameKind.DELETE

    target_author: str
    target_timestamp: int


@dataclass(frozen=True, slots=True)
class GroupChanged:
    """A change of a group's members, name or rights; only the Signal side knows the new state."""

    kind: ClassVar[FrameKind] = FrameKind.GROUP_UPDATE

    account: str
    chat: ChatId
    author: Person


@dataclass(frozen=True, slots=True)
class IdentityChanged:
    """A person has a new key, for example after reinstalling Signal, and it is not trusted.

    The person's messages wait on the Signal side until it is.
    """

    kind: ClassVar[FrameKind] = FrameKind.UNTRUSTED_IDENTITY

    account: str
    person: Person


@dataclass(frozen=True, slots=True)
class Reaction(_Event):
    """An emoji on one of the bot's own messages; a new one replaces the person's previous one.

    The emoji has its skin tone. If `removed`, the author took it back.
    """

    kind: ClassVar[FrameKind] = FrameKind.REACTION

    emoji: str
    target_timestamp: int
    removed: bool


@dataclass(frozen=True, slots=True)
class PollVote(_Event):
    """A vote in a poll of the bot, by indexes; it replaces the person's previous vote.

    It is empty if the person took the vote back.
    """

    kind: ClassVar[FrameKind] = FrameKind.POLL

    target_timestamp: int
    options: tuple[int, ...]


Incoming = IncomingMessage | Edit | Deletion | Reaction | PollVote | GroupChanged | IdentityChanged


@dataclass(frozen=True, slots=True)
class Receipt:
    """Timestamps of messages of the account that have arrived.

    `person` is the ACI of the owner of a phone that confirmed them. None: the account's owner sent
    them from another device, and phones confirm them like messages of the bot.
    """

    person: str | None
    timestamps: tuple[int, ...]

    @property
    def kind(self) -> FrameKind:
        """Kind of the frame."""
        return FrameKind.SYNC if self.person is None else FrameKind.RECEIPT
