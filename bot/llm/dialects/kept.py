"""Signed reasoning that an API wants back with the calls of an answer, and where it stood.

The parts of the answer are kept in their order: words as text, a call as null, reasoning as the
API's own block. Both APIs refuse reasoning that comes back changed or in another place.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Final

from pydantic import TypeAdapter

from bot.llm.errors import LlmBroken
from conversation_store.models import Message, ModelState

MAX_STATE_CHARACTERS: Final = 256 * 1024
MAX_THOUGHTS: Final = 128
"""In one answer; a model that thinks between its calls has a block for each."""

Block = dict[str, Any]
Part = Block | str | None

_PARTS: Final[TypeAdapter[list[Part]]] = TypeAdapter(list[Part])


@dataclass(slots=True)
class Thought:
    """A block of reasoning of which pieces have come; `sealed` is what only the API can read."""

    text: list[str] = field(default_factory=list)
    signature: list[str] = field(default_factory=list)
    sealed: list[str] = field(default_factory=list)


class KeptParts:
    """The parts of an answer in the making."""

    def __init__(self) -> None:
        self._parts: list[Thought | str | None] = []
        self._room = MAX_STATE_CHARACTERS
        self._thoughts = 0

    def begin_thought(self) -> Thought:
        """Begin another block of reasoning; LlmBroken when they are too many."""
        self._thoughts += 1
        if self._thoughts > MAX_THOUGHTS:
            raise LlmBroken("The model reasons in more pieces than this program reads.")
        thought = Thought()
        self._parts.append(thought)
        return thought

    def add(self, pieces: list[str], piece: str | None) -> None:
        """Add to a list of a block of reasoning, as long as there is room."""
        self._room -= len(piece or "")
        if piece and self._room >= 0:
            pieces.append(piece)

    def note_text(self, piece: str) -> None:
        """Words come here."""
        self._room -= len(piece)
        if self._room >= 0:
            self._parts.append(piece)

    def note_call(self) -> None:
        """A call comes here."""
        self._parts.append(None)

    def state(self, of: str, block: Callable[[Thought], Block | None]) -> ModelState | None:
        """Return what is to be kept; None if there is no reasoning to give back, or too much.

        Args:
            of: whose it is.
            block: puts reasoning into the API's words; None if the API would not take it back.
        """
        if self._room < 0:
            return None
        if not self._thoughts:
            return None
        parts: list[Part] = []
        for is_text, run in groupby(self._parts, key=lambda part: isinstance(part, str)):
            if is_text:
                parts.append("".join(part for part in run if isinstance(part, str)))
                continue
            for part in run:
                said = block(part) if isinstance(part, Thought) else None
                if said is not None or part is None:
                    parts.append(said)
        data = json.dumps(parts)
        if len(data) > MAX_STATE_CHARACTERS or not any(isinstance(one, dict) for one in parts):
            return None
        return ModelState(of, data)


def parts_of(message: Message, of: str) -> Sequence[Part]:
    """Return the parts of what a model said, with its reasoning if that is kept for this one."""
    plain: list[Part] = [message.content or "", *[None] * len(message.tool_calls)]
    state = message.state
    if state is None or state.of != of or len(state.data) > MAX_STATE_CHARACTERS:
        return plain
    try:
        parts = _PARTS.validate_json(state.data)
    except ValueError:
        return plain
    if _words_and_calls(parts) == _words_and_calls(plain):
        return parts
    return [*(part for part in parts if isinstance(part, dict)), *plain]


def _words_and_calls(parts: Sequence[Part]) -> tuple[str, int]:
    return "".join(part for part in parts if isinstance(part, str)), sum(p is None for p in parts)
