"""The Signal side of the demo: a look-alike of `signal-cli daemon` in manual receive mode.

It speaks the part of signal-cli's JSON-RPC that the bot needs (`_methods`), over a Unix socket and
with signal-cli's error codes. Like the original it takes several clients and keeps messages until a
client subscribes. Its owner plays the people on the other side: `say` writes to the bot, `react`
reacts with an emoji, `sent` has the bot's messages; the rest is in `tests.fakes.signal_people`.
"""

import asyncio
import base64
import itertools
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, Self

from bot.signal.account import PRIMARY_DEVICE
from bot.signal.frames import Account
from bot.signal.messenger import Poll
from conversation_store.models import Attachment, ChatId, Quote, StyleRange
from tests.fakes.json_rpc_server import (
    MAX_LINE_BYTES,
    Client,
    HangUp,
    Json,
    JsonRpcServer,
    LostReply,
    Refusal,
    RefusedAfterDelivery,
)
from tests.fakes.signal_people import ADA, WAIT_SECONDS, Group, Reacted, SharedFile, SignalPeople
from tests.fakes.signal_requests import (
    attachments_of,
    poll_of,
    profile_of,
    quote_in,
    recipients_of,
    required,
    several,
    styles_of,
    timestamp_in,
)

__all__ = [
    "ADA", "BOT", "IDENTITY_KEY", "WAIT_SECONDS", "Act", "Group", "OnSend", "Reacted", "Sent",
    "SharedFile", "SignalSide",
]  # fmt: skip

BOT: Final = Account(number="+15550100000", aci="9d0652a3-dcc3-4d11-975f-74d61598733f")
IDENTITY_KEY: Final = bytes.fromhex(
    "0506863bc66d02b40d27b8d49ca7c09e9239236f9d7d25d6fcca5ce13c7064d868"
)
"""A public key of libsignal's test vectors. Its half of the safety number for the account above
begins with 44665 72466."""

ATTACHMENTS: Final = "attachments"
"""Folder for received files inside signal-cli's own folder."""


@dataclass(frozen=True, slots=True)
class Sent:
    """A message that the bot sent; `replaces` is the timestamp that it edits."""

    chat: ChatId
    text: str
    timestamp: int
    replaces: int | None = None
    attachments: tuple[Attachment, ...] = ()
    styles: tuple[StyleRange, ...] = ()
    quote: Quote | None = None
    poll: Poll | None = None
    voice_note: bool = False


@dataclass(frozen=True, slots=True)
class Act:
    """A reaction, a deletion or the end of a poll; phones confirm its timestamp, too."""

    kind: Literal["reaction", "deletion", "poll end"]
    chat: ChatId
    target: int
    timestamp: int


OnSend = Callable[[Sent], Awaitable[None]]
"""Called before a send is answered. It may wait; raise Refusal (nothing is sent then),
RefusedAfterDelivery (an error follows the delivery), LostReply or HangUp (the message goes out, the
answer does not)."""

Method = Callable[[Client, Json], Awaitable[object]]


async def has_come(timestamp: int) -> None:
    """Wait until the clock has reached a timestamp: signal-cli's are never ahead of it."""
    ahead_ms = timestamp - time.time() * 1_000
    if ahead_ms > 0:
        await asyncio.sleep((ahead_ms + 1) / 1_000)


DROPPED: Final = "Specified account does not exist"
STILL_LISTED: Final = "Failed: [403] Authorization failed! (AuthorizationFailedException)"
OUTDATED: Final = "Failed to send message: StatusCode: 499 (DeprecatedVersionException)"


class SignalSide(SignalPeople):
    """A scripted Signal with one registered account: the bot's.

    Attributes:
        version: the version of signal-cli that it reports.
        fate: what Signal answers for the account: nothing, or one of DROPPED (signal-cli has
            noticed, and lists the account no more), STILL_LISTED (it has not), OUTDATED.
        identity_key: the account's public identity key.
        device_ids: the account's devices.
        is_linked: this signal-cli is a linked device of the account.
        sent: the bot's messages.
        acts: what the bot did to messages.
        on_send: may delay, refuse or lose sends.
        on_act: the same for `acts`.
        takes_sends: unless it is set, sends wait before they get their timestamp,
        waiting_sends: so many of them.
        takes_poll_ends: unless it is set, requests to end a poll wait.
        finishes: carry out the requests of a connection that has ended, as signal-cli does.

    Args:
        path: of the Unix socket.
        account: the bot's number and ACI.
        data_dir: where files that people send are also put, as in signal-cli's own folder.
    """

    def __init__(
        self,
        path: Path,
        *,
        account: Account = BOT,
        data_dir: Path | None = None,
    ) -> None:
        super().__init__(account)
        self.path = path
        self.on_send: OnSend | None = None
        self.on_act: Callable[[Act], Awaitable[None]] | None = None
        self.takes_sends = asyncio.Event()
        self.takes_sends.set()
        self.waiting_sends = 0
        self.takes_poll_ends = asyncio.Event()
        self.takes_poll_ends.set()
        self.data_dir = data_dir
        self.version = "0.99.0"
        self.fate = ""
        self.is_linked = False
        self.identity_key = IDENTITY_KEY
        self.device_ids = [PRIMARY_DEVICE]
        self.sent: list[Sent] = []
        self.acts: list[Act] = []
        self._rpc = JsonRpcServer(self._call)
        self._server: asyncio.Server | None = None
        self._undelivered: deque[Json] = deque()
        self._subscription_ids = itertools.count()
        self._taken = 0
        self._methods: dict[str, Method] = {
            "version": self._version,
            "listAccounts": self._list_accounts,
            "listIdentities": self._list_identities,
            "listDevices": self._list_devices,
            "listGroups": self._list_groups,
            "subscribeReceive": self._subscribe,
            "unsubscribeReceive": self._unsubscribe,
            "send": self._send,
            "remoteDelete": self._remote_delete,
            "sendTyping": self._send_typing,
            "sendReaction": self._send_reaction,
            "sendPollCreate": self._send_poll,
            "sendPollTerminate": self._end_poll,
            "sendReceipt": self._send_receipt,
            "getAttachment": self._get_attachment,
            "updateGroup": self._update_group,
            "quitGroup": self._quit_group,
            "trust": self._trust,
            "sendMessageRequestResponse": self._answer_request,
            "updateProfile": self._update_profile,
            "setPin": self._set_pin,
            "removePin": self._set_pin,
        }

    @classmethod
    @asynccontextmanager
    async def listen(cls, path: Path, **options: Any) -> AsyncIterator[Self]:
        side = cls(path, **options)
        await side.come_back()
        try:
            yield side
        finally:
            await side.go_away()

    async def come_back(self) -> None:
        """Listen, also again after `go_away`, at the same place and with the same messages."""
        self._server = await self._open_server()

    async def go_away(self) -> None:
        """Stop listening and break every connection; keep undelivered messages."""
        if self._server is not None:
            self._server.close()
            self._server = None
        await self.drop_connections()
        self.path.unlink(missing_ok=True)

    async def drop_connections(self) -> None:
        await self._rpc.drop_connections()
        await self._announce()

    @property
    def finishes(self) -> bool:
        return self._rpc.finishes

    @finishes.setter
    def finishes(self, value: bool) -> None:
        self._rpc.finishes = value

    @property
    def subscribed(self) -> bool:
        return any(client.subscriptions for client in self._rpc.clients)

    @property
    def undelivered(self) -> int:
        return len(self._undelivered)

    async def wait_until_alone(self, *, seconds: float = WAIT_SECONDS) -> None:
        """Wait until every client has disconnected and its last requests are done."""
        async with asyncio.timeout(seconds):
            for client in list(self._rpc.clients):
                await client.gone.wait()

    # What reaches the bot

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

    def text_sent(self, timestamp: int) -> str:
        return next((sent.text for sent in self.sent if sent.timestamp == timestamp), "")

    # Methods

    async def _call(self, client: Client, name: str, params: Json) -> object:
        method = self._methods.get(name)
        if method is None or (name.startswith("sendPoll") and not self.has_polls):
            raise Refusal(-32601, "Method not implemented")
        if params.get("account", self.account.number) != self.account.number:
            raise Refusal(-32602, "Specified account does not exist")
        still_goes = name in {"register", "verify"} or (
            name.endswith("ubscribeReceive") and self.fate != DROPPED
        )
        if self.fate and "account" in params and not still_goes:
            raise Refusal(-32602 if self.fate == DROPPED else -3, self.fate)
        return await method(client, params)

    async def meets(self, fate: str) -> None:
        """Let Signal drop the account, or refuse the version; the bot is not told."""
        self.fate = fate
        if fate == DROPPED:
            for client in self._rpc.clients:
                client.subscriptions.clear()
        self._deliver()

    async def _version(self, _client: Client, _params: Json) -> object:
        return {"version": self.version}

    async def _set_pin(self, _client: Client, params: Json) -> object:
        if self.is_linked:
            raise Refusal(-1, "This command doesn't work on linked devices.")
        self.pins.append(params.get("pin"))
        await self._announce()
        return {}

    async def _list_accounts(self, _client: Client, _params: Json) -> object:
        return [] if self.fate == DROPPED else [{"number": self.account.number}]

    async def _list_identities(self, _client: Client, params: Json) -> object:
        rows = [
            {
                "number": self.account.number,
                "uuid": self.account.aci,
                "fingerprint": self.identity_key.hex(" "),
                "trustLevel": "TRUSTED_VERIFIED",
            },
            *self._peer_rows(),
        ]
        wanted = params.get("number")
        return [row for row in rows if wanted in {None, row["number"], row["uuid"]}]

    def _peer_rows(self) -> list[Json]:
        return [
            {
                "number": peer.person.number,
                "uuid": aci,
                "fingerprint": "05" * 33,
                "safetyNumber": peer.safety_number,
                "trustLevel": peer.trust.value,
                "addedTimestamp": 1,
            }
            for aci, peer in self.peers.items()
        ]

    async def _list_devices(self, _client: Client, _params: Json) -> object:
        return [{"id": device_id, "name": None} for device_id in self.device_ids]

    async def _list_groups(self, _client: Client, params: Json) -> object:
        wanted = several(params, "groupId") or list(self.groups)
        return [
            _group_row(group_id, self.groups[group_id], self.account)
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
        attachments = attachments_of(params)
        text = params.get("message") or ""
        if not text and not attachments:
            raise Refusal(-1, "Sending empty message is not allowed")
        if not self.takes_sends.is_set():
            self.waiting_sends += 1
            await self._announce()
            await self.takes_sends.wait()
            self.waiting_sends -= 1
        sent = Sent(
            chat=self._reachable_chat(params),
            text=text,
            timestamp=self._new_timestamp(),
            replaces=params.get("editTimestamp"),
            attachments=attachments,
            styles=styles_of(params),
            quote=quote_in(params),
            voice_note=bool(params.get("voiceNote")),
        )
        return await self._send_out(sent)

    async def _send_poll(self, _client: Client, params: Json) -> object:
        poll = poll_of(params)
        sent = Sent(self._reachable_chat(params), poll.question, self._new_timestamp(), poll=poll)
        return await self._send_out(sent)

    async def _send_out(self, sent: Sent) -> Json:
        await has_come(sent.timestamp)
        try:
            if self.on_send is not None:
                await self.on_send(sent)
        except (LostReply, HangUp, RefusedAfterDelivery):
            await self._record(sent)
            raise
        await self._record(sent)
        return self._sent_result(sent.timestamp)

    async def _end_poll(self, _client: Client, params: Json) -> object:
        chat = self._reachable_chat(params)
        await self.takes_poll_ends.wait()
        target = params["pollTimestamp"]
        act = Act("poll end", chat, target, self._new_timestamp())
        return await self._do_act(act, lambda: self.ended_polls.append((chat, target)))

    async def _remote_delete(self, _client: Client, params: Json) -> object:
        chat, target = self._reachable_chat(params), timestamp_in(params)
        act = Act("deletion", chat, target, self._new_timestamp())
        return await self._do_act(act, lambda: self.deleted.append((chat, target)))

    async def _send_typing(self, _client: Client, params: Json) -> object:
        self.typing.append((self._reachable_chat(params), not params.get("stop", False)))
        return await self._done()

    async def _send_reaction(self, _client: Client, params: Json) -> object:
        reacted = Reacted(
            self._reachable_chat(params),
            required(params, "emoji"),
            required(params, "targetAuthor"),
            timestamp_in(params),
        )
        act = Act("reaction", reacted.chat, reacted.timestamp, self._new_timestamp())
        return await self._do_act(act, lambda: self.reactions.append(reacted))

    async def _do_act(self, act: Act, do: Callable[[], None]) -> Json:
        await has_come(act.timestamp)
        try:
            if self.on_act is not None:
                await self.on_act(act)
        except (LostReply, HangUp, RefusedAfterDelivery):
            await self._note_act(act, do)
            raise
        await self._note_act(act, do)
        return self._sent_result(act.timestamp)

    async def _note_act(self, act: Act, do: Callable[[], None]) -> None:
        do()
        self.acts.append(act)
        await self._announce()

    async def _send_receipt(self, _client: Client, params: Json) -> object:
        person = self._reachable_chat(params)
        timestamps = params.get("targetTimestamp")
        if not isinstance(timestamps, list) or not timestamps:
            raise Refusal(-1, "Nothing to confirm")
        self.receipts.append((person.value, tuple(timestamps)))
        return await self._done()

    async def _get_attachment(self, _client: Client, params: Json) -> object:
        recipients_of(params)
        data = self._stored_file(required(params, "id"))
        if data is None:
            raise Refusal(-1, "Could not find attachment with ID")
        return {"data": base64.b64encode(data).decode()}

    async def _update_group(self, _client: Client, params: Json) -> object:
        if not self.join(required(params, "groupId")):
            raise Refusal(-1, "Not invited")
        return await self._done()

    async def _quit_group(self, _client: Client, params: Json) -> object:
        if not self.leave(required(params, "groupId")):
            raise Refusal(-1, "User is not a member in group: Team (AAEC)")
        return await self._done()

    async def _trust(self, _client: Client, params: Json) -> object:
        number = params.get("verifiedSafetyNumber")
        if number is None and not params.get("trustAllKnownKeys"):
            raise Refusal(-1, "You need to specify the fingerprint/safety number")
        if not await self.trust_key(required(params, "recipient"), number):
            raise Refusal(-1, "Failed to set the trust for this number")
        await self._announce()
        return {}

    async def _answer_request(self, _client: Client, params: Json) -> object:
        if params.get("type") == "accept":
            self.accepted_requests += recipients_of(params).people
        return await self._done()

    async def _update_profile(self, _client: Client, params: Json) -> object:
        self.change_profile(profile_of(params))
        await self._announce()
        return {}

    # Helpers

    async def _open_server(self) -> asyncio.Server:
        self.path.unlink(missing_ok=True)
        return await asyncio.start_unix_server(self._rpc.serve, self.path, limit=MAX_LINE_BYTES)

    def _deliver(self) -> None:
        while self._undelivered and self.subscribed and not self.fate:
            frame = self._undelivered.popleft()
            for client in self._rpc.clients:
                for subscription in client.subscriptions:
                    client.write(self._notification(subscription, frame))

    def _notification(self, subscription: int, frame: Json) -> Json:
        params = {"subscription": subscription, "result": frame}
        return {"jsonrpc": "2.0", "method": "receive", "params": params}

    async def _done(self) -> Json:
        await self._announce()
        return self._sent_result(self._new_timestamp())

    async def _record(self, sent: Sent) -> None:
        self.sent.append(sent)
        await self._announce()

    def _sent_result(self, timestamp: int) -> Json:
        results = [{"recipientAddress": {}, "type": fate} for fate in self._fates()]
        return {"timestamp": timestamp, "results": results}

    def _fates(self) -> Sequence[str]:
        return ["SUCCESS"]

    def _reachable_chat(self, params: Json) -> ChatId:
        """Return the chat of a request; raise signal-cli's objection if it cannot send there."""
        to = recipients_of(params)
        if to.group is not None:
            return self._writable_group(to.group)
        person = self.account.aci if to.note_to_self else next(iter(to.people), None)
        if person is None:
            raise Refusal(-1, "No recipients given")
        if not self.trusts(person):
            raise _untrusted(self._new_timestamp())
        return ChatId.direct(person)

    def _writable_group(self, group_id: str) -> ChatId:
        group = self.groups.get(group_id)
        if group is None:
            raise Refusal(-1, "Group not found: AAEC")
        if not group.is_member:
            raise Refusal(-1, "User is not a member in group: Team (AAEC)")
        if group.only_admins_write and self.account.aci not in group.admins:
            raise Refusal(-1, "User is not allowed to send message to group: Team (AAEC)")
        return ChatId.group(group_id)

    def _keep_file(self, file_id: str, data: bytes) -> None:
        super()._keep_file(file_id, data)
        if self.data_dir is not None:
            folder = self.data_dir / ATTACHMENTS
            folder.mkdir(parents=True, exist_ok=True)
            (folder / file_id).write_bytes(data)

    def _stored_file(self, file_id: str) -> bytes | None:
        """Return a file that still exists; the bot may have deleted it in the folder."""
        if self.data_dir is not None and not (self.data_dir / ATTACHMENTS / file_id).exists():
            return None
        return self.files.get(file_id)


def _untrusted(timestamp: int) -> Refusal:
    results = [{"recipientAddress": {}, "type": "IDENTITY_FAILURE"}]
    response = {"timestamp": timestamp, "results": results}
    return Refusal(-4, "Failed to send message due to untrusted identities", {"response": response})


def _group_row(group_id: str, group: Group, bot: Account) -> Json:
    own = {"number": bot.number, "uuid": bot.aci}
    people = [{"number": one.number, "uuid": one.aci} for one in group.members.values()]
    members = [*people, own] if group.is_member else people
    permission = "ONLY_ADMINS" if group.only_admins_write else "EVERY_MEMBER"
    return {
        "id": group_id,
        "name": group.name,
        "isMember": group.is_member,
        "isBlocked": False,
        "members": [{**one, "isAdmin": one["uuid"] in group.admins} for one in members],
        "pendingMembers": [own] if group.is_invited else [],
        "admins": [one for one in members if one["uuid"] in group.admins],
        "permissionSendMessage": permission,
    }
