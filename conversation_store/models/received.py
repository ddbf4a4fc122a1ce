"""Messages that came in, and the chats that they came from."""

from dataclasses import dataclass, replace
from typing import Final, Literal, Self

_DIRECT: Final = "direct:"
_GROUP: Final = "group:"


class ChatId(str):
    """A private chat with a person (by ACI), or a group (by its internal id).

    It is a string of its kind and its id, so that it serves as a key and as a column.
    """

    __slots__ = ()

    @classmethod
    def direct(cls, aci: str) -> Self:
        """Return the private chat with a person."""
        return cls(_DIRECT + aci)

    @classmethod
    def group(cls, group_id: str) -> Self:
        """Return the chat of a group."""
        return cls(_GROUP + group_id)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the chat that a text names; ValueError for other texts."""
        if not text.startswith((_DIRECT, _GROUP)):
            raise ValueError("This names no chat.")
        return cls(text)

    @property
    def value(self) -> str:
        """The person's ACI, or the group's id."""
        return self.partition(":")[2]

    @property
    def is_group(self) -> bool:
        """Whether it is the chat of a group."""
        return self.startswith(_GROUP)


@dataclass(frozen=True, slots=True)
class ReceivedFile:
    """A file of a message; its bytes are still on the Signal side.

    Attributes:
        id: name on the Signal side: letters, digits, dots, `-` and `_`. A file without such a name
            cannot be fetched; its id is `unnamed-` and a number.
        content_type: from the sender, in lower case; `application/octet-stream` by default.
        name: from the sender, on one line.
        size: bytes, from the sender.
        voice_note: recorded in Signal itself.
    """

    id: str
    content_type: str
    name: str | None = None
    size: int | None = None
    voice_note: bool = False


@dataclass(frozen=True, slots=True)
class ReceivedQuote:
    """The message that a received one replies to, as the sender's phone describes it.

    Attributes:
        timestamp: None if it is not readable.
        author: ACI, if it is known.
        by_bot: the bot wrote it, according to the phone.
        text: its beginning; may be empty.
        author_number: if it is known; never stored.
        verbatim: the bot did write it; checked for each use, never stored.
        reminder: number of the quoted reminder; derived, never stored.
    """

    timestamp: int | None
    author: str | None
    by_bot: bool
    text: str = ""
    has_files: bool = False
    author_number: str | None = None
    verbatim: bool = False
    reminder: int | None = None


ReceivedKind = Literal["message", "edit", "deletion", "scheduled"]
"""Kind of a row of the inbox; part of its key.

- scheduled: a question that the bot asks itself at a time, for a person.
"""


@dataclass(frozen=True, slots=True)
class ReceivedMessage:
    """A message to be accepted; account, author, timestamp and kind together are unique.

    Attributes:
        account: number of the account that received it.
        author: ACI.
        timestamp: by the author's clock, which may be wrong.
        received_at: when it reached the bot.
        sent_at: when it was sent, as far as that is credible; never after `received_at`.
        expires_at: when no copy may be left; None if it stays as long as the retention.
        view_once: its files are never stored.
        edited: its words were changed after it was written.
        target_author: ACI of the author of the message that an edit or a deletion is about.
        target_timestamp: timestamp of that message.
    """

    account: str
    author: str
    timestamp: int
    chat: ChatId
    text: str
    received_at: int
    sent_at: int = 0
    kind: ReceivedKind = "message"
    author_number: str | None = None
    author_name: str | None = None
    files: tuple[ReceivedFile, ...] = ()
    quote: ReceivedQuote | None = None
    expires_at: int | None = None
    view_once: bool = False
    edited: bool = False
    target_author: str | None = None
    target_timestamp: int | None = None

    def after(self, edit: "ReceivedMessage") -> "ReceivedMessage":
        """Return this message with the words of an edit and its own key."""
        timers = [at for at in (self.expires_at, edit.expires_at) if at is not None]
        return replace(
            self,
            text=edit.text,
            files=edit.files or self.files,  # phones remove no file by an edit
            quote=edit.quote,
            view_once=self.view_once or edit.view_once,
            edited=True,
            expires_at=min(timers, default=None),
        )

    @property
    def question_timestamp(self) -> int | None:
        """Timestamp of the message of the bot that it replies to."""
        return self.quote.timestamp if self.quote is not None and self.quote.by_bot else None


@dataclass(frozen=True, slots=True)
class AcceptedMessage:
    """A message that is stored and owes an answer.

    Attributes:
        id: row of the inbox.
        begun: an earlier process began a turn for it.
        joined: messages that this turn answers as well.
        replaces: for an edit of an answered message: the row whose answer its answer replaces.
    """

    id: int
    message: ReceivedMessage
    begun: bool = False
    joined: "tuple[AcceptedMessage, ...]" = ()
    replaces: int | None = None

    @property
    def messages(self) -> tuple[ReceivedMessage, ...]:
        """All messages of the turn."""
        return (self.message, *(piece.message for piece in self.joined))


@dataclass(frozen=True, slots=True)
class OverheardMessage:
    """A message in a group that was not for the bot; `id` is its row of the inbox."""

    id: int
    author_name: str | None
    text: str
    sent_at: int


@dataclass(frozen=True, slots=True)
class Missed:
    """Messages in a group since a time, oldest first."""

    since: int
    messages: tuple[OverheardMessage, ...]


EditOutcome = Literal["unknown", "answered", "too_late"]
"""Fate of an edit.

- unknown: the target is unknown: the edit counts as a new message.
- answered: the target was answered a short time ago: it is answered again.
- too_late: the target was answered long ago, or was refused: nothing is done.
"""


@dataclass(frozen=True, slots=True)
class Forgotten:
    """Effects of a deletion.

    Attributes:
        closed: rows that owed an answer and are closed now; their turns must be stopped.
        told: running turns that have read something of it; they are deleted when they end.
    """

    closed: tuple[int, ...]
    told: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Expired:
    """Effects of deleting messages that have disappeared.

    Attributes:
        next_at: when something disappears next; None for never.
        waiting: messages whose turn had not begun; their text and the names of their files are
            deleted, and they still owe an answer.
        ended: messages whose turn waited for a person; they are closed.
    """

    next_at: int | None
    waiting: tuple[AcceptedMessage, ...] = ()
    ended: tuple[AcceptedMessage, ...] = ()


@dataclass(frozen=True, slots=True)
class WorkspaceFile:
    """A file of a message in the workspace of a chat; `name` is a path inside the workspace."""

    chat: ChatId
    name: str
