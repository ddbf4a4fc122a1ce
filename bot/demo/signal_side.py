"""The Signal side of the demo: a look-alike of `signal-cli daemon` in manual receive mode.

It speaks signal-cli's JSON-RPC over a Unix socket, one JSON value per line: `version`,
`listAccounts`, `listIdentities`, `listGroups`, `subscribeReceive`, `unsubscribeReceive`, `send`,
`sendTyping`, `sendReaction`, `sendReceipt`; errors carry signal-cli's codes. Like the original
it runs the requests of a connection concurrently, takes several clients, and keeps messages until
somebody subscribes. Its owner plays the people on the other side: `say` writes to the bot,
`sent` is what the bot wrote.
"""

import asyncio
import itertools
import json
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from bot.messaging.events import Account, ChatId, ChatKind, Person

LINE_LIMIT_BYTES: Final = 32 * 1024 * 1024
WAIT_SECONDS: Final = 15.0
MENTION: Final = "\ufffc"

BOT: Final = Account(number="+15550100000", aci="9d578c56-e167-564c-8fb4-cdda901237d9")
ADA: Final = Person(aci="7f3c1a52-6b1e-4a0e-9a55-3a1e1b6f0d11", number="+15550100001", name="Ada")

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Sent:
    """A message that the bot sent; `replaces` is the timestamp that it edits."""

    chat: ChatId
    text: str
    timestamp: int
    replaces: int | None = None


@dataclass(slots=True)
class Group:
    """A group that the bot is in."""

    name: str
    members: dict[str, Person] = field(default_factory=dict)
    admins: set[str] = field(default_factory=set)


class Refusal(Exception):
    """Answer a request with a JSON-RPC error; raised by `on_send`, nothing is sent."""

    def __init__(self, code: int, message: str, data: object = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


class LostReply(Exception):
    """Raised by `on_send`: the message goes out, its answer does not."""


class HangUp(Exception):
    """Raised by `on_send`: the message goes out, then the connection breaks."""


OnSend = Callable[[Sent], Awaitable[None]]
"""Called before a send is answered. It may wait, or raise Refusal, LostReply or HangUp."""


class _Client:
    """One connection and its subscriptions."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        self.subscriptions: set[int] = set()
        self.gone = asyncio.Event()

    def write(self, value: object) -> None:
        if not self.writer.is_closing():
            self.writer.write(_line(value))


class SignalSide:
    """A scripted Signal with one registered account: the bot's.

    Args:
        path: of the Unix socket.
        account: the bot's number and ACI.
        on_send: may delay, refuse or lose sends; see `OnSend`.
    """

    def __init__(
        self, path: Path, *, account: Account = BOT, on_send: OnSend | None = None
    ) -> None:
        self.path = path
        self.account = account
        self.on_send = on_send
        self.sent: list[Sent] = []
        self.groups: dict[str, Group] = {}
        self._undelivered: deque[Json] = deque()
        self._clients: set[_Client] = set()
        self._server: asyncio.Server | None = None
        self._subscription_ids = itertools.count()
        self._changed = asyncio.Condition()
        self._taken = 0
        self._last_timestamp = 0
        self._methods: dict[str, Callable[[_Client, Json], Awaitable[object]]] = {
            "version": self._version,
            "listAccounts": self._list_accounts,
            "listIdentities": self._list_identities,
            "listGroups": self._list_groups,
            "subscribeReceive": self._subscribe,
            "unsubscribeReceive": self._unsubscribe,
            "send": self._send,
            "sendTyping": self._acknowledge,
            "sendReaction": self._acknowledge,
            "sendReceipt": self._acknowledge,
        }

    @classmethod
    @asynccontextmanager
    async def listen(
        cls, path: Path, *, account: Account = BOT, on_send: OnSend | None = None
    ) -> AsyncIterator[Self]:
        """Serve on a Unix socket inside the `async with` block."""
        side = cls(path, account=account, on_send=on_send)
        await side.come_back()
        try:
            yield side
        finally:
            await side.go_away()

    async def come_back(self) -> None:
        """Listen, also again after `go_away`, on the same path and with the same messages."""
        self._server = await self._open_server()

    async def go_away(self) -> None:
        """Stop listening and break every connection; what nobody received is kept."""
        if self._server is not None:
            self._server.close()
            self._server = None
        await self.drop_connections()
        self.path.unlink(missing_ok=True)

    async def drop_connections(self) -> None:
        """Break every connection and wait until it is gone; new ones are accepted."""
        clients = list(self._clients)
        for client in clients:
            client.writer.transport.abort()
        for client in clients:
            await client.gone.wait()

    @property
    def subscribed(self) -> bool:
        """Whether anybody receives messages right now."""
        return any(client.subscriptions for client in self._clients)

    # What people do

    async def say(
        self,
        text: str,
        *,
        author: Person = ADA,
        group: str | None = None,
        timestamp: int | None = None,
        mention: bool = False,
        quote_bot: bool = False,
    ) -> int:
        """Write to the bot, privately or in a group, and return the message's timestamp.

        Args:
            text: what to write.
            author: who writes.
            group: id of the group to write in; a new one comes into being.
            timestamp: of the message, in ms; a repeated one makes a duplicate.
            mention: mention the bot before the text.
            quote_bot: reply to the bot's last message.
        """
        timestamp = timestamp or self._new_timestamp()
        data: Json = {
            "timestamp": timestamp,
            "message": f"{MENTION} {text}" if mention else text,
            "expiresInSeconds": 0,
            "isExpirationUpdate": False,
            "viewOnce": False,
        }
        if mention:
            data["mentions"] = [self._mention_of_the_bot()]
        if quote_bot:
            data["quote"] = self._quote_of_the_bot()
        if group is not None:
            data["groupInfo"] = self._group_info(group, author)
        await self.push(self._frame(author, timestamp, data))
        return timestamp

    async def push(self, frame: Json) -> None:
        """Deliver a raw frame (`{"envelope": ..., "account": ...}`), or keep it for later."""
        self._undelivered.append(frame)
        self._deliver()
        for client in list(self._clients):
            await _drain(client.writer)

    async def push_line(self, line: bytes) -> None:
        """Write a raw line, which may be garbage, to every client; a newline is added."""
        for client in list(self._clients):
            client.writer.write(line + b"\n")
            await _drain(client.writer)

    # What the bot did

    async def next_sent(self, *, seconds: float = WAIT_SECONDS) -> Sent:
        """Return the next message that the bot sent, waiting for it; TimeoutError if none came."""
        await self.until(lambda: len(self.sent) > self._taken, seconds=seconds)
        self._taken += 1
        return self.sent[self._taken - 1]

    async def wait_for(
        self, predicate: Callable[[Sent], bool], *, seconds: float = WAIT_SECONDS
    ) -> Sent:
        """Return the first message ever sent that fits, waiting for it."""
        await self.until(lambda: any(map(predicate, self.sent)), seconds=seconds)
        return next(filter(predicate, self.sent))

    async def until(self, happened: Callable[[], bool], *, seconds: float = WAIT_SECONDS) -> None:
        """Wait until something about this side is so; looked at after every change of it."""
        async with asyncio.timeout(seconds), self._changed:
            await self._changed.wait_for(happened)

    # The connection

    async def _open_server(self) -> asyncio.Server:
        self.path.unlink(missing_ok=True)
        return await asyncio.start_unix_server(self._serve, self.path, limit=LINE_LIMIT_BYTES)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        client = _Client(writer)
        self._clients.add(client)
        requests: set[asyncio.Task[None]] = set()
        try:
            async with asyncio.TaskGroup() as tasks:
                async for line in _lines(reader):
                    request = tasks.create_task(self._handle(client, line))
                    requests.add(request)
                    request.add_done_callback(requests.discard)
                for request in requests:
                    request.cancel()
        finally:
            self._clients.discard(client)
            writer.close()
            client.gone.set()
            await self._announce()

    async def _handle(self, client: _Client, line: bytes) -> None:
        try:
            answer = await self._answer_line(client, line)
        except LostReply:
            return
        except HangUp:
            client.writer.transport.abort()
            return
        if answer is not None:
            client.write(answer)
            await _drain(client.writer)

    async def _answer_line(self, client: _Client, line: bytes) -> object:
        try:
            request = json.loads(line)
        except ValueError:
            return _error(None, Refusal(-32700, "Parse error"))
        if not isinstance(request, list):
            return await self._answer(client, request)
        if not request:
            return _error(None, Refusal(-32600, "Invalid request"))
        answers = [await self._answer(client, one) for one in request]
        return [answer for answer in answers if answer is not None]

    async def _answer(self, client: _Client, request: object) -> Json | None:
        request_id = request.get("id") if isinstance(request, dict) else None
        try:
            result = await self._result(client, request)
        except Refusal as refusal:
            return _error(request_id, refusal)
        if isinstance(request, dict) and "id" not in request:
            return None
        return {"jsonrpc": "2.0", "result": result, "id": request_id}

    async def _result(self, client: _Client, request: object) -> object:
        if not isinstance(request, dict) or request.get("jsonrpc") != "2.0":
            raise Refusal(-32600, "Invalid request")
        params = request.get("params", {})
        if "method" not in request or not isinstance(params, dict):
            raise Refusal(-32600, "Invalid request")
        method = self._methods.get(request["method"])
        if method is None:
            raise Refusal(-32601, "Method not implemented")
        if params.get("account", self.account.number) != self.account.number:
            raise Refusal(-32602, "Specified account does not exist")
        return await method(client, params)

    async def _announce(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    def _deliver(self) -> None:
        while self._undelivered and self.subscribed:
            frame = self._undelivered.popleft()
            for client in self._clients:
                for subscription in client.subscriptions:
                    client.write(_notification(subscription, frame))

    # Methods

    async def _version(self, _client: _Client, _params: Json) -> object:
        return {"version": "0.13.19"}

    async def _list_accounts(self, _client: _Client, _params: Json) -> object:
        return [{"number": self.account.number}]

    async def _list_identities(self, _client: _Client, params: Json) -> object:
        if params.get("number", self.account.number) != self.account.number:
            return []
        return [{"number": self.account.number, "uuid": self.account.aci}]

    async def _list_groups(self, _client: _Client, params: Json) -> object:
        wanted = _several(params, "groupId") or list(self.groups)
        return [
            _group_row(group_id, self.groups[group_id])
            for group_id in wanted
            if group_id in self.groups
        ]

    async def _subscribe(self, client: _Client, _params: Json) -> object:
        subscription = next(self._subscription_ids)
        client.subscriptions.add(subscription)
        self._deliver()
        await self._announce()
        return subscription

    async def _unsubscribe(self, client: _Client, params: Json) -> object:
        if "subscription" not in params:
            raise Refusal(-1, "Missing subscription parameter with subscription id")
        if params["subscription"] not in client.subscriptions:
            raise Refusal(-1, "Unknown subscription id")
        client.subscriptions.discard(params["subscription"])
        await self._announce()
        return {}

    async def _send(self, _client: _Client, params: Json) -> object:
        if not params.get("message"):
            raise Refusal(-1, "Sending empty message is not allowed")
        sent = Sent(
            self._chat_of(params),
            params["message"],
            self._new_timestamp(),
            replaces=params.get("editTimestamp"),
        )
        try:
            if self.on_send is not None:
                await self.on_send(sent)
        except (LostReply, HangUp):
            await self._record(sent)
            raise
        await self._record(sent)
        return self._sent_result(sent.timestamp)

    async def _acknowledge(self, _client: _Client, _params: Json) -> object:
        return self._sent_result(self._new_timestamp())

    def _chat_of(self, params: Json) -> ChatId:
        groups, people = _several(params, "groupId"), _several(params, "recipient")
        if groups:
            if groups[0] not in self.groups:
                raise Refusal(-1, "Group not found")
            return ChatId(ChatKind.GROUP, groups[0])
        if not people:
            raise Refusal(-1, "No recipients given")
        return ChatId(ChatKind.DIRECT, people[0])

    async def _record(self, sent: Sent) -> None:
        self.sent.append(sent)
        await self._announce()

    def _sent_result(self, timestamp: int) -> Json:
        results = [{"recipientAddress": {}, "type": kind} for kind in self._result_types()]
        return {"timestamp": timestamp, "results": results}

    def _result_types(self) -> Sequence[str]:
        return ["SUCCESS"]

    def _new_timestamp(self) -> int:
        self._last_timestamp = max(time.time_ns() // 1_000_000, self._last_timestamp + 1)
        return self._last_timestamp

    # Parts of frames

    def _frame(self, author: Person, timestamp: int, data: Json) -> Json:
        envelope = {
            "source": author.number or author.aci,
            "sourceNumber": author.number,
            "sourceUuid": author.aci,
            "sourceName": author.name,
            "sourceDevice": 1,
            "timestamp": timestamp,
            "serverReceivedTimestamp": timestamp,
            "serverDeliveredTimestamp": timestamp,
            "dataMessage": data,
        }
        return {"envelope": envelope, "account": self.account.number}

    def _mention_of_the_bot(self) -> Json:
        number = self.account.number
        return {
            "name": number,
            "number": number,
            "uuid": self.account.aci,
            "start": 0,
            "length": 1,
        }

    def _quote_of_the_bot(self) -> Json:
        quoted = self.sent[-1] if self.sent else None
        return {
            "id": quoted.timestamp if quoted else self._new_timestamp(),
            "author": self.account.number,
            "authorNumber": self.account.number,
            "authorUuid": self.account.aci,
            "text": quoted.text if quoted else "",
            "attachments": [],
        }

    def _group_info(self, group_id: str, author: Person) -> Json:
        group = self.groups.setdefault(group_id, Group(name="Team"))
        group.members[author.aci] = author
        return {"groupId": group_id, "groupName": group.name, "revision": 1, "type": "DELIVER"}


def _line(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"


def _error(request_id: object, refusal: Refusal) -> Json:
    error = {"code": refusal.code, "message": refusal.message, "data": refusal.data}
    return {"jsonrpc": "2.0", "error": error, "id": request_id}


def _notification(subscription: int, frame: Json) -> Json:
    params = {"subscription": subscription, "result": frame}
    return {"jsonrpc": "2.0", "method": "receive", "params": params}


def _group_row(group_id: str, group: Group) -> Json:
    members = [
        {"number": person.number, "uuid": person.aci, "isAdmin": person.aci in group.admins}
        for person in group.members.values()
    ]
    return {
        "id": group_id,
        "name": group.name,
        "isMember": True,
        "isBlocked": False,
        "members": members,
        "admins": [
            {"number": person["number"], "uuid": person["uuid"]}
            for person in members
            if person["isAdmin"]
        ],
    }


def _several(params: Json, name: str) -> list[str]:
    """A parameter that may be written as one value or as an array, in the singular or plural."""
    value = params.get(name, params.get(f"{name}s"))
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


async def _lines(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """The lines of a connection until it ends, however it ends."""
    try:
        async for line in reader:
            yield line
    except (ConnectionError, ValueError):  # broken, or a line over the limit
        return


async def _drain(writer: asyncio.StreamWriter) -> None:
    """Wait until the client has read enough; one that went away is no concern of a sender."""
    try:
        await writer.drain()
    except ConnectionError:
        return
