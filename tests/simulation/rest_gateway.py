"""signal-cli-rest-api as the bot meets it: it loses messages, and any error may follow a delivery.

The server keeps nothing for a bot without a websocket. Frames are lost while the bot is away, and
frames on their way are lost when the websocket ends.
"""

import asyncio
import json
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import replace
from random import Random
from typing import Final

from aiohttp import WSMsgType, web

import bot.signal.signal_rest  # noqa: F401 - takes 0.7 s, which no history should pay
from tests.fakes import signal_rest_api
from tests.fakes.json_rpc_server import Json
from tests.fakes.rest_markup import served
from tests.fakes.signal_rest_api import WITHOUT_SIGNAL_CLI, Sent, SignalRestApi, chat_at
from tests.fakes.signal_side import Act
from tests.simulation.loop import OWNER, SimulatedLoop
from tests.simulation.signal_network import BEFORE, Delivery, Fault, ManyClocks, _has_come

PORT: Final = 8_080
OWNED: Final = "signal-cli"
SENDS: Final = ("/v2/send", "/v1/polls/", "/v1/remote-delete/", "/v1/reactions/")

ON_THE_WAY_SECONDS: Final = 0.02
"""After this time, a frame has reached the bot, or the server knows of the websocket's end."""

ERRORS: Final = (
    (400, '{"error":"Failed to send message: null (IOException)"}'),
    (400, '{"error":"[422] Bad response: 422 (NonSuccessfulResponseCodeException)"}'),
    (400, '{"error":"write tcp 127.0.0.1:6001: broken pipe"}'),
    (400, '{"error":"Failed to send message"}'),
    (400, "an error of a later version"),
    (500, '{"error":"Couldn\'t process request"}'),
    (502, "<html>Bad Gateway</html>"),
    (503, "<html>Service Unavailable</html>"),
    (504, ""),
)
"""A proxy in front of the server gives the last three."""

_MADE: Final[ContextVar[int]] = ContextVar("_MADE", default=0)
"""Timestamp of the delivery that the present request has made."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

signal_rest_api.has_come = _has_come  # type: ignore[attr-defined]


class SimulatedRest(SignalRestApi, ManyClocks):
    """signal-cli-rest-api, with signal-cli, Signal and the phones behind it.

    Attributes:
        deliver: hands a delivery to the phones.
        faults: draws the fault of the next send.
        written: called with each frame that an open websocket has carried to the bot.
        twice: draws whether a frame comes twice.
        unanswered: timestamps of deliveries that were not confirmed to the bot.
        delay: range of the seconds that signal-cli takes for a request.
    """

    def __init__(
        self, loop: SimulatedLoop, rng: Random, deliver: Callable[[Delivery], None]
    ) -> None:
        super().__init__()
        self._loop, self._rng = loop, rng
        self.deliver = deliver
        self.faults: Callable[[], Fault] = lambda: Fault.NONE
        self.written: Callable[[Json], None] = lambda _: None
        self.twice: Callable[[], bool] = lambda: False
        self.has_polls = True
        self.delay = (0.002, 0.05)
        self.unanswered: set[int] = set()
        self._port = PORT
        self._running: set[asyncio.Task[web.StreamResponse | None]] = set()
        self._kept: deque[Json] = deque()  # by Signal, while signal-cli is dead

    # The server's process, and signal-cli's

    async def come_back(self) -> None:
        """Start the server."""
        OWNER.set(OWNED)
        await self.start()

    async def go_away(self) -> None:
        """Stop the server for good."""
        self._drop_requests()
        await self.stop()

    async def restart(self, seconds: float) -> None:
        """Restart the server, or signal-cli alone; no request in progress gets an answer."""
        self._drop_requests()
        if self._rng.random() < 0.3:  # websockets stay open and silent
            self.signal_cli_alive.clear()
            await asyncio.sleep(seconds)
            self.signal_cli_alive.set()
            while self._kept:
                await self.push(self._kept.popleft())
        else:
            self._loop.network.block(OWNED, blocked=True)
            self._loop.network.cut(OWNED)
            await asyncio.sleep(seconds)
            self._loop.network.block(OWNED, blocked=False)

    def _drop_requests(self) -> None:
        for task in sorted(self._running, key=hash):
            task.cancel()

    # Reception

    async def push(self, frame: Json) -> None:  # type: ignore[override]
        if not self.signal_cli_alive.is_set():
            self._kept.append(frame)
            return
        for websocket in list(self._transports) * (1 + self.twice()):
            self._loop.call_later(ON_THE_WAY_SECONDS, self._note_written, websocket, frame)
            with suppress(ConnectionResetError):  # it is closing
                await websocket.send_frame(json.dumps(frame).encode(), WSMsgType.TEXT)

    def _note_written(self, websocket: web.WebSocketResponse, frame: Json) -> None:
        if websocket in self._transports:
            self.written(frame)

    # Requests

    @web.middleware
    async def _count(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Handle a request to its end, also if its connection breaks."""
        if request.path.startswith((*WITHOUT_SIGNAL_CLI, "/v1/receive/")):
            return await handler(request)
        await request.read()
        task = asyncio.ensure_future(self._carry_out(request, handler))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        await asyncio.wait([task])
        response = None if task.cancelled() else task.result()
        if response is None:
            await asyncio.Event().wait()  # until the client leaves
        assert response is not None
        return response

    async def _carry_out(self, request: web.Request, handler: Handler) -> web.StreamResponse | None:
        """Return the response to a request; None if it gets none."""
        if not self.signal_cli_alive.is_set():
            return None
        await asyncio.sleep(self._rng.uniform(*self.delay))
        if request.path.startswith(SENDS):
            return await self._send_with_fault(request, handler)
        return await handler(request)

    async def _send_with_fault(
        self, request: web.Request, handler: Handler
    ) -> web.StreamResponse | None:
        fault, response, began = self.faults(), None, self._loop.wall()
        if fault is Fault.REFUSED:  # nothing proves that over REST
            fault = Fault.ERROR_BEFORE
        if fault is Fault.SLOW:
            await asyncio.sleep(self._rng.uniform(0.5, 6.0))
        if fault not in BEFORE:
            response = await handler(request)
            await asyncio.sleep(self._rng.uniform(*self.delay))
        body = await request.json()
        chat = chat_at(body["recipient"] if "recipient" in body else body["recipients"][0])
        is_named = "/send" in request.path  # answers to other requests have no timestamp
        self._note_doubt(fault, chat, began, _MADE.get(), is_named=is_named)
        if fault in {Fault.ERROR_BEFORE, Fault.ERROR_AFTER}:
            return self._error()
        if fault in {Fault.LIMIT_BEFORE, Fault.LIMIT_AFTER}:
            return _limited()
        if fault is Fault.HANG_UP and request.transport is not None:
            request.transport.abort()
        if fault in {Fault.HANG_UP, Fault.LOST_REPLY} or request.transport is None:
            return None
        self.unanswered.discard(_MADE.get())
        return response

    def _error(self) -> web.Response:
        status, body = self._rng.choice(ERRORS)
        return web.Response(status=status, text=body)

    def _keep(self, sent: Sent) -> None:
        if sent.text_mode == "styled":
            sent = replace(sent, text=served(sent.text)[0])
        super()._keep(sent)
        options = () if sent.poll is None else sent.poll.options
        self._hand_over(
            Delivery(
                sent.chat, sent.timestamp, "message", sent.replaces or 0, sent.text, options,
                len(sent.attachments),
            )
        )  # fmt: skip

    async def _do_act(self, act: Act, do: Callable[[], None], done: web.Response) -> web.Response:
        response = await super()._do_act(act, do, done)
        emoji = self.reactions[-1].emoji if act.kind == "reaction" else ""
        self._hand_over(Delivery(act.chat, act.timestamp, act.kind, act.target, emoji))
        return response

    def _hand_over(self, delivery: Delivery) -> None:
        _MADE.set(delivery.timestamp)
        self.unanswered.add(delivery.timestamp)
        self.deliver(delivery)


def _limited() -> web.Response:
    body = '{"error":"Failed to send message due to rate limiting","challenge_tokens":["x"]}'
    return web.Response(status=429, text=body)
