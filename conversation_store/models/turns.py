"""What the model was shown, said and called, and what that cost."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from conversation_store.models.chats import ChatId


class TurnStatus(StrEnum):
    """How far a turn has come. Only whole turns (answered, failed) are history for the model."""

    RUNNING = "running"
    ANSWERED = "answered"
    FAILED = "failed"
    STOPPED = "stopped"


class Role(StrEnum):
    """Who speaks."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that the model asks for; `arguments` is the model's text, not always JSON."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Image:
    """A picture that a message of a person, or the result of a call, shows."""

    content_type: str
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class ModelState:
    """What a model's API gives with a message and wants back with it, such as signed reasoning.

    Attributes:
        of: whose it is; nobody else can make use of it.
        data: JSON.
    """

    of: str
    data: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation with the model, exactly as it saw or said it.

    A stored one of role `tool` without content is a call that is started and not finished.

    Attributes:
        role: who speaks.
        content: the words; None where an assistant only calls tools.
        tool_calls: what an assistant asks to be called.
        tool_call_id: for role `tool`, the call that this is the result of.
        images: for roles `user` and `tool`, what is shown after the words.
        state: for an assistant that calls tools, what its API wants back.
    """

    role: Role
    content: str | None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    images: tuple[Image, ...] = ()
    state: ModelState | None = None


@dataclass(frozen=True, slots=True)
class History:
    """The newest turns of a chat, oldest first.

    Attributes:
        turns: the messages of each.
        first_turn: the id of the oldest; what was asked for where there is none.
        whole: whether no older turn had to be left out.
    """

    turns: "tuple[tuple[Message, ...], ...]"
    first_turn: int
    whole: bool


@dataclass(frozen=True, slots=True)
class Turn:
    """One accepted message, or several that were written as one, on the way to an answer.

    Attributes:
        id: row of the (first) accepted message that it answers.
        attempts: how often it was begun; more than 1 after a crash or a restart.
        messages: what is stored of it so far, the person's message first.
        progress_timestamp: Signal's timestamp of its progress message, if one was sent.
        progress_edits: how often that was edited.
        notices: lines for the person above the answer, such as what was heard in a voice note.
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
        chat: where.
        turn: the turn that answered it last.
        root: the inbox row whose answer that turn's answer took the place of, or its own.
        asker: ACI of whoever asked it.
        asked_at: when it reached the bot, in ms.
        is_kept: its turn is still known, so it can be answered anew.
    """

    chat: ChatId
    turn: int
    root: int
    asker: str
    asked_at: int
    is_kept: bool


@dataclass(frozen=True, slots=True)
class Retry:
    """A question that is to be answered anew.

    Attributes:
        question: which.
        model: the name of the model that answers it this once; None: the chat's.
    """

    question: Question
    model: str | None = None


@dataclass(frozen=True, slots=True)
class StoredHelper:
    """A part of a turn with a conversation of its own.

    Attributes:
        id: row of the call of the turn that it works off.
        messages: what is stored of it so far, its task first.
    """

    id: int
    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class EndedCall:
    """A call that has ended: the tool, and what the audit calls its outcome."""

    tool: str
    outcome: str


@dataclass(frozen=True, slots=True)
class EndedHelper:
    """What a helper has done.

    Attributes:
        task: what it was told.
        calls: those of its calls that have ended.
        outcome: of the call that it worked off; None: it has not ended.
    """

    task: str
    calls: tuple[EndedCall, ...]
    outcome: str | None


@dataclass(frozen=True, slots=True)
class EndedCalls:
    """How those calls of a turn ended that have ended, in the order in which they were made.

    Attributes:
        calls: its own.
        helpers: by the row of the call that each works off.
    """

    calls: tuple[EndedCall, ...]
    helpers: Mapping[int, EndedHelper]


@dataclass(frozen=True, slots=True)
class TurnUsage:
    """What a turn cost: requests to the model, and tokens, some of them perhaps estimated."""

    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0


@dataclass(frozen=True, slots=True)
class TokenSpend:
    """What one answer of a model took.

    Attributes:
        person: ACI of whoever asked.
        chat: where.
        model: the bot's name for the model.
        prompt_tokens: that the model read.
        completion_tokens: that it wrote.
        is_estimated: the endpoint has counted nothing.
    """

    person: str
    chat: ChatId
    model: str
    prompt_tokens: int
    completion_tokens: int
    is_estimated: bool = False


@dataclass(frozen=True, slots=True)
class TokenSum:
    """What many answers took together; `is_estimated`: some of them were not counted."""

    prompt_tokens: int
    completion_tokens: int
    is_estimated: int | bool = False

    @property
    def total(self) -> int:
        """What was read and written."""
        return self.prompt_tokens + self.completion_tokens


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """Who called which tool, and what came of it.

    The arguments are there as a hash, and in full where the operator keeps them. Who allowed a
    call is added by the store.
    """

    at: int
    chat: ChatId
    author: str
    turn_id: int
    tool: str
    arguments_sha256: str
    outcome: str
    duration_ms: int
    arguments: str | None = None


class ApprovalState(StrEnum):
    """How far a question about a call has come."""

    OPEN = "open"
    YES = "yes"
    NO = "no"
    SILENCE = "silence"
    BEGUN = "begun"
    """It was allowed, and the call was begun: it is never begun again."""


@dataclass(frozen=True, slots=True)
class StoredApproval:
    """A question to a person: may this call run?

    Attributes:
        id: row of the open call that it is about.
        chat: where it is asked.
        asker: ACI of the person that the call is made for.
        fingerprint: of the call that was asked about; no other may run on its answer.
        state: how far it has come.
        signal_timestamp: Signal's timestamp of the question; None while it is not sent.
        expires_at: until when an answer counts; None while it is not sent.
        covers: what a person may allow for longer with the answer.
        version: of the tool that this is about.
        admins_needed: how many admins have to say yes; 0: the asker may decide as well.
        yes: how many of them have.
        edits: timestamps of the edits of the question.
    """

    id: int
    chat: ChatId
    asker: str
    fingerprint: str
    state: ApprovalState = ApprovalState.OPEN
    signal_timestamp: int | None = None
    expires_at: int | None = None
    covers: tuple[str, ...] = ()
    version: str = ""
    admins_needed: int = 0
    yes: int = 0
    edits: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class CountedYes:
    """How a question stands after a yes was counted.

    Attributes:
        state: how far it has come; None where it is gone.
        yes: how many have said yes.
    """

    state: ApprovalState | None
    yes: int


@dataclass(frozen=True, slots=True)
class StoredGrant:
    """Something that is allowed in a chat until a time (ms), so that nobody is asked about it."""

    id: int
    subject: str
    expires_at: int


class QuestionKind(StrEnum):
    """What the model asks a person for."""

    CHOICE = "choice"
    PLAN = "plan"
    """Whether a plan is carried out."""


@dataclass(frozen=True, slots=True)
class OpenPoll:
    """A poll that phones still show as open.

    Attributes:
        chat: where it stands.
        timestamp: Signal's, of its message.
        is_asked: its question waits for an answer.
    """

    chat: ChatId
    timestamp: int
    is_asked: bool


@dataclass(frozen=True, slots=True)
class StoredQuestion:
    """A question of the model's to a person; its turn waits for the answer on disk.

    Attributes:
        id: row of the open call that asks it.
        turn_id: the turn.
        chat: where it is asked.
        asker: ACI of the person that the turn answers.
        kind: what it asks for.
        options: what may be chosen.
        multiple: whether several of them may be.
        signal_timestamp: Signal's timestamp of its last message; None while it is not sent.
        earlier: those of its messages before that one.
        asked_at: when it was sent; None while it is not.
        expires_at: until when an answer counts; None while it is not sent.
        answer: what the model is told; None while it is open.
        chosen: the same after the last vote, where another may follow.
    """

    id: int
    turn_id: int
    chat: ChatId
    asker: str
    kind: QuestionKind
    options: tuple[str, ...] = ()
    multiple: bool = False
    earlier: tuple[int, ...] = ()
    signal_timestamp: int | None = None
    asked_at: int | None = None
    expires_at: int | None = None
    answer: str | None = None
    chosen: str | None = None


class ExchangeState(StrEnum):
    """What is known of the signature over a request to a model and its answer."""

    WAITING = "waiting"
    """Not checked yet."""
    PROVEN = "proven"
    WRONG = "wrong"
    """There is a signature, and it is not over these bytes by an attested key."""
    MISSING = "missing"
    """The endpoint gave none."""
    UNATTESTED = "unattested"
    """No verified report vouches for a key to check it with."""


@dataclass(frozen=True, slots=True)
class NewExchange:
    """A request to a model and its answer, as the hashes of their bytes.

    Attributes:
        completion_id: what the endpoint calls it; empty where it gave no name, or where the end of
            its answer was not seen.
        request_sha256: hex.
        response_sha256: hex.
        model: the bot's name for the model.
    """

    completion_id: str
    request_sha256: str
    response_sha256: str
    model: str = "default"


@dataclass(frozen=True, slots=True)
class StoredExchange:
    """An exchange of a turn, and what its signature said.

    Attributes:
        id: its row.
        turn_id: the turn that it belongs to.
        completion_id: see NewExchange.
        request_sha256: hex.
        response_sha256: hex.
        state: how far the check has come.
        kind: `provider_tee` (the model's enclave signed), `gateway`, or empty.
        message: what that means, in one sentence.
        model: the bot's name for the model.
    """

    id: int
    turn_id: int
    completion_id: str
    request_sha256: str
    response_sha256: str
    state: ExchangeState = ExchangeState.WAITING
    kind: str = ""
    message: str = ""
    model: str = "default"
