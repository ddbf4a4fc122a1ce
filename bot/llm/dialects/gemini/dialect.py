"""Google's Gemini API.

Reference: https://ai.google.dev/api/generate-content
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Final
from urllib.parse import quote

from bot.llm.attested import Sealing
from bot.llm.dialect import Asked, ListedModel, Parameter, WireRequest
from bot.llm.dialects.gemini.answers import event_stream, whole_document
from bot.llm.dialects.gemini.requests import parameters, request_body
from bot.llm.dialects.gemini.wire import ModelEntry, ModelList
from bot.llm.endpoint import Endpoint
from bot.llm.stream import AnswerStream
from tools.schema import Declarations, to_gemini

VERSION: Final = "v1beta"
MAX_LISTED: Final = 1000
"""The most that the API lists at once."""

_VERSIONED: Final = re.compile(r"/v\d+(alpha|beta)?$")
_FAMILY: Final = "models/"


class Gemini:
    """Speaks Gemini's API. Implements `bot.llm.dialect.Dialect`.

    Args:
        endpoint: which model, and where; its address with or without `/v1beta`.
    """

    seals = False

    def __init__(self, endpoint: Endpoint) -> None:
        base_url = endpoint.base_url.rstrip("/")
        versioned = base_url if _VERSIONED.search(base_url) else f"{base_url}/{VERSION}"
        self._model = endpoint.model.removeprefix(_FAMILY)
        self._as_set = endpoint.model
        self._of = f"gemini:{self._model}"
        self._models_url = f"{versioned}/models"
        self._url = f"{self._models_url}/{quote(self._model, safe='')}"
        self._declarations = Declarations(to_gemini)
        self._keyless = {
            **replace(endpoint, api_key=None).headers,
            "accept": "text/event-stream, application/json",
            "content-type": "application/json",
        }
        self.use_key(endpoint.api_key)

    def use_key(self, api_key: str | None) -> None:
        """Take another key, from the next request on."""
        self._headers = {**self._keyless, "x-goog-api-key": api_key} if api_key else self._keyless

    def put(self, asked: Asked) -> WireRequest:
        """Return the request for an answer."""
        is_stream = Parameter.STREAM not in asked.omitted
        method = "streamGenerateContent?alt=sse" if is_stream else "generateContent"
        body = request_body(self._of, asked, self._declarations)
        return WireRequest(f"{self._url}:{method}", self._headers, body)

    def parameters(self, asked: Asked) -> Collection[Parameter]:
        """Return what a request has that the API may refuse."""
        return parameters(asked)

    def reader(self, content_type: str, sealing: Sealing | None) -> AnswerStream:
        """Return what reads an answer, streamed or not, whatever was asked."""
        if content_type.startswith("application/json"):
            return whole_document(self._of)
        return event_stream(self._of)

    def listing(self) -> WireRequest:
        """Return the request for the models that there are."""
        return WireRequest(f"{self._models_url}?pageSize={MAX_LISTED}", self._headers)

    def listed(self, body: bytes) -> Sequence[ListedModel]:
        """Return the models that there are; ValueError where that cannot be read."""
        return [self._known(entry) for entry in ModelList.model_validate_json(body).models]

    def lookup(self) -> WireRequest:
        """Return the request for what is said of the model."""
        return WireRequest(self._url, self._headers)

    def looked_up(self, body: bytes) -> ListedModel | None:
        """Return what is said of the model; ValueError where that cannot be read."""
        return self._known(ModelEntry.model_validate_json(body))

    def _known(self, entry: ModelEntry) -> ListedModel:
        """Return a model by its name as the settings spell it, with `models/` before it or not."""
        name = entry.name.removeprefix(_FAMILY)
        return ListedModel(self._as_set if name == self._model else name)
