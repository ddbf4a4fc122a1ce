"""Turns: messages to and from the model, their cost, and questions to people."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from conversation_store.models.received import ChatId

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
    """

    turns: "tuple[tuple[Message, ...], ...]"
    first_turn: int
    whole: bool


@dataclass(frozen=True, slots=True)
class StoredTurn:
    """The conversation with the model from a message to its answer.

    Attributes:
        id: row of the first message.
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
class StoredHelper:
    """A part of a turn with a conversation of its own.

    Attributes:
        id: row of the call that it works on.
        messages: stored messages, its task first.
    """

    id: int
    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class EndedCalls:
    """The ended calls of a turn, or of one of its helpers.

    Attributes:
        calls: name of the tool and outcome of each, in order.
        task: of the helper.
        outcome: of the helper; None until its own call has ended.
    """

    calls: tuple[tuple[str, str], ...] = ()
    task: str = ""
    outcome: str | None = None


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
        has_called: it made calls, so it may have questions to people.
    """

    state: TurnStatus
    answer: str
    exchanged: tuple[NewExchange, ...] = ()
    spent: tuple[TokenSpend, ...] = ()
    retried: Question | None = None
    was_scheduled: bool = True
    has_called: bool = True


@dataclass(frozen=True, slots=True)
class StoredGrant:
    """A tool that runs in a chat without a question until a time."""

    id: int
    subject: str
    expires_at: int


QuestionKind = Literal["call", "choice", "plan"]
"""What a person is asked.

- call: whether a call with side effects may run.
- choice: something that the model needs to know, with or without options.
- plan: whether to carry out a plan.
"""


@dataclass(frozen=True, slots=True)
class QuestionTerms:
    """What a question is about.

    Attributes:
        asker: ACI of the person that the turn answers.
        options: of a choice; empty if the person answers in words of their own.
        multiple: several options may be chosen.
        fingerprint: of the call; the answer allows no other call.
        covers: tools that the answer may allow for longer.
        version: of the tool.
        needs_admin: only an admin may say yes.
    """

    kind: QuestionKind
    asker: str
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


@dataclass(frozen=True, slots=True)
class OpenPoll:
    """A poll that phones still show as open; `is_asked`: its question waits for an answer."""

    chat: ChatId
    timestamp: int
    is_asked: bool
