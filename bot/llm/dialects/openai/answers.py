"""From the events of a chat completion to a `Completion`."""

import json
from typing import Final

from bot.llm.assembly import MAX_LABEL_CHARACTERS, Assembly, CallInTheMaking, label
from bot.llm.attested import Sealing
from bot.llm.dialects.openai.sealed_fields import open_answer
from bot.llm.dialects.openai.wire import CallPiece, Choice, CompletionEvent, ModelMessage
from bot.llm.errors import LlmBroken, LlmNotAttested
from bot.llm.failures import error_inside_answer
from bot.llm.framing import Event, ServerSentEvents, WholeDocument
from bot.llm.messages import Completion, Usage
from bot.llm.stream import AnswerStream

END_OF_STREAM: Final = b"[DONE]"

NOT_ENCRYPTED: Final = (
    "I have not used the model's answer, because it was not encrypted to me as it must be."
)


def event_stream(sealing: Sealing | None = None) -> AnswerStream:
    """Return what reads an answer that comes as server-sent events."""
    return AnswerStream(ServerSentEvents(), ChatCompletion(sealing, is_stream=True))


def whole_document(sealing: Sealing | None = None) -> AnswerStream:
    """Return what reads an answer that comes as one JSON document."""
    return AnswerStream(WholeDocument(), ChatCompletion(sealing, is_stream=False))


class ChatCompletion:
    """A chat completion in the making. Implements `bot.llm.stream.Answer`.

    Args:
        sealing: keys of an encrypted answer.
        is_stream: it comes in events and says when it ends; else it is one document.
    """

    def __init__(self, sealing: Sealing | None = None, *, is_stream: bool) -> None:
        self._sealing = sealing
        self._is_stream = is_stream
        self._assembly = Assembly()
        self._by_index: dict[int, CallInTheMaking] = {}
        self._answered = False
        self.done = False
        self.completion_id = ""

    def add(self, event: Event) -> None:
        """Take an event, or the whole document.

        Raises:
            LlmError: it is none, or an error, or the answer outgrows its bounds.
        """
        if self._is_stream and event.strip() == END_OF_STREAM:
            self.done = True
        else:
            self._take(parse_answer(event, self._sealing))

    def completion(self) -> Completion:
        """Return the answer; LlmBroken when it broke off, or when nothing at all was answered."""
        if self._is_stream and not (self.done or self._assembly.finish_reason):
            raise LlmBroken("The endpoint's answer broke off.")
        if not self._answered:
            raise LlmBroken("The endpoint's answer holds no choice.")
        return self._assembly.completion()

    def _take(self, answer: CompletionEvent) -> None:
        if answer.failure is not None:
            raise error_inside_answer(answer.failure)
        self.completion_id = self.completion_id or _name(answer.id)
        if answer.model:
            self._assembly.model = label(answer.model)
        if answer.usage is not None:
            usage = Usage(answer.usage.prompt_tokens, answer.usage.completion_tokens)
            self._assembly.usage = usage
        if answer.choices:
            self._take_choice(answer.choices[0])

    def _take_choice(self, choice: Choice) -> None:
        self._answered = True
        if choice.finish_reason:
            self._assembly.finish_reason = label(choice.finish_reason)
        if choice.message is not None:
            self._take_message(choice.message, whole=True)
        elif choice.delta is not None:
            self._take_message(choice.delta, whole=False)

    def _take_message(self, message: ModelMessage, *, whole: bool) -> None:
        if message.content:
            self._assembly.add_text(message.content)
        for piece in message.tool_calls or ():
            call = None if whole else self._begun(piece)
            (call or self._begin(piece)).add(
                id_=piece.id, name=piece.function.name, arguments=piece.function.arguments or ""
            )

    def _begun(self, piece: CallPiece) -> CallInTheMaking | None:
        """Return the call that a piece goes on with, None where it begins one.

        Only a piece with a name begins a call at a known place: some servers number every call 0
        (Ollama), some number none, some repeat the name in every piece, some change the id.
        """
        if piece.index is not None:
            call = self._by_index.get(piece.index)
        else:
            call = self._assembly.last_call
        if call is None or not (call.name and piece.function.name):
            return call
        return call if piece.id and label(piece.id) == call.id else None

    def _begin(self, piece: CallPiece) -> CallInTheMaking:
        call = self._assembly.begin_call()
        if piece.index is not None:
            self._by_index[piece.index] = call
        return call


def parse_answer(data: Event, sealing: Sealing | None = None) -> CompletionEvent:
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


def _opened(data: Event, sealing: Sealing) -> object:
    answer = json.loads(data)
    try:
        open_answer(answer, sealing.open)
    except ValueError:
        # `from None`: what cannot be decoded may be what the model wrote.
        raise LlmNotAttested(NOT_ENCRYPTED) from None
    return answer


def _name(id_: object) -> str:
    """A name is asked for later, so it is taken whole or not at all."""
    if not isinstance(id_, str) or len(id_) > MAX_LABEL_CHARACTERS:
        return ""
    return id_ if id_.isascii() and id_.isprintable() else ""
