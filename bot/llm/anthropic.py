"""Anthropic's Messages API, which other servers speak too.

Reference: https://platform.claude.com/docs/en/api/messages
"""

# ruff: noqa: D102 - the docstrings are in bot.llm.api

from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import quote

from bot.config.llm import LlmSettings
from bot.llm import api
from bot.llm.arguments import as_json
from bot.llm.blocks import BlockApi, Turns, declared
from bot.llm.rearranged import base64_of, system_text
from bot.llm.refusals import error_inside_answer
from conversation_store.models import Image, Message
from tools.http import Request
from tools.schema import Declarations, to_anthropic

VERSION: Final = "2023-06-01"
MAX_LISTED: Final = 1000
"""The API's own limit."""
MAX_TOKENS: Final = 4096
"""Limit of an answer. The API demands a number, and its oldest models accept no larger one."""

_MARK: Final = {"cache_control": {"type": "ephemeral"}}
_COUNTS: Final = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


class Anthropic(BlockApi):
    """Speaks Anthropic's API; the endpoint's address may end with `/v1`."""

    name = "anthropic"

    def __init__(self, llm: LlmSettings) -> None:
        base_url = f"{llm.base_url.removesuffix('/v1')}/v1"
        super().__init__(llm, base_url, "text/event-stream", **{"anthropic-version": VERSION})
        self._declarations = Declarations(to_anthropic)

    def key_headers(self, api_key: str) -> Mapping[str, str]:
        return {"x-api-key": api_key}

    def put(self, asked: api.Asked) -> Request:
        request, messages = asked.request, asked.messages
        body: api.Block = {"model": self.model, "max_tokens": MAX_TOKENS}
        if tools := declared(request.tools, messages):
            body["tools"] = list(self._declarations.of(tools))
            if not (request.may_call and request.tools):
                body["tool_choice"] = {"type": "none"}
        if text := system_text(messages):
            body["system"] = [self.text(text)]
        body["messages"] = Turns(self).of(messages)
        body["stream"] = True
        if api.Parameter.CACHING not in asked.omitted:
            for blocks in (body.get("tools"), body.get("system"), body["messages"][-1]["content"]):
                if blocks:
                    blocks[-1] = {**blocks[-1], **_MARK}
        return self.post("/messages", body)

    def text(self, text: str) -> api.Block:
        return {"type": "text", "text": text}

    def image(self, image: Image) -> api.Block:
        source = {"type": "base64", "media_type": image.content_type, "data": base64_of(image)}
        return {"type": "image", "source": source}

    def call(self, id_: str, name: str, arguments: api.Block) -> api.Block:
        return {"type": "tool_use", "id": id_, "name": name, "input": arguments}

    def result(self, id_: str, name: str, message: Message) -> api.Block:
        del name
        text = message.content or ""
        if message.failed and not text.strip():
            text = api.NOTHING_SAID  # the API refuses an empty error
        said = [self.text(text)] if text.strip() else []
        content = [*said, *map(self.image, message.images)] if message.images else text
        returned = {"content": content} if message.images or said else {}
        failed = {"is_error": True} if message.failed else {}
        return {"type": "tool_result", "tool_use_id": id_, **returned, **failed}

    def read(self, answer: api.Answer, event: api.Block) -> None:
        match event["type"]:
            case "error":
                raise error_inside_answer(event.get("error"))
            case "message_start":
                message = event.get("message") or {}
                answer.answered = True
                answer.completion_id = answer.completion_id or api.label(message.get("id"))
                answer.model = api.label(message.get("model"))
                self._end(answer, message, message.get("usage"))
            case "message":  # whole, from a server that does not stream
                answer.answered = answer.done = True
                answer.completion_id = api.label(event.get("id"))
                answer.model = api.label(event.get("model"))
                for place, block in enumerate(api.few(event.get("content"))):
                    self._take(answer, place, block)
                self._end(answer, event, event.get("usage"))
            case "content_block_start":
                self._take(answer, event["index"], event["content_block"])
            case "content_block_delta":
                self._continue(answer, event["index"], event["delta"])
            case "message_delta":
                self._end(answer, event.get("delta") or {}, event.get("usage"))
            case "message_stop":
                answer.done = True

    def _take(self, answer: api.Answer, place: object, said: api.Block) -> None:
        match said["type"]:
            case "text":
                answer.begin({}, place)
            case "tool_use":
                whole = as_json(said["input"]) if said.get("input") else ""
                begun = {"id": said.get("id"), "name": said.get("name"), "arguments": whole}
                answer.begin(begun, place)
            case "thinking" | "redacted_thinking" as kind:
                answer.begin({"own": {"type": kind}}, place)
        self._continue(answer, place, said)

    def _continue(self, answer: api.Answer, place: object, delta: api.Block) -> None:
        block = answer.blocks.get(place)
        if block is None:
            return
        if "own" in block:
            for key in ("thinking", "signature", "data"):
                if piece := delta.get(key):
                    answer.keep(block["own"], key, piece)
                    block["signed"] = block.get("signed") or key != "thinking"
            return
        if text := delta.get("text"):
            answer.add(block, "text", text)
        if piece := delta.get("partial_json"):
            if not isinstance(block.get("arguments"), api.Pieces):
                block["arguments"] = ""  # the streamed pieces replace this value
            answer.add(block, "arguments", piece)

    def _end(self, answer: api.Answer, end: api.Block, counts: object) -> None:
        answer.end(end.get("stop_reason"))
        if isinstance(counts, dict):  # later events update the counts of earlier ones
            answer.memo |= {key: one for key, one in counts.items() if one is not None}
            prompt = [answer.memo.get(key) for key in _COUNTS]
            answer.usage = api.usage_of(prompt, [answer.memo.get("output_tokens")])

    def listing(self) -> api.Question[Sequence[api.ListedModel]]:
        request = self.get(f"/models?limit={MAX_LISTED}")
        return request, lambda body: [_listed(entry) for entry in body["data"]]

    def lookup(self) -> api.Question[api.ListedModel | None]:
        return self.get(f"/models/{quote(self.model, safe='')}"), _listed


def _listed(entry: api.Block) -> api.ListedModel:
    support = api.inside(entry, "capabilities", "image_input", "supported")
    return api.ListedModel(str(entry["id"]), support if isinstance(support, bool) else None)
