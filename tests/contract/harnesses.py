"""The messengers, each with its fake Signal side."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from enum import Enum, auto
from functools import partial
from pathlib import Path
from typing import Any, Final

from bot.backoff import Backoff
from bot.signal.errors import SignalError, SignalRejected, SignalTimeout
from bot.signal.events import Incoming, IncomingMessage, Reaction
from bot.signal.messenger import Messenger
from bot.signal.rest_requests import RestTimeouts as RestBounds
from bot.signal.signal_daemon import DaemonTimeouts, SignalDaemon
from bot.signal.signal_rest import SignalRest
from tests.fakes.json_rpc_server import HangUp, Json, Refusal
from tests.fakes.rest_markup import served
from tests.fakes.signal_cli import SignalCli, TcpSignalCli
from tests.fakes.signal_rest_api import NUMBER, SignalRestApi, chat_at
from tests.fakes.signal_rest_api import Answer as RestAnswer
from tests.fakes.signal_rest_api import Fault as RestFault
from tests.fakes.signal_side import Sent

WAIT_SECONDS: Final = 30.0
RECEIPT_SECONDS: Final = 60.0


class Fault(Enum):
    """Outcome of the next send."""

    REFUSED = auto()
    RATE_LIMITED = auto()
    LOST_REPLY = auto()


class Receiver:
    """Messages and events that a messenger delivers; tests wait for them. Part of every harness.

    Attributes:
        failure: raised instead of the next delivery.
    """

    failure: Exception | None = None

    def __init__(self) -> None:
        self.received: list[Incoming] = []
        self._unread: asyncio.Queue[Incoming] = asyncio.Queue()

    @property
    def texts(self) -> list[str]:
        return [one.text for one in self.received if isinstance(one, IncomingMessage)]

    async def deliver(self, delivery: Sequence[Incoming]) -> None:
        if self.failure is not None:
            raise self.failure
        self.received.extend(delivery)
        for one in delivery:
            self._unread.put_nowait(one)

    async def next_incoming(self) -> Incoming:
        async with asyncio.timeout(WAIT_SECONDS):
            return await self._unread.get()

    async def next_message(self) -> IncomingMessage:
        message = await self.next_incoming()
        assert isinstance(message, IncomingMessage)
        return message

    async def next_reaction(self) -> Reaction:
        reaction = await self.next_incoming()
        assert isinstance(reaction, Reaction)
        return reaction

    async def until(self, happened: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            while not happened():  # noqa: ASYNC110  # a messenger has no event to wait for
                await asyncio.sleep(0.001)


class SlowReceiver(Receiver):
    """Takes nothing more until `proceed` is set; `reading` tells that something came."""

    def __init__(self) -> None:
        super().__init__()
        self.reading = asyncio.Event()
        self.proceed = asyncio.Event()

    async def deliver(self, delivery: Sequence[Incoming]) -> None:
        self.reading.set()
        await self.proceed.wait()
        await super().deliver(delivery)


async def settled(messenger: Messenger, send: Awaitable[int]) -> int:
    """Return the timestamp of a send, from a receipt if the answer does not tell it."""
    try:
        return await send
    except SignalTimeout as error:
        found = await messenger.receipts.wait_for_proof([error.sending], RECEIPT_SECONDS)
        assert found is not None
        return found


@asynccontextmanager
async def in_background(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(work)
        yield
        task.cancel()


class DaemonHarness(Receiver):
    """SignalDaemon and the look-alike of signal-cli."""

    retry_after_seconds: float | None = 30.0
    refusal: type[SignalError] = SignalRejected

    def __init__(self, side: SignalCli, messenger: Messenger) -> None:
        super().__init__()
        self.side = side
        self.people = side
        self.messenger = messenger
        self.push = side.push
        self.push_raw = side.push_line
        self.next_sent = side.next_sent
        self.drop_connections = side.drop_connections
        self.go_away = side.go_away
        self.come_back = side.come_back

    def fail_next_send(self, fault: Fault) -> None:
        failures = {
            Fault.REFUSED: Refusal(-1, "The user +4915200000001 is not registered."),
            Fault.RATE_LIMITED: Refusal(-5, "Rate limit", _rate_limit(self.retry_after_seconds)),
            Fault.LOST_REPLY: HangUp(),
        }

        async def fail(_sent: Sent) -> None:
            self.side.on_send = None
            raise failures[fault]

        self.side.on_send = fail

    def list_identities(self, rows: list[Json]) -> None:
        self.side.identities = (rows, rows)

    def list_devices(self, ids: list[int] | None) -> None:
        self.side.lists_devices = ids is not None
        self.side.device_ids = ids or []

    def fall_silent(self) -> None:
        self.side.silent = True

    def speak_again(self) -> None:
        self.side.silent = False


def _rate_limit(seconds: float | None) -> object:
    result = {"type": "RATE_LIMIT_FAILURE", "token": "", "retryAfterSeconds": seconds}
    return {"response": {"timestamp": 1, "results": [result]}}


def daemon_bounds(*, impatient: bool) -> DaemonTimeouts:
    """Bounds for tests: short waits before reconnecting, probes that do not get in the way."""
    return DaemonTimeouts(
        request=0.5 if impatient else 1.0,
        send=0.5 if impatient else 60.0,
        probe_every=0.05 if impatient else 60.0,
        probe_answer=0.2 if impatient else 10.0,
        stop=2.0,
        backoff=Backoff(first_seconds=0.01, longest_seconds=0.05),
    )


@asynccontextmanager
async def _open_daemon(
    make_side: Callable[[Path], SignalCli],
    directory: Path,
    *,
    up: bool = True,
    impatient: bool = False,
    note_to_self: bool = False,
) -> AsyncIterator[DaemonHarness]:
    side = make_side(directory / "signal-cli.sock")
    side.data_dir = directory / "signal-cli"
    if isinstance(side, TcpSignalCli):
        await side.reserve_port()
    if up:
        await side.come_back()
    bounds = daemon_bounds(impatient=impatient)
    messenger = SignalDaemon(
        side.url,
        side.account.number,
        data_dir=side.data_dir,
        note_to_self=note_to_self,
        bounds=bounds,
    )
    harness = DaemonHarness(side, messenger)
    try:
        async with in_background(messenger.run(harness.deliver)):
            if up:
                await harness.until(lambda: messenger.connected)
            yield harness
    finally:
        await side.go_away()


class RestHarness(Receiver):
    """SignalRest and the look-alike of signal-cli-rest-api."""

    retry_after_seconds: float | None = None
    refusal: type[SignalError] = SignalTimeout

    def __init__(self, api: SignalRestApi, messenger: Messenger) -> None:
        super().__init__()
        self.api = api
        self.people = api
        self.messenger = messenger
        self.push = api.push
        self.push_raw = api.push_raw
        self.go_away = api.stop
        self.come_back = api.start
        self._seen = 0

    async def next_sent(self) -> Sent:
        async with asyncio.timeout(WAIT_SECONDS):
            await self.api.wait_until(lambda: len(self.api.sent) > self._seen)
        sent = self.api.sent[self._seen]
        self._seen += 1
        text, styles = served(sent.text) if sent.text_mode == "styled" else (sent.text, ())
        return Sent(
            chat=chat_at(sent.recipient),
            text=text,
            styles=styles,
            timestamp=sent.timestamp,
            replaces=sent.replaces,
            attachments=sent.attachments,
            quote=sent.quote,
        )

    def fail_next_send(self, fault: Fault) -> None:
        faults: dict[Fault, RestAnswer | RestFault] = {
            Fault.REFUSED: RestAnswer(400, "The user +4915200000001 is not registered."),
            Fault.RATE_LIMITED: RestAnswer(429, '{"error":"slow","challenge_tokens":[""]}'),
            Fault.LOST_REPLY: RestFault.DROP_LATER,
        }
        self.api.answers.append(faults[fault])

    def list_identities(self, rows: list[Json]) -> None:
        self.api.identities = rows

    def list_devices(self, ids: list[int] | None) -> None:
        self.api.devices = None if ids is None else [{"id": one, "name": ""} for one in ids]

    async def drop_connections(self) -> None:
        await self.api.close_websockets()

    def fall_silent(self) -> None:
        self.api.signal_cli_alive.clear()

    def speak_again(self) -> None:
        self.api.signal_cli_alive.set()


def rest_bounds(*, impatient: bool) -> RestBounds:
    return RestBounds(
        request=0.2 if impatient else 5.0,
        send=0.2 if impatient else 60.0,
        ping_every=0.05 if impatient else 20.0,
        # Longer than a request, so that an unanswered request reveals a silent server first.
        ping_answer=0.4 if impatient else 20.0,
        probe_every=0.05 if impatient else 60.0,
        close=0.5,
        stop=2.0,
        backoff=Backoff(first_seconds=0.01, longest_seconds=0.05),
    )


@asynccontextmanager
async def open_rest(
    directory: Path,
    *,
    up: bool = True,
    impatient: bool = False,
    note_to_self: bool = False,
) -> AsyncIterator[RestHarness]:
    async with SignalRestApi.listen() as api:
        if not up:
            await api.stop()
        bounds = rest_bounds(impatient=impatient)
        messenger = SignalRest(api.url, NUMBER, note_to_self=note_to_self, bounds=bounds)
        harness = RestHarness(api, messenger)
        async with in_background(messenger.run(harness.deliver)):
            if up:
                await harness.until(lambda: messenger.connected)
            yield harness


Harness = DaemonHarness | RestHarness
"""A running messenger and the Signal side that it talks to."""

Open = Callable[..., AbstractAsyncContextManager[Harness]]
"""Opens a harness.

`up`: whether the Signal side is there from the start; then the messenger is connected.
`impatient`: the messenger looks for signs of life all the time. `note_to_self`: the bot lives on a
person's own account.
"""

HARNESSES: Final[dict[str, Open]] = {
    "daemon": partial(_open_daemon, SignalCli),
    "REST": open_rest,
    "daemon over TCP": partial(_open_daemon, TcpSignalCli),
}
EVERY_ADDRESS: Final = tuple(HARNESSES)
TRANSPORTS: Final = EVERY_ADDRESS[:2]
