"""OpenAI's chat completions, as most servers speak them, with NEAR AI's encryption of fields.

Reading is lenient, because real servers differ: almost everything may be missing or null, and a
whole answer and an event of a stream have the same shape.
Reference: https://platform.openai.com/docs/api-reference/chat
"""

# ruff: noqa: D102 - the docstrings are in bot.llm.api

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from bot.config.llm import LlmSettings
from bot.llm import api
from bot.llm.arguments import as_json
from bot.llm.errors import LlmNotAttested
from bot.llm.rearranged import arguments_object, base64_of, images_after_results, in_turn
from bot.llm.refusals import error_inside_answer
from conversation_store.models import Message, Role
from tools.http import Request
from tools.schema import to_openai

LEGACY: Final = "function_call"
"""The place of a call in the form before `tool_calls`, which allows only one."""
_CALL_PARTS: Final = frozenset({"tool_use", "tool_call", "function_call"})
"""Types of parts of a content that gateways to other APIs pass on."""
NOT_ENCRYPTED: Final = (
    "I have not used the model's answer, because it was not encrypted to me as it must be."
)


class OpenAi(api.Api):
    """Speaks with OpenAI-compatible servers."""

    name = "openai"
    seals = True

    def __init__(self, llm: LlmSettings) -> None:
        super().__init__(llm, llm.base_url, "text/event-stream")

    def put(self, asked: api.Asked) -> Request:
        body, headers = self._body(asked), self.headers
        if asked.attested:
            # Without this, a warning about an alias could join the answer and break its hash.
            headers = {**headers, "x-no-aliasing": "true"}
        if asked.sealing is not None:
            headers = {**headers, **asked.sealing.headers}
            seal_request(body, asked.sealing.seal)
        return Request(f"{self.base_url}/chat/completions", headers, api.dumped(body))

    def _body(self, asked: api.Asked) -> api.Block:
        messages: Iterable[Message] = in_turn(images_after_results(asked.messages))
        if api.Parameter.USER_AFTER_RESULT in asked.omitted:
            messages = _bridged(messages)
        body: api.Block = {"model": self.model, "messages": list(map(_message, messages))}
        may_call, tools = asked.request.may_call, asked.request.tools
        if tools and (may_call or api.Parameter.TOOL_CHOICE not in asked.omitted):
            body["tools"] = [to_openai(tool) for tool in tools]
            if not may_call:
                body["tool_choice"] = "none"
        body["stream"] = api.Parameter.STREAM not in asked.omitted
        if body["stream"] and api.Parameter.USAGE not in asked.omitted:
            body["stream_options"] = {"include_usage": True}
            if asked.attested:
                # With a count in each piece, NEAR AI's gateway passes the bytes on unchanged, and
                # the signature of the model's own machine fits them.
                body["stream_options"]["continuous_usage_stats"] = True
        return body

    def read(self, answer: api.Answer, event: api.Block) -> None:
        if answer.sealing is not None:
            try:
                open_answer(event.get("choices"), answer.sealing.open)
            except ValueError:
                raise LlmNotAttested(NOT_ENCRYPTED) from None  # the cause may quote the model
        if (failure := _failure(event)) is not None:
            raise error_inside_answer(failure)
        answer.completion_id = answer.completion_id or _name(event.get("id"))
        answer.model = answer.model or api.label(event.get("model"))
        if isinstance(counts := event.get("usage"), dict):
            usage = api.usage_of([counts.get("prompt_tokens")], [counts.get("completion_tokens")])
            answer.usage = usage or answer.usage
        for choice in api.few(event.get("choices"))[:1]:
            answer.answered = True
            answer.end(choice.get("finish_reason"))
            delta, message = choice.get("delta") or {}, choice.get("message") or {}
            if _text_of(delta.get("content")) or _calls_in(delta):
                self._take(answer, delta, is_whole=False)
            elif message:
                self._take_message(answer, message)
                answer.done = event.get("object") == "chat.completion"
            elif words := _text_of(choice.get("text")):  # in the form before chats
                answer.say(words)

    def _take_message(self, answer: api.Answer, message: api.Block) -> None:
        """Take a message; some servers repeat it in each event of a stream, as it grows."""
        words, calls = _text_of(message.get("content")), _calls_in(message)
        if calls or (words and not answer.memo):
            if answer.is_repeated_by(words):
                answer.restart()
            self._take(answer, message, is_whole=True)

    def _take(self, answer: api.Answer, message: api.Block, *, is_whole: bool) -> None:
        if words := _text_of(message.get("content")):
            answer.say(words)
        for piece in _calls_in(message):
            function = piece.get("function") or piece
            name, id_, place = (
                api.label(function.get("name")),
                api.label(piece.get("id")),
                piece.get("index"),
            )
            call = None if is_whole else _continued(answer, place, name, id_)
            if call is None:
                call = answer.begin({"id": "", "name": ""}, ("call", len(answer.blocks)))
                answer.memo[place] = answer.memo[None] = call
            call["id"], call["name"] = call["id"] or id_, call["name"] or name
            arguments = function.get("arguments", function.get("input"))
            if arguments is not None:
                answer.add(call, "arguments", as_json(arguments))

    def listing(self) -> api.Question[Sequence[api.ListedModel]]:
        return self.get("/models"), _listed


def _listed(body: api.Block) -> Sequence[api.ListedModel]:
    return [
        api.ListedModel(
            str(entry["id"]),
            _sees_images(entry),
            context_tokens=_context_tokens(entry),
            at_llama_cpp=entry.get("owned_by") == "llamacpp",
        )
        for entry in body["data"]
    ]


_CONTEXT: Final = (
    ("max_model_len",),  # vLLM, SGLang
    ("context_length",),  # OpenRouter, Together
    ("top_provider", "context_length"),  # the provider that OpenRouter now prefers
    ("max_context_length",),  # Mistral
    ("context_window",),  # Groq
    ("meta", "n_ctx"),  # llama-swap
)
"""Keys under which servers say how many tokens a model reads."""


def _context_tokens(entry: api.Block) -> int | None:
    found = (api.count(api.inside(entry, *keys)) for keys in _CONTEXT)
    return min(filter(None, found), default=None)


def _bridged(messages: Iterable[Message]) -> Iterator[Message]:
    """Insert a turn of the model between results and a person's message, for Mistral's models."""
    before: Role | None = None
    for message in messages:
        if before is Role.TOOL and message.role is Role.USER:
            yield Message(Role.ASSISTANT, api.NOTHING_SAID)
        yield message
        before = message.role


def _message(message: Message) -> api.Block:
    content: object = message.content or ""
    if message.role is Role.ASSISTANT and not (message.content or "").strip():
        content = api.NOTHING_SAID  # servers such as Mistral's refuse empty words of the model
    if message.tool_calls:
        calls = [
            {
                "id": call.id,
                "type": "function",
                "function": {
                    "name": api.safe_name(call.name),
                    "arguments": _sent_arguments(call.arguments),
                },
            }
            for call in message.tool_calls
        ]
        return {"role": message.role, "content": message.content, "tool_calls": calls}
    if message.role is Role.TOOL:
        return {"role": message.role, "content": content, "tool_call_id": message.tool_call_id}
    if message.images:
        words = [{"type": "text", "text": content}] if content else []
        urls = [f"data:{one.content_type};base64,{base64_of(one)}" for one in message.images]
        content = [*words, *({"type": "image_url", "image_url": {"url": url}} for url in urls)]
    return {"role": message.role, "content": content}


def _sent_arguments(arguments: str) -> str:
    """Return arguments as a JSON object: servers parse those of earlier calls."""
    sent = arguments_object(arguments)
    return json.dumps(sent) if sent == {"not_json": arguments} else arguments or "{}"


def _text_of(content: object) -> str:
    """Return the text of a content, which may be a list of parts."""
    if isinstance(content, dict):
        content = [content]
    if not isinstance(content, list):
        if content is not None and not isinstance(content, str):
            raise TypeError("no text")
        return content or ""
    parts = (part.get("text") for part in content if isinstance(part, dict))
    return "".join(text for text in parts if isinstance(text, str))


def _calls_in(message: api.Block) -> list[Any]:
    """Return the calls of a message, or pieces of them, in any of the forms that servers use."""
    calls = message.get("tool_calls")
    if found := api.few([calls] if isinstance(calls, dict) else calls):
        return found
    if legacy := message.get("function_call"):
        return [{"index": LEGACY, "function": legacy}]
    content = message.get("content")
    parts = content if isinstance(content, list) else []
    return [part for part in parts if isinstance(part, dict) and part.get("type") in _CALL_PARTS]


def _continued(answer: api.Answer, place: object, name: str, id_: str) -> api.Block | None:
    """Return the call that a piece continues, or None if it begins one.

    Servers differ: some number every call 0 (Ollama), some do not number calls. Some repeat the
    name in every piece, some change the id. So a piece with a name begins a call even at a known
    place, unless the call there has no name yet, or the same id.
    """
    call: api.Block | None = answer.memo.get(place)
    if call is None or place == LEGACY or not (call["name"] and name):
        return call
    return call if id_ and id_ == call["id"] else None


def _failure(event: api.Block) -> Any:
    """Return the error in place of an answer, or None."""
    if event.get("error"):
        return event["error"]
    if event.get("object") == "error":  # the form of older vLLM
        return {"message": event.get("message"), "code": event.get("code")}
    if "choices" not in event and (event.get("detail") or event.get("message")):
        return {"message": event.get("detail") or event["message"], "code": event.get("code")}
    return None


def _name(id_: object) -> str:
    """Return an answer's id, never shortened, because its signature is found by it."""
    is_name = isinstance(id_, str) and len(id_) <= api.MAX_LABEL_CHARACTERS
    return str(id_) if is_name and str(id_).isascii() and str(id_).isprintable() else ""


def _sees_images(entry: api.Block) -> bool | None:
    """Return whether a model takes images, in the form of OpenRouter or Mistral."""
    for keys in (("input_modalities",), ("architecture", "input_modalities")):
        modalities = api.inside(entry, *keys)
        if isinstance(modalities, list):
            return "image" in modalities
    vision = api.inside(entry, "capabilities", "vision")
    return vision if isinstance(vision, bool) else None


# Encryption of fields ---------------------------------------------------------------------------
#
# Contents, reasoning, and the names, arguments and definitions of tools are encrypted. Model,
# roles, ids and counts stay readable, because the gateway routes and counts by them. NEAR AI's
# servers expect exactly these fields with `X-Encrypt-All-Fields: true`
# (https://github.com/nearai/inference-sdk). A list of parts is encrypted as a whole, as its JSON.

_ENCRYPTED: Final = frozenset(
    {"content", "text", "reasoning_content", "reasoning", "refusal", "name", "arguments"}
)
_HOLDERS: Final = frozenset(
    {"message", "delta", "content", "tool_calls", "function", "function_call"}
)
Transform = Callable[[str], str]


def seal_request(request: api.Block, seal: Transform) -> None:
    """Encrypt, in place, all conversation in a request."""
    calls = [call for message in request["messages"] for call in message.get("tool_calls", ())]
    for message in request["messages"]:
        if content := message["content"]:
            message["content"] = seal(_as_text(content))
    for holder in (*calls, *request.get("tools", ())):
        members = holder["function"].items()
        holder["function"] = {key: seal(as_json(one)) for key, one in members}


def _as_text(content: str | list[api.Block]) -> str:
    """Return a content as text; the model's side reads a JSON array as a list of parts."""
    if isinstance(content, list):
        return as_json(content)
    is_array = isinstance(api.json_in(content), list)
    return as_json([{"type": "text", "text": content}]) if is_array else content


def open_answer(choices: object, open_: Transform) -> None:
    """Decrypt, in place, all words in the choices of an answer or an event.

    Raises:
        ValueError: some words are not encrypted to this request.
    """
    for holder in choices if isinstance(choices, list) else [choices]:
        if not isinstance(holder, dict):
            continue
        for key, value in holder.items():
            if key in _HOLDERS and isinstance(value, dict | list):
                open_answer(value, open_)
            elif key in _ENCRYPTED and value is not None:
                if not isinstance(value, str):
                    raise ValueError("not encrypted")
                holder[key] = open_(value)
