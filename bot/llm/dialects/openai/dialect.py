"""OpenAI's chat completions.

Reference: https://platform.openai.com/docs/api-reference/chat
"""

from collections.abc import Collection, Sequence
from dataclasses import replace

from bot.llm.attested import Sealing
from bot.llm.dialect import Asked, ListedModel, Parameter, WireRequest
from bot.llm.dialects.openai.answers import event_stream, whole_document
from bot.llm.dialects.openai.requests import parameters, request_body
from bot.llm.dialects.openai.wire import ModelList
from bot.llm.endpoint import Endpoint
from bot.llm.stream import AnswerStream


class OpenAi:
    """Speaks with OpenAI-compatible servers. Implements `bot.llm.dialect.Dialect`.

    Args:
        endpoint: which model, and where.
    """

    seals = True

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._completions_url = endpoint.url("chat/completions")
        self._models_url = endpoint.url("models")
        self.use_key(endpoint.api_key)

    def use_key(self, api_key: str | None) -> None:
        """Take another bearer token, from the next request on."""
        self._endpoint = replace(self._endpoint, api_key=api_key)
        self._headers = {
            **self._endpoint.headers,
            "accept": "text/event-stream, application/json",
            "content-type": "application/json",
        }

    def put(self, asked: Asked) -> WireRequest:
        """Return the request for a completion."""
        headers = self._headers
        if asked.attested:
            # An endpoint that answers under another name adds a warning of its own to the answer,
            # which breaks its hash; it refuses instead.
            headers = {**headers, "x-no-aliasing": "true"}
        if asked.sealing is not None:
            headers = {**headers, **asked.sealing.headers}
        return WireRequest(
            self._completions_url, headers, request_body(self._endpoint.model, asked)
        )

    def parameters(self, asked: Asked) -> Collection[Parameter]:
        """Return what a request has that an endpoint may refuse."""
        return parameters(asked)

    def reader(self, content_type: str, sealing: Sealing | None) -> AnswerStream:
        """Return what reads an answer.

        An endpoint that cannot stream may answer with a whole document, whatever was asked.
        """
        if content_type.startswith("application/json"):
            return whole_document(sealing)
        return event_stream(sealing)

    def listing(self) -> WireRequest:
        """Return the request for the models that there are."""
        return WireRequest(self._models_url, self._headers)

    def listed(self, body: bytes) -> Sequence[ListedModel]:
        """Return the models that there are; ValueError where that cannot be read."""
        entries = ModelList.model_validate_json(body).data
        return [ListedModel(entry.id, sees_images=entry.sees_images) for entry in entries]

    def lookup(self) -> WireRequest:
        """Return the request for the models that there are: the model is one of them."""
        return self.listing()

    def looked_up(self, body: bytes) -> ListedModel | None:
        """Return what the list says of the model; ValueError where that cannot be read."""
        return next((one for one in self.listed(body) if one.id == self._endpoint.model), None)
