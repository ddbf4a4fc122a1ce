"""Ollama's own API, which tells the abilities of a model, and how much of a prompt it reads.

Reference: https://docs.ollama.com/api
"""

# ruff: noqa: D102 - the docstrings are in bot.llm.api

from collections.abc import Sequence
from typing import Final

from bot.config.llm import LlmSettings
from bot.llm import api
from bot.llm.arguments import as_json
from bot.llm.errors import LlmBroken
from bot.llm.rearranged import arguments_object, base64_of, images_after_results
from bot.llm.refusals import error_inside_answer
from conversation_store.models import Message, Role
from tools.http import Request
from tools.schema import to_openai

KEEP_ALIVE: Final = "30m"
"""How long the model stays loaded. The server's own five minutes are too short for a chat."""
LATEST: Final = ":latest"
"""The tag that Ollama adds to a model's name without one."""
NOT_FROM_THE_MODEL: Final = frozenset({"load", "unload"})


class Ollama(api.Api):
    """Speaks Ollama's API; the endpoint's address may end with `/api` or `/v1`."""

    name = "ollama"
    marks_end = True

    def __init__(self, llm: LlmSettings) -> None:
        base_url = llm.base_url.removesuffix("/v1").removesuffix("/api")
        super().__init__(llm, f"{base_url}/api", "application/x-ndjson")
        # The server silently cuts prompts that are longer.
        self._context_tokens = llm.context_tokens

    def put(self, asked: api.Asked) -> Request:
        request = asked.request
        body: api.Block = {"model": self.model, "messages": _messages(asked.messages)}
        if request.tools and request.may_call:  # the API cannot forbid calls
            body["tools"] = [to_openai(tool) for tool in request.tools]
        body["stream"] = True
        if api.Parameter.THINK not in asked.omitted:
            body["think"] = True
        body["keep_alive"] = KEEP_ALIVE
        body["options"] = {"num_ctx": self._context_tokens}
        return self.post("/chat", body)

    def read(self, answer: api.Answer, event: api.Block) -> None:
        if event.get("error"):
            raise error_inside_answer(event["error"])
        if (message := event.get("message")) is not None:
            answer.answered = True
            if words := message.get("content"):
                answer.say(words)
            for call in api.few(message.get("tool_calls")):
                function = call["function"]
                begun = answer.begin({"id": api.label(call.get("id")), "name": function["name"]})
                answer.add(begun, "arguments", as_json(function.get("arguments") or {}))
        answer.model = api.label(event.get("model")) or answer.model
        if event.get("done"):
            self._end(answer, event)

    def _end(self, answer: api.Answer, event: api.Block) -> None:
        answer.done = answer.answered = True
        answer.end(event.get("done_reason"))
        if answer.finish in NOT_FROM_THE_MODEL:
            raise LlmBroken("The endpoint loaded its model and did not ask it.")
        # The server gives no count for a prompt that is completely in its cache.
        answer.usage = api.usage_of(
            [event.get("prompt_eval_count") or 0], [event.get("eval_count")]
        )

    def listing(self) -> api.Question[Sequence[api.ListedModel]]:
        return self.get("/tags"), self._listed

    def _listed(self, body: api.Block) -> Sequence[api.ListedModel]:
        names = [str(tag.get("model") or tag["name"]) for tag in body["models"]]
        latest = f"{self.model}{LATEST}"
        return [api.ListedModel(self.model if name == latest else name) for name in names]

    def lookup(self) -> api.Question[api.ListedModel | None]:
        return self.post("/show", {"model": self.model}), self._looked_up

    def _looked_up(self, body: api.Block) -> api.ListedModel:
        known, info = body.get("capabilities"), body.get("model_info")
        sees = "vision" in known if isinstance(known, list) else None
        family = api.inside(info, "general.architecture")
        tokens = api.count(api.inside(info, f"{family}.context_length"))
        return api.ListedModel(self.model, sees, tokens)


def _messages(messages: Sequence[Message]) -> list[api.Block]:
    found: list[api.Block] = []
    names: dict[str, str] = {}
    for message in images_after_results(messages):
        said: api.Block = {"role": message.role, "content": message.content or ""}
        if message.tool_calls:
            names |= {call.id: call.name for call in message.tool_calls}
            said["tool_calls"] = [
                {"function": {"name": call.name, "arguments": arguments_object(call.arguments)}}
                for call in message.tool_calls
            ]
        if message.role is Role.TOOL:
            said["tool_name"] = names.get(message.tool_call_id or "", "unknown")
        if message.images:
            said["images"] = [base64_of(image) for image in message.images]
        found.append(said)
    return found
