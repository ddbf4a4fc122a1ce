"""Conversations for APIs in which person and model take turns, and what they say are blocks.

Anthropic's Messages and Bedrock's Converse refuse the same: two messages of one role in a row, a
conversation that begins with the model, blank words, ids and names with other characters than
letters, digits, hyphens and underscores, and two calls with one id.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, Protocol

from bot.llm.assembly import arguments_object
from bot.llm.dialects.kept import Block, parts_of
from bot.llm.images import latest_images
from bot.llm.messages import ToolSpec
from conversation_store.models import Image, Message, Role, ToolCall

NOTHING_SAID: Final = "(no words)"
"""What a person says who says nothing, or who has not said anything yet."""
NO_LONGER_OFFERED: Final = "Not available any more."

_ID: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_NOT_OF_A_NAME: Final = re.compile(r"[^a-zA-Z0-9_-]")
MAX_NAME_CHARACTERS: Final = 64


class Blocks(Protocol):
    """Puts what is said into one API's words."""

    def text(self, text: str) -> Block:
        """Return words."""
        ...

    def image(self, image: Image) -> Block:
        """Return what is shown."""
        ...

    def call(self, id_: str, name: str, arguments: dict[str, object]) -> Block:
        """Return a call of a tool."""
        ...

    def result(self, id_: str, text: str, images: Sequence[Image]) -> Block:
        """Return the result of a call; the text may be empty."""
        ...


def system_text(messages: Iterable[Message]) -> str:
    """Return what the system messages say."""
    said = (message.content or "" for message in messages if message.role is Role.SYSTEM)
    return "\n\n".join(text for text in said if text.strip())


def turns(messages: Sequence[Message], blocks: Blocks, of: str) -> list[dict[str, Any]]:
    """Return the conversation without its system messages.

    Args:
        messages: the conversation; of its images the latest are shown, see `latest_images`.
        blocks: the API's words.
        of: the model, as the owner of what is kept of its answers.
    """
    speaking = _Speaking(blocks, of)
    found: list[dict[str, Any]] = []
    for message in latest_images(messages):
        if message.role is Role.SYSTEM:
            continue
        said = list(speaking.said(message))
        role = "assistant" if message.role is Role.ASSISTANT else "user"
        if found and found[-1]["role"] == role:
            found[-1]["content"] += said
        elif said:
            found.append({"role": role, "content": said})
    if not found or found[0]["role"] != "user":
        found.insert(0, {"role": "user", "content": [blocks.text(NOTHING_SAID)]})
    return found


def declared(tools: Sequence[ToolSpec], messages: Sequence[Message]) -> Sequence[ToolSpec]:
    """Return the tools to declare: those that are offered, else those that were called before.

    Conversations with calls in them are refused where no tool is declared.
    """
    if tools:
        return tools
    names = {safe_name(call.name): None for message in messages for call in message.tool_calls}
    return [ToolSpec(name, NO_LONGER_OFFERED, {"type": "object"}) for name in names]


def safe_name(name: str) -> str:
    """Return the name of a tool, which may be any text of a model's, as the APIs take it."""
    return _NOT_OF_A_NAME.sub("_", name)[:MAX_NAME_CHARACTERS]


class _Speaking:
    """Puts one message after the other into blocks."""

    def __init__(self, blocks: Blocks, of: str) -> None:
        self._blocks = blocks
        self._of = of
        self._ids: dict[str, str] = {}
        self._taken: set[str] = set()

    def said(self, message: Message) -> Iterator[Block]:
        text = message.content or ""
        if message.role is Role.TOOL:
            id_ = message.tool_call_id or ""
            yield self._blocks.result(self._ids.get(id_, id_), text, message.images)
        elif message.role is Role.ASSISTANT:
            yield from self._answered(message)
        else:
            if text.strip() or not message.images:
                yield self._blocks.text(text if text.strip() else NOTHING_SAID)
            yield from map(self._blocks.image, message.images)

    def _answered(self, message: Message) -> Iterator[Block]:
        calls = iter(message.tool_calls)
        for part in parts_of(message, self._of):
            if isinstance(part, dict):
                yield part
            elif part is None:
                yield self._call(next(calls))
            elif part.strip():
                yield self._blocks.text(part)

    def _call(self, call: ToolCall) -> Block:
        id_ = call.id if _ID.fullmatch(call.id) else _hashed(call.id)
        while id_ in self._taken:
            id_ = _hashed(id_)
        self._taken.add(id_)
        self._ids[call.id] = id_
        return self._blocks.call(id_, safe_name(call.name), arguments_object(call.arguments))


def _hashed(id_: str) -> str:
    return f"call_{hashlib.sha256(id_.encode(errors='replace')).hexdigest()[:24]}"
