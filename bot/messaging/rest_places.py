"""Places for requests to signal-cli-rest-api, given back by those that never get their answer.

The server may crash with more than about four requests at once, and it keeps a request whose
answer it lost open for ever. So three places are for what people wait for. A fourth, the spare
one, is for a sign of life, or for a request that runs late.

A request runs late after a multiple of what requests of its kind usually take. Its place goes to
the next one. Most requests end then, as perhaps done. One that may honestly take long, with a file
or to a group, goes on in the spare place until it is answered, until another one runs late, or
until nobody waits for it any more. Signs of life are not given meanwhile.

How long requests usually take is a moving average. A request that ran late is no measurement; it
doubles the time that the next ones get until one of them is answered, so that the bot waits long
enough when everything has become slow (RFC 6298 does the same with packets).
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import structlog

from bot.errors import SignalUnavailable
from bot.observability.metrics import SIGNAL_STUCK, SIGNAL_UNANSWERED

PLACES: Final = 3
"""For what people wait for; with the spare one the server has at most four requests."""

USUAL_TIMES: Final = 4.0
"""A request runs late after so many times what its kind usually takes."""

GAIN: Final = 0.25
"""How much of the average the latest answer makes up."""

log = structlog.get_logger()


class RequestKind(StrEnum):
    """What a request is about, as far as it decides how long it may take."""

    PROBE = "probe"
    QUESTION = "question"
    SIGN = "sign_of_life"
    TEXT = "text"
    GROUP = "group"
    FILE = "file"
    CHANGE = "change"


WEIGHTS: Final[Mapping[RequestKind, float]] = {
    RequestKind.PROBE: 1.0,
    RequestKind.QUESTION: 2.0,
    RequestKind.SIGN: 0.6,
    RequestKind.TEXT: 1.0,
    RequestKind.GROUP: 2.0,
    RequestKind.FILE: 4.0,
    RequestKind.CHANGE: 2.0,
}
"""How many times the least patience a kind of request gets at least."""

MAY_TAKE_LONG: Final = frozenset({RequestKind.GROUP, RequestKind.FILE})
"""signal-cli encrypts for every device of every member, and uploads files."""


@dataclass(frozen=True, slots=True)
class RequestTimeouts:
    """How long requests are waited for, in seconds.

    Attributes:
        turn: for a place.
        least: before a request runs late, by the weight of its kind.
        question: for the answer to a question, a probe or a sign of life.
        answer: for any other answer.
    """

    turn: float
    least: float
    question: float
    answer: float

    def longest(self, kind: RequestKind) -> float:
        """Return how long a request of a kind is waited for at most."""
        quick = kind in {RequestKind.PROBE, RequestKind.QUESTION, RequestKind.SIGN}
        return self.question if quick else self.answer


class Usual:
    """How long requests of one kind usually take, and when one of them runs late, in seconds.

    Args:
        least, most: bounds of `late_after`.
    """

    def __init__(self, least: float, most: float) -> None:
        self._least = least
        self._most = most
        self._average = 0.0
        self._doubled_at = 0.0
        self._times = 1.0

    @property
    def late_after(self) -> float:
        """Seconds after which a request runs late."""
        return min(self._most, self._times * max(self._least, USUAL_TIMES * self._average))

    def answered(self, seconds: float) -> None:
        """Count an answer."""
        self._average += GAIN * (seconds - self._average)
        self._times = 1.0

    def ran_late(self, *, began: float, now: float) -> None:
        """Give the next requests twice the time; once for all that ran at the same time."""
        if began >= self._doubled_at:
            self._times = min(2 * self._times, self._most / self._least)
            self._doubled_at = now


class Call:
    """A request in its place.

    Args:
        kind: of the request.
        place: where it has its place, to be given back.
        longest: how many seconds it may take.
    """

    def __init__(self, kind: RequestKind, place: "Queue", longest: float) -> None:
        self.kind = kind
        self.began = asyncio.get_running_loop().time()
        self.deadline = asyncio.timeout_at(self.began + longest)
        self._place: Queue | None = place

    def end(self) -> None:
        """Wait for the answer no longer."""
        if not self.deadline.expired():
            self.deadline.reschedule(asyncio.get_running_loop().time())

    def give_place(self) -> None:
        """Let the next request in, unless that is done."""
        if self._place is not None:
            self._place.leave()
            self._place = None


class Queue:
    """So many places, and who waits for them; unlike with a semaphore, one may go first.

    Args:
        places: how many.
    """

    def __init__(self, places: int) -> None:
        self._free = places
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def enter(self, *, first: bool = False) -> None:
        """Wait for a place."""
        if self._free:
            self._free -= 1
            return
        turn = asyncio.get_running_loop().create_future()
        if first:
            self._waiting.appendleft(turn)
        else:
            self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn in self._waiting:
                self._waiting.remove(turn)
            elif not turn.cancelled() and turn.exception() is None:
                self.leave()  # the place came at the same moment
            raise

    def refuse_all(self) -> None:
        """Let nobody wait any longer: SignalUnavailable."""
        for turn in self._waiting:
            if not turn.done():
                turn.set_exception(SignalUnavailable("signal-cli-rest-api is stuck."))
        self._waiting.clear()

    def leave(self) -> None:
        """Give a place back."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():  # its waiter has just been cancelled
                turn.set_result(None)
                return
        self._free += 1


class Places:
    """Who may have a request open at the server.

    Args:
        patience: with requests.

    Attributes:
        ran_late: set when a request ran late; whoever looks after that clears it.
    """

    def __init__(self, patience: RequestTimeouts) -> None:
        self._patience = patience
        self._calls = Queue(PLACES)
        self._signs = Queue(1)
        self._sign: Call | None = None
        self._late: Call | None = None
        self._stuck_since: float | None = None
        self._usual = {
            kind: Usual(weight * patience.least, patience.longest(kind))
            for kind, weight in WEIGHTS.items()
        }
        self.ran_late = asyncio.Event()

    @property
    def stuck(self) -> bool:
        """Whether a request ran late and none that was made since has been answered."""
        return self._stuck_since is not None

    def refuse_waiting(self) -> None:
        """Let no request wait for a place any longer: it is made again when the server answers."""
        self._calls.refuse_all()

    @asynccontextmanager
    async def take(self, kind: RequestKind) -> AsyncIterator[None]:
        """Hold a place inside the block, which ends with a TimeoutError when it takes too long.

        Raises:
            SignalUnavailable: no place was free in time.
        """
        call = await self._enter(kind)
        # Counted from the same instant as the deadline, so that both fire where they are equal.
        late_at = call.began + self._usual[kind].late_after
        late = asyncio.get_running_loop().call_at(late_at, self._run_late, call)
        try:
            async with call.deadline:
                yield
            self._answered(call)
        finally:
            late.cancel()
            call.give_place()
            self._forget(call)

    async def _enter(self, kind: RequestKind) -> Call:
        queue = self._signs if kind is RequestKind.SIGN else self._calls
        try:
            async with asyncio.timeout(self._patience.turn):
                await queue.enter(first=kind is RequestKind.PROBE)
        except TimeoutError:
            raise SignalUnavailable("Too many requests wait for signal-cli-rest-api.") from None
        call = Call(kind, queue, self._patience.longest(kind))
        if kind is RequestKind.SIGN:
            if self._late is not None:
                call.give_place()
                raise SignalUnavailable("signal-cli-rest-api is too busy for signs of life.")
            self._sign = call
        return call

    def _answered(self, call: Call) -> None:
        self._usual[call.kind].answered(asyncio.get_running_loop().time() - call.began)
        if self._stuck_since is not None and call.began > self._stuck_since:
            self._stuck_since = None
            SIGNAL_STUCK.set(0)
            log.info("signal.gateway_answers")

    def _run_late(self, call: Call) -> None:
        now = asyncio.get_running_loop().time()
        self._usual[call.kind].ran_late(began=call.began, now=now)
        SIGNAL_UNANSWERED.labels(call.kind).inc()
        if self._stuck_since is None:
            self._stuck_since = now
            SIGNAL_STUCK.set(1)
            log.warning("signal.gateway_stuck", kind=call.kind, seconds=round(now - call.began, 1))
        self.ran_late.set()
        if call.kind in MAY_TAKE_LONG:
            self._go_on_in_the_spare_place(call)
        else:
            call.end()

    def _go_on_in_the_spare_place(self, call: Call) -> None:
        for other in (self._sign, self._late):
            if other is not None:
                other.end()
        self._late = call
        call.give_place()

    def _forget(self, call: Call) -> None:
        if call is self._late:
            self._late = None
        if call is self._sign:
            self._sign = None
