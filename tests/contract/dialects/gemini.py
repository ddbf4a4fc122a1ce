"""Gemini's dialect, and a server that refuses what Gemini's refuses, in its words.

Sources: https://ai.google.dev/api/generate-content, /gemini-api/docs/function-calling and
/gemini-api/docs/thought-signatures; the wording of refusals as people report them.
"""

import asyncio
import base64
import binascii
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Final

from bot.llm.gemini import FOREIGN
from tests.contract.dialects.harness import (
    Arguments,
    Harness,
    Refused,
    StrictServer,
    demand,
    running,
)
from tests.declaration_rules import check_gemini
from tests.fakes.openai_server import MODEL
from tests.fakes.scripted_http import Request, Step, events, in_pieces, status, whole

MEMBERS: Final = {"contents", "systemInstruction", "tools", "toolConfig", "generationConfig"}
OF_A_PART: Final = {"text", "inlineData", "functionCall", "functionResponse"}
SIGNATURE: Final = "CvcQAdHtim9vUcjaJVKx"
PATH: Final = f"/v1beta/models/{MODEL}"


def check(body: Mapping[str, Any]) -> None:
    """Raise the objection of Gemini's server to a request, if any."""
    for unknown in set(body) - MEMBERS:
        raise Refused(
            f'Invalid JSON payload received. Unknown name "{unknown}": Cannot find field.'
        )
    for part in body.get("systemInstruction", {"parts": []})["parts"]:
        demand(set(part) == {"text"} and part["text"], "system_instruction.parts[0].data: required")
    for tool in body.get("tools", ()):
        demand(set(tool) == {"functionDeclarations"}, "Invalid JSON payload received. Unknown name")
        for declaration in tool["functionDeclarations"]:
            check_gemini(declaration)
    config = body.get("toolConfig", {"functionCallingConfig": {"mode": "AUTO"}})
    demand(config["functionCallingConfig"]["mode"] in {"AUTO", "NONE", "ANY"}, "mode")
    demand("toolConfig" not in body or "tools" in body, "Function calling config is set without")
    check_contents(body["contents"])


def check_contents(contents: Sequence[Mapping[str, Any]]) -> None:
    demand(contents, "* GenerateContentRequest.contents: contents is not specified")
    demand(contents[0]["role"] == "user", "Please ensure that the first turn is a user turn.")
    demand(contents[-1]["role"] == "user", "Please ensure that requests end with a user role.")
    called: list[str] = []
    before = ""
    for content in contents:
        role, parts = content["role"], content["parts"]
        demand(set(content) == {"role", "parts"}, "Invalid JSON payload received. Unknown name")
        demand(role in {"user", "model"}, "Please use a valid role: user, model.")
        demand(role != before, "Please ensure that roles alternate between user and model.")
        demand(parts, "Unable to submit request because it must include at least one parts field")
        before = role
        for part in parts:
            check_part(role, part)
        answered = [
            part["functionResponse"]["name"] for part in parts if "functionResponse" in part
        ]
        demand(answered == called, "not as many function responses as calls")
        called = [part["functionCall"]["name"] for part in parts if "functionCall" in part]
        check_signatures(parts)
    demand(not called, "Please ensure that function call turn is followed by a response.")


def check_signatures(parts: Sequence[Mapping[str, Any]]) -> None:
    """Gemini 3 looks at the first call of each step; older ones are less strict."""
    calls = [part for part in parts if "functionCall" in part]
    demand(
        not calls or calls[0].get("thoughtSignature"),
        "Function call is missing a thought_signature",
    )
    for part in parts:
        known = part.get("thoughtSignature", SIGNATURE) in {SIGNATURE, FOREIGN}
        demand(known, "Corrupted thought signature.")


def check_part(role: str, part: Mapping[str, Any]) -> None:
    kind = set(part) - {"thoughtSignature"}
    demand(len(kind) == 1 and kind <= OF_A_PART, "parts[0].data: required oneof field 'data'")
    demand(role == "user" or not kind & {"functionResponse", "inlineData"}, "of the other role")
    demand(role == "model" or "functionCall" not in kind, "of the other role")
    demand(part.get("text", "x"), "parts[0].data: required oneof field 'data' must have one")
    for member in ("functionCall", "functionResponse"):
        if member in part:
            name = part[member]["name"]
            demand(re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}", name), "Invalid function name.")
            inner = part[member].get("args", part[member].get("response"))
            demand(isinstance(inner, dict), "Invalid value: Proto field is not repeating")
            if member == "functionResponse":
                demand(inner.keys() <= {"result", "error"}, "no member that the model knows")
    if "inlineData" in part:
        try:
            base64.b64decode(part["inlineData"]["data"], validate=True)
        except binascii.Error:
            raise Refused("Invalid value at 'inline_data.data': Base64 decoding failed") from None


@dataclass
class StrictGemini(StrictServer):
    """Refuses invalid conversations."""

    def is_question(self, request: Request) -> bool:
        return request.path.startswith(f"{PATH}:")

    def step_for(self, request: Request) -> Step:
        if "x-goog-api-key" not in request.headers or "authorization" in request.headers:
            return error(403, "PERMISSION_DENIED", "Method doesn't allow unregistered callers")
        match request.method, request.path:
            case "GET", "/v1beta/models?pageSize=1000":
                return whole({"models": [{"name": f"models/{MODEL}"}]})
            case "POST", path if path in {
                f"{PATH}:streamGenerateContent?alt=sse",
                f"{PATH}:generateContent",
            }:
                return self._generate(request.body)
        return error(404, "NOT_FOUND", "models/x is not found for API version v1beta")

    def _generate(self, body: Mapping[str, Any]) -> Step:
        try:
            check(body)
        except Refused as refused:
            return error(400, "INVALID_ARGUMENT", str(refused))
        return self.handler


def error(code: int, kind: str, words: str) -> Step:
    return status(code, {"error": {"code": code, "message": words, "status": kind}})


def server() -> AbstractAsyncContextManager[StrictGemini]:
    return running(StrictGemini())


def event(*parts: Mapping[str, object], **of_the_candidate: object) -> dict[str, Any]:
    content = {"role": "model", "parts": list(parts)} if parts else {"role": "model"}
    candidate = {"content": content, "index": 0, **of_the_candidate}
    return {"candidates": [candidate], "modelVersion": MODEL, "responseId": "abc123"}


def ended(reason: str) -> dict[str, Any]:
    counts = {"promptTokenCount": 11, "candidatesTokenCount": 5, "thoughtsTokenCount": 2}
    return {**event(finishReason=reason), "usageMetadata": counts}


def answer(*parts: Mapping[str, object], reason: str = "STOP") -> Step:
    """Answer in events, or with one document if the request asks for it."""

    async def step(request: Request, writer: asyncio.StreamWriter) -> None:
        if "alt=sse" in request.path:
            said = [json.dumps(one) for one in (*map(event, parts), ended(reason))]
            return await events(*said)(request, writer)
        return await whole({**ended(reason), **event(*parts, finishReason=reason)})(request, writer)

    return step


def pieces(words: str) -> list[dict[str, object]]:
    return [{"text": piece} for piece in in_pieces(words)]


def call(name: str, arguments: Arguments) -> dict[str, object]:
    return {"functionCall": {"name": name, "args": arguments}}


def tool_calls(calls: tuple[tuple[str, Arguments], ...], words: str) -> Step:
    asked = [call(name, arguments) for name, arguments in calls]
    asked[0]["thoughtSignature"] = SIGNATURE
    return answer(*pieces(words), *asked)


REFUSALS: Final[Mapping[str, tuple[int, str, str]]] = {
    "overloaded": (503, "UNAVAILABLE", "The model is overloaded. Please try again later."),
    "rate_limit": (429, "RESOURCE_EXHAUSTED", "You exceeded your current quota."),
    "key": (400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key."),
    "model": (
        404,
        "NOT_FOUND",
        (
            "models/unknown is not found for API version v1beta, or is not supported for"
            " generateContent. Call ListModels to see the list of available models."
        ),
    ),
    "too_long": (
        400,
        "INVALID_ARGUMENT",
        "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
    ),
    "no_tools": (400, "INVALID_ARGUMENT", "Function calling is not enabled for models/gemma-3-27b"),
    "no_system_role": (
        400,
        "INVALID_ARGUMENT",
        "Developer instruction is not enabled for models/gemma-3-27b-it",
    ),
    "no_images": (400, "INVALID_ARGUMENT", "Image input modality is not enabled for models/x"),
}


BEGUN: Final = json.dumps(event({"text": "Good"}))

HARNESS = Harness(
    name="gemini",
    server=server,
    text=lambda words: answer(*pieces(words)),
    tool_calls=tool_calls,
    cut_off=lambda words: answer({"text": words}, reason="MAX_TOKENS"),
    thinking=lambda reasoning, words: answer({"text": reasoning, "thought": True}, {"text": words}),
    broken_stream=events(BEGUN, cut=True),
    half_stream=events(BEGUN),
    refusals={kind: error(*said) for kind, said in REFUSALS.items()},
    error_midway=events(
        BEGUN,
        json.dumps({"error": {"code": 503, "message": "overloaded", "status": "UNAVAILABLE"}}),
    ),
    settings={"api_key": "secret-key"},
)
