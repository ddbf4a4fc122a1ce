"""What the Signal side tells the bot, parsed: frozen values with no trace of the wire."""

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from conversation_store.models import ChatId, ReceivedFile, ReceivedQuote


@dataclass(frozen=True, slots=True)
class Person:
    """Who wrote. The ACI is the identity; number and name are often missing and never a key."""

    aci: str
    number: str | None = None
    name: str | None = None


@dataclass(slots=True)
class Account:
    """The bot's own account; the ACI is unknown until the Signal side has told it.

    Attributes:
        number: as it is registered, E.164.
        aci: lower case.
        note_to_self: the account is a person's own, and the bot lives in its note to self alone:
            what others write there is none of its business.
    """

    number: str
    aci: str | None = None
    note_to_self: bool = False

    @property
    def names(self) -> frozenset[str]:
        """What others may call this account by: its number and, once known, its ACI."""
        return frozenset(filter(None, (self.aci, self.number)))

    def is_me(self, *, aci: str | None, number: str | None) -> bool:
        """Whether an ACI, or failing that a number, names this account."""
        if aci is not None and self.aci is not None:
            return aci == self.aci
        return number is not None and number == self.number


class FrameKind(StrEnum):
    """What a frame is; frames are counted by it."""

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
    STICKER = "sticker"
    OWN = "own"
    EMPTY = "empty"
    OTHER_ACCOUNT = "other_account"
    OTHER_CHAT = "other_chat"
    UNTRUSTED_IDENTITY = "untrusted_identity"
    UNDECRYPTABLE = "undecryptable"
    ERROR = "error"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class IncomingMessage:
    """A message that somebody wrote.

    Attributes:
        account: number of the account that received it.
        chat: where it was written.
        author: who wrote it.
        timestamp: the author's clock in ms; with the author it identifies the message.
        text: what was written; placeholders of mentions are replaced by names, the bot's own
            mention is removed. Empty when only attachments came.
        addresses_bot: the bot is mentioned, or one of its messages is quoted.
        files: what came along.
        unread: files on the Signal side that came along and are never looked at: that of a long
            text, small pictures of what is quoted or linked to, and what is too much.
        quote: what it replies to.
        expires_seconds: it disappears so long after it was read; 0: it stays.
        view_once: its files may be looked at once, and never be kept.
        server_timestamp: when Signal's server got it, in ms, where it is known.
        delivered_timestamp: when Signal's server gave it to the Signal side, likewise.
    """

    kind: ClassVar[FrameKind] = FrameKind.MESSAGE

    account: str
    chat: ChatId
    author: Person
    timestamp: int
    text: str
    addresses_bot: bool
    files: tuple[ReceivedFile, ...] = ()
    unread: tuple[ReceivedFile, ...] = ()
    quote: ReceivedQuote | None = None
    expires_seconds: int = 0
    view_once: bool = False
    server_timestamp: int | None = None
    delivered_timestamp: int | None = None


@dataclass(frozen=True, slots=True)
class Edit:
    """Somebody changed a message.

    Attributes:
        message: as it reads now; its timestamp is that of the edit.
        target_timestamp: of the message, or of its edit before this one, in ms.
    """

    kind: ClassVar[FrameKind] = FrameKind.EDIT

    message: IncomingMessage
    target_timestamp: int


@dataclass(frozen=True, slots=True)
class Deletion:
    """Somebody deleted a message for everyone.

    Attributes:
        account: number of the account that received it.
        chat: where the message stands.
        author: who deleted it: the author of the message, or somebody who says to administer the
            group, which is to be checked.
        timestamp: of the deletion itself, by its author's clock in ms.
        target_author: ACI of whoever wrote the message.
        target_timestamp: of the message, in ms.
    """

    kind: ClassVar[FrameKind] = FrameKind.DELETE

    account: str
    chat: ChatId
    author: Person
    timestamp: int
    target_author: str
    target_timestamp: int


@dataclass(frozen=True, slots=True)
class GroupChanged:
    """Somebody changed a group: its members, name, rights. What is new, the Signal side knows."""

    kind: ClassVar[FrameKind] = FrameKind.GROUP_UPDATE

    account: str
    chat: ChatId
    author: Person


@dataclass(frozen=True, slots=True)
class IdentityChanged:
    """A person has a new key, as after installing Signal anew; it is not trusted.

    What that person writes waits on the Signal side until it is.
    """

    kind: ClassVar[FrameKind] = FrameKind.UNTRUSTED_IDENTITY

    account: str
    person: Person


@dataclass(frozen=True, slots=True)
class Reaction:
    """Somebody's emoji on one of the bot's own messages, or its removal.

    A person has one reaction to a message: a new one replaces the one before.

    Attributes:
        account: number of the account that received it.
        chat: where the message stands.
        author: who reacted.
        timestamp: of the reaction itself, by the author's clock in ms.
        emoji: as it was sent, with its skin tone; when it is removed, which one it was.
        target_timestamp: of the bot's message, in ms.
        removed: the author took the reaction back.
    """

    kind: ClassVar[FrameKind] = FrameKind.REACTION

    account: str
    chat: ChatId
    author: Person
    timestamp: int
    emoji: str
    target_timestamp: int
    removed: bool


@dataclass(frozen=True, slots=True)
class PollVote:
    """Somebody's vote in a poll of the bot, in place of that person's vote before.

    Attributes:
        account: number of the account that received it.
        chat: where the poll stands.
        author: who voted.
        timestamp: of the vote itself, by the author's clock in ms.
        target_timestamp: of the poll, in ms.
        options: places of the options; none: the vote was taken back.
    """

    kind: ClassVar[FrameKind] = FrameKind.POLL

    account: str
    chat: ChatId
    author: Person
    timestamp: int
    target_timestamp: int
    options: tuple[int, ...]


Incoming = IncomingMessage | Edit | Deletion | Reaction | PollVote | GroupChanged | IdentityChanged


@dataclass(frozen=True, slots=True)
class Receipt:
    """A phone's word that messages of the bot arrived there.

    Attributes:
        person: ACI of whose phone it is.
        timestamps: which messages, by Signal's timestamps in ms.
    """

    kind: ClassVar[FrameKind] = FrameKind.RECEIPT

    person: str
    timestamps: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SentElsewhere:
    """The account's owner sent a message from another device.

    Attributes:
        timestamp: Signal's timestamp of it, in ms; phones confirm it like one of the bot's.
    """

    kind: ClassVar[FrameKind] = FrameKind.SYNC

    timestamp: int


Evidence = Receipt | SentElsewhere
"""What tells whose message a timestamp is."""


@dataclass(frozen=True, slots=True)
class Ignored:
    """A frame that tells the bot nothing, and why."""

    kind: FrameKind


Frame = Incoming | Evidence | Ignored
