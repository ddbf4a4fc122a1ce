"""Ollama's own API, which says what a model can do, and how much of a prompt it reads.

Reference: https://docs.ollama.com/api
"""

from collections.abc import Collection, Sequence
from typing import Final

from bot.llm.attested import Sealing
from bot.llm.dialect import Asked, ListedModel, Parameter, WireRequest
from bot.llm.dialects.bodies import dumped
from bot.llm.dialects.ollama.answers import line_stream, whole_document
from bot.llm.dialects.ollama.requests import parameters, request_body
from bot.llm.dialects.ollama.wire import Shown, Tags
from bot.llm.endpoint import Endpoint
from bot.llm.stream import AnswerStream

LATEST: Final = ":latest"
"""The tag of a model that is named without one."""


class Ollama:
    """Speaks Ollama's own API. Implements `bot.llm.dialect.Dialect`.

    Args:
        endpoint: which model, and where; its address with or without `/api` or `/v1`.
        context_tokens: what the model is to read.
    """

    seals = False

    def __init__(self, endpoint: Endpoint, *, context_tokens: int) -> None:
        self._model = endpoint.model
        self._context_tokens = context_tokens
        self._base_url = endpoint.base_url.rstrip("/").removesuffix("/v1").removesuffix("/api")
        self._keyless = {
            name: value for name, value in endpoint.headers.items() if name != "authorization"
        } | {"accept": "application/x-ndjson, application/json", "content-type": "application/json"}
        self.use_key(endpoint.api_key)

    def use_key(self, api_key: str | None) -> None:
        """Take another bearer token, from the next request on."""
        bearer = {"authorization": f"Bearer {api_key}"} if api_key else {}
        self._headers = {**self._keyless, **bearer}

    def put(self, asked: Asked) -> WireRequest:
        """Return the request for an answer."""
        body = request_body(self._model, self._context_tokens, asked)
        return WireRequest(f"{self._base_url}/api/chat", self._headers, body)

    def parameters(self, asked: Asked) -> Collection[Parameter]:
        """Return what a request has that a server may refuse."""
        return parameters(asked)

    def reader(self, content_type: str, sealing: Sealing | None) -> AnswerStream:
        """Return what reads an answer, streamed or not."""
        if content_type.startswith("application/json"):
            return whole_document()
        return line_stream()

    def listing(self) -> WireRequest:
        """Return the request for the models on the server's disk."""
        return WireRequest(f"{self._base_url}/api/tags", self._headers)

    def listed(self, body: bytes) -> Sequence[ListedModel]:
        """Return the models that there are; ValueError where that cannot be read."""
        names = [tag.model or tag.name for tag in Tags.model_validate_json(body).models]
        return [ListedModel(self._as_set(name)) for name in names]

    def lookup(self) -> WireRequest:
        """Return the request for what the model can do."""
        return WireRequest(
            f"{self._base_url}/api/show", self._headers, dumped({"model": self._model})
        )

    def looked_up(self, body: bytes) -> ListedModel | None:
        """Return what the model can do; ValueError where that cannot be read."""
        known = Shown.model_validate_json(body).capabilities
        if known is None:
            return ListedModel(self._model)
        return ListedModel(self._model, sees_images="vision" in known, calls_tools="tools" in known)

    def _as_set(self, name: str) -> str:
        """Return a model's name as the settings spell it: `llama3` is `llama3:latest`."""
        return self._model if name in {self._model, f"{self._model}{LATEST}"} else name
