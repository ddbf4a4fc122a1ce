"""Values that the store keeps and the bot works with. Times are ms since 1970 in UTC."""

import base64
import re
from dataclasses import dataclass, field, replace
from enum import StrEnum
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
        quoted: a small copy of a picture that the message replies to.
    """

    id: str
    content_type: str
    name: str | None = None
    size: int | None = None
    voice_note: bool = False
    quoted: bool = False


@dataclass(frozen=True, slots=True)
class ReceivedQuote:
    """The message that a received one replies to, as the sender's phone describes it.

    Attributes:
        timestamp: None if it is not readable.
        author: ACI, if it is known.
        by_bot: the bot wrote it, according to the phone.
        text: its beginning; may be empty.
        file: kind of its first file, such as `picture`; empty without files.
        file_name: of that file, if the phone tells it.
        author_number: if it is known; never stored.
        verbatim: the bot did write it; checked for each use, never stored.
        reminder: number of the quoted reminder; derived, never stored.
    """

    timestamp: int | None
    author: str | None
    by_bot: bool
    text: str = ""
    file: str = ""
    file_name: str | None = None
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
        expires_at: when no copy may be left; None if only the retention counts.
        view_once: its files are never stored.
        edited: its words were changed after it was written.
        mentions_bot: in a group, it is meant for the bot, and not as a reply.
        answers: the bot's question that it answers, if the model cannot see that; never stored.
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
    mentions_bot: bool = False
    answers: str = ""
    target_author: str | None = None
    target_timestamp: int | None = None

    def after(self, edit: "ReceivedMessage") -> "ReceivedMessage":
        """Return this message with the words of an edit and its own key."""
        timers = [at for at in (self.expires_at, edit.expires_at) if at is not None]
        return replace(
            self,
            text=edit.text,
            files=edit.files or self.files,  # an edit on a phone removes no file
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


EditOutcome = Literal["unknown", "answered", "too_late"]
"""Fate of an edit; see `ChangeStore.settle_edit`."""

DAY_MS: Final = 86_400_000


TurnStatus = Literal["running", "answered", "failed", "stopped"]
"""State of a turn. Answered and failed turns are history for the model."""


class Role(StrEnum):
    """Author of a message to or from the model."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that the model asks for; `arguments` is the model's text, which may not be JSON."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Image:
    """A picture in a message of a person, or in the result of a call."""

    content_type: str
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class ModelState:
    """JSON that a model's API gives with a message and wants back, such as signed reasoning.

    Attributes:
        of: the model and API that can use it.
    """

    of: str
    data: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Message:
    """A message of a conversation with the model, exactly as the model saw or wrote it.

    In the store, a message of role `tool` without content is a call that has not ended.

    Attributes:
        content: None if an assistant only calls tools.
        tool_call_id: for role `tool`, the call of this result.
        images: for roles `user` and `tool`, shown after the words.
        state: for an assistant that calls tools.
        failed: for role `tool`: the call ended in an error, or did not run.
    """

    role: Role
    content: str | None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    images: tuple[Image, ...] = ()
    state: ModelState | None = None
    failed: bool = False


@dataclass(frozen=True, slots=True)
class History:
    """The newest turns of a chat, oldest first.

    Attributes:
        first_turn: id of the oldest; without turns, the id that the caller gave.
        whole: no older turn had to be left out.
        size: bytes of contents and calls.
    """

    turns: "tuple[tuple[Message, ...], ...]"
    first_turn: int
    whole: bool
    size: int = 0


@dataclass(frozen=True, slots=True)
class StoredTurn:
    """The conversation with the model from a message to its answer.

    Attributes:
        id: row of the first message; for a helper, of the call that it works on.
        attempts: how often it was begun; more than 1 after a crash or a restart.
        messages: stored messages, the person's first.
        notices: lines for the person above the answer, such as the words of a voice note.
    """

    id: int
    attempts: int
    messages: tuple[Message, ...]
    progress_timestamp: int | None = None
    progress_edits: int = 0
    notices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Question:
    """The last question of a chat that was answered, or could have been.

    Attributes:
        turn: the turn of the last answer.
        root: the inbox row of the first answer; later answers replace it.
        asker: ACI.
        asked_at: when it reached the bot.
        is_kept: the turn is stored, so that the question can be answered again.
    """

    chat: ChatId
    turn: int
    root: int
    asker: str
    asked_at: int
    is_kept: bool


@dataclass(frozen=True, slots=True)
class Retry:
    """A question that is answered again; `model` is used this once instead of the chat's."""

    question: Question
    model: str | None = None


@dataclass(frozen=True, slots=True)
class TokenSpend:
    """Tokens of one answer of a model.

    Attributes:
        person: ACI of the person who asked.
        model: the bot's name for the model.
    """

    person: str
    chat: ChatId
    model: str
    prompt_tokens: int
    completion_tokens: int
    is_estimated: bool = False


@dataclass(frozen=True, slots=True)
class TokenSum:
    """Tokens of one or many answers; `is_estimated` if that holds for some of them."""

    prompt_tokens: int
    completion_tokens: int
    is_estimated: bool = False

    @property
    def total(self) -> int:
        """Prompt and completion tokens."""
        return self.prompt_tokens + self.completion_tokens


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """A call with its caller and its outcome."""

    at: int
    chat: ChatId
    author: str
    turn_id: int
    tool: str
    arguments_sha256: str
    outcome: str
    duration_ms: int


ExchangeState = Literal["waiting", "proven", "wrong", "missing", "unattested"]
"""Result of checking the signature over a request to a model and its answer.

- wrong: the signature is not over these bytes, or not by an attested key.
- missing: the endpoint gave no signature.
- unattested: no verified report vouches for a key to check it with.
"""


@dataclass(frozen=True, slots=True)
class NewExchange:
    """A request to a model and its answer, as SHA-256 hashes of their bytes in hex.

    Attributes:
        completion_id: the endpoint's name for it; empty if the answer was cut off or had no name.
        model: the bot's name for the model.
    """

    completion_id: str
    request_sha256: str
    response_sha256: str
    model: str = "default"


@dataclass(frozen=True, slots=True)
class StoredExchange:
    """An exchange of a turn with the result of its check; see `NewExchange`.

    Attributes:
        kind: `provider_tee` (the model's enclave signed), `gateway`, or empty.
        message: the meaning of the result, in one sentence.
    """

    id: int
    turn_id: int
    completion_id: str
    request_sha256: str
    response_sha256: str
    state: ExchangeState = "waiting"
    kind: str = ""
    message: str = ""
    model: str = "default"


@dataclass(frozen=True, slots=True)
class TurnEnd:
    """The end of a turn.

    Attributes:
        state: ANSWERED, or FAILED with a plain sentence as the answer.
        answer: the answer as the model is shown it later.
        exchanged: exchanges that are not stored yet, if their signatures are to be checked.
        spent: tokens that are not counted yet; they count even if the turn is gone.
        retried: the question that it answers again; the earlier turn is deleted.
        was_scheduled: it answers a scheduled question, which counts its failures.
        has_called: it made calls, so it may have files, and questions to people.
        reaction: an emoji that is sent instead of words.
    """

    state: TurnStatus
    answer: str
    exchanged: tuple[NewExchange, ...] = ()
    spent: tuple[TokenSpend, ...] = ()
    retried: Question | None = None
    was_scheduled: bool = True
    has_called: bool = True
    reaction: str = ""


QuestionKind = Literal["call", "choice", "plan"]
"""Kind of a question to a person.

- call: whether a call with side effects may run.
- choice: something that the model needs to know, with or without options.
- plan: whether to carry out a plan.
"""


@dataclass(frozen=True, slots=True)
class QuestionTerms:
    """Terms of a question to a person.

    Attributes:
        asker: ACI of the person that the turn answers.
        text: the first words of a question of the model; later turns are told them.
        options: of a choice; empty if the person answers in words of their own.
        multiple: several options may be chosen.
        fingerprint: of the call; the answer allows no other call.
        covers: tools that the answer may allow for longer.
        version: of the tool.
        needs_admin: only an admin may say yes.
    """

    kind: QuestionKind
    asker: str
    text: str = ""
    options: tuple[str, ...] = ()
    multiple: bool = False
    fingerprint: str = ""
    covers: tuple[str, ...] = ()
    version: str = ""
    needs_admin: bool = False


@dataclass(frozen=True, slots=True)
class StoredQuestion:
    """A question to a person about an open call of a turn.

    Attributes:
        id: row of the open call.
        timestamps: of its messages, in order; empty until all are sent.
        asked_at: when it was sent; 0 until then.
        expires_at: until when an answer counts; 0 until it is sent.
        answer: None while it is open.
        chosen: the answer of the last vote, if another vote may follow.
        begun: the call was allowed and has begun; it never begins again.
    """

    id: int
    turn_id: int
    chat: ChatId
    terms: QuestionTerms
    timestamps: tuple[int, ...] = ()
    asked_at: int = 0
    expires_at: int = 0
    answer: str | None = None
    chosen: str | None = None
    begun: bool = False


MAX_ATTACHMENT_BYTES: Final = 8 * 2**20
"""signal-cli reads strings of up to 20 million characters; base64 makes four of three bytes."""

VOICE_NOTE: Final = "voice-note."
"""Beginning of the names of recordings of the bot."""

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
    def is_voice_note(self) -> bool:
        """Whether the bot speaks in it."""
        return self.name.startswith(VOICE_NOTE) and self.content_type.startswith("audio/")

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
        urgent: it does not wait for other work of its chat.
        is_reaction: the text is an emoji for the message that the quote names.
        unmade: the source of a file that is to be made before it is sent.
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
    is_reaction: bool = False
    unmade: str | None = None


@dataclass(frozen=True, slots=True)
class Fact:
    """Something that the bot was asked to remember in a chat.

    Attributes:
        number: its name in the chat; never reused there.
        said_at: when the first message that it comes from was received.
        expires_at: when it disappears; None for never.
    """

    number: int
    text: str
    said_at: int
    expires_at: int | None = None


NotRemembered = Literal["off", "full", "kept_nowhere"]
"""Why a fact is not stored: memory is off in the chat, the chat has the maximum number of facts, or
nothing is kept after a turn, or the turn is gone."""


@dataclass(frozen=True, slots=True)
class Instructions:
    """Instructions for the bot in a chat; `expires_at`: when the message with them disappears."""

    text: str
    expires_at: int | None = None


@dataclass(frozen=True, slots=True)
class NewReminder:
    """A reminder or a scheduled question to be stored.

    Attributes:
        text: said to the person, or asked by the bot itself (`is_question`).
        local_at: ISO 8601 without an offset; None: it comes at a moment.
        repeat: an RRULE; None: it comes once.
        due_at: when it comes first.
    """

    is_question: bool
    text: str = field(repr=False)
    local_at: str | None
    repeat: str | None
    due_at: int


@dataclass(frozen=True, slots=True)
class StoredReminder:
    """A reminder, or a question that the bot asks itself; see `NewReminder`.

    Attributes:
        number: the person's name for it.
        person: ACI.
        account: number of the account that was asked.
        repeat: the rule of its further dates, including the next one.
        due_at: when it comes, or came.
        is_delivered: it came for the last time.
        person_name: in a group, if it is known.
        timer_ms: the chat's timer for messages when the reminder was set.
        failures: how often in a row the question had no answer.
    """

    id: int
    number: int
    person: str
    account: str
    chat: ChatId
    is_question: bool
    text: str = field(repr=False)
    local_at: str | None
    repeat: str | None
    due_at: int
    zone: str | None
    is_delivered: bool = False
    person_name: str | None = None
    person_number: str | None = None
    timer_ms: int | None = None
    failures: int = 0


@dataclass(frozen=True, slots=True)
class FurtherDate:
    """The next date of a series: local time, rule and moment."""

    local_at: str
    repeat: str
    due_at: int
