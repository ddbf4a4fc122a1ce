"""Bedrock's dialect, and a server that refuses what Bedrock's refuses, in its words.

Sources: https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ConverseStream.html;
the wording of refusals as people report them.
"""

import base64
import hmac
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from urllib.parse import unquote

from bot.config.llm import LlmSettings
from bot.llm.bedrock import signed
from tests.contract.dialects.harness import (
    Arguments,
    Harness,
    Refused,
    StrictServer,
    demand,
    running,
)
from tests.declaration_rules import check_anthropic
from tests.fakes import bedrock_server as fake
from tests.fakes.bedrock_server import began, error, event, exception, streamed, text, tool_uses
from tests.fakes.openai_server import MODEL
from tests.fakes.scripted_http import Request, Step

CREDENTIALS: Final = {
    "region": "eu-central-1",
    "access_key_id": "AKIDEXAMPLE",
    "secret_access_key": "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
    "session_token": "IQoJb3JpZ2luX2VjEXAMPLE",
}
ACCOUNT: Final = LlmSettings.model_validate({"dialect": "bedrock", "model": MODEL, **CREDENTIALS})
"""Unit tests compare the signing with values of AWS's own library."""
TOLERANCE: Final = timedelta(minutes=5)
API_KEY: Final = "bedrock-api-key-EXAMPLE"
MEMBERS: Final = {
    *("messages", "system", "toolConfig", "inferenceConfig", "guardrailConfig"),
    *("additionalModelRequestFields", "requestMetadata", "performanceConfig"),
}
KINDS: Final = {
    "user": {"text", "image", "toolResult"},
    "assistant": {"text", "toolUse", "reasoningContent"},
}
ID: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
SIGNATURE: Final = "EqQBCgIYAhIM1gbcDa9GJwZA2b3h"
MAX_CACHE_POINTS: Final = 4
NO_CACHING: Final = (
    "You invoked an unsupported model or your request did not allow prompt caching. See the"
    " documentation for more information."
)
PATH: Final = re.compile(r"/model/(?P<model>[A-Za-z0-9_.~%-]+)/converse(-stream)?")


def check(body: Mapping[str, Any]) -> None:
    """Raise Bedrock's objection to a request, if any."""
    for unknown in set(body) - MEMBERS:
        raise Refused(f"The model returned the following errors: extraneous key [{unknown}]")
    points = json.dumps(body).count('"cachePoint"')
    demand(points <= MAX_CACHE_POINTS, "You can only have a maximum of 4 cache points.")
    for block in without_cache_point(body.get("system", [])):
        demand(set(block) == {"text"} and block["text"].strip(), "system.0.text is blank")
    check_tools(body)
    check_messages(body["messages"])
    used = [kind for m in body["messages"] for block in m["content"] for kind in block]
    demand(
        "toolConfig" in body or not {"toolUse", "toolResult"} & set(used),
        "toolConfig must be defined",
    )


def without_cache_point(blocks: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """Return blocks without a cache point at their end; there it needs a block before it."""
    if not blocks or "cachePoint" not in blocks[-1]:
        return blocks
    demand(blocks[-1] == {"cachePoint": {"type": "default"}}, "cachePoint: unknown field")
    demand(len(blocks) > 1, "A cache point needs a block before it.")
    return blocks[:-1]


def check_tools(body: Mapping[str, Any]) -> None:
    if "toolConfig" not in body:
        return
    config = body["toolConfig"]
    demand(set(config) <= {"tools", "toolChoice"}, "toolConfig: unknown field")
    demand(config["tools"], "Value at 'toolConfig.tools' must have length greater than or equal 1")
    choice = config.get("toolChoice", {"auto": {}})
    demand(set(choice) <= {"auto", "any", "tool"}, "toolConfig.toolChoice: unknown union member")
    for tool in without_cache_point(config["tools"]):
        demand(set(tool) == {"toolSpec"}, "toolConfig.tools: unknown union member")
        spec = tool["toolSpec"]
        demand(set(spec) == {"name", "description", "inputSchema"}, "toolSpec: unknown field")
        demand(ID.fullmatch(spec["name"]), "Member must satisfy regular expression pattern")
        demand(spec["description"], "Member must have length greater than or equal to 1")
        demand(set(spec["inputSchema"]) == {"json"}, "inputSchema: unknown union member")
        schema = spec["inputSchema"]["json"]
        at_the_top = set(schema) <= {"type", "properties", "required"} and "properties" in schema
        demand(at_the_top, "The model returned the following errors: invalid tool schema")  # Nova
        check_anthropic(
            {"name": spec["name"], "description": spec["description"], "input_schema": schema}
        )


def check_messages(messages: Sequence[Mapping[str, Any]]) -> None:
    demand(messages, "Member must have length greater than or equal to 1")
    demand(messages[0]["role"] == "user", "A conversation must start with a user message.")
    demand(messages[-1]["role"] == "user", "The model does not support assistant message prefill.")
    waiting: list[str] = []
    before = ""
    for number, message in enumerate(messages):
        path, role = f"messages.{number}.content", message["role"]
        demand(set(message) == {"role", "content"}, f"messages.{number}: unknown field")
        demand(role in KINDS, "Member must satisfy enum value set: [user, assistant]")
        demand(role != before, "A conversation must alternate between user and assistant roles.")
        before = role
        blocks = message["content"]
        demand(blocks, f"The content field in the Message object at messages.{number} is empty.")
        for index, block in enumerate(without_cache_point(blocks)):
            demand(len(block) == 1, f"{path}.{index}: a union with more than one member")
            demand(set(block) <= KINDS[role], f"{path}.{index}: not for this role")
            check_block(f"{path}.{index}", block)
        answered = [one["toolResult"]["toolUseId"] for one in blocks if "toolResult" in one]
        demand(len(answered) <= len(waiting), f"too many toolResult blocks at {path}")
        demand(
            sorted(answered) == sorted(waiting),
            f"Expected toolResult blocks at {path} for the following Ids: {', '.join(waiting)}",
        )
        demand(all("toolResult" in one for one in blocks[: len(answered)]), f"{path}: order")
        waiting = [one["toolUse"]["toolUseId"] for one in blocks if "toolUse" in one]
        demand(len(set(waiting)) == len(waiting), f"{path}: duplicate toolUse Ids")


def check_block(path: str, block: Mapping[str, Any]) -> None:
    match block:
        case {"text": words}:
            demand(isinstance(words, str) and words.strip(), f"The text field at {path} is blank.")
        case {"image": image}:
            demand(set(image) == {"format", "source"}, f"{path}.image: unknown field")
            demand(image["format"] in {"png", "jpeg", "gif", "webp"}, f"{path}.image.format")
            demand(set(image["source"]) == {"bytes"}, f"{path}.image.source")
            demand(base64.b64decode(image["source"]["bytes"], validate=True), "empty image")
        case {"toolUse": call}:
            demand(set(call) == {"toolUseId", "name", "input"}, f"{path}.toolUse: unknown field")
            demand(ID.fullmatch(call["toolUseId"]), f"{path}.toolUse.toolUseId: pattern")
            demand(ID.fullmatch(call["name"]), f"{path}.toolUse.name: pattern")
            demand(isinstance(call["input"], dict), f"{path}.toolUse.input is invalid")
        case {"toolResult": result}:
            known = {"toolUseId", "content", "status"}
            demand({"toolUseId", "content"} <= set(result) <= known, f"{path}.toolResult: unknown")
            demand(result.get("status", "success") in {"success", "error"}, f"{path}: status")
            demand(ID.fullmatch(result["toolUseId"]), f"{path}.toolResult.toolUseId: pattern")
            demand(result["content"], f"The content field at {path}.toolResult is empty.")
            for part in result["content"]:
                demand(set(part) <= {"text", "image", "json"}, f"{path}.toolResult: unknown")
                check_block(path, part)
        case {"reasoningContent": {"reasoningText": thought}}:
            demand(set(thought) == {"text", "signature"}, f"{path}: unknown field")
            demand(thought["signature"] == SIGNATURE, f"{path}: Invalid `signature`")
        case {"reasoningContent": {"redactedContent": sealed}}:
            demand(base64.b64decode(sealed, validate=True), f"{path}: no data")
        case _:
            raise Refused(f"{path}: unknown union member")


@dataclass
class StrictBedrock(StrictServer):
    """Refuses invalid conversations and unsigned requests; `check` asks for one token.

    Attributes:
        model: its only model.
        caches: the model takes cache points; Nova takes none among the tools.
    """

    model: str = MODEL
    caches: bool = True

    def is_question(self, request: Request) -> bool:
        return PATH.fullmatch(request.path) is not None and not is_probe(request)

    def step_for(self, request: Request) -> Step:
        if (found := PATH.fullmatch(request.path)) is None or request.method != "POST":
            return error(404, "UnknownOperationException", "")
        if problem := self._key_problem(request):
            return error(403, "InvalidSignatureException", problem)
        if unquote(found["model"]) != self.model:
            words = "The provided model identifier is invalid."
            return error(400, "ValidationException", words)
        tools = json.dumps(request.body.get("toolConfig"))
        in_tools = "cachePoint" in tools and "claude" not in self.model
        if "cachePoint" in json.dumps(request.body) and (in_tools or not self.caches):
            return error(403, "AccessDeniedException", NO_CACHING)
        try:
            check(request.body)
            takes_status = "claude" in self.model or "nova" in self.model
            says_status = '"status"' in json.dumps(request.body["messages"])
            demand(takes_status or not says_status, "This model doesn't support the status field.")
        except Refused as refused:
            return error(400, "ValidationException", str(refused))
        return (
            fake.answer(text("Hi"), stop_reason="max_tokens") if is_probe(request) else self.handler
        )

    def _key_problem(self, request: Request) -> str | None:
        if request.headers.get("authorization") == f"Bearer {API_KEY}":
            return None
        stamp = request.headers.get("x-amz-date", "19700101T000000Z")
        at = datetime.strptime(stamp, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        if abs(datetime.now(UTC) - at) > TOLERANCE:
            return f"Signature expired: {stamp} is now earlier than the time allowed"
        url = f"http://{request.headers['host']}{request.path}"
        right = signed(url, request.headers, request.raw, ACCOUNT, at)
        names = ("authorization", "x-amz-security-token")
        fits = all(hmac.compare_digest(right[n], request.headers.get(n, "")) for n in names)
        return None if fits else "The request signature we calculated does not match"


def is_probe(request: Request) -> bool:
    """Whether the request asks for no more than a token."""
    limit: object = request.body.get("inferenceConfig", {}).get("maxTokens")
    return limit == 1


def server(
    model: str = MODEL, *, caches: bool = True
) -> AbstractAsyncContextManager[StrictBedrock]:
    return running(StrictBedrock(model=model, caches=caches))


def tool_calls(calls: tuple[tuple[str, Arguments], ...], words: str) -> Step:
    said = [text(words)] if words else []
    return fake.answer(*said, *tool_uses(calls), stop_reason="tool_use")


def thinking(reasoning: str, words: str) -> Step:
    thought = {"reasoningContent": {"reasoningText": {"text": reasoning, "signature": SIGNATURE}}}
    return fake.answer(thought, text(words))


INVALID: Final = "ValidationException"
REFUSALS: Final[Mapping[str, tuple[int, str, str]]] = {
    "overloaded": (
        503,
        "ServiceUnavailableException",
        "Bedrock is unable to process your request.",
    ),
    "rate_limit": (
        429,
        "ThrottlingException",
        "Too many tokens, please wait before trying again.",
    ),
    "key": (
        403,
        "UnrecognizedClientException",
        "The security token included in the request is invalid.",
    ),
    "credit": (
        403,
        "AccessDeniedException",
        "Model access is denied due to INVALID_PAYMENT_INSTRUMENT:A valid payment is required",
    ),
    "model": (400, INVALID, "The provided model identifier is invalid."),
    "too_long": (
        400,
        INVALID,
        "The model returned the following errors: Input is too long for requested model.",
    ),
    "no_tools": (400, INVALID, "This model doesn't support tool use."),
    "no_system_role": (400, INVALID, "This model doesn't support system messages."),
    "no_images": (
        400,
        INVALID,
        "This model doesn't support the image content block that you provided.",
    ),
}


BEGUN: Final = [event(*one) for one in (*began(), *streamed(0, text("Good")))]

HALF_A_CALL: Final = [
    *began(),
    *streamed(0, {"toolUse": {"toolUseId": "tooluse_1", "name": "clock", "input": {"z": 1}}})[:3],
    *fake.ended("max_tokens"),
]

HARNESS = Harness(
    name="bedrock",
    server=server,
    text=lambda words: fake.answer(text(words)),
    tool_calls=tool_calls,
    cut_off=lambda words: fake.answer(text(words), stop_reason="max_tokens"),
    thinking=thinking,
    broken_stream=fake.stream(*BEGUN, cut=True),
    half_stream=fake.stream(*BEGUN),
    refusals={kind: error(*said) for kind, said in REFUSALS.items()},
    cut_call=fake.stream(*(event(*one) for one in HALF_A_CALL)),
    error_midway=fake.stream(
        *BEGUN, exception("serviceUnavailableException", "The service is unavailable.")
    ),
    settings=CREDENTIALS,
)
