"""Write requests to signal-cli-rest-api, limit them, and turn their failures into SignalErrors.

The server may crash with more than about four requests at once. It also keeps a request for ever
if signal-cli lost it. So at most three requests that people wait for run at once. A fourth place,
the spare one, is for signs of life (typing, reactions, read marks) or one request that runs late.

A request runs late after a multiple of the time that the last request of its kind took. Its place
goes to the next request. Most late requests end then, as perhaps done. A request with a file or to
a group may really need long. It moves to the spare place until it is answered, until another one
runs late, or until its time limit. After that the bot gives signs of life again.

While requests run late without an answer, the allowed time doubles. So the bot waits long enough
if everything has become slow (RFC 6298 does the same with packets).

Error bodies quote numbers, ids and texts. No error carries any of it, only its meaning.
"""

import asyncio
import re
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, Literal

import aiohttp
import structlog
from signalbot import SignalAPIError, SignalBotError

from bot.backoff import Backoff
from bot.observability.metrics import SIGNAL_STUCK, SIGNAL_UNANSWERED
from bot.signal.errors import (
    SignalAccountTrouble,
    SignalError,
    SignalLacks,
    SignalRateLimited,
    SignalRejected,
    SignalTimeout,
    SignalUnavailable,
)
from bot.signal.formatting import Span, spans_of
from bot.signal.messenger import RECONNECT
from bot.signal.trouble import trouble_in
from conversation_store.models import StyleRange, TextStyle

PLACES: Final = 3
USUAL_TIMES: Final = 4.0
"""A request runs late after this multiple of its kind's last answer time."""

LOOKED_AT_CHARACTERS: Final = 8_192
"""Length of the part of an error body that is searched; its reason comes first."""

_NO_FILE: Final = re.compile(r"no attachment with that name", re.IGNORECASE)
_RATE_LIMIT: Final = re.compile(r"rate.?limit|\[429\]", re.IGNORECASE)
_NOT_DONE: Final = re.compile(
    r"failed to send message|broken pipe|connection (reset|refused|closed)|(read|write|dial) tcp"
    r"|failed to get linked devices: .{0,200}(exception|time-?out)",
    re.IGNORECASE,
)

log = structlog.get_logger()


RequestKind = Literal["probe", "question", "sign_of_life", "text", "group", "file", "change"]
"""Kinds of requests that differ in how long they may take."""


WEIGHTS: Final[Mapping[RequestKind, float]] = {
    "probe": 1.0,
    "question": 2.0,
    "sign_of_life": 0.6,
    "text": 1.0,
    "group": 2.0,
    "file": 4.0,
    "change": 2.0,
}
"""Shortest time before a request of each kind runs late, in units of `RestTimeouts.late`."""

MAY_TAKE_LONG: Final = frozenset({"group", "file"})
"""For these, signal-cli encrypts for every device of every member, or uploads files."""


@dataclass(frozen=True, slots=True)
class RestTimeouts:
    """Time limits of the transport, in seconds."""

    connect: float = 10.0  # until a connection is open, HTTP or websocket
    request: float = 15.0  # until the answer to a question or a sign of life
    send: float = 60.0  # for changes and files; the server itself never gives up
    turn: float = 120.0  # until a request gets its place
    late: float = 5.0  # shortest time until a request of weight 1 runs late
    ping_every: float = 20.0  # silence before the bot pings
    ping_answer: float = 20.0  # until the answer to a ping, otherwise the connection ends
    probe_every: float = 30.0  # between two checks that signal-cli answers
    close: float = 2.0  # until the end of the websocket's closing handshake
    stop: float = 10.0  # until `stop_receiving` has closed the websocket
    backoff: Backoff = RECONNECT  # between two attempts to connect

    def longest(self, kind: RequestKind) -> float:
        """Return the time limit of a kind of request."""
        quick = kind in {"probe", "question", "sign_of_life"}
        return self.request if quick else self.send


class Line:
    """Semaphore of places for requests in which a request may wait at the front."""

    def __init__(self, places: int) -> None:
        self._free = places
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def enter(self, *, first: bool) -> None:
        """Wait for a place."""
        if self._free:
            self._free -= 1
            return
        turn = asyncio.get_running_loop().create_future()
        add = self._waiting.appendleft if first else self._waiting.append
        add(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn in self._waiting:
                self._waiting.remove(turn)
            elif not turn.cancelled() and turn.exception() is None:
                self.leave()  # the place came at the same moment
            raise

    def refuse_all(self) -> None:
        """End all waits for a place with SignalUnavailable."""
        for turn in self._waiting:
            if not turn.done():
                turn.set_exception(SignalUnavailable("signal-cli-rest-api is stuck."))
        self._waiting.clear()

    def leave(self) -> None:
        """Give a place back."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():  # otherwise it was just cancelled
                turn.set_result(None)
                return
        self._free += 1


@dataclass(eq=False, slots=True)
class _Request:
    """A request that holds a place in `line`, which is None after it gave the place back."""

    kind: RequestKind
    line: Line | None
    began: float
    deadline: asyncio.Timeout

    def end(self) -> None:
        """Stop waiting for the answer."""
        if not self.deadline.expired():
            self.deadline.reschedule(asyncio.get_running_loop().time())

    def give_place(self) -> None:
        if self.line is not None:
            self.line.leave()
            self.line = None


class Places:
    """All places for requests.

    Attributes:
        line: for all requests but signs of life.
        ran_late: set when a request ran late; the reader clears it.
    """

    def __init__(self, timeouts: RestTimeouts) -> None:
        self._timeouts = timeouts
        self.line = Line(PLACES)
        self._signs = Line(1)
        self._spare: _Request | None = None  # holds the spare place
        self._stuck_since: float | None = None
        self._patience = dict.fromkeys(WEIGHTS, 0.0)
        self.ran_late = asyncio.Event()

    @property
    def stuck(self) -> bool:
        """Whether a request ran late and no later one has been answered since."""
        return self._stuck_since is not None

    def patience(self, kind: RequestKind) -> float:
        """Return the seconds after which a request runs late."""
        learned = max(self._patience[kind], WEIGHTS[kind] * self._timeouts.late)
        return min(learned, self._timeouts.longest(kind))

    @asynccontextmanager
    async def take(self, kind: RequestKind) -> AsyncIterator[None]:
        """Hold a place for the request inside the block; turn its failure into a SignalError.

        Raises:
            SignalUnavailable: no place was free in time.
            SignalTimeout: the block took too long.
        """
        request = await self._enter(kind)
        # Starts at the same instant as the deadline, so that both fire together if they are equal.
        late_at = request.began + self.patience(kind)
        late = asyncio.get_running_loop().call_at(late_at, self._run_late, request)
        try:
            with _translated():
                async with request.deadline:
                    yield
            self._answered(request)
        finally:
            late.cancel()
            request.give_place()
            if request is self._spare:
                self._spare = None

    async def _enter(self, kind: RequestKind) -> _Request:
        line = self._signs if kind == "sign_of_life" else self.line
        try:
            async with asyncio.timeout(self._timeouts.turn):
                await line.enter(first=kind == "probe")
        except TimeoutError:
            raise SignalUnavailable("Too many requests wait for signal-cli-rest-api.") from None
        began = asyncio.get_running_loop().time()
        deadline = asyncio.timeout_at(began + self._timeouts.longest(kind))
        request = _Request(kind, line, began, deadline)
        if kind == "sign_of_life":
            if self._spare is not None:
                request.give_place()
                raise SignalUnavailable("signal-cli-rest-api is too busy for signs of life.")
            self._spare = request
        return request

    def _answered(self, request: _Request) -> None:
        seconds = asyncio.get_running_loop().time() - request.began
        self._patience[request.kind] = USUAL_TIMES * seconds
        if self._stuck_since is not None and request.began > self._stuck_since:
            self._stuck_since = None
            SIGNAL_STUCK.set(0)
            log.info("signal.gateway_answers")

    def _run_late(self, request: _Request) -> None:
        now = asyncio.get_running_loop().time()
        self._patience[request.kind] = 2 * (now - request.began)
        SIGNAL_UNANSWERED.labels(request.kind).inc()
        if self._stuck_since is None:
            self._stuck_since = now
            SIGNAL_STUCK.set(1)
            seconds = round(now - request.began, 1)
            log.warning("signal.gateway_stuck", kind=request.kind, seconds=seconds)
        self.ran_late.set()
        if request.kind not in MAY_TAKE_LONG:
            request.end()
            return
        if self._spare is not None:
            self._spare.end()
        self._spare = request
        request.give_place()


NOT_TAKEN: Final = frozenset({*range(300, 400), 401, 403, 404, 405, 411, 413, 414, 431})
"""Statuses that refuse or redirect a request before its handler: nothing was sent.

Source: RFC 9110, RFC 6585. The server itself answers a send only with 201, 400, 429 and 500; the
others come from a proxy."""


LOST_TRACK: Final = frozenset({500, 502, 504, *range(520, 528)})
"""Statuses of a server, or of a proxy before it, that may still work on the request."""


class Refused(SignalTimeout):
    """The server answered a send with an error that may follow a delivery.

    It uses status 400 for everything that went wrong, and signalbot does not pass on the reason.
    """

    answered = True


def error_of_send(status: int, path: str = "") -> SignalError:
    """Return the error of an answer with a status of 300 or more to a send."""
    if status in LOST_TRACK:
        return SignalTimeout(f"signal-cli-rest-api answered with status {status}.")
    if status in NOT_TAKEN or status == HTTPStatus.TOO_MANY_REQUESTS:
        return error_from_status(status, path)
    return Refused(f"signal-cli-rest-api answered a send with status {status}.")


def error_from_status(status: int, path: str = "") -> SignalError:
    """Return the error of an answer with a status of 300 or more, except 400."""
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        return SignalRateLimited()
    if status == HTTPStatus.NOT_FOUND and "/v1/polls/" in path:
        return SignalLacks("This signal-cli-rest-api does not know polls.")
    return SignalUnavailable(f"signal-cli-rest-api answered with status {status}.")


def error_from_answer(  # noqa: PLR0911 - a list of cases
    status: int, body: str, path: str = ""
) -> SignalError:
    """Return the error of an answer with a status of 300 or more to a request of our own.

    `path` is that of the request; the end of a poll is a send.
    """
    body, is_send = body[:LOOKED_AT_CHARACTERS], "/v1/polls/" in path
    if status == HTTPStatus.NOT_FOUND and _NO_FILE.search(body):
        return SignalRejected("signal-cli-rest-api has no such file.")
    if status != HTTPStatus.BAD_REQUEST:
        return error_of_send(status, path) if is_send else error_from_status(status, path)
    if (trouble := trouble_in(body)) is not None:
        return SignalAccountTrouble(trouble)
    if _RATE_LIMIT.search(body):
        return error_from_status(HTTPStatus.TOO_MANY_REQUESTS)
    if is_send:
        return error_of_send(status, path)
    if _NOT_DONE.search(body):
        return SignalUnavailable("signal-cli could not reach Signal, or the server signal-cli.")
    return SignalRejected("signal-cli-rest-api refused the request.")


@contextmanager
def _translated() -> Iterator[None]:
    """Turn failures of aiohttp and signalbot inside the block into SignalErrors."""
    try:
        yield
    except SignalAPIError as error:
        raise _connection_error(error.__cause__) from None
    except SignalBotError:
        raise SignalRejected("signal-cli-rest-api does not know the chat.") from None
    except (TimeoutError, aiohttp.ClientError) as error:
        raise _connection_error(error) from None
    except (ValueError, RecursionError):
        raise SignalTimeout("signal-cli-rest-api gave an answer that cannot be read.") from None


def _connection_error(error: BaseException | None) -> SignalError:
    match error:
        case aiohttp.ClientConnectorError() | aiohttp.ConnectionTimeoutError():
            return SignalUnavailable("signal-cli-rest-api cannot be reached.")
        case aiohttp.ClientResponseError(status=status, request_info=request) if status >= 300:
            return error_of_send(status, request.url.path)
        case TimeoutError():
            return SignalTimeout("signal-cli-rest-api gave no answer in time.")
    return SignalTimeout("The connection to signal-cli-rest-api broke.")


MAX_STYLES: Final = 1_000
"""A message that Signal shows as text has room for some 500."""

_SIGNS: Final = {
    TextStyle.BOLD: "**",
    TextStyle.ITALIC: "*",
    TextStyle.STRIKETHROUGH: "~",
    TextStyle.SPOILER: "||",
    TextStyle.MONOSPACE: "`",
}
_UNSAFE_BEFORE: Final = {
    TextStyle.BOLD: "\\*",
    TextStyle.ITALIC: "\\*",
    TextStyle.STRIKETHROUGH: "\\",
    TextStyle.SPOILER: "\\|",
    TextStyle.MONOSPACE: "\\",
}
_ESCAPES: Final = str.maketrans({marker: f"\\{marker}" for marker in "*~|`"})


def escaped_markup(text: str, styles: Sequence[StyleRange]) -> str:
    """Return the text with markers that the server's parser turns back into text and styles.

    Drop styles that the parser would misread, for example of code that ends with a backslash.
    """
    if len(styles) > MAX_STYLES:
        return _escaped(text)
    pieces: list[str] = []
    written = 0
    for place, marker in _switches(_expressible(text, spans_of(text, styles))):
        pieces += (_escaped(text[written:place]), marker)
        written = place
    return "".join([*pieces, _escaped(text[written:])])


def _escaped(text: str) -> str:
    return text.translate(_ESCAPES)


def _expressible(text: str, spans: Sequence[Span]) -> Iterator[Span]:
    """Yield the spans that the server's parser can read.

    They nest without crossing, have no unsafe character before an edge, and no edge of italic text
    touches an edge of bold text.
    """
    bold = {edge for span in spans if span.style is TextStyle.BOLD for edge in span[:2]}
    ends: list[int] = []
    for span in spans:
        while ends and ends[-1] <= span.start:
            ends.pop()
        crosses = bool(ends) and ends[-1] < span.end
        before = {text[edge - 1] for edge in span[:2] if edge}
        between_bold = span.style is TextStyle.ITALIC and not bold.isdisjoint(span[:2])
        if not crosses and not between_bold and before.isdisjoint(_UNSAFE_BEFORE[span.style]):
            ends.append(span.end)
            yield span


def _switches(spans: Iterable[Span]) -> Iterator[tuple[int, str]]:
    """Yield every marker with its place; a style that begins later ends earlier."""
    opened: list[Span] = []
    for span in spans:
        while opened and opened[-1].end <= span.start:
            closed = opened.pop()
            yield closed.end, _SIGNS[closed.style]
        yield span.start, _SIGNS[span.style]
        opened.append(span)
    for span in reversed(opened):
        yield span.end, _SIGNS[span.style]
