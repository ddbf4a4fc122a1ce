"""Amazon Bedrock's Converse API, with one of its own keys or with an AWS account's signature.

Reference: https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ConverseStream.html
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from urllib.parse import quote

from bot.llm.attested import Sealing
from bot.llm.dialect import Asked, ListedModel, Parameter, WireRequest
from bot.llm.dialects.bedrock.answers import event_stream, whole_document
from bot.llm.dialects.bedrock.requests import PROBE, declaration, parameters, request_body
from bot.llm.dialects.bedrock.signing import Credentials, signed
from bot.llm.dialects.bedrock.wire import Event
from bot.llm.endpoint import Endpoint
from bot.llm.stream import AnswerStream
from tools.schema import Declarations


def _now() -> datetime:
    return datetime.now(UTC)


class Bedrock:
    """Speaks with Amazon Bedrock. Implements `bot.llm.dialect.Dialect`.

    What models there are is known to another service than the one that answers, and whoever may
    ask one may not ask the other. So listing asks the model for a single token instead: whoever
    gets it knows that the address, the key and the model are right.

    Args:
        endpoint: which model, and where; its key is one of Bedrock's own.
        credentials: of an AWS account, in place of such a key.
        clock: now, in UTC.
    """

    seals = False

    def __init__(
        self,
        endpoint: Endpoint,
        credentials: Credentials | None = None,
        *,
        clock: Callable[[], datetime] = _now,
    ) -> None:
        self._endpoint = endpoint
        self._of = f"bedrock:{endpoint.model}"
        self._url = endpoint.url(f"model/{quote(endpoint.model, safe='')}")
        self._credentials = credentials
        self._clock = clock
        self._declarations = Declarations(declaration)
        self.use_key(endpoint.api_key)

    def use_key(self, api_key: str | None) -> None:
        """Take another key, from the next request on; where requests are signed there is none."""
        key = api_key if self._credentials is None else None
        self._headers = {
            **replace(self._endpoint, api_key=key).headers,
            "accept": "application/vnd.amazon.eventstream, application/json",
            "content-type": "application/json",
        }

    def put(self, asked: Asked) -> WireRequest:
        """Return the request to converse."""
        action = "converse" if Parameter.STREAM in asked.omitted else "converse-stream"
        return self._request(action, request_body(self._of, asked, self._declarations))

    def parameters(self, asked: Asked) -> Collection[Parameter]:
        """Return what a request has that an endpoint may refuse."""
        return parameters(asked)

    def reader(self, content_type: str, sealing: Sealing | None) -> AnswerStream:
        """Return what reads an answer, streamed or not, whatever was asked."""
        if content_type.startswith("application/json"):
            return whole_document(self._of)
        return event_stream(self._of)

    def listing(self) -> WireRequest:
        """Return the request for a single token."""
        return self._request("converse", PROBE)

    def listed(self, body: bytes) -> Sequence[ListedModel]:
        """Return the model, which has answered; ValueError where it has not."""
        if Event.model_validate_json(body).output is None:
            raise ValueError("no answer")
        return [ListedModel(self._endpoint.model)]

    def lookup(self) -> WireRequest:
        """Return the request for a single token."""
        return self.listing()

    def looked_up(self, body: bytes) -> ListedModel | None:
        """Return the model, of which no more is said; ValueError where it has not answered."""
        return self.listed(body)[0]

    def _request(self, action: str, body: bytes) -> WireRequest:
        url = f"{self._url}/{action}"
        headers: Mapping[str, str] = self._headers
        if self._credentials is not None:
            headers = signed(url, headers, body, self._credentials, self._clock())
        return WireRequest(url, headers, body)
