"""From the lines of an answer of Ollama's to a `Completion`."""

from typing import Final

from bot.llm.assembly import Assembly, label
from bot.llm.dialects.ollama.wire import ChatLine
from bot.llm.errors import LlmBroken
from bot.llm.failures import error_inside_answer
from bot.llm.framing import Event, Lines, WholeDocument
from bot.llm.messages import Completion, Usage
from bot.llm.stream import AnswerStream

NOT_FROM_THE_MODEL: Final = frozenset({"load", "unload"})


def line_stream() -> AnswerStream:
    """Return what reads an answer that comes in lines."""
    return AnswerStream(Lines(), Chat())


def whole_document() -> AnswerStream:
    """Return what reads an answer that comes as one JSON document."""
    return AnswerStream(WholeDocument(), Chat())


class Chat:
    """An answer in the making. Implements `bot.llm.stream.Answer`."""

    completion_id = ""
    """The server has no names for its answers."""

    def __init__(self) -> None:
        self._assembly = Assembly()
        self.done = False

    def add(self, event: Event) -> None:
        """Take a line, or the whole document.

        Raises:
            LlmError: it is none, or an error, or the answer outgrows its bounds.
        """
        try:
            line = ChatLine.model_validate_json(event)
        except (ValueError, RecursionError):
            # A validation error is a ValueError too. `from None`: it quotes what the model wrote.
            raise LlmBroken("The endpoint's answer could not be understood.") from None
        if line.error:
            raise error_inside_answer(line.error)
        if line.message is not None:
            self._assembly.add_text(line.message.content or "")
            for call in line.message.tool_calls or ():
                self._assembly.begin_call().add(
                    id_=call.id, name=call.function.name, arguments=call.function.arguments
                )
        if line.model:
            self._assembly.model = label(line.model)
        if line.done:
            self._end(line)

    def completion(self) -> Completion:
        """Return the answer; LlmBroken when it broke off."""
        if not self.done:
            raise LlmBroken("The endpoint's answer broke off.")
        return self._assembly.completion()

    def _end(self, line: ChatLine) -> None:
        self.done = True
        if line.done_reason in NOT_FROM_THE_MODEL:
            raise LlmBroken("The endpoint loaded its model and did not ask it.")
        self._assembly.finish_reason = label(line.done_reason)
        if line.eval_count is not None:
            # A prompt that is in the server's cache from the first to the last token has no count.
            self._assembly.usage = Usage(line.prompt_eval_count or 0, line.eval_count)
