"""Google's Gemini API.

References: https://ai.google.dev/api/generate-content and
https://ai.google.dev/gemini-api/docs/thought-signatures
"""

# ruff: noqa: D102 - the docstrings are in bot.llm.api

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final
from urllib.parse import quote

from bot.config.llm import LlmSettings
from bot.llm import api
from bot.llm.arguments import as_json
from bot.llm.blocks import BlockApi, Turns
from bot.llm.rearranged import base64_of, images_after_results, system_text
from bot.llm.refusals import error_inside_answer
from conversation_store.models import Image, Message
from tools.http import Request
from tools.schema import Declarations, from_gemini_name, gemini_name, to_gemini

VERSION: Final = "v1beta"
MAX_LISTED: Final = 1000
"""The API's own limit."""
FOREIGN: Final = "skip_thought_signature_validator"
"""Replaces the signature of calls that another model made; the API accepts that."""

_VERSIONED: Final = re.compile(r"/v\d+(alpha|beta)?$")
_FAMILY: Final = "models/"


class Gemini(BlockApi):
    """Speaks Gemini's API; the endpoint's address may end with `/v1beta`."""

    name = "gemini"
    model_role = "model"
    content = "parts"
    foreign = MappingProxyType({"thoughtSignature": FOREIGN})

    def __init__(self, llm: LlmSettings) -> None:
        base_url = llm.base_url
        if _VERSIONED.search(base_url) is None:
            base_url = f"{base_url}/{VERSION}"
        super().__init__(llm, f"{base_url}/models", "text/event-stream")
        self._name = llm.model.removeprefix(_FAMILY)
        self.of = f"{self.name}:{self._name}"
        self._declarations = Declarations(to_gemini)

    def key_headers(self, api_key: str) -> Mapping[str, str]:
        return {"x-goog-api-key": api_key}

    def put(self, asked: api.Asked) -> Request:
        messages = asked.messages
        body: api.Block = {}
        if text := system_text(messages):
            body["systemInstruction"] = {"parts": [{"text": text}]}
        body["contents"] = Turns(self).of(images_after_results(messages))
        if tools := asked.request.tools:
            body["tools"] = [{"functionDeclarations": list(self._declarations.of(tools))}]
            if not asked.request.may_call:
                body["toolConfig"] = {"functionCallingConfig": {"mode": "NONE"}}
        return self.post(f"/{quote(self._name, safe='')}:streamGenerateContent?alt=sse", body)

    def text(self, text: str) -> api.Block:
        return {"text": text}

    def image(self, image: Image) -> api.Block:
        return {"inlineData": {"mimeType": image.content_type, "data": base64_of(image)}}

    def call(self, id_: str, name: str, arguments: api.Block) -> api.Block:
        del id_
        return {"functionCall": {"name": _sent_name(name), "args": arguments}}

    def result(self, id_: str, name: str, message: Message) -> api.Block:
        del id_
        response = {"error" if message.failed else "result": message.content or ""}
        return {"functionResponse": {"name": _sent_name(name), "response": response}}

    def read(self, answer: api.Answer, event: api.Block) -> None:
        if event.get("error"):
            raise error_inside_answer(event["error"])
        answer.completion_id = answer.completion_id or api.label(event.get("responseId"))
        answer.model = api.label(event.get("modelVersion")) or answer.model
        if isinstance(counts := event.get("usageMetadata"), dict):
            prompt = [counts.get("promptTokenCount", 0), counts.get("toolUsePromptTokenCount")]
            written = [counts.get("candidatesTokenCount", 0), counts.get("thoughtsTokenCount")]
            answer.usage = api.usage_of(prompt, written)
        if api.label(api.inside(event, "promptFeedback", "blockReason")):
            answer.end("prohibited_content")
        for candidate in api.few(event.get("candidates"))[:1]:
            for part in api.few(api.inside(candidate, "content", "parts")):
                self._take(answer, part)
            answer.end(candidate.get("finishReason"))
        answer.answered = answer.answered or bool(answer.finish)
        answer.done = bool(answer.finish) and answer.usage is not None

    def _take(self, answer: api.Answer, part: api.Block) -> None:
        if part.get("thought"):
            return
        text, call, signature = map(part.get, ("text", "functionCall", "thoughtSignature"))
        if not call and not signature:
            if text:
                answer.say(text)
            return
        block = answer.begin({})
        if signature:
            block |= {"signed": True, "thoughtSignature": str(signature)}
        if text:
            answer.add(block, "text", text)
        if call:
            block["name"] = from_gemini_name(api.label(call.get("name")))
            block["arguments"] = as_json(call.get("args") or {})
        elif not text:
            block["own"] = part

    def listing(self) -> api.Question[Sequence[api.ListedModel]]:
        request = self.get(f"?pageSize={MAX_LISTED}")
        return request, lambda body: [self._known(entry) for entry in body["models"]]

    def _known(self, entry: api.Block) -> api.ListedModel:
        """Return a model; spell its name like the settings, with or without `models/`."""
        name = str(entry["name"]).removeprefix(_FAMILY)
        tokens = api.count(entry.get("inputTokenLimit"))
        return api.ListedModel(self.model if name == self._name else name, context_tokens=tokens)


def _sent_name(name: str) -> str:
    return gemini_name(name)[: api.MAX_NAME_CHARACTERS]
