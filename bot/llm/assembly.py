"""Puts the pieces of an answer together, within bounds, whatever the dialect calls them."""

import json
import secrets
from dataclasses import dataclass, field
from typing import Final

from bot.llm.errors import LlmBroken
from bot.llm.messages import Completion, Usage
from conversation_store.models import Message, ModelState, Role, ToolCall

MAX_TEXT_CHARACTERS: Final = 256 * 1024
MAX_TOOL_CALLS: Final = 32
MAX_ARGUMENT_CHARACTERS: Final = 64 * 1024
MAX_LABEL_CHARACTERS: Final = 128
"""Of names, ids and finish reasons."""


@dataclass(slots=True)
class CallInTheMaking:
    """A tool call of which pieces have come."""

    id: str = ""
    name: str = ""
    _arguments: list[str] = field(default_factory=list)
    _size: int = 0

    def add(self, *, id_: str | None = None, name: str | None = None, arguments: str = "") -> None:
        """Take a piece; the first id and the first name count."""
        self.id = self.id or label(id_)
        self.name = self.name or label(name)
        self._arguments.append(arguments)
        self._size += len(arguments)
        if self._size > MAX_ARGUMENT_CHARACTERS:
            raise LlmBroken("The arguments of a tool call are longer than this program reads.")

    @property
    def arguments(self) -> str:
        """The arguments so far."""
        return "".join(self._arguments)


class Assembly:
    """An answer in the making.

    Attributes:
        finish_reason: why it ended, as the endpoint said it; empty so far.
        usage: what the endpoint counted; None so far.
        model: what the endpoint says answers.
    """

    def __init__(self) -> None:
        self._text: list[str] = []
        self._text_size = 0
        self._calls: list[CallInTheMaking] = []
        self.finish_reason = ""
        self.usage: Usage | None = None
        self.model = ""

    @property
    def last_call(self) -> CallInTheMaking | None:
        """The call that was begun last."""
        return self._calls[-1] if self._calls else None

    def add_text(self, text: str) -> None:
        """Take words; LlmBroken when they are too many."""
        self._text.append(text)
        self._text_size += len(text)
        if self._text_size > MAX_TEXT_CHARACTERS:
            raise LlmBroken("The model's answer is longer than this program reads.")

    def begin_call(self) -> CallInTheMaking:
        """Begin another call; LlmBroken when they are too many."""
        if len(self._calls) == MAX_TOOL_CALLS:
            raise LlmBroken("The model asks for more tool calls than this program reads.")
        call = CallInTheMaking()
        self._calls.append(call)
        return call

    def completion(self, state: ModelState | None = None) -> Completion:
        """Return the answer.

        Args:
            state: what the endpoint wants back with it.
        """
        text = "".join(self._text)
        calls = _named_apart(self._calls)
        message = Message(Role.ASSISTANT, text or None, calls, state=state if calls else None)
        return Completion(message, self.finish_reason, self.usage, self.model)


def _named_apart(calls: list[CallInTheMaking]) -> tuple[ToolCall, ...]:
    """Give every call an id of its own, and drop calls without a name."""
    taken: set[str] = set()
    result = []
    for call in calls:
        if not call.name:
            continue
        id_ = call.id if call.id and call.id not in taken else f"call_{secrets.token_hex(8)}"
        taken.add(id_)
        result.append(ToolCall(id_, call.name, call.arguments))
    return tuple(result)


def label(text: str | None) -> str:
    """Return a name, an id or a reason without the markup that a model lets slip into it.

    gpt-oss behind vLLM says `calculate<|channel|>commentary`.
    """
    return (text or "").partition("<|")[0][:MAX_LABEL_CHARACTERS]


def arguments_object(arguments: str) -> dict[str, object]:
    """Return the arguments of an earlier call as an object, as endpoints want them.

    What is no JSON object becomes one, so that the model sees what it once sent.
    """
    try:
        value = json.loads(arguments or "{}")
        json.dumps(value, allow_nan=False)  # Python reads and writes numbers that JSON lacks
    except (ValueError, RecursionError):
        value = None
    return value if isinstance(value, dict) else {"not_json": arguments}
