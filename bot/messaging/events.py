"""What the Signal side tells the bot, parsed: frozen values with no trace of the wire."""

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Self


class ChatKind(StrEnum):
    """The two kinds of conversation that Signal knows."""

    DIRECT = "direct"
    GROUP = "group"


@dataclass(frozen=True, slots=True)
class ChatId:
    """One conversation: a private chat with a person (by ACI) or a group (by its internal id)."""

    kind: ChatKind
    value: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.value}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the chat that `str(chat)` named; ValueError when it names none."""
        kind, _, value = text.partition(":")
        return cls(ChatKind(kind), value)

    @property
    def is_group(self) -> bool:
        """Whether several people read along."""
        return self.kind is ChatKind.GROUP


@dataclass(frozen=True, slots=True)
class Person:
    """Who wrote. The ACI is the identity; number and name are often missing and never a key."""

    aci: str
    number: str | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Account:
    """The bot's own account; the ACI is unknown until the Signal side has told it."""

    number: str
    aci: str | None = None

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
        attachments: how many files came along (a long text's own file does not count).
        quote_timestamp: timestamp in ms of the message that it replies to, when that is one of
            the bot's own.
    """

    kind: ClassVar[FrameKind] = FrameKind.MESSAGE

    account: str
    chat: ChatId
    author: Person
    timestamp: int
    text: str
    addresses_bot: bool
    attachments: int = 0
    quote_timestamp: int | None = None


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


Incoming = IncomingMessage | Reaction


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
class Ignored:
    """A frame that tells the bot nothing, and why."""

    kind: FrameKind


Frame = Incoming | Receipt | Ignored
