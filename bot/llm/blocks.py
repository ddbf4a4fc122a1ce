"""APIs in which person and model take turns, and messages consist of blocks.

Anthropic, Bedrock and Gemini work this way, each with its own blocks.
"""

import hashlib
import re
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from pydantic_core import from_json

from bot.llm.api import (
    MAX_STATE_CHARACTERS,
    NOTHING_SAID,
    Api,
    Block,
    called,
    safe_name,
    said,
)
from bot.llm.rearranged import arguments_object
from conversation_store.models import Image, Message, Role, ToolCall
from tools.base import ToolSpec

NO_LONGER_OFFERED: Final = "Not available any more."
"""Describes tools of earlier calls."""

_ID: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")


class BlockApi(Api):
    """An API in which person and model take turns, and messages consist of blocks.

    Attributes:
        model_role: the API's name for the model's role.
        content: the member of a message that holds its blocks.
        foreign: members added to the first call of a message without valid state of this model.
    """

    model_role = "assistant"
    content = "content"
    foreign: Mapping[str, str] = MappingProxyType({})

    @abstractmethod
    def text(self, text: str) -> Block:
        """Return words."""

    @abstractmethod
    def image(self, image: Image) -> Block:
        """Return an image."""

    @abstractmethod
    def call(self, id_: str, name: str, arguments: Block) -> Block:
        """Return a call."""

    @abstractmethod
    def result(self, id_: str, name: str, message: Message) -> Block:
        """Return the result of a call."""


class Turns:
    """Builds one conversation in which person and model take turns, the person first.

    Anthropic and Bedrock refuse two messages of one role in a row, blank words, two calls with one
    id, and characters other than letters, digits, hyphens and underscores in ids and names. Some
    models use the same ids in every answer.
    """

    def __init__(self, api: BlockApi) -> None:
        self._api = api
        self._ids: dict[str, str] = {}
        self._names: dict[str, str] = {}
        self._taken: set[str] = set()

    def of(self, messages: Sequence[Message]) -> list[Block]:
        """Return the messages in the API's form."""
        api, found = self._api, list[Block]()
        for message in messages:
            if message.role is Role.SYSTEM:
                continue
            role = api.model_role if message.role is Role.ASSISTANT else "user"
            blocks = list(self._blocks(message))
            if found and found[-1]["role"] == role:
                found[-1][api.content] += blocks
            elif blocks:
                found.append({"role": role, api.content: blocks})
        if not found or found[0]["role"] != "user":
            found.insert(0, {"role": "user", api.content: [api.text(NOTHING_SAID)]})
        return found

    def _blocks(self, message: Message) -> Iterator[Block]:
        api, words = self._api, message.content or ""
        if message.role is Role.ASSISTANT:
            yield from self._answered(message)
        elif message.role is Role.TOOL:
            id_ = message.tool_call_id or ""
            yield api.result(self._ids.get(id_, id_), self._names.get(id_, "unknown"), message)
        else:
            if words.strip() or not message.images:
                yield api.text(words if words.strip() else NOTHING_SAID)
            yield from map(api.image, message.images)

    def _answered(self, message: Message) -> Iterator[Block]:
        api, words, calls = self._api, message.content or "", iter(message.tool_calls)
        kept = _kept(message, api)
        number = sum(called(block) is not None for block in kept)
        if "".join(map(said, kept)) != words or number != len(message.tool_calls):
            # Cleaning has changed the words or the calls, so only the reasoning is still valid.
            yield from (block["own"] for block in kept if "own" in block)
            kept = []
            if words.strip():
                yield api.text(words)
        for block in kept:
            signature = {key: block[key] for key in ("thoughtSignature",) if key in block}
            if text := said(block):
                yield from [{**api.text(text), **signature}] if text.strip() else []
            elif called(block) is not None:
                yield {**self._call(next(calls)), **signature}
            elif "own" in block:
                yield block["own"]
        for number, call in enumerate(calls):
            yield {**self._call(call), **({} if number else api.foreign)}

    def _call(self, call: ToolCall) -> Block:
        id_ = call.id if _ID.fullmatch(call.id) else _hashed(call.id)
        while id_ in self._taken:
            id_ = _hashed(id_)
        self._taken.add(id_)
        self._ids[call.id], self._names[call.id] = id_, safe_name(call.name)
        return self._api.call(id_, safe_name(call.name), arguments_object(call.arguments))


def _kept(message: Message, api: BlockApi) -> list[Block]:
    """Return the kept blocks of an answer by this same model; none if they are invalid."""
    state = message.state
    if state is None or state.of != api.of or len(state.data) > MAX_STATE_CHARACTERS:
        return []
    try:
        blocks: list[Block] = list(from_json(state.data))
        for read in (said, called):
            list(map(read, blocks))
    except (ValueError, TypeError, LookupError, AttributeError):
        return []
    return blocks


def declared(tools: Sequence[ToolSpec], messages: Sequence[Message]) -> Sequence[ToolSpec]:
    """Return the tools to declare: the offered ones or, without any, those of earlier calls.

    The APIs refuse conversations with calls unless a tool is declared.
    """
    if tools:
        return tools
    names = {safe_name(call.name): None for message in messages for call in message.tool_calls}
    return [ToolSpec(name, NO_LONGER_OFFERED, {"type": "object"}) for name in names]


def _hashed(id_: str) -> str:
    return f"call_{hashlib.sha256(id_.encode(errors='replace')).hexdigest()[:24]}"
