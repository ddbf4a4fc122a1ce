"""Parts that all model APIs share: they turn conversations into requests, bytes into answers.

Each API is a subclass of `Api` that puts a request into dictionaries, and reads the dictionaries of
an answer into blocks of one form for all APIs:
- words: `text`
- a call: `id`, `name` and `arguments`
- a block that only its API understands: `own`, exactly as it came

Some APIs want their signed reasoning back in later requests. So an answer with a `signed` block is
kept as the state of its message.
"""

import json
import re
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Any, Final, Protocol, TypeVar

from pydantic_core import PydanticSerializationError, from_json, to_json

from bot import __version__
from bot.config.llm import LlmSettings
from bot.llm.arguments import as_json, plain_name, read_arguments
from bot.llm.errors import LlmBroken
from bot.llm.messages import CUT_OFF, Completion, ModelRequest
from bot.llm.rearranged import latest_images, without_system_role
from conversation_store.models import Message, ModelState, Role, TokenSum, ToolCall
from tools.http import Request

MAX_LINE_BYTES: Final = 1024 * 1024
MAX_STREAM_BYTES: Final = 32 * 1024 * 1024
MAX_DOCUMENT_BYTES: Final = 4 * 1024 * 1024

TOO_LONG: Final = "The endpoint's answer is longer than this program reads."

BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_LINE_END: Final = re.compile(rb"\r\n|\n|\r(?!\Z)")
"""CR at the end of the data waits for the LF that may follow it."""
_DATA: Final = re.compile(rb"\A(?:data:[ ]?)+")
"""Some proxies write the name of the field twice."""

Event = bytes | bytearray


class Framing:
    """Cuts bytes into events; this base class takes all bytes as one document."""

    max_bytes = MAX_DOCUMENT_BYTES

    def __init__(self) -> None:
        self.rest = bytearray()
        self.size = 0

    def feed(self, data: bytes) -> Sequence[Event]:
        """Return the events that these bytes complete; LlmBroken beyond the bounds."""
        self.size += len(data)
        if self.size > self.max_bytes:
            raise LlmBroken(TOO_LONG)
        self.rest += data
        return self.events(data)

    def events(self, data: bytes) -> Sequence[Event]:
        """Remove whole events from `rest`, which ends with the new data, and return them."""
        del data
        return ()

    def end(self) -> Sequence[Event]:
        """Return the last event, if the end of the body completes it."""
        return [self.rest]


class Lines(Framing):
    """Cuts out the data of server-sent events, and lines of newline-delimited JSON.

    A line ends with CR, LF or both (https://html.spec.whatwg.org/multipage/server-sent-events.html).
    """

    max_bytes = MAX_STREAM_BYTES

    def __init__(self) -> None:
        super().__init__()
        self._data: list[Event] = []
        self._data_bytes = 0

    def events(self, data: bytes) -> Sequence[Event]:
        """Return the events that are complete now; LlmBroken for a huge one."""
        lines: list[bytes] = []
        if b"\n" in data or b"\r" in self.rest[-len(data) - 1 :]:
            *lines, rest = _LINE_END.split(self.rest)
            self.rest = bytearray(rest)
        events: list[Event] = []
        for line in lines:
            if line.startswith(b"data:"):
                self._data.append(_DATA.sub(b"", line))
                self._data_bytes += len(line)
            elif line.startswith(b"{"):
                events.append(line)
            elif self._data and not line:
                events.append(b"\n".join(self._data))
                self._data.clear()
                self._data_bytes = 0
        if max(self._data_bytes, len(self.rest)) > MAX_LINE_BYTES:  # it would block the event loop
            raise LlmBroken(TOO_LONG)
        return events

    def end(self) -> Sequence[Event]:
        """Return the last event, even without its end mark."""
        return self.feed(b"\n\n")


class ByContent(Framing):
    """Chooses the framing by the first bytes, because servers label their answers wrongly.

    An answer that begins with a bracket is JSON: one document, or a document in each line.

    Args:
        streamed: cuts anything else.
    """

    max_bytes = MAX_STREAM_BYTES

    def __init__(self, streamed: Framing) -> None:
        super().__init__()
        self._streamed = streamed
        self._chosen: Framing | None = None
        self._is_json = False
        self._events = 0

    @property
    def is_document(self) -> bool:
        """Whether all bytes are one JSON document."""
        return self._is_json and self._events == 1

    def events(self, data: bytes) -> Sequence[Event]:
        """Return the events that the chosen framing completes."""
        if self._chosen is None:
            self._chosen = self._choose(data)
            if self._chosen is None:
                return ()
        data, self.rest = bytes(self.rest), bytearray()
        return self._counted(self._chosen.feed(data))

    def end(self) -> Sequence[Event]:
        """Return the last events of the chosen framing."""
        if self._chosen is not None:
            return self._counted(self._chosen.end())
        return self._counted([self.rest] if self.rest else ())

    def _choose(self, data: bytes) -> Framing | None:
        """Return the framing that fits; None until the first line tells it."""
        if not self._is_json:
            if BYTE_ORDER_MARK.startswith(self.rest):
                return None
            self.rest = self.rest.removeprefix(BYTE_ORDER_MARK).lstrip()
            self._is_json = self.rest.startswith((b"{", b"["))
            if not self._is_json:
                return self._streamed if self.rest else None
        if len(self.rest) > MAX_DOCUMENT_BYTES:
            raise LlmBroken(TOO_LONG)
        if b"\n" not in self.rest[-len(data) :]:
            return None
        first_line = self.rest.partition(b"\n")[0]
        return Lines() if first_line.startswith(b"{") and _is_whole(first_line) else Framing()

    def _counted(self, events: Sequence[Event]) -> Sequence[Event]:
        self._events += len(events)
        return events


MAX_ANSWER_CHARACTERS: Final = 256 * 1024
"""Bound of the words and calls of an answer together."""
MAX_STATE_CHARACTERS: Final = 256 * 1024
MAX_ARGUMENT_CHARACTERS: Final = 64 * 1024
MAX_TOOL_CALLS: Final = 32
MAX_ENTRIES: Final = 128
"""Bound of each list in an answer; real endpoints send a tenth."""
MAX_LABEL_CHARACTERS: Final = 128
"""Bound of names, ids and finish reasons."""
MIN_REPEATED_PIECES: Final = 2
MIN_REPEATED_CHARACTERS: Final = 16
"""Shorter repetitions may be meant."""
MAX_TOKEN_COUNT: Final = 1_000_000_000
MAX_NAME_CHARACTERS: Final = 64

NOTHING_SAID: Final = "(no words)"
"""Replaces blank words, which some APIs refuse."""
END_OF_STREAM: Final = b"[DONE]"
UNREADABLE: Final = "The endpoint's answer could not be understood."

_NOT_OF_A_NAME: Final = re.compile(r"[^a-zA-Z0-9_-]")

FINISH_REASONS: Final[Mapping[str, str]] = {
    theirs: ours
    for ours, names in {
        "stop": "end_turn stop_sequence eos eos_token complete",
        "tool_calls": "tool_use tool_call function_call",
        # After `pause_turn`, the model expects a request to continue.
        CUT_OFF: "max_tokens model_context_window_exceeded pause_turn model_length token_limit"
        " max_length error_limit",
        "content_filter": "refusal guardrail_intervened content_filtered safety recitation language"
        " blocklist prohibited_content spii image_safety image_prohibited_content sensitive"
        " error_toxic",
    }.items()
    for theirs in names.split()
}
"""Maps the APIs' finish reasons, in lower case, to OpenAI's."""
BROKEN_CALLS: Final = frozenset(
    {
        *("malformed_function_call", "unexpected_tool_call", "too_many_tool_calls"),
        *("missing_thought_signature", "malformed_response"),
        *("malformed_model_output", "malformed_tool_use"),
    }
)
"""Finish reasons if the API could not read the model's call; a retry may succeed."""
FAILURES: Final = frozenset(
    {
        *("error", "failed", "failure", "abort", "aborted", "cancelled", "canceled", "timeout"),
        *("internal_error", "server_error", "network_error", "model_error", "engine_error"),
        *("user_cancel", "time_limit", "interrupted", "incomplete"),
        *("insufficient_system_resource", "unavailable"),
    }
)
"""Finish reasons of answers that broke off, at OpenRouter, Mistral, vLLM, DeepSeek and others."""

Block = dict[str, Any]
T = TypeVar("T")
Question = tuple[Request, Callable[[Block], T]]
"""A request about the endpoint, and a reader of its answer that raises like `Api.read`."""


class Parameter(StrEnum):
    """A part of requests that some endpoints refuse; the bot learns to leave it out."""

    USAGE = "usage"
    """The count of tokens at the end of a stream."""
    STREAM = "stream"
    TOOL_CHOICE = "tool_choice"
    SYSTEM_ROLE = "system_role"
    THINK = "think"
    """The wish for reasoning apart from the answer."""
    USER_AFTER_RESULT = "user_after_result"
    """A person's message directly after the results of calls."""
    CACHING = "caching"
    """Marks for the endpoint's cache."""


class Sealing(Protocol):
    """Keys of one request and its answer; the implementation is in `bot.attestation`."""

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers that let the model read the request and encrypt its answer."""
        ...

    def seal(self, text: str) -> str:
        """Encrypt one field of the request; an empty one stays empty."""
        ...

    def open(self, text: str) -> str:
        """Decrypt one field of the answer; ValueError if it is not encrypted to this request."""
        ...


@dataclass(frozen=True, slots=True)
class Asked:
    """A request, and how to make it.

    Attributes:
        omitted: parts that the endpoint refuses.
        sealing: encrypts the conversation; only for an API that `seals`.
    """

    request: ModelRequest
    omitted: frozenset[Parameter] = frozenset()
    attested: bool = False
    sealing: Sealing | None = None

    @property
    def messages(self) -> Sequence[Message]:
        """The conversation, perhaps without its oldest images and without the system role."""
        messages = latest_images(self.request.messages)
        is_refused = Parameter.SYSTEM_ROLE in self.omitted
        return without_system_role(messages) if is_refused else messages


@dataclass(frozen=True, slots=True)
class ListedModel:
    """A model that an endpoint lists, with its abilities; None if the endpoint does not say.

    Attributes:
        context_tokens: how much it reads.
        at_llama_cpp: its server is llama.cpp, which tells `context_tokens` at another address.
    """

    id: str
    sees_images: bool | None = None
    context_tokens: int | None = None
    at_llama_cpp: bool = False


class Api(ABC):
    """Base of the APIs that models speak.

    Attributes:
        name: marks the state of its answers.
        seals: whether it can send a conversation encrypted.
        marks_end: whether every answer says that it is complete, even a whole document.
    """

    name: str
    seals = False
    marks_end = False

    def __init__(self, llm: LlmSettings, base_url: str, accept: str, **headers: str) -> None:
        self.model = llm.model
        self.of = f"{self.name}:{llm.model}"
        self.base_url = base_url
        self._keyless = {
            "accept-encoding": "identity",
            "user-agent": f"signal-tee-bot/{__version__}",
            "accept": f"{accept}, application/json",
            "content-type": "application/json",
            **headers,
        }
        self.use_key(llm.key)

    def use_key(self, api_key: str | None) -> None:
        """Use another key, from the next request on."""
        self.headers = {**self._keyless, **(self.key_headers(api_key) if api_key else {})}

    def key_headers(self, api_key: str) -> Mapping[str, str]:
        """Return the headers that carry the key."""
        return {"authorization": f"Bearer {api_key}"}

    @abstractmethod
    def put(self, asked: Asked) -> Request:
        """Return the request for an answer."""

    @abstractmethod
    def read(self, answer: "Answer", event: Block) -> None:
        """Take an event of an answer, or a whole answer.

        Raises:
            LlmError: the endpoint reports an error, or the answer exceeds its bounds.
            ValueError, TypeError, KeyError, AttributeError, IndexError: the event is malformed.
        """

    @abstractmethod
    def listing(self) -> Question[Sequence[ListedModel]]:
        """Ask for the models of the endpoint."""

    def lookup(self) -> Question[ListedModel | None]:
        """Ask for facts about the endpoint's model; None if the model is unknown."""
        request, read = self.listing()

        def looked_up(body: Block) -> ListedModel | None:
            listed = read(body)
            if len(listed) == 1 and listed[0].at_llama_cpp:  # it serves one model under any name
                return listed[0]
            return next((one for one in listed if one.id == self.model), None)

        return request, looked_up

    def properties(self) -> Question[int | None]:
        """Ask llama.cpp's server how many tokens its model reads."""
        root = self.base_url.removesuffix("/v1")
        request = Request(f"{root}/props", self.headers)
        return request, lambda body: count(body["default_generation_settings"]["n_ctx"])

    def framing(self) -> Framing:
        """Return a new framing that cuts streamed answers into events."""
        return Lines()

    def reader(self, sealing: Sealing | None = None) -> "Answer":
        """Return a reader for an answer, streamed or whole."""
        return Answer(self, ByContent(self.framing()), sealing)

    def post(self, path: str, body: Mapping[str, object]) -> Request:
        """Return a request with a body of JSON."""
        return Request(f"{self.base_url}{path}", self.headers, dumped(body))

    def get(self, path: str) -> Request:
        """Return a request without a body."""
        return Request(f"{self.base_url}{path}", self.headers)


class Pieces(list[str]):
    """A text in pieces, as they came."""


class Answer:
    """Incomplete answer: takes bytes, and assembles the API's own blocks.

    Attributes:
        done: the endpoint said that nothing more will come.
        answered: a message has begun.
        events: how many events have come, without those that only keep the connection open.
        completion_id: the endpoint's name for this answer; empty until it is known.
        memo: notes of the API between two events.
        blocks: by their place in the answer.
    """

    def __init__(self, api: Api, framing: ByContent, sealing: Sealing | None = None) -> None:
        self._api = api
        self._framing = framing
        self.sealing = sealing
        self.done = self.answered = False
        self.events = 0
        self.completion_id = self.finish = self.model = ""
        self.usage: TokenSum | None = None
        self.memo: dict[Any, Any] = {}
        self.blocks: dict[object, Block] = {}
        self._words: Pieces | None = None
        self._room = MAX_ANSWER_CHARACTERS
        self._state_room = MAX_STATE_CHARACTERS

    @property
    def begun(self) -> bool:
        """Whether any byte has come."""
        return self._framing.size > 0

    def feed(self, data: bytes) -> None:
        """Take the next bytes, cut anywhere; LlmError if they make no sense."""
        for event in self._framing.feed(data):
            self._read(event)

    def _read(self, event: bytes | bytearray) -> None:
        if self.done:
            return
        if event.strip() == END_OF_STREAM:
            self.done = True
            return
        try:
            parsed = parsed_json(event)
            for one in parsed if isinstance(parsed, list) else [parsed]:
                self._api.read(self, one)
                self.events += one.get("type") != "ping"
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
            raise LlmBroken(UNREADABLE) from None  # the cause quotes the model's words

    def begin(self, block: Block, place: object = None) -> Block:
        """Add a block and return it; LlmBroken if there are too many."""
        if len(self.blocks) == MAX_ENTRIES:
            raise LlmBroken("The model's answer has more parts than this program reads.")
        self._words = None
        self.blocks[len(self.blocks) if place is None else place] = block
        return block

    def say(self, text: str) -> None:
        """Add words to the last block, or to a new one if the last block has no text."""
        if self._words is None:
            words = Pieces()
            self.begin({"text": words})
            self._words = words
        self._words.append(self._measured(text))

    def end(self, reason: object) -> None:
        """Take the API's finish reason, if there is one."""
        if reason is None:
            return
        # SGLang's reason may be an object.
        theirs = label(inside(reason, "type") or reason).lower()
        if theirs in BROKEN_CALLS:
            raise LlmBroken("The model wrote a tool call that its API could not read.")
        if theirs in FAILURES:
            raise LlmBroken("The endpoint reports a failure in the middle of its answer.")
        if theirs:
            self.finish = FINISH_REASONS.get(theirs, theirs)

    def add(self, block: Block, key: str, piece: str) -> None:
        """Add a piece to a text of a block."""
        _pieces(block, key).append(self._measured(piece))

    def keep(self, block: Block, key: str, piece: str) -> None:
        """Add a piece to a text kept only for the API; drop it if there is no room."""
        self._state_room -= len(piece)
        if self._state_room >= 0:
            _pieces(block, key).append(piece)

    def restart(self) -> None:
        """Forget all words and calls: the next event repeats them."""
        self.blocks.clear()
        self.memo.clear()
        self._words = None
        self._room = MAX_ANSWER_CHARACTERS

    def is_repeated_by(self, text: str) -> bool:
        """Whether a text begins with all words so far."""
        return text.startswith("".join(said(joined(block)) for block in self.blocks.values()))

    def _measured(self, piece: str) -> str:
        self._room -= len(piece)
        if self._room < 0:
            raise LlmBroken("The model's answer is longer than this program reads.")
        return piece

    def completion(self) -> Completion:
        """Return the answer after the last byte; LlmBroken if it is incomplete."""
        for event in self._framing.end():
            self._read(event)
        if not self.answered:
            raise LlmBroken("The endpoint's answer holds no message.")
        is_whole = self._framing.is_document and not self._api.marks_end
        if not (self.done or self.finish or is_whole):
            raise LlmBroken("The endpoint's answer broke off.")
        try:
            return self._completion()
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
            raise LlmBroken(UNREADABLE) from None

    def _completion(self) -> Completion:
        blocks = [_with_whole_arguments(joined(block)) for block in self.blocks.values()]
        text = "".join(map(said, blocks))
        calls = [call for block in blocks if (call := called(block)) is not None]
        if len(calls) > MAX_TOOL_CALLS:
            raise LlmBroken("The model asks for more tool calls than this program reads.")
        if any(len(call.arguments) > MAX_ARGUMENT_CHARACTERS for call in calls):
            raise LlmBroken("The arguments of a tool call are longer than this program reads.")
        message = Message(
            Role.ASSISTANT,
            text or None,
            _with_own_ids(calls),
            state=self._state(blocks) if calls else None,
        )
        return Completion(message, self.finish, self.usage, self.model)

    def _state(self, blocks: Sequence[Block]) -> ModelState | None:
        if self._state_room < 0 or not any(block.get("signed") for block in blocks):
            return None
        kept = [one for one in blocks if one.get("signed") or said(one) or called(one)]
        data = json.dumps(kept)
        return ModelState(self._api.of, data) if len(data) <= MAX_STATE_CHARACTERS else None


def said(block: Block) -> str:
    """Return the words of a block; empty if it holds something else."""
    return str(block.get("text") or "")


def called(block: Block) -> ToolCall | None:
    """Return the call of a block, with its own id or an empty one; None for other blocks."""
    name = label(block.get("name"))
    return ToolCall(label(block.get("id")), name, block.get("arguments", "")) if name else None


def _with_whole_arguments(block: Block) -> Block:
    if not block.get("name") or not block.get("arguments"):
        return block
    return {**block, "arguments": read_arguments(as_json(block["arguments"]))}


def _pieces(block: Block, key: str) -> Pieces:
    found = block.get(key)
    if not isinstance(found, Pieces):
        found = block[key] = Pieces([found] if isinstance(found, str) and found else ())
    return found


def parsed_json(data: bytes | bytearray) -> Any:
    """Return the value of JSON; ValueError or RecursionError if it is something else."""
    try:
        return from_json(data)
    except ValueError:
        return json.loads(data)  # accepts halves of surrogate pairs, and a byte order mark


def _is_whole(line: bytes | bytearray) -> bool:
    try:
        parsed_json(line)
    except (ValueError, RecursionError):
        return False
    return True


def joined(value: Any) -> Any:
    """Return a block whose texts are whole, with surrogate pairs that were split between pieces."""
    if isinstance(value, Pieces):
        text = "".join(_told_once(value))
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return {key: joined(one) for key, one in value.items()} if isinstance(value, dict) else value


def _told_once(pieces: Sequence[str]) -> Sequence[str]:
    """Return pieces without repetition.

    Some servers repeat the text so far in every piece, others repeat all of it in the last piece.
    """
    *before, last = [piece for piece in pieces if piece] or [""]
    if len(before) < MIN_REPEATED_PIECES or len(last) < MIN_REPEATED_CHARACTERS:
        return pieces
    grows = all(b != a and b.startswith(a) for a, b in pairwise([*before, last]))
    return [last] if grows or last == "".join(before) else pieces


def _with_own_ids(calls: Sequence[ToolCall]) -> tuple[ToolCall, ...]:
    taken: set[str] = set()
    result = []
    for call in calls:
        id_ = call.id if call.id and call.id not in taken else f"call_{secrets.token_hex(8)}"
        taken.add(id_)
        arguments = call.arguments.encode(errors="replace").decode()  # the store takes only UTF-8
        result.append(ToolCall(id_, plain_name(call.name), arguments))
    return tuple(result)


def safe_name(name: str) -> str:
    """Return a tool's name, which a model may have made up, in a form that APIs accept."""
    return _NOT_OF_A_NAME.sub("_", name)[:MAX_NAME_CHARACTERS]


def label(text: object) -> str:
    """Return a name, an id or a reason without markup that a model leaked into it.

    gpt-oss behind vLLM says `calculate<|channel|>commentary`.
    """
    whole = text.partition("<|")[0][:MAX_LABEL_CHARACTERS] if isinstance(text, str) else ""
    return whole.encode(errors="replace").decode()


def count(number: object) -> int | None:
    """Return a count of tokens; None if it makes no sense."""
    is_count = type(number) is int and 0 <= number <= MAX_TOKEN_COUNT
    return number if is_count else None  # type: ignore[return-value]


def inside(block: object, *keys: str) -> Any:
    """Follow keys into nested objects, and return the value there; None if one is missing."""
    for key in keys:
        block = block.get(key) if isinstance(block, dict) else None
    return block


def usage_of(prompt: Sequence[object], completion: Sequence[object]) -> TokenSum | None:
    """Return the sums of counts; None if the first count of either list is missing."""
    if count(prompt[0]) is None or count(completion[0]) is None:
        return None
    return TokenSum(
        sum(count(one) or 0 for one in prompt), sum(count(one) or 0 for one in completion)
    )


def few(entries: object) -> list[Any]:
    """Return a list of an answer, empty if it is missing; ValueError if it is too long."""
    if entries is None:
        return []
    if not isinstance(entries, list) or len(entries) > MAX_ENTRIES:
        raise ValueError("no list, or too long")
    return entries


def dumped(body: object) -> bytes:
    """Return a body as JSON; lone surrogates become question marks."""
    try:
        return to_json(body)  # takes a fifth of the time of json.dumps
    except PydanticSerializationError:
        return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")


def json_in(text: str) -> Any:
    """Return the value of a JSON text, or None if it is something else."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
