"""What came in: messages, edits, deletions, and what was overheard."""

from dataclasses import dataclass, replace
from enum import StrEnum

from conversation_store.models.chats import ChatId


@dataclass(frozen=True, slots=True)
class ReceivedFile:
    """A file that came with a message; its bytes are still on the Signal side.

    Attributes:
        id: the Signal side's name of it: a plain file name of letters, digits, dots, `-` and `_`.
            One whose name there is no such name cannot be had; it is `unnamed-` and a number.
        content_type: as the sender says, lower case; `application/octet-stream` where he does not.
        name: as the sender calls it, on one line.
        size: bytes, as the sender says.
        voice_note: recorded in Signal itself.
    """

    id: str
    content_type: str
    name: str | None = None
    size: int | None = None
    voice_note: bool = False


@dataclass(frozen=True, slots=True)
class ReceivedQuote:
    """The message that a received one replies to.

    Attributes:
        timestamp: of the quoted message, in ms, where it is readable.
        author: ACI of its author, where it is known.
        by_bot: it is one of the bot's own, as the sender's phone says.
        text: its beginning, as the sender's phone shows it; perhaps empty.
        has_files: it has attachments.
        author_number: where it is known; never stored.
        verbatim: the bot did say so; found out when it matters, never stored.
        reminder: it is the reminder of that number; found out and not stored as well.
    """

    timestamp: int | None
    author: str | None
    by_bot: bool
    text: str = ""
    has_files: bool = False
    author_number: str | None = None
    verbatim: bool = False
    reminder: int | None = None


class ReceivedKind(StrEnum):
    """What was received; part of what makes it unique."""

    MESSAGE = "message"
    EDIT = "edit"
    DELETION = "deletion"
    SCHEDULED = "scheduled"
    """A question that somebody has told the bot to ask itself at a time."""


@dataclass(frozen=True, slots=True)
class ReceivedMessage:
    """A message to be accepted; account, author, timestamp and kind together are unique.

    Attributes:
        account: number of the account that received it.
        author: ACI.
        timestamp: by the author's clock, which may be wrong.
        chat: where it was written.
        text: what was written.
        received_at: when it reached the bot.
        sent_at: when it was sent, as far as that can be believed; never after `received_at`.
        kind: see ReceivedKind.
        author_number: where it is known.
        author_name: where it is known.
        files: what came along.
        quote: what it replies to.
        expires_at: when no copy of it may be left; None: it stays as long as the retention.
        view_once: its files are never stored.
        edited: it reads otherwise than when it was written.
        target_author: of an edit or a deletion, the ACI of the author of what it is about.
        target_timestamp: of an edit or a deletion, the timestamp of what it is about.
    """

    account: str
    author: str
    timestamp: int
    chat: ChatId
    text: str
    received_at: int
    sent_at: int = 0
    kind: ReceivedKind = ReceivedKind.MESSAGE
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
        """Return this message as it reads after an edit; it stays the message that it was."""
        timers = [at for at in (self.expires_at, edit.expires_at) if at is not None]
        return replace(
            self,
            text=edit.text,
            files=edit.files or self.files,  # nobody's phone takes a file away by an edit
            quote=edit.quote,
            view_once=self.view_once or edit.view_once,
            edited=True,
            expires_at=min(timers, default=None),
        )

    @property
    def question_timestamp(self) -> int | None:
        """Timestamp of the bot's own message that it replies to."""
        return self.quote.timestamp if self.quote is not None and self.quote.by_bot else None


@dataclass(frozen=True, slots=True)
class AcceptedMessage:
    """A message that is on disk and owes an answer.

    Attributes:
        id: row of the inbox.
        message: what was received.
        begun: a turn was begun for it, before the process was started again.
        joined: messages that its turn, begun before the start, answers as well.
        replaces: the inbox row whose answer its own answer takes the place of, for an edit of
            what was answered.
    """

    id: int
    message: ReceivedMessage
    begun: bool = False
    joined: "tuple[AcceptedMessage, ...]" = ()
    replaces: int | None = None

    @property
    def messages(self) -> tuple[ReceivedMessage, ...]:
        """The message and those that are answered with it."""
        return (self.message, *(piece.message for piece in self.joined))


@dataclass(frozen=True, slots=True)
class OverheardMessage:
    """What somebody said in a group to others, for the bot to know what is talked about."""

    id: int
    author_name: str | None
    text: str
    sent_at: int


@dataclass(frozen=True, slots=True)
class Missed:
    """What was said in a group since a time, in ms; oldest first."""

    since: int
    messages: tuple[OverheardMessage, ...]


class EditOutcome(StrEnum):
    """What an edit of a message is about."""

    UNKNOWN = "unknown"
    """Nothing that is known: it counts as a new message."""
    ANSWERED = "answered"
    """A message that was answered a short time ago: it is answered anew."""
    TOO_LATE = "too_late"
    """A message that was answered long ago, or was refused: nothing is done."""


@dataclass(frozen=True, slots=True)
class Expired:
    """What came of forgetting what has disappeared.

    Attributes:
        next_at: when something disappears next; None: nothing that is kept ever does.
        waiting: messages that disappeared before their turn began; their text and the names of
            their files are gone.
        ended: messages whose turn waited for a person's answer; they are closed.
    """

    next_at: int | None
    waiting: tuple[AcceptedMessage, ...] = ()
    ended: tuple[AcceptedMessage, ...] = ()
