"""From the bytes of an answer to a `Completion`: events, then their assembly."""

from collections.abc import Sequence
from typing import Protocol

from bot.llm.framing import Event, Framing
from bot.llm.messages import Completion


class Answer(Protocol):
    """An answer in the making, in the words of one dialect."""

    @property
    def done(self) -> bool:
        """Whether the endpoint said that nothing more will come."""
        ...

    @property
    def completion_id(self) -> str:
        """What the endpoint calls this answer; empty when it has not said."""
        ...

    def add(self, event: Event) -> None:
        """Take an event.

        Raises:
            LlmError: it is none, or an error, or the answer outgrows its bounds.
        """
        ...

    def completion(self) -> Completion:
        """Return the answer; LlmBroken when it is not whole."""
        ...


class AnswerStream:
    """Reads an answer as its bytes come. Implements `bot.llm.dialect.AnswerReader`.

    Args:
        framing: tells its events apart.
        answer: is made of them.
    """

    def __init__(self, framing: Framing, answer: Answer) -> None:
        self._framing = framing
        self._answer = answer

    @property
    def begun(self) -> bool:
        """Whether any byte has come."""
        return self._framing.size > 0

    @property
    def done(self) -> bool:
        """Whether the endpoint said that nothing more will come."""
        return self._answer.done

    @property
    def completion_id(self) -> str:
        """What the endpoint calls this answer; empty when it has not said."""
        return self._answer.completion_id

    def feed(self, data: bytes) -> None:
        """Take the next bytes, cut anywhere; LlmError when they are no part of a good answer."""
        self._take(self._framing.feed(data))

    def completion(self) -> Completion:
        """Return the answer now that the bytes have ended; LlmBroken when it is not whole."""
        self._take(self._framing.end())
        return self._answer.completion()

    def _take(self, events: Sequence[Event]) -> None:
        for event in events:
            if not self._answer.done:
                self._answer.add(event)
