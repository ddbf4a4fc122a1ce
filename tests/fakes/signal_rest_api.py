"""signal-cli-rest-api in json-rpc mode, as far as the bot uses it, on loopback and with faults."""

import asyncio
import json
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Self

from aiohttp import WSCloseCode, WSMsgType, web

from bot.demo.json_rpc_server import Json
from bot.demo.signal_frames import (
    group_info,
    quote_of,
    reaction_frame,
    receipt_frame,
    text_frame,
)
from bot.demo.signal_requests import attachment_in
from bot.demo.signal_side import ADA, IDENTITY_KEY
from bot.messaging.account import Attachment
from bot.messaging.events import Account, Person

NUMBER: Final = "+4915100000000"
ACI: Final = "9d578c56-e167-564c-8fb4-cdda901237d9"
ACCOUNT: Final = Account(NUMBER, ACI)
CLIENT_FRAME_LIMIT_BYTES: Final = 512
BODY_LIMIT_BYTES: Final = 64 * 2**20
OWN_IDENTITY: Final[Json] = {
    "number": NUMBER,
    "uuid": ACI,
    "status": "TRUSTED_VERIFIED",
    "fingerprint": IDENTITY_KEY.hex(" "),
}


@dataclass(frozen=True, slots=True)
class Sent:
    """A request to /v2/send that was answered with success."""

    recipient: str
    text: str
    timestamp: int
    replaces: int | None
    text_mode: str | None
    notify_self: bool | None
    attachments: tuple[Attachment, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """What the server answers instead of success."""

    status: int
    body: str = ""


class Fault(Enum):
    """What happens to a request instead of an answer."""

    HANG = "no answer, ever"
    DROP = "the connection breaks"
    DROP_LATER = "it is sent, then the connection breaks"


class SignalRestApi:
    """The server. Without a client on the websocket, frames are lost, as with the real one.

    Attributes:
        sent: every message, in order.
        answers: what the next sends get instead of success, in order.
        requests, in_flight, most_in_flight: requests in all, now, and at most at once.
        connections: how often the websocket was opened.
        hold: while it is clear, no request is answered.
        signal_cli_alive: whether what needs signal-cli is answered at all.
        answers_pings: whether websocket pings are answered.
        groups: by the server's id, what GET tells about it.
        accounts, identities, devices: what the server knows; without identities or devices it
            answers a question about them with an error.
        old: answer sends as versions up to 0.100 do.
    """

    def __init__(self) -> None:
        self.sent: list[Sent] = []
        self.answers: deque[Answer | Fault] = deque()
        self.most_in_flight = 0
        self.hold = asyncio.Event()
        self.hold.set()
        self.signal_cli_alive = asyncio.Event()
        self.signal_cli_alive.set()
        self.answers_pings = True
        self.groups: dict[str, object] = {}
        self.accounts: object = [NUMBER]
        self.identities: object = [OWN_IDENTITY]
        self.devices: object = [{"id": 1, "name": ""}]
        self.old = False
        self.in_flight = 0
        self.requests = 0
        self.connections = 0
        self._port = 0
        self._last_timestamp = 0
        self._websockets: set[web.WebSocketResponse] = set()
        self._transports: dict[web.WebSocketResponse, asyncio.Transport] = {}
        self._changed = asyncio.Condition()
        self._runner: web.AppRunner | None = None

    @classmethod
    @asynccontextmanager
    async def listen(cls) -> AsyncIterator[Self]:
        """A server on a free port."""
        server = cls()
        await server.start()
        try:
            yield server
        finally:
            await server.stop()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def receivers(self) -> int:
        """How many listen on the websocket."""
        return len(self._websockets)

    async def start(self) -> None:
        """Listen, on the same port as before."""
        app = web.Application(middlewares=[self._count], client_max_size=BODY_LIMIT_BYTES)
        app.router.add_get("/v1/health", self._health)
        app.router.add_get("/v1/about", self._about)
        app.router.add_get("/v1/accounts", self._list_accounts)
        app.router.add_get("/v1/identities/{number}", self._list_identities)
        app.router.add_get("/v1/devices/{number}", self._list_devices)
        app.router.add_get("/v1/groups/{number}/{group}", self._get_group)
        app.router.add_get("/v1/receive/{number}", self._receive)
        app.router.add_post("/v2/send", self._send)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self._port, reuse_address=True)
        await site.start()
        self._port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Go away; what is open breaks."""
        self.drop_websockets()
        if self._runner is not None:
            await self._runner.cleanup()
        self._runner = None

    async def wait_until(self, holds: Callable[[], bool]) -> None:
        """Wait until something about this server is true."""
        async with self._changed:
            await self._changed.wait_for(holds)

    async def wait_for_receiver(self) -> None:
        """Wait until somebody listens on the websocket."""
        await self.wait_until(lambda: self.receivers > 0)

    async def say(
        self,
        text: str,
        *,
        author: Person = ADA,
        group: str | None = None,
        quote: int | None = None,
    ) -> int:
        """Write to the bot and return the message's timestamp.

        Args:
            text: what to write.
            author: who writes.
            group: Signal's id of the group to write in.
            quote: reply to this message of the bot, by its timestamp.
        """
        timestamp = self._new_timestamp()
        quoted = None if quote is None else self._quote_of(quote)
        where = _group(group)
        await self.push(text_frame(ACCOUNT, author, timestamp, text, group=where, quote=quoted))
        return timestamp

    async def react(
        self,
        emoji: str,
        timestamp: int,
        *,
        author: Person = ADA,
        group: str | None = None,
        removed: bool = False,
    ) -> int:
        """React to a message of the bot, by its timestamp; return that of the reaction."""
        own = self._new_timestamp()
        frame = reaction_frame(
            ACCOUNT, author, own, emoji, timestamp, group=_group(group), removed=removed
        )
        await self.push(frame)
        return own

    async def deliver_receipt(self, timestamp: int, person: Person = ADA) -> None:
        """Confirm that a message of the bot arrived at a person's phone."""
        await self.push(receipt_frame(ACCOUNT, person, self._new_timestamp(), timestamp))

    async def push(self, frame: object) -> None:
        """Deliver a frame to whoever listens."""
        await self.push_raw(json.dumps(frame).encode())

    async def push_raw(self, data: bytes, *, kind: WSMsgType = WSMsgType.TEXT) -> None:
        """Deliver bytes as one frame, whatever they are."""
        for websocket in tuple(self._websockets):
            await websocket.send_frame(data, kind)

    async def close_websockets(self, code: int = WSCloseCode.OK) -> None:
        """Close cleanly, as a proxy that restarts does."""
        websockets = tuple(self._websockets)
        self._websockets.clear()
        for websocket in websockets:
            await websocket.close(code=code)

    def drop_websockets(self) -> None:
        """Break the connections without a closing handshake."""
        self._websockets.clear()
        for transport in self._transports.values():
            transport.abort()

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    @web.middleware
    async def _count(
        self,
        request: web.Request,
        handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
    ) -> web.StreamResponse:
        if request.path.startswith("/v1/receive/"):
            return await handler(request)
        self.requests += 1
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        await self._notify()
        try:
            await self.hold.wait()
            return await handler(request)
        finally:
            self.in_flight -= 1
            await self._notify()

    async def _health(self, _: web.Request) -> web.Response:
        return web.Response(status=204)

    async def _about(self, _: web.Request) -> web.Response:
        about: dict[str, Any] = {
            "versions": ["v1", "v2"],
            "build": 2,
            "mode": "json-rpc",
            "version": "0.100" if self.old else "0.101",
        }
        return web.json_response(about)

    async def _list_accounts(self, _: web.Request) -> web.Response:
        await self.signal_cli_alive.wait()
        return web.json_response(self.accounts)

    async def _list_identities(self, _: web.Request) -> web.Response:
        await self.signal_cli_alive.wait()
        if self.identities is None:
            return web.Response(status=500)
        return web.json_response(self.identities)

    async def _list_devices(self, _: web.Request) -> web.Response:
        await self.signal_cli_alive.wait()
        if self.devices is None:
            return web.Response(status=400, text="Failed to get linked devices: [403]")
        return web.json_response(self.devices)

    async def _get_group(self, request: web.Request) -> web.Response:
        await self.signal_cli_alive.wait()
        return web.json_response(self.groups.get(request.match_info["group"]))

    async def _receive(self, request: web.Request) -> web.WebSocketResponse:
        websocket = web.WebSocketResponse(autoping=False, max_msg_size=CLIENT_FRAME_LIMIT_BYTES)
        await websocket.prepare(request)
        transport = request.transport
        assert transport is not None
        self._websockets.add(websocket)
        self._transports[websocket] = transport
        self.connections += 1
        await self._notify()
        try:
            async for message in websocket:
                if message.type is WSMsgType.PING and self.answers_pings:
                    await websocket.pong(message.data)
        finally:
            self._websockets.discard(websocket)
            del self._transports[websocket]
            await self._notify()
        return websocket

    async def _send(self, request: web.Request) -> web.Response:
        body = await request.json()
        answer = self.answers.popleft() if self.answers else None
        if isinstance(answer, Answer):
            return web.Response(status=answer.status, text=answer.body)
        if answer is Fault.HANG:
            await asyncio.Event().wait()
        await self.signal_cli_alive.wait()
        if answer is not Fault.DROP:
            self._record(body)
            await self._notify()
        if answer is not None:
            assert request.transport is not None
            request.transport.abort()
        result = {"timestamp": str(self.sent[-1].timestamp)} if self.sent else {}
        return web.json_response(result if self.old else [result], status=201)

    def _new_timestamp(self) -> int:
        """The time in ms, unique as signal-cli makes it."""
        self._last_timestamp = max(time.time_ns() // 1_000_000, self._last_timestamp + 1)
        return self._last_timestamp

    def _quote_of(self, timestamp: int) -> Json:
        text = next((sent.text for sent in self.sent if sent.timestamp == timestamp), "")
        return quote_of(ACCOUNT, timestamp, text)

    def _record(self, body: dict[str, Any]) -> None:
        [recipient] = body["recipients"]
        assert body["number"] == NUMBER
        attachments = tuple(map(attachment_in, body.get("base64_attachments") or ()))
        self.sent.append(
            Sent(
                attachments=attachments,
                recipient=recipient,
                text=body["message"],
                timestamp=self._new_timestamp(),
                replaces=body.get("edit_timestamp"),
                text_mode=body.get("text_mode"),
                notify_self=body.get("notify_self"),
            )
        )


def _group(group_id: str | None) -> Json | None:
    return None if group_id is None else group_info(group_id, "Team")
