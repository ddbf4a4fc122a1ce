"""Amazon Bedrock's Converse API, with one of its own keys or with an AWS account's signature.

References:
https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ConverseStream.html
https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html
https://smithy.io/2.0/aws/amazon-eventstream.html
"""

# ruff: noqa: D102 - the docstrings are in bot.llm.api

import hashlib
import hmac
import json
import re
import struct
import zlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote, urlsplit

from bot.config.llm import LlmSettings
from bot.llm import api
from bot.llm.api import MAX_LINE_BYTES, MAX_STREAM_BYTES, TOO_LONG, Event, Framing
from bot.llm.arguments import as_json
from bot.llm.blocks import BlockApi, Turns, declared
from bot.llm.errors import LlmBroken
from bot.llm.rearranged import base64_of, system_text
from bot.llm.refusals import error_inside_answer
from conversation_store.models import Image, Message
from tools.base import ToolSpec
from tools.http import Request
from tools.schema import Declarations, to_anthropic

PROBE: Final = {
    "messages": [{"role": "user", "content": [{"text": "Hi"}]}],
    "inferenceConfig": {"maxTokens": 1},
}
"""Question for a single token.

An answer shows that address, key and model are right. Listing models would not: another service
does that, with separate permissions.
"""
MAX_MESSAGE_BYTES: Final = MAX_LINE_BYTES
DAMAGED: Final = "The endpoint's answer is damaged."

_CACHE_POINT: Final = {"cachePoint": {"type": "default"}}
_TOP_OF_SCHEMA: Final = ("type", "properties", "required")
_PROMPT_COUNTS: Final = ("inputTokens", "cacheReadInputTokens", "cacheWriteInputTokens")


class Bedrock(BlockApi):
    """Speaks with Bedrock, with one of its own keys or with an AWS account's credentials."""

    name = "bedrock"

    def __init__(self, llm: LlmSettings) -> None:
        self._llm = llm
        self._declarations = Declarations(declaration)
        base_url = f"{llm.base_url}/model/{quote(llm.model, safe='')}"
        super().__init__(llm, base_url, "application/vnd.amazon.eventstream")

    def key_headers(self, api_key: str) -> Mapping[str, str]:
        return super().key_headers(api_key) if self._llm.access_key_id is None else {}

    def post(self, path: str, body: Mapping[str, object]) -> Request:
        url, sent = f"{self.base_url}{path}", api.dumped(body)
        headers: Mapping[str, str] = self.headers
        if self._llm.access_key_id is not None:
            headers = signed(url, headers, sent, self._llm, datetime.now(UTC))
        return Request(url, headers, sent)

    def put(self, asked: api.Asked) -> Request:
        """Return the request.

        The request sets no token limit, because each model refuses numbers above its own limit.
        The API cannot forbid calls. So if calls are forbidden, only the tools of earlier calls are
        declared, which the API demands.
        """
        request, messages = asked.request, asked.messages
        body: api.Block = {"messages": Turns(self).of(messages)}
        cached = [body["messages"][-1]["content"]]
        if text := system_text(messages):
            body["system"] = [{"text": text}]
            cached.append(body["system"])
        if tools := declared(request.tools if request.may_call else (), messages):
            body["toolConfig"] = {"tools": list(self._declarations.of(tools))}
            if "claude" in self.model:  # Nova refuses the cache mark here
                cached.append(body["toolConfig"]["tools"])
        if api.Parameter.CACHING not in asked.omitted:
            for blocks in cached:
                blocks.append(_CACHE_POINT)
        is_stream = api.Parameter.STREAM not in asked.omitted
        return self.post("/converse-stream" if is_stream else "/converse", body)

    def text(self, text: str) -> api.Block:
        return {"text": text}

    def image(self, image: Image) -> api.Block:
        kind = image.content_type.partition("/")[2]
        return {"image": {"format": kind, "source": {"bytes": base64_of(image)}}}

    def call(self, id_: str, name: str, arguments: api.Block) -> api.Block:
        return {"toolUse": {"toolUseId": id_, "name": name, "input": arguments}}

    def result(self, id_: str, name: str, message: Message) -> api.Block:
        del name
        text = message.content or ""
        said = self.text(text if text.strip() else api.NOTHING_SAID)
        content = [said, *map(self.image, message.images)]
        takes_status = "claude" in self.model or "nova" in self.model
        failed = {"status": "error"} if message.failed and takes_status else {}
        return {"toolResult": {"toolUseId": id_, "content": content, **failed}}

    def framing(self) -> Framing:
        return EventStream()

    def read(self, answer: api.Answer, event: api.Block) -> None:
        if "exception" in event:
            said, kind = event["exception"]["said"], event["exception"]["type"]
            message = said.get("message") if isinstance(said, dict) else None
            raise error_inside_answer({"type": kind, "message": message})
        answer.answered = answer.answered or "messageStart" in event
        for key, member in (("contentBlockStart", "start"), ("contentBlockDelta", "delta")):
            if (piece := event.get(key)) is not None:
                self._take(answer, piece["contentBlockIndex"], piece.get(member) or {})
        if (stop := event.get("messageStop")) is not None:
            answer.end(stop.get("stopReason") or "end_turn")
        if (metadata := event.get("metadata")) is not None:
            self._count(answer, metadata.get("usage"))
            answer.done = bool(answer.finish)
        if "output" in event:
            for place, block in enumerate(api.few(event["output"]["message"]["content"])):
                self._take(answer, place, block)
            answer.end(event.get("stopReason") or "end_turn")
            self._count(answer, event.get("usage"))
            answer.answered = answer.done = True

    def _take(self, answer: api.Answer, place: int, piece: api.Block) -> None:
        if not piece.keys() & {"text", "toolUse", "reasoningContent"}:
            return
        block = answer.blocks.get(place)
        if block is None:
            block = answer.begin({}, place)
        if text := piece.get("text"):
            answer.add(block, "text", text)
        if call := piece.get("toolUse"):
            for theirs, ours in (("toolUseId", "id"), ("name", "name")):
                block[ours] = block.get(ours) or api.label(call.get(theirs))
            if arguments := call.get("input"):
                answer.add(block, "arguments", as_json(arguments))
        if thought := piece.get("reasoningContent"):
            self._take_thought(answer, block, thought)

    def _take_thought(self, answer: api.Answer, block: api.Block, thought: api.Block) -> None:
        begun = block.setdefault("own", {}).setdefault("reasoningContent", {})
        if sealed := thought.get("redactedContent"):
            answer.keep(begun, "redactedContent", sealed)
            block["signed"] = True
            return
        said = thought.get("reasoningText") or thought  # only complete blocks have `reasoningText`
        for key in ("text", "signature"):
            if piece := said.get(key):
                answer.keep(begun.setdefault("reasoningText", {}), key, piece)
                block["signed"] = block.get("signed") or key == "signature"

    def _count(self, answer: api.Answer, counts: object) -> None:
        if isinstance(counts, dict):
            prompt = [counts.get(key) for key in _PROMPT_COUNTS]
            answer.usage = api.usage_of(prompt, [counts.get("outputTokens")])

    def listing(self) -> api.Question[Sequence[api.ListedModel]]:
        def read(body: api.Block) -> Sequence[api.ListedModel]:
            return [api.ListedModel(self.model)] if body["output"]["message"] else []

        return self.post("/converse", PROBE), read


def declaration(tool: ToolSpec) -> dict[str, Any]:
    """Return an entry of `tools`; keep only the top-level schema members that Nova accepts."""
    whole = to_anthropic(tool)["input_schema"]
    schema = {"properties": {}, **{key: whole[key] for key in _TOP_OF_SCHEMA if key in whole}}
    described = {"name": tool.name, "description": tool.description or tool.name}
    return {"toolSpec": {**described, "inputSchema": {"json": schema}}}


# Signatures -------------------------------------------------------------------------------------

ALGORITHM: Final = "AWS4-HMAC-SHA256"
SERVICE: Final = "bedrock"
_SIGNED: Final = ("content-type", "host")


def signed(
    url: str, headers: Mapping[str, str], body: bytes, llm: LlmSettings, at: datetime
) -> dict[str, str]:
    """Return the headers of a POST with a signature (version 4).

    Args:
        url: the address without a query, spelled as it is sent.
        headers: with names in lower case.
        llm: with the account's credentials and the region to sign for.
        at: now, in UTC; AWS allows a difference of five minutes.
    """
    parts = urlsplit(url)
    key_id, secret, token = (
        one.get_secret_value() if one else ""
        for one in (llm.access_key_id, llm.secret_access_key, llm.session_token)
    )
    stamp = at.strftime("%Y%m%dT%H%M%SZ")
    scope = f"{stamp[:8]}/{llm.region}/{SERVICE}/aws4_request"
    said = {**headers, "host": parts.netloc, "x-amz-date": stamp}
    if token:
        said["x-amz-security-token"] = token
    names = sorted(name for name in said if name in _SIGNED or name.startswith("x-amz-"))
    request = "\n".join(
        [
            "POST",
            quote(parts.path, safe="/~"),  # quoted a second time, as for all services but S3
            "",
            *(f"{name}:{said[name].strip()}" for name in names),
            "",
            ";".join(names),
            hashlib.sha256(body).hexdigest(),
        ]
    )
    digest = hashlib.sha256(request.encode()).hexdigest()
    key = f"AWS4{secret}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, f"{ALGORITHM}\n{stamp}\n{scope}\n{digest}".encode(), "sha256")
    said["authorization"] = (
        f"{ALGORITHM} Credential={key_id}/{scope},"
        f" SignedHeaders={';'.join(names)}, Signature={signature.hex()}"
    )
    return said


# The event stream -------------------------------------------------------------------------------

_PRELUDE: Final = struct.Struct(">III")
"""Length of the message, length of its headers, and the checksum of both."""
_CHECKSUM_BYTES: Final = 4
_HEADER: Final = re.compile(rb"[\x01-\xff](?P<name>[:\w-]+)\x07(?P<length>..)", re.DOTALL)
"""A header whose value is text; the API sends no others."""


class EventStream(Framing):
    """Cuts binary messages of headers and payload, each with checksums, into events.

    An event becomes JSON in the shape of the API's reference (`{"messageStop": {...}}`), and an
    exception becomes `{"exception": {"type": ..., "said": {...}}}`.
    """

    max_bytes = MAX_STREAM_BYTES

    def events(self, data: bytes) -> Sequence[Event]:
        del data
        events: list[Event] = []
        while len(self.rest) >= _PRELUDE.size:
            length, headers, checksum = _PRELUDE.unpack_from(self.rest)
            if zlib.crc32(self.rest[:8]) != checksum:
                raise LlmBroken(DAMAGED)
            if length > MAX_MESSAGE_BYTES:
                raise LlmBroken(TOO_LONG)
            if length < _PRELUDE.size + headers + _CHECKSUM_BYTES:
                raise LlmBroken(DAMAGED)
            if len(self.rest) < length:
                break
            message, end = bytes(self.rest[:length]), length - _CHECKSUM_BYTES
            del self.rest[:length]
            if zlib.crc32(message[:end]) != int.from_bytes(message[end:]):
                raise LlmBroken(DAMAGED)
            begin = _PRELUDE.size + headers
            events.append(_event(_headers(message[_PRELUDE.size : begin]), message[begin:end]))
        return events

    def end(self) -> Sequence[Event]:
        """Return nothing: a message without its end is damaged."""
        return ()


def _event(headers: Mapping[str, str], payload: bytes) -> Event:
    match headers.get(":message-type"):
        case "exception":
            name = json.dumps(headers.get(":exception-type", "")).encode()
            return b'{"exception":{"type":%b,"said":%b}}' % (name, payload or b"{}")
        case "error":
            return api.dumped({"exception": {"type": headers.get(":error-code", ""), "said": {}}})
    name = json.dumps(headers.get(":event-type", "")).encode()
    return b"{%b:%b}" % (name, payload or b"{}")


def _headers(data: bytes) -> Mapping[str, str]:
    found: dict[str, str] = {}
    at = 0
    while at < len(data):
        header = _HEADER.match(data, at)
        if header is None:
            raise LlmBroken(DAMAGED)
        at = header.end() + int.from_bytes(header["length"])
        if at > len(data):
            raise LlmBroken(DAMAGED)
        value = data[header.end() : at]
        found[header["name"].decode()] = value.decode(errors="replace")
    return found
