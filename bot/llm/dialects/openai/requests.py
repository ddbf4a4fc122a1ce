"""The body of `POST /chat/completions`."""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

from bot.llm.assembly import arguments_object
from bot.llm.dialect import Asked, Parameter
from bot.llm.dialects.alternating import safe_name
from bot.llm.dialects.bodies import dumped, shown_tools
from bot.llm.dialects.openai.sealed_fields import seal_request
from bot.llm.images import data_url, images_after_results, latest_images
from conversation_store.models import Image, Message, Role, ToolCall
from tools.schema import to_openai

HEARD: Final = "There is a further message."


def request_body(model: str, asked: Asked) -> bytes:
    """Return the JSON of a chat completion request.

    Of the images the latest are sent, see `latest_images`.

    Args:
        model: its name at the endpoint.
        asked: the request.
    """
    body: Mapping[str, object] = _request(model, asked)
    if asked.sealing is not None:
        body = seal_request(body, asked.sealing.seal)
    return dumped(body)


def _request(model: str, asked: Asked) -> Mapping[str, object]:
    request, omitted = asked.request, asked.omitted
    shown = images_after_results(latest_images(request.messages), bridged=True)
    said = [_message(message) for message in _bridged(shown)]
    body: dict[str, object] = {"model": model, "messages": said}
    if tools := shown_tools(asked):
        body["tools"] = [to_openai(tool) for tool in tools]
        if not request.may_call:
            body["tool_choice"] = "none"
    body["stream"] = Parameter.STREAM not in omitted
    if body["stream"] and Parameter.USAGE not in omitted:
        body["stream_options"] = _stream_options(attested=asked.attested)
    return body


def _bridged(messages: Iterable[Message]) -> Iterator[Message]:
    """Let the model speak between a result and what a person writes while tools run.

    An endpoint may refuse a person's message right behind a result, as Mistral's do.
    """
    before: Role | None = None
    for message in messages:
        if before is Role.TOOL and message.role is Role.USER:
            yield Message(Role.ASSISTANT, HEARD)
        yield message
        before = message.role


def parameters(asked: Asked) -> Collection[Parameter]:
    """Return what a request has that an endpoint may refuse."""
    found = {Parameter.STREAM, Parameter.USAGE}
    if Parameter.STREAM in asked.omitted:
        found.clear()
    if shown_tools(asked) and not asked.request.may_call:
        found.add(Parameter.TOOL_CHOICE)
    return found - asked.omitted


def _stream_options(*, attested: bool) -> Mapping[str, bool]:
    """Return what is asked of a stream.

    Where the endpoint is attested, the count comes with every piece: NEAR AI's gateway then passes
    the model's bytes on as they are, and the model's own machine signs them, not the gateway.
    """
    options = {"include_usage": True}
    return {**options, "continuous_usage_stats": True} if attested else options


def _message(message: Message) -> Mapping[str, object]:
    if message.tool_calls:
        calls = [_tool_call(call) for call in message.tool_calls]
        return {"role": message.role, "content": message.content, "tool_calls": calls}
    content = message.content or ""
    if message.role is Role.TOOL:
        return {"role": message.role, "content": content, "tool_call_id": message.tool_call_id}
    if message.images:
        return {"role": message.role, "content": _parts(content, message.images)}
    return {"role": message.role, "content": content}


def _parts(text: str, images: Sequence[Image]) -> Sequence[Mapping[str, object]]:
    """Return words and images as the parts of one message; empty words are left out."""
    words = [{"type": "text", "text": text}] if text else []
    return [*words, *({"type": "image_url", "image_url": {"url": data_url(i)}} for i in images)]


def _tool_call(call: ToolCall) -> Mapping[str, object]:
    function = {"name": safe_name(call.name), "arguments": _sent_arguments(call.arguments)}
    return {"id": call.id, "type": "function", "function": function}


def _sent_arguments(arguments: str) -> str:
    """Servers parse the arguments of earlier calls and refuse those that are no JSON object."""
    sent = arguments_object(arguments)
    return json.dumps(sent) if sent == {"not_json": arguments} else arguments or "{}"
