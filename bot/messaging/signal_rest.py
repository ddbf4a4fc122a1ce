"""Signal through signal-cli-rest-api in json-rpc mode.

What goes out takes signalbot's client, on an HTTP session of ours in which every request passes
one gate: few at a time, each with a time limit, every failure turned into a SignalError before
signalbot can lose its body. What comes in is read here from the server's websocket.

The server keeps nothing for a client that is away or slow: it drops what it cannot write at once.
So the reader never waits. It puts messages into a long queue, and when even that is full it drops
and counts them. When signal-cli dies behind the server the websocket stays open and silent; a
probe finds that out. The websocket is kept then, since messages come over it again as soon as
signal-cli is back, and any gap would lose them.
"""

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import aiohttp
import structlog
from pydantic import TypeAdapter
from signalbot._client.base import BaseURIs
from signalbot._client.messages import MessagesURIs
from signalbot._generated import SendMessageResponse, SendMessageV2, TextMode
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, WebSocketException

from bot.errors import (
    SignalError,
    SignalRejected,
    SignalTimeout,
    SignalUnavailable,
)
from bot.messaging.account import IDENTITIES, own_rows
from bot.messaging.deliveries import DeliveryQueue, read_frame
from bot.messaging.events import Account, FrameKind
from bot.messaging.messenger import (
    NOT_REGISTERED,
    STOP_DELIVERY_SECONDS,
    AccountStatus,
    Deliver,
    Poll,
    check_message,
)
from bot.messaging.receipts import DeliveryReceipts, Witness
from bot.messaging.rest_answers import ABOUT, NUMBERS, SENT
from bot.messaging.rest_client import Messages, Sessions
from bot.messaging.rest_errors import error_from_reasons
from bot.messaging.rest_http import PROBE_PATH, Gate, RestTimeouts, open_session
from bot.messaging.rest_places import RequestKind
from bot.messaging.rest_requests import Change, RestRequests
from bot.messaging.rest_styles import escaped_markup
from bot.messaging.send_metrics import counted_send
from bot.observability.metrics import (
    FRAMES,
    INTAKE,
    SIGNAL_CONNECTED,
    SIGNAL_RECONNECTS,
)
from conversation_store.models import Attachment, ChatId, Quote, StyleRange

MAX_QUEUE: Final = 10_000
MAX_FRAME_BYTES: Final = 32 * 2**20

log = structlog.get_logger()

T = TypeVar("T")


class SignalRest(RestRequests):
    """The Messenger over signal-cli-rest-api.

    Args:
        url: `http://host:port` or `https://host:port`.
        number: the bot's number, E.164, as it is registered.
        note_to_self: the account is a person's own, and the bot lives in its note to self alone.
        bounds: of every wait.
    """

    def __init__(
        self,
        url: str,
        number: str,
        *,
        note_to_self: bool = False,
        bounds: RestTimeouts | None = None,
    ) -> None:
        super().__init__(Account(number, note_to_self=note_to_self))
        self._bounds = bounds or RestTimeouts()
        parts = urlsplit(url)
        self._uris = BaseURIs(
            parts.netloc + parts.path.rstrip("/"), number, use_https=parts.scheme == "https"
        )
        self._gate = Gate(self._bounds)
        self._sessions = Sessions(self._gate, self._bounds)
        self._messages = {
            kind: Messages(MessagesURIs(self._uris), self._sessions, self._gate.of(kind))
            for kind in (RequestKind.TEXT, RequestKind.GROUP, RequestKind.FILE)
        }
        self._queue = DeliveryQueue(MAX_QUEUE)
        self._receipts = DeliveryReceipts(proof_seconds=self._bounds.proof)
        self._websocket: ClientConnection | None = None
        self._disconnected = asyncio.Event()
        self._disconnected.set()
        self._alive = False
        self._receiving = True
        self.unregistered = False
        self._last_sign = time.monotonic()
        self._connected_at = self._last_sign
        # signalbot logs the text of messages at INFO.
        logging.getLogger("signalbot").setLevel(logging.WARNING)

    @property
    def connected(self) -> bool:
        """Whether messages can come in and go out right now."""
        return self._alive and (self._websocket is not None or not self._receiving)

    @property
    def stuck(self) -> bool:
        """Whether requests are taken and not answered."""
        return self._gate.places.stuck

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
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._queue.deliver_all(deliver))
                tasks.create_task(self._stay_connected())
        finally:
            await self._sessions.close()

    @property
    def undelivered(self) -> int:
        """How many messages were read and are not delivered yet."""
        return self._queue.undelivered

    async def stop_receiving(self, *, delivery_seconds: float = STOP_DELIVERY_SECONDS) -> None:
        """Close the websocket and wait until everything that was read is delivered."""
        self._receiving = False
        try:
            async with asyncio.timeout(self._bounds.stop):
                if self._websocket is not None:
                    await self._websocket.close()
                await self._disconnected.wait()
        except TimeoutError as error:
            log.warning("signal.unsubscribe_failed", error=type(error).__name__)
        try:
            await self._queue.all_delivered(seconds=delivery_seconds)
        finally:
            self._receipts.close()

    async def hold_receiving(self) -> None:
        """Do nothing: without a websocket the server would throw away what comes."""

    async def resume_receiving(self) -> None:
        """Do nothing: nothing was held."""

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
        message = SendMessageV2(
            number=self._account.number,
            recipients=[self._recipient(chat)],
            message=escaped_markup(text, styles) if styles else text,
            text_mode=TextMode.STYLED if styles else TextMode.NORMAL,
            notify_self=False,
            edit_timestamp=replaces,
            quote_timestamp=quote.timestamp if quote else None,
            quote_author=quote.author if quote else None,
            quote_message=quote.text if quote else None,
            base64_attachments=[attachment.data_uri for attachment in attachments] or None,
        )
        with counted_send():
            return await self._receipts.settle(
                chat,
                self._send(chat, message),
                seconds=self._bounds.receipt,
            )

    async def send_poll(self, chat: ChatId, poll: Poll) -> int:
        """Send a poll and return Signal's timestamp of it, in ms."""
        with counted_send():
            return await self._receipts.settle(
                chat, self._send_poll(chat, poll), seconds=self._bounds.receipt
            )

    async def accept_request(self, person: str) -> None:
        """Do nothing: the server has no way to accept a message request."""

    async def account_status(self) -> AccountStatus:
        """Ask over a session of its own, so that `run` need not be running."""
        async with open_session(self._gate, self._bounds) as session:
            about = await _ask(session, self._uris.http_uri("/v1/about"), ABOUT)
            numbers = await _ask(session, self._uris.http_uri(PROBE_PATH), NUMBERS)
        return AccountStatus(
            server=f"signal-cli-rest-api {about.version} in {about.mode} mode",
            registered=self._account.number in numbers,
        )

    async def _show(self, chat: ChatId, how: Change, path: str, body: dict[str, Any]) -> None:
        with self._receipts.unnamed(chat):
            await self._change(how, path, {**body, "recipient": self._recipient(chat)})

    async def _send(self, chat: ChatId, message: SendMessageV2) -> int:
        kind = RequestKind.GROUP if chat.is_group else RequestKind.TEXT
        messages = self._messages[RequestKind.FILE if message.base64_attachments else kind]
        try:
            return _timestamp(chat, await messages.send(message))
        except ValueError:
            raise SignalTimeout("The answer to a send cannot be read.") from None

    async def _send_poll(self, chat: ChatId, poll: Poll) -> int:
        body = {
            "recipient": self._recipient(chat),
            "question": poll.question,
            "answers": [*poll.options],
            "allow_multiple_selections": poll.multiple,
        }
        session = await self._sessions.get()
        response = await session.post(
            self._uris.http_uri(self._of_account("polls")),
            json=body,
            middlewares=(self._gate.of(RequestKind.GROUP if chat.is_group else RequestKind.TEXT),),
        )
        try:
            return SENT.validate_python(await response.json()).timestamp
        except ValueError:
            raise SignalTimeout("The answer to a poll cannot be read.") from None

    # Receiving

    async def _read(self, websocket: ClientConnection) -> None:
        """Take every frame until the connection ends; those that came before its end as well."""
        while True:
            try:
                # Bytes, because a text frame that is not UTF-8 would end the connection.
                frame = await websocket.recv(decode=False)
            except ConnectionClosed:
                return
            self._take(frame)

    def _take(self, raw: bytes) -> None:
        try:
            decoded = json.loads(raw)
        except (ValueError, RecursionError):
            FRAMES.labels(FrameKind.BROKEN).inc()
            return
        event = read_frame(decoded, self._account, self._receipts)
        if event is None:
            return
        try:
            self._queue.put(event)
        except asyncio.QueueFull:
            INTAKE.labels("overflow").inc()

    # The connection

    async def _stay_connected(self) -> None:
        failures, said = 0, ""
        loop = asyncio.get_running_loop()
        while self._receiving:
            began = loop.time()
            try:
                await self._connect_and_read()
            except SignalError as error:
                reason = str(error)
                say = log.debug if reason == said else log.warning  # it may last for days
                say("signal.failed", error=type(error).__name__, reason=reason)
                said = reason
            if loop.time() - began > self._bounds.backoff.longest_seconds:
                failures, said = 0, ""
            self._last_sign = time.monotonic()
            failures += 1
            delay = self._bounds.backoff.seconds(failures)
            say = log.info if failures == 1 else log.debug
            say("signal.reconnecting", attempt=failures, delay_seconds=round(delay, 1))
            await asyncio.sleep(delay)

    async def _connect_and_read(self) -> None:
        """Receive over one websocket until it ends."""
        await self._probe()
        async with self._open_websocket() as websocket:
            if not self._receiving:  # stop_receiving came while the websocket was opening
                return
            async with asyncio.TaskGroup() as tasks:
                watch = tasks.create_task(self._watch())
                await self._read(websocket)
                watch.cancel()

    @asynccontextmanager
    async def _open_websocket(self) -> AsyncIterator[ClientConnection]:
        """Connect, and let the other methods know for how long."""
        async with _websocket(self._uris, self._bounds) as websocket:
            self._websocket = websocket
            self._connected_at = time.monotonic()
            self._disconnected.clear()
            self._set_alive(True)
            try:
                yield websocket
            finally:
                self._websocket = None
                self._disconnected.set()
                if self._receiving:
                    self._set_alive(False)
                    SIGNAL_RECONNECTS.inc()

    async def _watch(self) -> None:
        while True:
            self._last_sign = time.monotonic()
            await self._until_the_next_probe()
            try:
                await self._probe()
            except SignalError:
                self._set_alive(False)
                self._gate.places.refuse_waiting()
            else:
                self._set_alive(True)

    async def _until_the_next_probe(self) -> None:
        """Wait until one is due, or a request ran late."""
        ran_late = self._gate.places.ran_late
        with suppress(TimeoutError):
            async with asyncio.timeout(self._bounds.probe_every):
                await ran_late.wait()
        ran_late.clear()

    def _set_alive(self, alive: bool) -> None:
        if alive is not self._alive:
            log.info("signal.connected" if alive else "signal.disconnected")
        self._alive = alive
        SIGNAL_CONNECTED.set(alive)

    async def _probe(self) -> None:
        """Have signal-cli answer; the server itself also answers while signal-cli is dead.

        Raises:
            SignalError: it did not, or it does not know the account.
        """
        self.unregistered = False  # without an answer this is unknown
        if self._account.number not in await self._ask(PROBE_PATH, NUMBERS):
            self.unregistered = True
            raise SignalRejected(NOT_REGISTERED)
        if self._account.aci is None:
            await self._learn_aci()

    async def _learn_aci(self) -> None:
        """Find the bot's own row among the identities; without it mentions go by number."""
        number = self._account.number
        try:
            identities = await self._ask(f"/v1/identities/{number}", IDENTITIES)
        except SignalError as error:
            log.warning("signal.own_identity_unknown", error=type(error).__name__)
            return
        acis = (row.uuid.lower() for row in own_rows(number, identities) if row.uuid)
        self._account.aci = next(acis, None)

    async def _ask(self, path: str, answer: TypeAdapter[T]) -> T:
        return await _ask(await self._sessions.get(), self._uris.http_uri(path), answer)

    async def _fetch(self, path: str) -> bytes:
        session = await self._sessions.get()
        response = await session.get(self._uris.http_uri(path))
        return await response.read()

    async def _change(self, how: Change, path: str, body: dict[str, Any] | None = None) -> None:
        session = await self._sessions.get()
        await session.request(how, self._uris.http_uri(path), json=body)


async def _ask(session: aiohttp.ClientSession, url: str, answer: TypeAdapter[T]) -> T:
    response = await session.get(url)
    try:
        return answer.validate_python(await response.json())
    except ValueError:
        raise SignalUnavailable("signal-cli-rest-api gave an unreadable answer.") from None


@asynccontextmanager
async def _websocket(uris: BaseURIs, bounds: RestTimeouts) -> AsyncIterator[ClientConnection]:
    try:
        websocket = await connect(
            MessagesURIs(uris).receive_ws_uri(),
            compression=None,
            proxy=None,
            open_timeout=bounds.connect,
            ping_interval=bounds.ping_every,
            ping_timeout=bounds.ping_answer,
            close_timeout=bounds.close,
            max_size=MAX_FRAME_BYTES,
        )
    except (OSError, WebSocketException):
        raise SignalUnavailable("signal-cli-rest-api does not open its websocket.") from None
    try:
        yield websocket
    finally:
        await websocket.close()


def _timestamp(chat: ChatId, responses: list[SendMessageResponse]) -> int:
    """Return the timestamp of a send that reached somebody."""
    [response] = responses
    failed = (response.errors and response.errors.recipients) or []
    if failed and not chat.is_group:
        raise error_from_reasons(frozenset(one.reason for one in failed if one.reason))
    if failed:
        log.warning("signal.members_not_reached", count=len(failed))
    return int(response.timestamp)
