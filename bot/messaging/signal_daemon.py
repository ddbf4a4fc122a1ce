"""Signal through signal-cli's own daemon (`signal-cli daemon --receive-mode manual`).

The recommended transport: messages wait on Signal's server until the bot subscribes, and a slow
bot slows signal-cli down instead of losing anything. The protocol is newline-delimited JSON-RPC
over a Unix socket or TCP.

One reader serves answers and messages alike, and never waits itself. Messages go through a queue
to `deliver`; while the queue is full nothing is read, so answers to sends wait as well. That
cannot end in a deadlock as long as `deliver` never waits for a send: it stores the message and
returns, the queue moves, reading goes on.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import structlog

from bot.backoff import Backoff
from bot.errors import (
    SignalError,
    SignalRejected,
    SignalUnavailable,
)
from bot.messaging.daemon_requests import DaemonRequests, message_params
from bot.messaging.deliveries import DeliveryQueue, read_frame
from bot.messaging.events import Account, FrameKind
from bot.messaging.json_rpc import LOOK_SECONDS, JsonRpcConnection, JsonRpcError, parse_address
from bot.messaging.messenger import (
    NOT_REGISTERED,
    STOP_DELIVERY_SECONDS,
    AccountStatus,
    Deliver,
    Poll,
    check_message,
)
from bot.messaging.receipts import PROOF_SECONDS, DeliveryReceipts, Witness
from bot.messaging.send_metrics import counted_send
from bot.messaging.signal_answers import (
    ADDRESSES,
    SUBSCRIPTION,
    VERSION,
    read,
    signal_error,
    timestamp_of,
)
from bot.observability.metrics import (
    FRAMES,
    SIGNAL_CONNECTED,
    SIGNAL_RECONNECTS,
)
from conversation_store.models import Attachment, ChatId, Quote, StyleRange

MAX_QUEUE: Final = 500
MISSED_PROBES: Final = 2
RECONNECT: Final = Backoff(first_seconds=0.2, longest_seconds=10.0)

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class DaemonTimeouts:
    """How long the transport waits, in seconds.

    Attributes:
        request: for the answer to a question, or to a sign of life.
        send: for the answer to what goes out to people (signal-cli encrypts for every device of
            every member), and for files.
        receipt: for the phone's receipt of a message whose answer was lost; longer than it takes
            to connect again.
        proof: for the answer after the phone's receipt; see `receipts`.
        look: between two looks for requests that signal-cli has passed over; see `sentinels`.
        probe_every: between two questions for a sign of life; after a missed one the next comes at
            once.
        probe_answer: for the answer to such a question; two missed ones end the connection.
        stop: for the end of the subscription.
        backoff: between two attempts to connect.
    """

    request: float = 10.0
    send: float = 60.0
    receipt: float = 15.0
    proof: float = PROOF_SECONDS
    look: float = LOOK_SECONDS
    probe_every: float = 20.0
    probe_answer: float = 10.0
    stop: float = 5.0
    backoff: Backoff = RECONNECT


class SignalDaemon(DaemonRequests):
    """The Messenger over signal-cli's JSON-RPC daemon.

    Args:
        url: `unix:/path/socket` or `tcp://host:port`; ValueError when it is neither.
        number: the bot's number, E.164, as it is registered.
        data_dir: signal-cli's own folder, to delete files there; None: out of reach.
        note_to_self: the account is a person's own, and the bot lives in its note to self alone.
        bounds: of every wait.
        start_seconds: how long it may take until signal-cli listens.
    """

    def __init__(
        self,
        url: str,
        number: str,
        *,
        data_dir: Path | None = None,
        note_to_self: bool = False,
        bounds: DaemonTimeouts | None = None,
        start_seconds: float = 0.0,
    ) -> None:
        super().__init__(Account(number, note_to_self=note_to_self), data_dir)
        self._address = parse_address(url)
        self._bounds = bounds or DaemonTimeouts()
        self._queue = DeliveryQueue()
        self._receipts = DeliveryReceipts(proof_seconds=self._bounds.proof)
        self._connection: JsonRpcConnection | None = None
        self._subscription: int | None = None
        self._subscribing = asyncio.Lock()
        self._receiving = True
        self.unregistered = False
        self._held = False
        self._missed_probes = 0
        self._last_sign = time.monotonic()
        self._connected_at = self._last_sign
        self._may_start_until = self._last_sign + start_seconds

    @property
    def connected(self) -> bool:
        """Whether messages can come in and go out right now."""
        subscribed = self._subscription is not None or not self._wants_messages
        return self._connection is not None and subscribed

    @property
    def _wants_messages(self) -> bool:
        return self._receiving and not self._held

    @property
    def stuck(self) -> bool:
        """Whether requests are taken and not answered."""
        return self._missed_probes > 0

    @property
    def connected_since(self) -> float | None:
        """When the present connection began."""
        return self._connected_at if self.connected else None

    @property
    def last_sign(self) -> float:
        """When the connection last moved."""
        return self._last_sign

    async def run(self, deliver: Deliver, witness: Witness | None = None) -> None:
        """Keep the connection and hand over everything that came in, until cancelled."""
        if witness is not None:
            self._receipts.witness = witness
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._queue.deliver_all(deliver, taken=self._read_on))
            tasks.create_task(self._stay_connected())

    @property
    def undelivered(self) -> int:
        """How many messages were read and are not delivered yet."""
        return self._queue.undelivered

    async def stop_receiving(self, *, delivery_seconds: float = STOP_DELIVERY_SECONDS) -> None:
        """End the subscription and wait until everything that was read is delivered."""
        self._receiving = False
        try:
            async with asyncio.timeout(self._bounds.stop):
                await self._unsubscribe()
        except TimeoutError as error:
            log.warning("signal.unsubscribe_failed", error=type(error).__name__)
        try:
            await self._queue.all_delivered(seconds=delivery_seconds)
        finally:
            self._receipts.close()

    async def hold_receiving(self) -> None:
        """End the subscription: messages wait on Signal's server."""
        self._held = True
        # While nothing is read no answer comes either, and what is not read holds signal-cli back.
        if self._connection is None or not self._connection.reading_paused:
            await self._unsubscribe()

    async def resume_receiving(self) -> None:
        """Subscribe again; without a connection, the next one does."""
        self._held = False
        if self._connection is None:
            return
        try:
            await self._set_up()
        except SignalError as error:
            log.warning("signal.resume_failed", error=type(error).__name__)

    async def send(
        self,
        chat: ChatId,
        text: str,
        *,
        styles: Sequence[StyleRange] = (),
        quote: Quote | None = None,
        replaces: int | None = None,
        attachments: Sequence[Attachment] = (),
    ) -> int:
        """Send a text, perhaps with files, and return Signal's timestamp of it, in ms."""
        check_message(replaces, attachments)
        message = message_params(
            text, styles=styles, quote=quote, replaces=replaces, attachments=attachments
        )
        with counted_send():
            return await self._receipts.settle(
                chat,
                self._send_out("send", {**message, **self._to(chat)}),
                seconds=self._bounds.receipt,
            )

    async def send_poll(self, chat: ChatId, poll: Poll) -> int:
        """Send a poll and return Signal's timestamp of it, in ms."""
        asked = {"question": poll.question, "option": [*poll.options], "noMulti": not poll.multiple}
        with counted_send():
            return await self._receipts.settle(
                chat,
                self._send_out("sendPollCreate", {**asked, **self._to(chat)}),
                seconds=self._bounds.receipt,
            )

    async def account_status(self) -> AccountStatus:
        """Ask over a connection of its own, which receives nothing: `run` need not be running."""
        seconds = self._bounds.request
        async with JsonRpcConnection.connect(self._address, _ignore, _ignore) as connection:
            version = read(VERSION, await _call(connection, "version", {}, seconds=seconds))
            registered = await self._is_registered(connection)
        return AccountStatus(server=f"signal-cli {version.version}", registered=registered)

    async def _is_registered(self, connection: JsonRpcConnection) -> bool:
        found = await _call(connection, "listAccounts", {}, seconds=self._bounds.request)
        return self._account.number in {account.number for account in read(ADDRESSES, found)}

    async def _show(
        self, chat: ChatId, method: str, params: dict[str, Any], *, patiently: bool = False
    ) -> None:
        sending = self._send_out(method, {**params, **self._to(chat)}, patiently=patiently)
        await self._receipts.settle(chat, sending, seconds=0.0)

    async def _send_out(
        self, method: str, params: dict[str, Any], *, patiently: bool = True
    ) -> int:
        return timestamp_of(await self._ask(method, params, patiently=patiently))

    # Receiving

    def _read_on(self) -> None:
        if self._connection is not None and len(self._queue) < MAX_QUEUE:
            self._connection.resume_reading()

    def _take_notification(self, method: object, params: object) -> None:
        """Queue what somebody does; past the limit, reading stops after what was read at once."""
        if method != "receive":
            return
        event = read_frame(_unwrap(params), self._account, self._receipts)
        if event is None:
            return
        self._queue.put(event)
        if self._connection is not None and len(self._queue) >= MAX_QUEUE:
            self._connection.pause_reading()

    async def _set_up(self) -> None:
        """Learn who the bot is and subscribe, as far as either is still to be done."""
        if self.unregistered and await self._finds_no_account():
            return
        if self._account.aci is None:  # before the first message, which may mention it
            await self._learn_aci()
        if self._wants_messages and not self.unregistered:
            await self._subscribe()

    async def _learn_aci(self) -> None:
        """Find the bot's own row among the identities; without it mentions go by number."""
        try:
            acis = (row.uuid.lower() for row in await self._own_rows() if row.uuid)
        except SignalError as error:
            if not (isinstance(error, SignalRejected) and await self._finds_no_account()):
                log.warning("signal.own_identity_unknown", error=type(error).__name__)
            return
        self._account.aci = next(acis, None)

    async def _finds_no_account(self) -> bool:
        """Ask whether signal-cli refuses because it does not have the account; say so once."""
        if self._connection is None:
            return False
        try:
            missing = not await self._is_registered(self._connection)
        except SignalError:
            return False
        if missing and not self.unregistered:
            log.error("signal.account_not_registered", reason=NOT_REGISTERED)
        self.unregistered = missing
        return missing

    async def _subscribe(self) -> None:
        """Ask for messages. A refusal (the account is not registered) is no lost connection."""
        async with self._subscribing:
            if self._subscription is not None or not self._wants_messages:
                return
            try:
                self._subscription = read(SUBSCRIPTION, await self._ask("subscribeReceive", {}))
            except SignalRejected:
                if not await self._finds_no_account():
                    log.error("signal.subscription_refused")
                return
        self.unregistered = False
        SIGNAL_CONNECTED.set(1)
        log.info("signal.connected")

    async def _unsubscribe(self) -> None:
        async with self._subscribing:
            if self._subscription is None:
                return
            try:
                await self._ask("unsubscribeReceive", {"subscription": self._subscription})
            except SignalError as error:
                log.warning("signal.unsubscribe_failed", error=type(error).__name__)
            self._subscription = None

    # The connection

    async def _stay_connected(self) -> None:
        failures, said = 0, ""
        while True:
            try:
                async with self._connect() as connection:
                    await self._set_up()
                    failures, said, self._may_start_until = 0, "", 0.0
                    await self._watch(connection)
                SIGNAL_RECONNECTS.inc()
            except SignalError as error:
                kind = type(error.__cause__ or error).__name__
                say = log.debug if kind == said else log.warning  # it may last for days
                if time.monotonic() < self._may_start_until:
                    say, kind = log.debug, ""  # and is worth a warning if it lasts
                say("signal.failed", error=type(error).__name__, kind=kind)
                said = kind
            self._last_sign = time.monotonic()
            failures += 1
            delay = self._bounds.backoff.seconds(failures)
            say = log.info if failures == 1 else log.debug
            say("signal.reconnecting", attempt=failures, delay_seconds=round(delay, 1))
            await asyncio.sleep(delay)

    @asynccontextmanager
    async def _connect(self) -> AsyncIterator[JsonRpcConnection]:
        async with JsonRpcConnection.connect(
            self._address,
            self._take_notification,
            _count_garbage,
            look_seconds=self._bounds.look,
        ) as connection:
            self._connection = connection
            self._connected_at = time.monotonic()
            try:
                yield connection
            finally:
                self._connection = None
                self._subscription = None
                self.unregistered = False
                self._missed_probes = 0
                SIGNAL_CONNECTED.set(0)

    async def _watch(self, connection: JsonRpcConnection) -> None:
        """Return when the connection is lost, or the other side has fallen silent."""
        while self._missed_probes < MISSED_PROBES:
            self._last_sign = time.monotonic()
            pause = 0 if self._missed_probes else self._bounds.probe_every
            if await connection.lost_within(pause):
                return
            if await self._is_alive(connection):
                self._missed_probes = 0
                await self._set_up()
            else:
                self._missed_probes += 1
        log.warning("signal.silent")

    async def _is_alive(self, connection: JsonRpcConnection) -> bool:
        """Whether the other side answers; while nothing is read, its silence proves nothing."""
        try:
            await connection.call("version", {}, seconds=self._bounds.probe_answer)
        except JsonRpcError:
            return True
        except SignalError:
            return connection.reading_paused
        return True

    async def _ask(
        self, method: str, params: Mapping[str, Any], *, patiently: bool = False
    ) -> object:
        """Make a request about the bot's account over the present connection."""
        if self._connection is None:
            raise SignalUnavailable("There is no connection to signal-cli.")
        return await _call(
            self._connection,
            method,
            {"account": self._account.number, **params},
            seconds=self._bounds.send if patiently else self._bounds.request,
            guarded=patiently,
        )


async def _call(
    connection: JsonRpcConnection,
    method: str,
    params: dict[str, Any],
    *,
    seconds: float,
    guarded: bool = False,
) -> object:
    """Make a request; its failure is a SignalError."""
    try:
        return await connection.call(method, params, seconds=seconds, guarded=guarded)
    except JsonRpcError as failure:
        raise signal_error(failure.code, failure.data) from None


def _unwrap(params: object) -> object:
    """The frame; after `subscribeReceive` it comes inside `{"subscription", "result"}`."""
    return params["result"] if isinstance(params, dict) and "result" in params else params


def _count_garbage() -> None:
    FRAMES.labels(FrameKind.BROKEN).inc()


def _ignore(*_: object) -> None:
    """Notifications and garbage on a connection that only asks."""
