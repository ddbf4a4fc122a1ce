"""The body of `generateContent`."""

from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final

from bot.llm.assembly import arguments_object
from bot.llm.dialect import Asked, Parameter
from bot.llm.dialects.alternating import NOTHING_SAID, safe_name, system_text
from bot.llm.dialects.bodies import dumped, shown_tools
from bot.llm.dialects.gemini.signatures import signatures_of
from bot.llm.images import base64_of, images_after_results, latest_images
from conversation_store.models import Message, Role
from tools.schema import Declarations, gemini_name

MAX_NAME_CHARACTERS: Final = 64

Part = dict[str, Any]


def request_body(of: str, asked: Asked, declarations: Declarations) -> bytes:
    """Return the JSON of a request for an answer.

    Args:
        of: the model as the owner of what is kept of its answers.
        asked: the request.
        declarations: of tools.
    """
    request = asked.request
    body: dict[str, Any] = {}
    if text := system_text(request.messages):
        body["systemInstruction"] = {"parts": [{"text": text}]}
    body["contents"] = _contents(asked, of)
    if tools := shown_tools(asked):
        body["tools"] = [{"functionDeclarations": list(declarations.of(tools))}]
        if not request.may_call:
            body["toolConfig"] = {"functionCallingConfig": {"mode": "NONE"}}
    return dumped(body)


def parameters(asked: Asked) -> Collection[Parameter]:
    """Return what a request has that the API may refuse."""
    found = {Parameter.STREAM, Parameter.FOREIGN_SIGNATURE}
    if shown_tools(asked) and not asked.request.may_call:
        found.add(Parameter.TOOL_CHOICE)
    return found - asked.omitted


def _contents(asked: Asked, of: str) -> list[dict[str, Any]]:
    """Return the conversation, in which person and model take turns, the person first."""
    foreign = Parameter.FOREIGN_SIGNATURE not in asked.omitted
    messages = asked.request.messages
    names: dict[str, str] = {}  # some endpoints use the same ids for the calls of every answer
    found: list[dict[str, Any]] = []
    for message in images_after_results(latest_images(messages), bridged=False):
        if message.role is Role.SYSTEM:
            continue
        if message.role is Role.ASSISTANT:
            names |= {call.id: _name(call.name) for call in message.tool_calls}
            role, parts = (
                "model",
                list(_answered(message, signatures_of(message, of, foreign=foreign))),
            )
        else:
            role, parts = "user", list(_said(message, names))
        if found and found[-1]["role"] == role:
            found[-1]["parts"] += parts
        elif parts:
            found.append({"role": role, "parts": parts})
    if not found or found[0]["role"] != "user":
        found.insert(0, {"role": "user", "parts": [{"text": NOTHING_SAID}]})
    return found


def _said(message: Message, names: dict[str, str]) -> Iterator[Part]:
    text = message.content or ""
    if message.role is Role.TOOL:
        name = names.get(message.tool_call_id or "", "unknown")
        yield {"functionResponse": {"name": name, "response": {"result": text}}}
        return
    if text.strip() or not message.images:
        yield {"text": text if text.strip() else NOTHING_SAID}
    for image in message.images:
        yield {"inlineData": {"mimeType": image.content_type, "data": base64_of(image)}}


def _answered(message: Message, signatures: Sequence[str | None]) -> Iterator[Part]:
    if (message.content or "").strip():
        yield {"text": message.content}
    for call, signature in zip(message.tool_calls, signatures, strict=True):
        called = {"name": _name(call.name), "args": arguments_object(call.arguments)}
        signed = {"thoughtSignature": signature} if signature else {}
        yield {"functionCall": called, **signed}


def _name(name: str) -> str:
    return gemini_name(safe_name(name))[:MAX_NAME_CHARACTERS]
