"""What goes out, and what is not known about it after a crash."""

import base64
import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from conversation_store.models.chats import ChatId

MAX_ATTACHMENT_BYTES: Final = 8 * 2**20
"""signal-cli reads strings of up to 20 million characters; base64 makes four of three bytes."""

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,99}")
_CONTENT_TYPE: Final = re.compile(r"[a-z]+/[a-z0-9.+-]+")


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file that goes with a message.

    Attributes:
        name: as the phone shows it; ASCII letters, digits, dots and hyphens.
        content_type: a MIME type without parameters.
        data: the file, at most 8 MiB.

    Raises:
        ValueError: one of them is something else, which would change the meaning of `data_uri`.
    """

    name: str
    content_type: str
    data: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError("An attachment's name is made of letters, digits, dots and hyphens.")
        if not _CONTENT_TYPE.fullmatch(self.content_type):
            raise ValueError("An attachment's type is a MIME type without parameters.")
        if len(self.data) > MAX_ATTACHMENT_BYTES:
            raise ValueError("An attachment has at most 8 MiB.")

    @property
    def data_uri(self) -> str:
        """The form in which signal-cli and signal-cli-rest-api take files (RFC 2397)."""
        encoded = base64.b64encode(self.data).decode()
        return f"data:{self.content_type};filename={self.name};base64,{encoded}"


@dataclass(frozen=True, slots=True)
class Quote:
    """The message that another one is shown as a reply to.

    Attributes:
        timestamp: of the quoted message, in ms.
        author: ACI of its author.
        text: its beginning, as it is shown above the reply.
    """

    timestamp: int
    author: str
    text: str = field(repr=False)


class TextStyle(StrEnum):
    """How a range looks, by signal-cli's names."""

    BOLD = "BOLD"
    ITALIC = "ITALIC"
    STRIKETHROUGH = "STRIKETHROUGH"
    MONOSPACE = "MONOSPACE"
    SPOILER = "SPOILER"


@dataclass(frozen=True, slots=True)
class StyleRange:
    """A range of a text that has a style; `start` and `length` count UTF-16 code units."""

    start: int
    length: int
    style: TextStyle


@dataclass(frozen=True, slots=True)
class StyledText:
    """A text and its styles, in the order of their starts; ranges may nest and overlap."""

    text: str
    styles: tuple[StyleRange, ...] = ()


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
        urgent: it goes out beside what its chat has in work; only known of what a start finds.
    """

    id: int
    chat: ChatId
    text: str
    attempts: int
    attachments: tuple[Attachment, ...] = ()
    styles: tuple[StyleRange, ...] = ()
    quote: Quote | None = None
    replaces: int | None = None
    urgent: bool = False


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
