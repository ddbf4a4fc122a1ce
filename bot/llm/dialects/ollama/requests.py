"""The body of `POST /api/chat`."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from bot.llm.assembly import arguments_object
from bot.llm.dialect import Asked, Parameter
from bot.llm.dialects.bodies import dumped
from bot.llm.images import base64_of, images_after_results, latest_images
from conversation_store.models import Message, Role, ToolCall
from tools.schema import to_openai

KEEP_ALIVE: Final = "30m"
"""How long the model stays loaded: a chat goes on within minutes, and loading takes as long as
many answers. The server's own five minutes are for people who try out models."""


def request_body(model: str, context_tokens: int, asked: Asked) -> bytes:
    """Return the JSON of a chat request.

    Args:
        model: its name at the server.
        context_tokens: what the model reads; a longer prompt is cut by the server in silence.
        asked: the request.
    """
    body: dict[str, Any] = {"model": model, "messages": list(_messages(asked.request.messages))}
    if _offers_tools(asked):
        body["tools"] = [to_openai(tool) for tool in asked.request.tools]
    body["stream"] = Parameter.STREAM not in asked.omitted
    if Parameter.THINK not in asked.omitted:
        body["think"] = True
    body["keep_alive"] = KEEP_ALIVE
    body["options"] = {"num_ctx": context_tokens}
    return dumped(body)


def parameters(asked: Asked) -> Collection[Parameter]:
    """Return what a request has that a server may refuse."""
    return {Parameter.STREAM, Parameter.THINK} - asked.omitted


def _offers_tools(asked: Asked) -> bool:
    """The API cannot say that tools are not to be called: then there are none."""
    return bool(asked.request.tools) and asked.request.may_call


def _messages(messages: Sequence[Message]) -> Iterator[Mapping[str, object]]:
    names: dict[str, str] = {}
    for message in images_after_results(latest_images(messages), bridged=True):
        said: dict[str, object] = {"role": message.role, "content": message.content or ""}
        if message.tool_calls:
            names |= {call.id: call.name for call in message.tool_calls}
            said["tool_calls"] = [_call(call) for call in message.tool_calls]
        if message.role is Role.TOOL:
            said["tool_name"] = names.get(message.tool_call_id or "", "")
        if message.images:
            said["images"] = [base64_of(image) for image in message.images]
        yield said


def _call(call: ToolCall) -> Mapping[str, object]:
    return {"function": {"name": call.name, "arguments": arguments_object(call.arguments)}}
