"""From the bytes of an answer to a `Completion`: server-sent events, then their assembly.

Server-sent events: https://html.spec.whatwg.org/multipage/server-sent-events.html
"""

import json
import secrets
from dataclasses import dataclass, field
from typing import Final, Protocol

from bot.llm.attested import Sealing
from bot.llm.errors import LlmBroken, LlmNotAttested
from bot.llm.failures import error_inside_answer
from bot.llm.messages import Completion, Usage
from bot.llm.sealed_fields import open_answer
from bot.llm.wire import CallPiece, Choice, CompletionEvent, ModelMessage
from conversation_store.models import Message, Role, ToolCall

MAX_LINE_BYTES: Final = 1024 * 1024
MAX_BODY_BYTES: Final = 32 * 1024 * 1024
MAX_WHOLE_BODY_BYTES: Final = 4 * 1024 * 1024
MAX_TEXT_CHARACTERS: Final = 256 * 1024
MAX_TOOL_CALLS: Final = 32
MAX_ARGUMENT_CHARACTERS: Final = 64 * 1024
MAX_LABEL_CHARACTERS: Final = 128
"""Of names, ids and finish reasons."""

END_OF_STREAM: Final = b"[DONE]"

NOT_ENCRYPTED: Final = (
    "I have not used the model's answer, because it was not encrypted to me as it must be."
)


class AnswerReader(Protocol):
    """Takes the bytes of one answer as they come: `EventStream` or `WholeBody`."""

    @property
    def begun(self) -> bool:
        """Whether any byte has come."""
        ...

    @property
    def done(self) -> bool:
        """Whether the endpoint said that nothing more will come."""
        ...

    @property
    def completion_id(self) -> str:
        """What the endpoint calls this answer; empty when it has not said."""
        ...

    def feed(self, data: bytes) -> None:
        """Take the next bytes; LlmError when they cannot be part of a good answer."""
        ...

    def completion(self) -> Completion:
        """Return the answer now that the bytes have ended; LlmBroken when it is not whole."""
        ...


class EventStream:
    """Reads an answer that comes as server-sent events.

    Args:
        sealing: keys of an encrypted answer.
    """

    def __init__(self, sealing: Sealing | None = None) -> None:
        self._sealing = sealing
        self._rest = bytearray()
        self._data: list[bytes | bytearray] = []
        self._bytes = 0
        self._assembly = Assembly()
        self.done = False

    @property
    def begun(self) -> bool:
        """Whether any byte has come."""
        return self._bytes > 0

    @property
    def completion_id(self) -> str:
        """What the endpoint calls this answer; empty when it has not said."""
        return self._assembly.completion_id

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the stream, cut anywhere."""
        self._bytes += len(data)
        self._rest += data
        lines: list[bytearray] = []
        if b"\n" in data:
            *lines, self._rest = self._rest.split(b"\n")
        if self._bytes > MAX_BODY_BYTES or len(self._rest) > MAX_LINE_BYTES:
            raise LlmBroken("The endpoint's answer is longer than this program reads.")
        for line in lines:
            self._take_line(line.removesuffix(b"\r"))

    def completion(self) -> Completion:
        """Return the answer; LlmBroken when the stream ended before the answer did."""
        self._take_line(self._rest)
        self._take_line(b"")
        if not (self.done or self._assembly.finished):
            raise LlmBroken("The endpoint's answer broke off.")
        return self._assembly.completion()

    def _take_line(self, line: bytes | bytearray) -> None:
        if line.startswith(b"data:"):
            self._data.append(line[5:].removeprefix(b" "))
        elif not line and self._data:
            event = b"\n".join(self._data)
            self._data.clear()
            self._take_event(event)

    def _take_event(self, event: bytes) -> None:
        if self.done:
            return
        if event.strip() == END_OF_STREAM:
            self.done = True
        else:
            self._assembly.add(parse_answer(event, self._sealing))


class WholeBody:
    """Reads an answer that comes as one JSON document.

    Args:
        sealing: keys of an encrypted answer.
    """

    done = False

    def __init__(self, sealing: Sealing | None = None) -> None:
        self._sealing = sealing
        self._pieces = bytearray()
        self._assembly = Assembly()

    @property
    def begun(self) -> bool:
        """Whether any byte has come."""
        return bool(self._pieces)

    @property
    def completion_id(self) -> str:
        """What the endpoint calls this answer; empty before `completion`."""
        return self._assembly.completion_id

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the document."""
        self._pieces += data
        if len(self._pieces) > MAX_WHOLE_BODY_BYTES:
            raise LlmBroken("The endpoint's answer is longer than this program reads.")

    def completion(self) -> Completion:
        """Return the answer; LlmBroken when it is no completion."""
        self._assembly.add(parse_answer(bytes(self._pieces), self._sealing))
        return self._assembly.completion()


def parse_answer(data: bytes, sealing: Sealing | None = None) -> CompletionEvent:
    """Return a completion or an event of a stream.

    Raises:
        LlmBroken: it is neither.
        LlmNotAttested: something in it should be encrypted and is not, or not to this request.
    """
    try:
        if sealing is None:
            return CompletionEvent.model_validate_json(data)
        return CompletionEvent.model_validate(_opened(data, sealing))
    except (ValueError, RecursionError):
        # A validation error is a ValueError too. `from None`: it quotes what the model wrote.
        raise LlmBroken("The endpoint's answer could not be understood.") from None


def _opened(data: bytes, sealing: Sealing) -> object:
    answer = json.loads(data)
    try:
        open_answer(answer, sealing.open)
    except ValueError:
        # `from None`: what cannot be decoded may be what the model wrote.
        raise LlmNotAttested(NOT_ENCRYPTED) from None
    return answer


@dataclass(slots=True)
class _Call:
    """A tool call in the making."""

    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)
    size: int = 0

    def add(self, piece: CallPiece) -> None:
        self.id = self.id or _label(piece.id)
        self.name = self.name or _label(piece.function.name)
        arguments = piece.function.arguments or ""
        self.arguments.append(arguments)
        self.size += len(arguments)
        if self.size > MAX_ARGUMENT_CHARACTERS:
            raise LlmBroken("The arguments of a tool call are longer than this program reads.")


class Assembly:
    """Puts the pieces of one answer together."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._text_size = 0
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}
        self._answered = False
        self._finish_reason = ""
        self._usage: Usage | None = None
        self._model = ""
        self.completion_id = ""

    @property
    def finished(self) -> bool:
        """Whether the endpoint said why the answer ended."""
        return bool(self._finish_reason)

    def add(self, answer: CompletionEvent) -> None:
        """Take a piece, or the whole.

        Raises:
            LlmError: the piece is an error, or the answer outgrows its bounds.
        """
        if answer.failure is not None:
            raise error_inside_answer(answer.failure)
        self.completion_id = self.completion_id or _name(answer.id)
        if answer.model:
            self._model = _label(answer.model)
        if answer.usage is not None:
            self._usage = Usage(answer.usage.prompt_tokens, answer.usage.completion_tokens)
        if answer.choices:
            self._add_choice(answer.choices[0])

    def completion(self) -> Completion:
        """Return what was put together; LlmBroken when the endpoint answered nothing at all."""
        if not self._answered:
            raise LlmBroken("The endpoint's answer holds no choice.")
        text = "".join(self._text)
        message = Message(Role.ASSISTANT, text or None, _named_apart(self._calls))
        return Completion(message, self._finish_reason, self._usage, self._model)

    def _add_choice(self, choice: Choice) -> None:
        self._answered = True
        if choice.finish_reason:
            self._finish_reason = _label(choice.finish_reason)
        if choice.message is not None:
            self._add_words(choice.message, whole=True)
        elif choice.delta is not None:
            self._add_words(choice.delta, whole=False)

    def _add_words(self, words: ModelMessage, *, whole: bool) -> None:
        if words.content:
            self._text.append(words.content)
            self._text_size += len(words.content)
            if self._text_size > MAX_TEXT_CHARACTERS:
                raise LlmBroken("The model's answer is longer than this program reads.")
        for piece in words.tool_calls or ():
            call = None if whole else self._begun(piece)
            (call or self._begin(piece)).add(piece)

    def _begun(self, piece: CallPiece) -> _Call | None:
        """Return the call that a piece goes on with, None where it begins one.

        Only a piece with a name begins a call at a known place: some servers number every call 0
        (Ollama), some number none, some repeat the name in every piece, some change the id.
        """
        if piece.index is not None:
            call = self._by_index.get(piece.index)
        else:
            call = self._calls[-1] if self._calls else None
        if call is None or not (call.name and piece.function.name):
            return call
        return call if piece.id and _label(piece.id) == call.id else None

    def _begin(self, piece: CallPiece) -> _Call:
        if len(self._calls) == MAX_TOOL_CALLS:
            raise LlmBroken("The model asks for more tool calls than this program reads.")
        call = _Call()
        self._calls.append(call)
        if piece.index is not None:
            self._by_index[piece.index] = call
        return call


def _named_apart(calls: list[_Call]) -> tuple[ToolCall, ...]:
    """Give every call an id of its own, and drop calls without a name."""
    taken: set[str] = set()
    result = []
    for call in calls:
        if not call.name:
            continue
        id_ = call.id if call.id and call.id not in taken else f"call_{secrets.token_hex(8)}"
        taken.add(id_)
        result.append(ToolCall(id_, call.name, "".join(call.arguments)))
    return tuple(result)


def _name(id_: object) -> str:
    """A name is asked for later, so it is taken whole or not at all."""
    if not isinstance(id_, str) or len(id_) > MAX_LABEL_CHARACTERS:
        return ""
    return id_ if id_.isascii() and id_.isprintable() else ""


def _label(text: str | None) -> str:
    # gpt-oss behind vLLM lets its own markup slip into names: `calculate<|channel|>commentary`.
    return (text or "").partition("<|")[0][:MAX_LABEL_CHARACTERS]
