"""The Signal side of the demo: a look-alike of `signal-cli daemon` in manual receive mode.

It speaks signal-cli's JSON-RPC over a Unix socket: `version`, `listAccounts`, `listIdentities`,
`listDevices`, `listGroups`, `subscribeReceive`, `unsubscribeReceive`, `send`, `sendTyping`,
`sendReaction`, `sendReceipt`, with signal-cli's error codes. Like the original it takes several
clients and keeps messages until somebody subscribes. Its owner plays the people on the other side:
`say` writes to the bot, `react` answers it with an emoji, `sent` is what the bot wrote.
"""

import asyncio
import base64
import itertools
import re
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from bot.demo.json_rpc_server import (
    LINE_LIMIT_BYTES,
    Client,
    HangUp,
    Json,
    JsonRpcServer,
    LostReply,
    Refusal,
)
from bot.demo.signal_frames import group_info, quote_of, reaction_frame, receipt_frame, text_frame
from bot.messaging.account import PRIMARY_DEVICE, Attachment
from bot.messaging.events import Account, ChatId, ChatKind, Person

WAIT_SECONDS: Final = 15.0

BOT: Final = Account(number="+15550100000", aci="9d0652a3-dcc3-4d11-975f-74d61598733f")
IDENTITY_KEY: Final = bytes.fromhex(
    "0506863bc66d02b40d27b8d49ca7c09e9239236f9d7d25d6fcca5ce13c7064d868"
)
"""A public key of libsignal's test vectors. Its half of the safety number for the account above
begins with 44665 72466."""

DATA_URI: Final = re.compile(r"data:([^;,]+);filename=([^;,]+);base64,(.*)", re.DOTALL)
ADA: Final = Person(aci="7f3c1a52-6b1e-4a0e-9a55-3a1e1b6f0d11", number="+15550100001", name="Ada")


@dataclass(frozen=True, slots=True)
class Sent:
    """A message that the bot sent; `replaces` is the timestamp that it edits."""

    chat: ChatId
    text: str
    timestamp: int
    replaces: int | None = None
    attachments: tuple[Attachment, ...] = ()


@dataclass(slots=True)
class Group:
    """A group that the bot is in: members by ACI, and the ACIs of its admins."""

    name: str
    members: dict[str, Person] = field(default_factory=dict)
    admins: set[str] = field(default_factory=set)


OnSend = Callable[[Sent], Awaitable[None]]
"""Called before a send is answered. It may wait; raise Refusal (nothing is sent then), LostReply
or HangUp (the message goes out, the answer does not)."""

Method = Callable[[Client, Json], Awaitable[object]]


class SignalSide:
    """A scripted Signal with one registered account: the bot's.

    Attributes:
        identity_key: the account's public identity key.
        device_ids: the account's devices.

    Args:
        path: of the Unix socket.
        account: the bot's number and ACI.
        on_send: may delay, refuse or lose sends; may be set later, too.
    """

    def __init__(
        self, path: Path, *, account: Account = BOT, on_send: OnSend | None = None
    ) -> None:
        self.path = path
        self.account = account
        self.on_send = on_send
        self.identity_key = IDENTITY_KEY
        self.device_ids = [PRIMARY_DEVICE]
        self.sent: list[Sent] = []
        self.groups: dict[str, Group] = {}
        self._rpc = JsonRpcServer(self._call)
        self._server: asyncio.Server | None = None
        self._undelivered: deque[Json] = deque()
        self._subscription_ids = itertools.count()
        self._changed = asyncio.Condition()
        self._taken = 0
        self._last_timestamp = 0
        self._methods: dict[str, Method] = {
            "version": self._version,
            "listAccounts": self._list_accounts,
            "listIdentities": self._list_identities,
            "listDevices": self._list_devices,
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
        """Listen, also again after `go_away`, at the same place and with the same messages."""
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
        await self._rpc.drop_connections()
        await self._announce()

    @property
    def subscribed(self) -> bool:
        """Whether anybody receives messages right now."""
        return any(client.subscriptions for client in self._rpc.clients)

    @property
    def undelivered(self) -> int:
        """How many messages wait for somebody to subscribe."""
        return len(self._undelivered)

    async def wait_until_alone(self, *, seconds: float = WAIT_SECONDS) -> None:
        """Wait until every client has gone by itself and what it still asked for is done."""
        async with asyncio.timeout(seconds):
            for client in list(self._rpc.clients):
                await client.gone.wait()

    # What people do

    async def say(
        self,
        text: str,
        *,
        author: Person = ADA,
        group: str | None = None,
        timestamp: int | None = None,
        mention: bool = False,
        quote: int | None = None,
    ) -> int:
        """Write to the bot, privately or in a group, and return the message's timestamp.

        Args:
            text: what to write.
            author: who writes.
            group: id of the group to write in; a new one comes into being.
            timestamp: of the message, in ms; a repeated one makes a duplicate.
            mention: mention the bot before the text.
            quote: reply to this message of the bot, by its timestamp.
        """
        timestamp = timestamp or self._new_timestamp()
        frame = text_frame(
            self.account,
            author,
            timestamp,
            text,
            group=self._enter(group, author),
            mention=mention,
            quote=None if quote is None else self._quote_of(quote),
        )
        await self.push(frame)
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
        """React to a message of the bot and return the reaction's own timestamp.

        Args:
            emoji: what with.
            timestamp: of the bot's message, in ms.
            author: who reacts.
            group: id of the group where the message stands; a new one comes into being.
            removed: take the reaction back.
        """
        own = self._new_timestamp()
        frame = reaction_frame(
            self.account,
            author,
            own,
            emoji,
            timestamp,
            group=self._enter(group, author),
            removed=removed,
        )
        await self.push(frame)
        return own

    async def deliver_receipt(self, timestamp: int, person: Person = ADA) -> None:
        """Confirm that a message of the bot arrived at a person's phone."""
        await self.push(receipt_frame(self.account, person, self._new_timestamp(), timestamp))

    async def push(self, frame: Json) -> None:
        """Deliver a raw frame (`{"envelope": ..., "account": ...}`), or keep it for later."""
        self._undelivered.append(frame)
        self._deliver()
        for client in list(self._rpc.clients):
            await client.drain()

    async def push_line(self, line: bytes) -> None:
        """Write a raw line, which may be garbage, to every client; a newline is added."""
        for client in list(self._rpc.clients):
            client.write_line(line)
            await client.drain()

    # What the bot did

    async def next_sent(self, *, seconds: float = WAIT_SECONDS) -> Sent:
        """Return the next message that the bot sent; TimeoutError if none comes."""
        await self.until(lambda: len(self.sent) > self._taken, seconds=seconds)
        self._taken += 1
        return self.sent[self._taken - 1]

    async def wait_for(
        self, predicate: Callable[[Sent], bool], *, seconds: float = WAIT_SECONDS
    ) -> Sent:
        """Return the first message ever sent that fits; TimeoutError if none comes."""
        await self.until(lambda: any(map(predicate, self.sent)), seconds=seconds)
        return next(filter(predicate, self.sent))

    async def until(self, happened: Callable[[], bool], *, seconds: float = WAIT_SECONDS) -> None:
        """Wait for something that a send, a subscription or a dropped connection brings about."""
        async with asyncio.timeout(seconds), self._changed:
            await self._changed.wait_for(happened)

    # Methods

    async def _call(self, client: Client, name: str, params: Json) -> object:
        method = self._methods.get(name)
        if method is None:
            raise Refusal(-32601, "Method not implemented")
        if params.get("account", self.account.number) != self.account.number:
            raise Refusal(-32602, "Specified account does not exist")
        return await method(client, params)

    async def _version(self, _client: Client, _params: Json) -> object:
        return {"version": "0.13.19"}

    async def _list_accounts(self, _client: Client, _params: Json) -> object:
        return [{"number": self.account.number}]

    async def _list_identities(self, _client: Client, params: Json) -> object:
        if params.get("number", self.account.number) != self.account.number:
            return []
        return [
            {
                "number": self.account.number,
                "uuid": self.account.aci,
                "fingerprint": self.identity_key.hex(" "),
                "trustLevel": "TRUSTED_VERIFIED",
            }
        ]

    async def _list_devices(self, _client: Client, _params: Json) -> object:
        return [{"id": device_id, "name": None} for device_id in self.device_ids]

    async def _list_groups(self, _client: Client, params: Json) -> object:
        wanted = _several(params, "groupId") or list(self.groups)
        return [
            _group_row(group_id, self.groups[group_id])
            for group_id in wanted
            if group_id in self.groups
        ]

    async def _subscribe(self, client: Client, _params: Json) -> object:
        subscription = next(self._subscription_ids)
        client.subscriptions.add(subscription)
        self._deliver()
        await self._announce()
        return subscription

    async def _unsubscribe(self, client: Client, params: Json) -> object:
        if "subscription" not in params:
            raise Refusal(-1, "Missing subscription parameter with subscription id")
        if params["subscription"] not in client.subscriptions:
            raise Refusal(-1, "Unknown subscription id")
        client.subscriptions.discard(params["subscription"])
        await self._announce()
        return {}

    async def _send(self, _client: Client, params: Json) -> object:
        attachments = tuple(map(_attachment_of, _several(params, "attachment")))
        text = params.get("message") or ""
        if not text and not attachments:
            raise Refusal(-1, "Sending empty message is not allowed")
        chat, replaces = self._chat_of(params), params.get("editTimestamp")
        sent = Sent(chat, text, self._new_timestamp(), replaces, attachments)
        try:
            if self.on_send is not None:
                await self.on_send(sent)
        except (LostReply, HangUp):
            await self._record(sent)
            raise
        await self._record(sent)
        return self._sent_result(sent.timestamp)

    async def _acknowledge(self, _client: Client, _params: Json) -> object:
        return self._sent_result(self._new_timestamp())

    # Helpers

    async def _open_server(self) -> asyncio.Server:
        self.path.unlink(missing_ok=True)
        return await asyncio.start_unix_server(self._rpc.serve, self.path, limit=LINE_LIMIT_BYTES)

    def _deliver(self) -> None:
        while self._undelivered and self.subscribed:
            frame = self._undelivered.popleft()
            for client in self._rpc.clients:
                for subscription in client.subscriptions:
                    client.write(self._notification(subscription, frame))

    def _notification(self, subscription: int, frame: Json) -> Json:
        params = {"subscription": subscription, "result": frame}
        return {"jsonrpc": "2.0", "method": "receive", "params": params}

    async def _announce(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def _record(self, sent: Sent) -> None:
        self.sent.append(sent)
        await self._announce()

    def _sent_result(self, timestamp: int) -> Json:
        results = [{"recipientAddress": {}, "type": fate} for fate in self._fates()]
        return {"timestamp": timestamp, "results": results}

    def _fates(self) -> Sequence[str]:
        return ["SUCCESS"]

    def _chat_of(self, params: Json) -> ChatId:
        groups, people = _several(params, "groupId"), _several(params, "recipient")
        if groups:
            if groups[0] not in self.groups:
                raise Refusal(-1, "Group not found")
            return ChatId(ChatKind.GROUP, groups[0])
        if not people:
            raise Refusal(-1, "No recipients given")
        return ChatId(ChatKind.DIRECT, people[0])

    def _enter(self, group_id: str | None, author: Person) -> Json | None:
        if group_id is None:
            return None
        group = self.groups.setdefault(group_id, Group(name="Team"))
        group.members[author.aci] = author
        return group_info(group_id, group.name)

    def _quote_of(self, timestamp: int) -> Json:
        text = next((sent.text for sent in self.sent if sent.timestamp == timestamp), "")
        return quote_of(self.account, timestamp, text)

    def _new_timestamp(self) -> int:
        """The time in ms, unique as signal-cli makes it."""
        self._last_timestamp = max(time.time_ns() // 1_000_000, self._last_timestamp + 1)
        return self._last_timestamp


def attachment_in(data_uri: str) -> Attachment:
    """Return the file of `data:<type>;filename=<name>;base64,<data>`; ValueError if it is none."""
    match = DATA_URI.fullmatch(data_uri)
    if match is None:
        raise ValueError("no data URI with a file name")
    content_type, name, data = match.groups()
    return Attachment(name, content_type, base64.b64decode(data, validate=True))


def _attachment_of(data_uri: str) -> Attachment:
    """A file of a message; paths on the daemon's machine are none here."""
    try:
        return attachment_in(data_uri)
    except ValueError:
        raise Refusal(-1, "Failed to add attachment") from None


def _group_row(group_id: str, group: Group) -> Json:
    people = [{"number": one.number, "uuid": one.aci} for one in group.members.values()]
    return {
        "id": group_id,
        "name": group.name,
        "isMember": True,
        "isBlocked": False,
        "members": [{**one, "isAdmin": one["uuid"] in group.admins} for one in people],
        "admins": [one for one in people if one["uuid"] in group.admins],
    }


def _several(params: Json, name: str) -> list[str]:
    """A parameter that may be written as one value or as an array, in the singular or plural."""
    value = params.get(name, params.get(f"{name}s"))
    if value is None:
        return []
    return value if isinstance(value, list) else [value]
