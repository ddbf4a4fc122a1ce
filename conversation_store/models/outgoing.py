"""Messages that go out, and sends that may have happened."""

import base64
import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from conversation_store.models.received import ChatId

MAX_ATTACHMENT_BYTES: Final = 8 * 2**20
"""signal-cli reads strings of up to 20 million characters; base64 makes four of three bytes."""

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,99}")
_CONTENT_TYPE: Final = re.compile(r"[a-z]+/[a-z0-9.+-]+")


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file of a message.

    Attributes:
        name: ASCII letters, digits, dots and hyphens.
        content_type: a MIME type without parameters.
        data: at most 8 MiB.

    Raises:
        ValueError: for other values, which would change the meaning of `data_uri`.
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
    """A message that another one replies to: its author's ACI and the beginning of its text."""

    timestamp: int
    author: str
    text: str = field(repr=False)


class TextStyle(StrEnum):
    """Style of a range, by signal-cli's names."""

    BOLD = "BOLD"
    ITALIC = "ITALIC"
    STRIKETHROUGH = "STRIKETHROUGH"
    MONOSPACE = "MONOSPACE"
    SPOILER = "SPOILER"


@dataclass(frozen=True, slots=True)
class StyleRange:
    """A range of a text with a style; `start` and `length` count UTF-16 code units."""

    start: int
    length: int
    style: TextStyle


@dataclass(frozen=True, slots=True)
class StyledText:
    """A text and its styles, ordered by their starts; ranges may nest and overlap."""

    text: str
    styles: tuple[StyleRange, ...] = ()


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """A message that is stored and not yet marked as sent.

    Attributes:
        replaces: Signal's timestamp of the message that it edits. With an empty text and no files,
            it deletes that message for everyone.
        urgent: it does not wait for other work of its chat; only set by `unfinished`.
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
class Doubt:
    """A send with an unknown result.

    Attributes:
        row: its message in the outbox; None for other messages, such as those of a running turn.
        since: the earliest timestamp that it can have.
        until: its timestamp is earlier than this.
        timestamp: Signal's timestamp of the message, which was sent again after it.
        is_edit: the message replaces an earlier one.
    """

    row: int | None
    chat: ChatId
    since: int
    until: int
    timestamp: int | None = None
    is_edit: bool = False
