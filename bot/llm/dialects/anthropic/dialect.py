"""Anthropic's Messages API, which other servers speak too.

Reference: https://platform.claude.com/docs/en/api/messages
"""

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Final
from urllib.parse import quote

from bot.llm.attested import Sealing
from bot.llm.dialect import Asked, ListedModel, Parameter, WireRequest
from bot.llm.dialects.anthropic.answers import event_stream, whole_document
from bot.llm.dialects.anthropic.requests import parameters, request_body
from bot.llm.dialects.anthropic.wire import ModelEntry, ModelList
from bot.llm.endpoint import Endpoint
from bot.llm.stream import AnswerStream
from tools.schema import Declarations, to_anthropic

VERSION: Final = "2023-06-01"
MAX_LISTED: Final = 1000
"""The most that the API lists at once."""


class Anthropic:
    """Speaks Anthropic's Messages API. Implements `bot.llm.dialect.Dialect`.

    Args:
        endpoint: which model, and where; its address with or without `/v1`.
    """

    seals = False

    def __init__(self, endpoint: Endpoint) -> None:
        self._model = endpoint.model
        self._of = f"anthropic:{endpoint.model}"
        self._base_url = f"{endpoint.base_url.rstrip('/').removesuffix('/v1')}/v1"
        self._declarations = Declarations(to_anthropic)
        self._keyless = {
            **replace(endpoint, api_key=None).headers,
            "accept": "text/event-stream, application/json",
            "anthropic-version": VERSION,
            "content-type": "application/json",
        }
        self.use_key(endpoint.api_key)

    def use_key(self, api_key: str | None) -> None:
        """Take another key, from the next request on."""
        self._headers = {**self._keyless, "x-api-key": api_key} if api_key else self._keyless

    def put(self, asked: Asked) -> WireRequest:
        """Return the request for a message."""
        body = request_body(self._model, self._of, asked, self._declarations)
        return WireRequest(f"{self._base_url}/messages", self._headers, body)

    def parameters(self, asked: Asked) -> Collection[Parameter]:
        """Return what a request has that an endpoint may refuse."""
        return parameters(asked)

    def reader(self, content_type: str, sealing: Sealing | None) -> AnswerStream:
        """Return what reads an answer, streamed or not, whatever was asked."""
        if content_type.startswith("application/json"):
            return whole_document(self._of)
        return event_stream(self._of)

    def listing(self) -> WireRequest:
        """Return the request for the models that there are."""
        return WireRequest(f"{self._base_url}/models?limit={MAX_LISTED}", self._headers)

    def listed(self, body: bytes) -> Sequence[ListedModel]:
        """Return the models that there are; ValueError where that cannot be read."""
        return [_listed(entry) for entry in ModelList.model_validate_json(body).data]

    def lookup(self) -> WireRequest:
        """Return the request for the model, which may be known by other names than listed."""
        return WireRequest(f"{self._base_url}/models/{quote(self._model, safe='')}", self._headers)

    def looked_up(self, body: bytes) -> ListedModel | None:
        """Return what is said of the model; ValueError where that cannot be read."""
        return _listed(ModelEntry.model_validate_json(body))


def _listed(entry: ModelEntry) -> ListedModel:
    return ListedModel(entry.id, sees_images=entry.sees_images)
