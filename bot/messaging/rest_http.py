"""HTTP to signal-cli-rest-api: one session, and one gate that every request passes.

The gate lets few requests through at a time, bounds each of them and its answer, and turns every
failure into a SignalError. The server itself has no time limit and no limit of calls.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from typing import Any, Final

import aiohttp
from aiohttp import hdrs
from aiohttp.client_middlewares import ClientHandlerType, ClientMiddlewareType

from bot.backoff import Backoff
from bot.errors import SignalTimeout, SignalUnavailable
from bot.http_client import new_session, whole_body
from bot.messaging.receipts import PROOF_SECONDS
from bot.messaging.rest_errors import error_from_answer
from bot.messaging.rest_places import Places, RequestKind, RequestTimeouts

MAX_ANSWER_BYTES: Final = 16 * 2**20
SEND_PATH: Final = "/v2/send"
PROBE_PATH: Final = "/v1/accounts"
_SIGNS_OF_LIFE: Final = ("/v1/typing-indicator/", "/v1/reactions/", "/v1/receipts/")
_FILES: Final = "/v1/attachments/"


class AnswerTooBig(SignalTimeout):
    """The answer has more bytes than are read; what was asked may have been done."""


@dataclass(frozen=True, slots=True)
class RestTimeouts:
    """How long the REST transport waits for what, in seconds.

    Attributes:
        connect: for a connection, HTTP or websocket.
        request: for the answer to a question, or to a sign of life.
        send: for the answer to whatever changes something, and for files; the server itself never
            gives up.
        receipt: for the phone's receipt of a message whose answer was lost.
        proof: for the answer after the phone's receipt; see `receipts`.
        turn: for a place among the calls in flight.
        late: before a request runs late, at least; see `rest_places`.
        ping_every: between two websocket pings.
        ping_answer: for the answer to a ping; without it the connection is given up.
        probe_every: between two questions whether signal-cli lives.
        close: for the closing handshake of the websocket.
        stop: for the end of the websocket at `stop_receiving`.
        backoff: between two attempts to connect.
    """

    connect: float = 10.0
    request: float = 15.0
    send: float = 60.0
    receipt: float = 15.0
    proof: float = PROOF_SECONDS
    turn: float = 120.0
    late: float = 5.0
    ping_every: float = 20.0
    ping_answer: float = 20.0
    probe_every: float = 30.0
    close: float = 2.0
    stop: float = 10.0
    backoff: Backoff = field(default_factory=lambda: Backoff(0.2, 10.0))


class Gate:
    """Client middleware: few requests at once, each bounded, each failure a SignalError.

    Args:
        bounds: of the waits for a turn and for an answer.

    Attributes:
        places: who may have a request open at the server.
    """

    def __init__(self, bounds: RestTimeouts) -> None:
        self.places = Places(
            RequestTimeouts(
                turn=bounds.turn, least=bounds.late, question=bounds.request, answer=bounds.send
            )
        )

    async def __call__(
        self, request: aiohttp.ClientRequest, handler: ClientHandlerType
    ) -> aiohttp.ClientResponse:
        """Pass a request on when its turn comes; its answer is then here in whole."""
        return await self._pass(_kind(request), request, handler)

    def of(self, kind: RequestKind) -> ClientMiddlewareType:
        """Return the middleware for requests of a kind that their addresses do not tell."""
        return partial(self._pass, kind)

    async def _pass(
        self, kind: RequestKind, request: aiohttp.ClientRequest, handler: ClientHandlerType
    ) -> aiohttp.ClientResponse:
        with _translated():
            async with self.places.take(kind):
                response = await handler(request)
                body = await response.read()
        if response.status >= HTTPStatus.MULTIPLE_CHOICES:
            text = body.decode(errors="replace")
            raise error_from_answer(response.status, text, request.url.path)
        return response


def _kind(request: aiohttp.ClientRequest) -> RequestKind:
    """What a request is about, as far as its address tells."""
    path = request.url.path
    if request.method != hdrs.METH_GET:
        return (
            RequestKind.SIGN if any(part in path for part in _SIGNS_OF_LIFE) else RequestKind.CHANGE
        )
    if _FILES in path:
        return RequestKind.FILE
    return RequestKind.PROBE if path.endswith(PROBE_PATH) else RequestKind.QUESTION


def open_session(gate: Gate, bounds: RestTimeouts) -> aiohttp.ClientSession:
    """Return a session whose requests pass the gate; its owner closes it."""
    return new_session(
        aiohttp.ClientTimeout(total=None, sock_connect=bounds.connect),
        middlewares=(gate,),
        response_class=_Answer,
    )


class _Answer(aiohttp.ClientResponse):
    """An answer whose body is bounded, and read the same from every version of the server."""

    async def read(self) -> bytes:
        """Return the body; AnswerTooBig when it is, for the request did arrive."""
        if self._body is None:
            try:
                self._body = await whole_body(
                    self,
                    MAX_ANSWER_BYTES,
                    AnswerTooBig("signal-cli-rest-api gave an answer that is too big."),
                )
            except BaseException:
                self.close()
                raise
        return await super().read()

    async def json(self, **_: Any) -> Any:
        """Return the decoded body; a send is answered by an object up to 0.100, later a list.

        Raises:
            ValueError: the body is no JSON.
        """
        try:
            decoded = json.loads(await self.read())
        except RecursionError:
            raise ValueError("nested too deeply") from None
        one_result = self.url.path.endswith(SEND_PATH) and isinstance(decoded, dict)
        return [decoded] if one_result else decoded


@contextmanager
def _translated() -> Iterator[None]:
    """Turn what happens to a connection into what it means for the request."""
    try:
        yield
    except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError):
        raise SignalUnavailable("signal-cli-rest-api cannot be reached.") from None
    except TimeoutError:
        raise SignalTimeout("signal-cli-rest-api gave no answer in time.") from None
    except aiohttp.ClientError:
        raise SignalTimeout("The connection to signal-cli-rest-api broke.") from None
