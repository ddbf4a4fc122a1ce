"""What the store keeps, as frozen values. Times are ms since 1970 in UTC."""

from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path


class TurnStatus(StrEnum):
    """How far a turn has come. Only whole turns (answered, failed) are history for the model."""

    RUNNING = "running"
    ANSWERED = "answered"
    FAILED = "failed"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class ReceivedFile:
    """A file that came with a message and whose bytes are still where the message came from."""

    id: str
    content_type: str
    name: str | None = None
    size: int | None = None
    voice_note: bool = False


@dataclass(frozen=True, slots=True)
class ReceivedQuote:
    """The message that a received one replies to.

    Attributes:
        timestamp: of the quoted message, in ms, where it is known.
        author: ACI of its author, where it is known.
        by_bot: it is one of the bot's own, as the sender's phone says.
        text: its beginning, as the sender's phone says.
        has_files: it has attachments.
        verbatim: the bot did say so; found out when it matters, never stored.
    """

    timestamp: int | None
    author: str | None
    by_bot: bool
    text: str = ""
    has_files: bool = False
    verbatim: bool = False


class ReceivedKind(StrEnum):
    """What was received; part of what makes it unique."""

    MESSAGE = "message"
    EDIT = "edit"
    DELETION = "deletion"


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
    chat: str
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
class StoredImage:
    """An image as the model is shown it."""

    content_type: str
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class History:
    """The newest turns of a chat, oldest first.

    Attributes:
        turns: the messages of each.
        first_turn: the id of the oldest; what was asked for where there is none.
        whole: whether no older turn had to be left out.
    """

    turns: "tuple[tuple[StoredMessage, ...], ...]"
    first_turn: int
    whole: bool


@dataclass(frozen=True, slots=True)
class StoredToolCall:
    """A call as the model asked for it."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message exactly as the model saw or said it.

    A row of role `tool` whose content is None is a call that is started and not finished. Images
    go with a person's message.
    """

    role: str
    content: str | None
    tool_calls: tuple[StoredToolCall, ...] = ()
    tool_call_id: str | None = None
    images: tuple[StoredImage, ...] = ()


@dataclass(frozen=True, slots=True)
class Turn:
    """One accepted message, or several that were written as one, on the way to an answer.

    Attributes:
        id: row of the (first) accepted message that it answers.
        attempts: how often it was begun; more than 1 after a crash or a restart.
        messages: what is stored of it so far, the person's message first.
        progress_timestamp: Signal's timestamp of its progress message, if one was sent.
        notices: lines for the person above the answer, such as what was heard in a voice note.
    """

    id: int
    attempts: int
    messages: tuple[StoredMessage, ...]
    progress_timestamp: int | None = None
    notices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TurnUsage:
    """What a turn cost: requests to the model and tokens as the endpoint counted them."""

    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0


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
    chat: str
    text: str
    attempts: int
    attachments: tuple[StoredAttachment, ...] = ()
    styles: tuple[StoredStyle, ...] = ()
    quote: StoredQuote | None = None
    replaces: int | None = None


class EditOutcome(StrEnum):
    """What an edit of a message is about."""

    UNKNOWN = "unknown"
    """Nothing that is known: it counts as a new message."""
    ANSWERED = "answered"
    """A message that was answered a short time ago: it is answered anew."""
    TOO_LATE = "too_late"
    """A message that was answered long ago, or was refused: nothing is done."""


@dataclass(frozen=True, slots=True)
class PairingRequest:
    """A stranger who may be let in by a code.

    Attributes:
        person: ACI.
        code: upper case letters and digits.
        number: where it is known.
        name: where it is known.
        expires_at: until when the code counts.
    """

    person: str
    code: str = field(repr=False)
    expires_at: int
    number: str | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True)
class PairedPerson:
    """Somebody who was let in by a code.

    Attributes:
        person: ACI.
        since: when.
        greeted: was told so.
        number: where it was known.
        name: where it was known.
    """

    person: str
    since: int
    greeted: bool
    number: str | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True)
class StoreSizes:
    """How large a store is, and how much waits in it.

    Attributes:
        file_bytes: of the database file.
        log_bytes: of the write-ahead log beside it.
        free_bytes: of the file, what holds nothing and will be used again.
        disk_free_bytes: what is left on its disk.
        waiting_messages: owe an answer.
        waiting_sends: messages of the bot that are not sent yet.
        waiting_signatures: of answers, that are not checked yet.
        oldest_waiting_at: when the oldest of the messages came; None where none waits.
    """

    file_bytes: int
    log_bytes: int
    free_bytes: int
    disk_free_bytes: int
    waiting_messages: int
    waiting_sends: int
    waiting_signatures: int
    oldest_waiting_at: int | None


@dataclass(frozen=True, slots=True)
class Restored:
    """What came of going back to a copy.

    Attributes:
        messages: waited for an answer when the copy was made; they wait no more.
        sends: messages of the bot that were on their way then; they are not sent.
        aside: where the store before is now; None where there was none.
    """

    messages: int
    sends: int
    aside: Path | None


@dataclass(frozen=True, slots=True)
class UnfinishedWork:
    """What a start finds: answers to send and messages to answer, both in their order."""

    outgoing: tuple[OutgoingMessage, ...]
    accepted: tuple[AcceptedMessage, ...]


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
    chat: str
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


@dataclass(frozen=True, slots=True)
class Expired:
    """What came of forgetting what has disappeared.

    Attributes:
        next_at: when something disappears next; None: nothing that is kept ever does.
        waiting: messages that disappeared before their turn began; their text and the names of
            their files are gone.
    """

    next_at: int | None
    waiting: tuple[AcceptedMessage, ...] = ()


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
    """

    id: int
    chat: str
    asker: str
    fingerprint: str
    state: ApprovalState = ApprovalState.OPEN
    signal_timestamp: int | None = None
    expires_at: int | None = None


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """Who called which tool, and what came of it.

    The arguments are there as a hash, and in full where the operator keeps them. Who allowed a
    call is added by the store.
    """

    at: int
    chat: str
    author: str
    turn_id: int
    tool: str
    arguments_sha256: str
    outcome: str
    duration_ms: int
    arguments: str | None = None


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
    """

    completion_id: str
    request_sha256: str
    response_sha256: str


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
        words: what that means, in one sentence.
    """

    id: int
    turn_id: int
    completion_id: str
    request_sha256: str
    response_sha256: str
    state: ExchangeState = ExchangeState.WAITING
    kind: str = ""
    words: str = ""
