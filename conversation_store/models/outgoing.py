"""What goes out, and what is not known about it after a crash."""

from dataclasses import dataclass, field

from conversation_store.models.chats import ChatId


@dataclass(frozen=True, slots=True)
class StoredAttachment:
    """A file that goes with a part of an answer."""

    name: str
    content_type: str
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class StoredStyle:
    """A range of a text, in UTF-16 units, and how it looks, by signal-cli's name."""

    start: int
    length: int
    style: str


@dataclass(frozen=True, slots=True)
class StoredQuote:
    """The message that an answer is shown as a reply to."""

    timestamp: int
    author: str
    text: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class AnswerPart:
    """A message of an answer that is to be stored."""

    text: str
    styles: tuple[StoredStyle, ...] = ()


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """A message that is on disk and not yet marked as sent.

    Attributes:
        id: its row.
        chat: where to.
        text: what it says; empty where it only takes an earlier message away.
        attempts: how often it was tried.
        attachments: files that go with it.
        styles: how ranges of it look.
        quote: what it replies to.
        replaces: Signal's timestamp of the message that it takes the place of. With an empty text
            and no files that message is deleted.
    """

    id: int
    chat: ChatId
    text: str
    attempts: int
    attachments: tuple[StoredAttachment, ...] = ()
    styles: tuple[StoredStyle, ...] = ()
    quote: StoredQuote | None = None
    replaces: int | None = None


@dataclass(frozen=True, slots=True)
class Interrupted:
    """A message whose sending an earlier process may have begun.

    Attributes:
        id: its row in the outbox; None for a message that has none, such as a sign of progress.
        chat: where to.
        since: the earliest timestamp that it can have, in ms.
        until: no copy of it has this timestamp or a later one, in ms.
        times: how often it may have been sent.
    """

    id: int | None
    chat: ChatId
    since: int
    until: int
    times: int = 1


@dataclass(frozen=True, slots=True)
class Resent:
    """A message that was sent again because nothing proved that it had arrived.

    Attributes:
        sending: the message, and when its other copies were sent.
        timestamp: Signal's timestamp of the copy that counts; None while it waits.
        is_edit: it replaces an earlier message.
        copies: how many others there may be, or may have been.
    """

    sending: Interrupted
    timestamp: int | None
    is_edit: bool
    copies: int


@dataclass(frozen=True, slots=True)
class SendsInDoubt:
    """What a start does not know about the messages of earlier processes.

    Attributes:
        waiting: the messages that may have been sent without being marked: of each answer the
            first part that waits, because parts are sent one after the other.
        others: messages of which nothing is kept, and which phones confirm as well.
        of_turns: those of them that are messages of turns that were running.
        resent: messages of which there may be several copies.
        confirmed: which timestamps phones confirmed, and whose phones.
    """

    waiting: tuple[Interrupted, ...]
    others: tuple[Interrupted, ...]
    of_turns: tuple[Interrupted, ...]
    resent: tuple[Resent, ...]
    confirmed: tuple[tuple[int, str], ...]
