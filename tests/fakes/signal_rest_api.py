"""signal-cli-rest-api in json-rpc mode, as far as the bot uses it, on loopback and with faults."""

import asyncio
import base64
import json
import textwrap
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from http import HTTPStatus
from typing import Any, Final, Self

from aiohttp import WSMsgType, web

from bot.signal.account import Profile
from bot.signal.frames import Account
from bot.signal.messenger import Poll
from conversation_store.models import Attachment, ChatId, Quote
from tests.fakes.json_rpc_server import Json
from tests.fakes.signal_people import Reacted, SignalPeople
from tests.fakes.signal_requests import attachment_in
from tests.fakes.signal_side import IDENTITY_KEY, Act, has_come

NUMBER: Final = "+4915100000000"
ACI: Final = "9d578c56-e167-564c-8fb4-cdda901237d9"
ACCOUNT: Final = Account(NUMBER, ACI)
WITHOUT_SIGNAL_CLI: Final = ("/v1/health", "/v1/about", "/v1/attachments/")
"""Requests that the server answers by itself, also while signal-cli is dead."""

SIGNS_OF_LIFE: Final = ("/v1/typing-indicator/", "/v1/reactions/", "/v1/receipts/")

GROUP_PREFIX: Final = "group."
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
    quote: Quote | None
    poll: Poll | None = None

    @property
    def chat(self) -> ChatId:
        return chat_at(self.recipient)


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer instead of success; the message may go out anyway."""

    status: int
    body: str = ""
    after_delivery: bool = False


class Fault(Enum):
    """Fate of a request that gets no answer."""

    HANG = "no answer, ever"
    HANG_LATER = "it is sent, then no answer, ever"
    SLOW = "it is sent and answered when `slow_done` is set"
    DROP = "the connection breaks"
    DROP_LATER = "it is sent, then the connection breaks"


class SignalRestApi(SignalPeople):
    """The server. Without a client on the websocket, frames are lost, as with the real one.

    Attributes:
        sent: every message, in order.
        answers: answers to the next sends instead of success, in order.
        answer_send: the same for every send, by its chat; None leaves it to `answers`.
        acts: what the bot did to messages.
        answer_act: the same as `answer_send` for `acts`.
        asked: the paths of all requests, without `/v1/receive/`.
        requests, in_flight, most_in_flight: requests in all, now, and at most at once.
        connections: how often the websocket was opened.
        hold: while it is clear, no request is answered.
        hold_signs: while it is clear, typing, reactions and receipts are not answered.
        slow_done: ends the wait of sends that are slow.
        signal_cli_alive: whether what needs signal-cli is answered at all.
        answers_pings: whether websocket pings are answered.
        told_groups: false answers of GET about groups, by the server's id.
        accounts, identities, devices: the server's lists; without identities or devices it
            answers requests for them with an error. Keys of other people are added to identities.
        no_devices: body of the error about devices.
        old: say that this is version 0.100.
    """

    def __init__(self) -> None:
        super().__init__(ACCOUNT)
        self.sent: list[Sent] = []
        self.answers: deque[Answer | Fault] = deque()
        self.answer_send: Callable[[ChatId], Answer | None] = lambda _chat: None
        self.acts: list[Act] = []
        self.answer_act: Callable[[Act], Answer | None] = lambda _act: None
        self.asked: list[str] = []
        self.most_in_flight = 0
        self.hold = asyncio.Event()
        self.hold.set()
        self.hold_signs = asyncio.Event()
        self.hold_signs.set()
        self.slow_done = asyncio.Event()
        self.signal_cli_alive = asyncio.Event()
        self.signal_cli_alive.set()
        self.answers_pings = True
        self.told_groups: dict[str, object] = {}
        self.accounts: object = [NUMBER]
        self.identities: object = [OWN_IDENTITY]
        self.devices: object = [{"id": 1, "name": ""}]
        self.no_devices = "Failed to get linked devices: [403]"
        self.old = False
        self.in_flight = 0
        self.requests = 0
        self.connections = 0
        self._port = 0
        self._websockets: set[web.WebSocketResponse] = set()
        self._transports: dict[web.WebSocketResponse, asyncio.Transport] = {}
        self._runner: web.AppRunner | None = None

    @classmethod
    @asynccontextmanager
    async def listen(cls) -> AsyncIterator[Self]:
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
        """Return the number of clients on the websocket."""
        return len(self._websockets)

    async def start(self) -> None:
        app = web.Application(middlewares=[self._count], client_max_size=BODY_LIMIT_BYTES)
        app.router.add_get("/v1/health", self._health)
        app.router.add_get("/v1/about", self._about)
        app.router.add_get("/v1/accounts", self._list_accounts)
        app.router.add_get("/v1/identities/{number}", self._list_identities)
        app.router.add_get("/v1/devices/{number}", self._list_devices)
        app.router.add_put("/v1/identities/{number}/trust/{peer}", self._trust)
        app.router.add_get("/v1/groups/{number}", self._list_groups)
        app.router.add_get("/v1/groups/{number}/{group}", self._get_group)
        app.router.add_post("/v1/groups/{number}/{group}/join", self._join_group)
        app.router.add_post("/v1/groups/{number}/{group}/quit", self._quit_group)
        app.router.add_get("/v1/attachments/{file}", self._get_file)
        app.router.add_delete("/v1/attachments/{file}", self._delete_file)
        app.router.add_delete("/v1/remote-delete/{number}", self._remote_delete)
        app.router.add_put("/v1/typing-indicator/{number}", self._type)
        app.router.add_delete("/v1/typing-indicator/{number}", self._type)
        app.router.add_post("/v1/reactions/{number}", self._react)
        app.router.add_post("/v1/polls/{number}", self._send_poll)
        app.router.add_delete("/v1/polls/{number}", self._end_poll)
        app.router.add_post("/v1/receipts/{number}", self._mark_read)
        app.router.add_put("/v1/profiles/{number}", self._set_profile)
        app.router.add_post("/v1/accounts/{number}/pin", self._set_pin)
        app.router.add_delete("/v1/accounts/{number}/pin", self._set_pin)
        app.router.add_get("/v1/receive/{number}", self._receive)
        app.router.add_post("/v2/send", self._send)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self._port, reuse_address=True)
        await site.start()
        self._port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        self.drop_websockets()
        if self._runner is not None:
            await self._runner.cleanup()
        self._runner = None

    async def wait_until(self, holds: Callable[[], bool]) -> None:
        async with self._changed:
            await self._changed.wait_for(holds)

    async def wait_for_receiver(self) -> None:
        """Wait until a client listens on the websocket."""
        await self.wait_until(lambda: self.receivers > 0)

    def text_sent(self, timestamp: int) -> str:
        return next((sent.text for sent in self.sent if sent.timestamp == timestamp), "")

    async def push(self, frame: object) -> None:
        await self.push_raw(json.dumps(frame).encode())

    async def push_raw(self, data: bytes, *, kind: WSMsgType = WSMsgType.TEXT) -> None:
        """Deliver any bytes as one frame; a connection that is closing loses it."""
        for websocket in tuple(self._websockets):
            with suppress(ConnectionResetError):
                await websocket.send_frame(data, kind)

    async def close_websockets(self) -> None:
        websockets = tuple(self._websockets)
        self._websockets.clear()
        for websocket in websockets:
            await websocket.close()

    def drop_websockets(self) -> None:
        """Break the connections without a closing handshake."""
        self._websockets.clear()
        for transport in self._transports.values():
            transport.abort()

    @web.middleware
    async def _count(
        self,
        request: web.Request,
        handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
    ) -> web.StreamResponse:
        if request.path.startswith("/v1/receive/"):
            return await handler(request)
        self.requests += 1
        self.asked.append(request.path)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        await self._announce()
        try:
            await self.hold.wait()
            if request.path.startswith(SIGNS_OF_LIFE):
                await self.hold_signs.wait()
            if not request.path.startswith(WITHOUT_SIGNAL_CLI):
                await self.signal_cli_alive.wait()
            return await handler(request)
        finally:
            self.in_flight -= 1
            await self._announce()

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
        return web.json_response(self.accounts)

    async def _list_identities(self, _: web.Request) -> web.Response:
        if self.identities is None:
            return web.Response(status=500)
        if self.identities == [OWN_IDENTITY]:
            return web.json_response([OWN_IDENTITY, *self._peer_rows()])
        return web.json_response(self.identities)

    def _peer_rows(self) -> list[Json]:
        return [
            {
                "number": peer.person.number,
                "uuid": aci,
                "status": peer.trust.value,
                "fingerprint": "05" * 33,
                "added": "1",
                "safety_number": " ".join(textwrap.wrap(peer.safety_number, 5)),
            }
            for aci, peer in self.peers.items()
        ]

    async def _list_devices(self, _: web.Request) -> web.Response:
        if self.devices is None:
            return web.Response(status=400, text=self.no_devices)
        return web.json_response(self.devices)

    async def _trust(self, request: web.Request) -> web.Response:
        body = await request.json()
        number = body.get("verified_safety_number")
        if number is None and not body.get("trust_all_known_keys"):
            return _refused("Couldn't process request - please provide a safety number")
        if not await self.trust_key(request.match_info["peer"], number):
            return _refused("Failed to set the trust for this number")
        await self._announce()
        return web.Response(status=204)

    async def _list_groups(self, _: web.Request) -> web.Response:
        """List groups as without `expand`: people are numbers, or uuids for want of one."""
        rows: list[Json] = []
        for row in filter(None, map(self._group_row, self.groups)):
            for key in ("members", "admins", "pending_invites"):
                row[key] = [one["number"] or one["uuid"] for one in row[key]]
            row |= {"description": "", "blocked": False, "invite_link": "", "pending_requests": []}
            row["permissions"] |= {"add_members": "every-member", "edit_group": "every-member"}
            rows.append(row)
        return web.json_response(rows)

    async def _get_group(self, request: web.Request) -> web.Response:
        at_server = request.match_info["group"]
        if at_server in self.told_groups:
            return web.json_response(self.told_groups[at_server])
        return web.json_response(self._group_row(_group_id(at_server)))

    def _group_row(self, group_id: str) -> Json | None:
        group = self.groups.get(group_id)
        if group is None:
            return None
        own: Json = {"number": NUMBER, "uuid": ACI}
        people: list[Json] = [
            {"number": one.number, "uuid": one.aci} for one in group.members.values()
        ]
        members = [*people, own] if group.is_member else people
        return {
            "id": _at_server(group_id),
            "internal_id": group_id,
            "name": group.name,
            "member": group.is_member,
            "members": members,
            "admins": [one for one in members if one["uuid"] in group.admins],
            "pending_invites": [own] if group.is_invited else [],
            "permissions": {
                "send_messages": "only-admins" if group.only_admins_write else "every-member"
            },
        }

    async def _join_group(self, request: web.Request) -> web.Response:
        joined = self.join(_group_id(request.match_info["group"]))
        return web.Response(status=204) if joined else _refused("Not invited")

    async def _quit_group(self, request: web.Request) -> web.Response:
        left = self.leave(_group_id(request.match_info["group"]))
        return web.Response(status=204) if left else _refused("User is not a group member")

    async def _get_file(self, request: web.Request) -> web.Response:
        data = self.files.get(request.match_info["file"])
        return _no_file() if data is None else web.Response(body=data)

    async def _delete_file(self, request: web.Request) -> web.Response:
        data = self.files.pop(request.match_info["file"], None)
        return _no_file() if data is None else web.Response(status=204)

    async def _remote_delete(self, request: web.Request) -> web.Response:
        body = await request.json()
        chat, target = chat_at(body["recipient"]), body["timestamp"]
        act = Act("deletion", chat, target, self._new_timestamp())
        done = web.json_response({"timestamp": str(act.timestamp)}, status=201)
        return await self._do_act(act, lambda: self.deleted.append((chat, target)), done)

    async def _do_act(self, act: Act, do: Callable[[], None], done: web.Response) -> web.Response:
        await has_come(act.timestamp)
        answer = self.answer_act(act)
        if answer is None or answer.after_delivery:
            do()
            self.acts.append(act)
            await self._announce()
        return done if answer is None else _answered(answer)

    async def _type(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.typing.append((chat_at(body["recipient"]), request.method == "PUT"))
        await self._announce()
        return web.Response(status=204)

    async def _react(self, request: web.Request) -> web.Response:
        body = await request.json()
        chat = chat_at(body["recipient"])
        reacted = Reacted(chat, body["reaction"], body["target_author"], body["timestamp"])
        act = Act("reaction", chat, reacted.timestamp, self._new_timestamp())
        done = web.Response(status=204)
        return await self._do_act(act, lambda: self.reactions.append(reacted), done)

    async def _mark_read(self, request: web.Request) -> web.Response:
        body = await request.json()
        assert body["receipt_type"] == "read"
        self.receipts.append((body["recipient"], (body["timestamp"],)))
        await self._announce()
        return web.Response(status=204)

    async def _set_profile(self, request: web.Request) -> web.Response:
        body = await request.json()
        picture = body.get("base64_avatar")
        self.profile = Profile(
            name=body["name"],
            about=body.get("about", self.profile.about),
            picture=base64.b64decode(picture) if picture else None,
        )
        await self._announce()
        return web.Response(status=204)

    async def _set_pin(self, request: web.Request) -> web.Response:
        body = await request.json() if request.can_read_body else {}
        self.pins.append(body.get("pin"))
        return web.Response(status=201 if body else 204)

    async def _receive(self, request: web.Request) -> web.WebSocketResponse:
        websocket = web.WebSocketResponse(autoping=False, max_msg_size=CLIENT_FRAME_LIMIT_BYTES)
        await websocket.prepare(request)
        transport = request.transport
        assert transport is not None
        self._websockets.add(websocket)
        self._transports[websocket] = transport
        self.connections += 1
        await self._announce()
        try:
            async for message in websocket:
                if message.type is WSMsgType.PING and self.answers_pings:
                    await websocket.pong(message.data)
        finally:
            self._websockets.discard(websocket)
            del self._transports[websocket]
            await self._announce()
        return websocket

    async def _send(self, request: web.Request) -> web.Response:
        body = await request.json()
        answer = self.answers.popleft() if self.answers else None
        answer = self.answer_send(chat_at(body["recipients"][0])) or answer
        if isinstance(answer, Answer):
            if answer.after_delivery:
                await has_come(self._record(body).timestamp)
                await self._announce()
            return _answered(answer)
        if answer is Fault.HANG:
            await asyncio.Event().wait()
        if answer is Fault.SLOW:
            await self.slow_done.wait()
            answer = None
        if not all(map(self.trusts, body["recipients"])):
            return _refused("Unable to complete request due to untrusted recipient keys")
        sent = None if answer is Fault.DROP else self._record(body)
        await self._announce()
        if answer is Fault.HANG_LATER:
            await asyncio.Event().wait()
        if answer is not None:
            assert request.transport is not None
            request.transport.abort()
        result = {} if sent is None else {"timestamp": str(sent.timestamp)}
        return web.json_response([result], status=201)

    async def _send_poll(self, request: web.Request) -> web.Response:
        if not self.has_polls:
            return web.Response(status=404, text="404 page not found")
        body = await request.json()
        multiple = body.get("allow_multiple_selections", False)
        poll = Poll(body["question"], tuple(body["answers"]), multiple)
        timestamp, recipient = self._new_timestamp(), body["recipient"]
        await has_come(timestamp)
        answer = self.answer_send(chat_at(recipient))
        if answer is None or answer.after_delivery:
            self._keep(Sent(recipient, poll.question, timestamp, None, None, None, (), None, poll))
            await self._announce()
        if answer is not None:
            return _answered(answer)
        return web.json_response({"timestamp": str(timestamp)}, status=201)

    async def _end_poll(self, request: web.Request) -> web.Response:
        if not self.has_polls:
            return web.Response(status=404, text="404 page not found")
        body = await request.json()
        assert isinstance(body["poll_timestamp"], str)
        chat, target = chat_at(body["recipient"]), int(body["poll_timestamp"])
        act = Act("poll end", chat, target, self._new_timestamp())
        done = web.Response(status=204)
        return await self._do_act(act, lambda: self.ended_polls.append((chat, target)), done)

    def _record(self, body: dict[str, Any]) -> Sent:
        [recipient] = body["recipients"]
        assert body["number"] == NUMBER
        attachments = tuple(map(attachment_in, body.get("base64_attachments") or ()))
        sent = Sent(
            attachments=attachments,
            recipient=recipient,
            text=body["message"],
            timestamp=self._new_timestamp(),
            replaces=body.get("edit_timestamp"),
            text_mode=body.get("text_mode"),
            notify_self=body.get("notify_self"),
            quote=_quote_in(body),
        )
        self._keep(sent)
        return sent

    def _keep(self, sent: Sent) -> None:
        self.sent.append(sent)


def _answered(answer: Answer) -> web.Response:
    kind = "application/json" if answer.status == HTTPStatus.CREATED else "text/plain"
    return web.Response(status=answer.status, text=answer.body, content_type=kind)


def _quote_in(body: Json) -> Quote | None:
    if "quote_timestamp" not in body:
        return None
    return Quote(body["quote_timestamp"], body["quote_author"], body["quote_message"])


def chat_at(recipient: str) -> ChatId:
    """Return the chat of a recipient; the account's own number is its note to self."""
    if recipient.startswith(GROUP_PREFIX):
        return ChatId.group(_group_id(recipient))
    return ChatId.direct(ACI if recipient == NUMBER else recipient)


def _at_server(group_id: str) -> str:
    return GROUP_PREFIX + base64.b64encode(group_id.encode()).decode()


def _group_id(at_server: str) -> str:
    return base64.b64decode(at_server.removeprefix(GROUP_PREFIX), validate=True).decode()


def _refused(text: str) -> web.Response:
    return web.Response(status=400, text=text)


def _no_file() -> web.Response:
    return web.Response(status=404, text="No attachment with that name found")
