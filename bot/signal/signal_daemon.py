"""Signal through signal-cli's own daemon (`signal-cli daemon --receive-mode manual`).

The recommended transport: messages wait on Signal's server until the bot subscribes, and a slow
bot slows signal-cli down instead of losing messages. The protocol is newline-delimited JSON-RPC
over a Unix socket or TCP; methods and parameters are those of signal-cli's commands.

One reader takes both answers and messages, and never waits itself. Messages go through a queue
to `deliver`. While the queue is full the bot reads nothing, so answers to sends wait as well. This
cannot deadlock, because `deliver` never waits for a send.
"""

import asyncio
import base64
import binascii
import os
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import structlog
from pydantic import BaseModel, Field, NonNegativeFloat, TypeAdapter, ValidationError

from bot.backoff import Backoff
from bot.observability.metrics import SIGNAL_CONNECTED, SIGNAL_RECONNECTS
from bot.signal.account import (
    DEVICES,
    IDENTITIES,
    PEOPLE,
    Group,
    GroupRow,
    Identity,
    OwnIdentity,
    PeerIdentity,
    Profile,
    own_identity,
    own_rows,
    peer_identity,
)
from bot.signal.errors import (
    SignalAccountTrouble,
    SignalError,
    SignalLacks,
    SignalRateLimited,
    SignalRejected,
    SignalTimeout,
    SignalUnavailable,
    SignalUnclear,
    SignalUntrusted,
)
from bot.signal.frames import take_frame
from bot.signal.json_rpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    LOOK_SECONDS,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    UNREADABLE,
    JsonRpcConnection,
    JsonRpcError,
    parse_address,
    text_in,
)
from bot.signal.messenger import (
    RECONNECT,
    STOP_DELIVERY_SECONDS,
    AccountStatus,
    Deliver,
    DeliveryQueue,
    Poll,
    Transport,
    check_message,
    check_size,
)
from bot.signal.trouble import trouble_in, trouble_of_missing
from conversation_store.models import (
    MAX_ATTACHMENT_BYTES,
    Attachment,
    ChatId,
    Quote,
    ReceivedFile,
    StyleRange,
)

MAX_QUEUE: Final = 500
MISSED_PROBES: Final = 2
ACCOUNT_LOOKS: Final = Backoff(first_seconds=15.0, longest_seconds=300.0)
ATTACHMENTS: Final = "attachments"
"""Folder in signal-cli's own folder for the files that came with messages."""

USER_ERROR: Final = -1
IO_ERROR: Final = -3
UNTRUSTED: Final = -4
RATE_LIMITED: Final = -5

_TOO_MANY: Final = re.compile(r"\b429\b")
"""HTTP's status for a rate limit."""

_FILE_ID: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*", re.ASCII)

log = structlog.get_logger()

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class DaemonTimeouts:
    """Time limits of the transport, in seconds."""

    request: float = 10.0  # until the answer to a question or a sign of life
    send: float = 60.0  # for sends and files: signal-cli encrypts for every device of each member
    look: float = LOOK_SECONDS  # between two looks for passed-over requests; see `json_rpc`
    probe_every: float = 20.0  # between two probes; no pause after a missed one
    probe_answer: float = 10.0  # until the answer to a probe; two missed ones end the connection
    stop: float = 5.0  # until the subscription has ended
    renew_every: float = 3_600.0  # between two subscriptions
    backoff: Backoff = RECONNECT  # between two attempts to connect


class _Recipient(BaseModel):
    type: str
    retry_after_seconds: NonNegativeFloat | None = Field(None, alias="retryAfterSeconds")


class _Sent(BaseModel):
    timestamp: int
    results: list[_Recipient] = []


_GROUPS: Final = TypeAdapter(list[GroupRow])
_SUBSCRIPTION: Final = TypeAdapter(int)
_SENT: Final = TypeAdapter(_Sent)


class SignalDaemon(Transport):
    """The Messenger over signal-cli's JSON-RPC daemon.

    Args:
        url: `unix:/path/socket` or `tcp://host:port`; ValueError for another form.
        number: the bot's registered number, E.164.
        data_dir: signal-cli's own folder, to delete files there; None if the bot has no access.
        note_to_self: the account is a person's own, and the bot lives in its note to self alone.
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
        parse_address(url)
        self._url = url
        self._data_dir = data_dir
        self._bounds = bounds or DaemonTimeouts()
        super().__init__(number, self._bounds.backoff, note_to_self=note_to_self)
        self._may_start_until += start_seconds
        self._queue = DeliveryQueue()
        self._connection: JsonRpcConnection | None = None
        self._subscription: int | None = None
        self._subscribing = asyncio.Lock()
        self._receiving = True
        self._held = False
        self._missed_probes = 0
        self._looks = 0  # for the account, without finding it
        self._look_at = 0.0

    @property
    def connected(self) -> bool:
        subscribed = self._subscription is not None or not self._wants_messages
        return self._connection is not None and subscribed

    @property
    def _wants_messages(self) -> bool:
        return self._receiving and not self._held

    @property
    def stuck(self) -> bool:
        return self._missed_probes > 0

    @property
    def undelivered(self) -> int:
        return self._queue.undelivered

    async def run(self, deliver: Deliver) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._queue.deliver_all(deliver, taken=self._read_on))
            tasks.create_task(self._stay_connected(self._connect_and_watch))

    async def stop_receiving(self, *, delivery_seconds: float = STOP_DELIVERY_SECONDS) -> None:
        self._receiving = False
        try:
            async with asyncio.timeout(self._bounds.stop):
                await self._unsubscribe()
        except TimeoutError as error:
            log.warning("signal.unsubscribe_failed", error=type(error).__name__)
        await self._queue.all_delivered(seconds=delivery_seconds)

    async def hold_receiving(self) -> None:
        """End the subscription: messages wait on Signal's server."""
        self._held = True
        # While reading is paused, signal-cli is held back anyway, and no answer would come.
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

    # Messages

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
        check_message(replaces, attachments)
        params: dict[str, Any] = {"message": text}
        if styles:
            params["textStyle"] = [f"{one.start}:{one.length}:{one.style}" for one in styles]
        if quote is not None:
            params |= {"quoteTimestamp": quote.timestamp, "quoteAuthor": quote.author}
            params["quoteMessage"] = quote.text
        if replaces is not None:
            params["editTimestamp"] = replaces
        if attachments:
            params["attachment"] = [attachment.data_uri for attachment in attachments]
            if [one.is_voice_note for one in attachments] == [True]:
                params["voiceNote"] = True  # from signal-cli 0.14.2 on; earlier ones ignore it
        return await self.receipts.settle(chat, self._send_out("send", params, chat))

    async def send_poll(self, chat: ChatId, poll: Poll) -> int:
        params = {
            "question": poll.question,
            "option": [*poll.options],
            "noMulti": not poll.multiple,
        }
        return await self.receipts.settle(chat, self._send_out("sendPollCreate", params, chat))

    async def delete(self, chat: ChatId, timestamp: int) -> None:
        sending = self._send_out("remoteDelete", {"targetTimestamp": timestamp}, chat)
        await self.receipts.timestamp_of(chat, sending)

    async def end_poll(self, chat: ChatId, timestamp: int) -> None:
        sending = self._send_out("sendPollTerminate", {"pollTimestamp": timestamp}, chat)
        await self.receipts.timestamp_of(chat, sending)

    async def react(self, chat: ChatId, emoji: str, *, author: str, timestamp: int) -> None:
        params = {"emoji": emoji, "targetAuthor": author, "targetTimestamp": timestamp}
        sending = self._send_out("sendReaction", params, chat, patiently=False)
        await self.receipts.timestamp_of(chat, sending)

    async def show_typing(self, chat: ChatId, *, stop: bool = False) -> None:
        if chat.value not in self._account.names:
            await self._send_out("sendTyping", {"stop": stop}, chat, patiently=False)

    async def mark_read(self, person: str, timestamps: Sequence[int]) -> None:
        if person not in self._account.names:
            params = {"recipient": person, "targetTimestamp": [*timestamps], "type": "read"}
            _timestamp_of(await self._ask("sendReceipt", params))

    async def _send_out(
        self, method: str, params: dict[str, Any], chat: ChatId, *, patiently: bool = True
    ) -> int:
        if chat.is_group:
            to: dict[str, Any] = {"groupId": chat.value}
        elif chat.value in self._account.names:
            to = {"noteToSelf": True}
        else:
            to = {"recipient": [chat.value]}
        request = {**params, **to}
        return _timestamp_of(await self._ask(method, request, patiently=patiently, is_send=True))

    # Files

    async def fetch_file(self, chat: ChatId, file: ReceivedFile, *, max_bytes: int) -> bytes:
        check_size(file.size, max_bytes)
        where = {"groupId": chat.value} if chat.is_group else {"recipient": chat.value}
        answer = await self._ask("getAttachment", {"id": file.id, **where}, patiently=True)
        try:
            data = base64.b64decode(text_in(answer, "data"), validate=True)
        except binascii.Error:
            raise SignalTimeout("signal-cli gave a file that cannot be read.") from None
        check_size(len(data), max_bytes)
        return data

    async def discard_file(self, file: ReceivedFile) -> None:
        if self._data_dir is None or not _FILE_ID.fullmatch(file.id):
            return
        try:
            _delete(self._data_dir / ATTACHMENTS, file.id)
        except FileNotFoundError:
            return
        except OSError as error:
            log.warning("signal.file_not_deleted", error=type(error).__name__)

    # Groups

    async def group(self, chat: ChatId) -> Group | None:
        try:
            rows = _read(_GROUPS, await self._ask("listGroups", {"groupId": [chat.value]}))
        except SignalRejected:
            return None
        found = (row.to_group(self._account.names) for row in rows if row.id == chat.value)
        return next(found, None)

    async def join_group(self, chat: ChatId) -> None:
        """Accept the invitation to a group, by an update that changes nothing."""
        await self._ask("updateGroup", {"groupId": chat.value}, patiently=True)

    async def leave_group(self, chat: ChatId) -> None:
        await self._ask("quitGroup", {"groupId": chat.value}, patiently=True)

    # Keys and the account

    async def peer_identity(self, person: str) -> PeerIdentity | None:
        try:
            rows = _read(IDENTITIES, await self._ask("listIdentities", {"number": person}))
        except SignalRejected:  # signal-cli has never heard of the person
            return None
        return peer_identity(person, rows)

    async def trust(self, person: str, *, safety_number: str | None) -> None:
        proof: dict[str, Any] = {"trustAllKnownKeys": True}
        if safety_number is not None:
            proof = {"verifiedSafetyNumber": safety_number}
        await self._ask("trust", {"recipient": person, **proof}, patiently=True)

    async def accept_request(self, person: str) -> None:
        """Accept the message request of a person, if signal-cli can."""
        if person not in self._account.names:
            params = {"recipient": [person], "type": "accept"}
            with suppress(SignalLacks):
                await self._ask("sendMessageRequestResponse", params)

    async def set_profile(self, profile: Profile) -> None:
        avatar = None
        if profile.picture is not None:
            if len(profile.picture) > MAX_ATTACHMENT_BYTES:
                raise SignalRejected("The picture is too big for signal-cli.")
            avatar = Attachment("picture", "application/octet-stream", profile.picture).data_uri
        params = {"givenName": profile.name, "about": profile.about, "avatar": avatar}
        changes = {name: value for name, value in params.items() if value is not None}
        if changes:
            await self._ask("updateProfile", changes, patiently=True)

    async def lock_registration(self, pin: str | None) -> None:
        if pin is None:
            await self._ask("removePin", {}, patiently=True)
        else:
            await self._ask("setPin", {"pin": pin}, patiently=True)

    async def own_identity(self) -> OwnIdentity:
        identities = await self._own_rows()
        devices = _read(DEVICES, await self._ask("listDevices", {}))
        if self.trouble is not None:
            self.trouble, self._looks = None, 0  # Signal itself has answered that
            await self._set_up()
        return own_identity(self._account.number, identities, devices)

    async def _own_rows(self) -> list[Identity]:
        """Ask for the identity of the account itself."""
        number = self._account.number
        # The filter saves signal-cli a long list, but may not find the account itself.
        for params in ({"number": number}, {}):
            try:
                listed = _read(IDENTITIES, await self._ask("listIdentities", params))
            except (SignalRejected, SignalAccountTrouble):
                if await self._finds_no_account():
                    break
                raise
            if rows := own_rows(number, listed):
                return rows
        return []

    async def account_status(self) -> AccountStatus:
        """Ask over the open connection, or without `run` over one of its own."""
        seconds = self._bounds.request
        async with AsyncExitStack() as stack:
            connection = self._connection
            if connection is None:
                connection = await stack.enter_async_context(JsonRpcConnection.connect(self._url))
            answer = await _call(connection, "version", {}, seconds=seconds)
            registered = await self._is_registered(connection)
        self.server = f"signal-cli {text_in(answer, 'version')}"
        return AccountStatus(server=self.server, registered=registered)

    async def _is_registered(self, connection: JsonRpcConnection) -> bool:
        found = await _call(connection, "listAccounts", {}, seconds=self._bounds.request)
        return self._account.number in _read(PEOPLE, found)

    # Receiving

    def _read_on(self) -> None:
        if self._connection is not None and len(self._queue) < MAX_QUEUE:
            self._connection.resume_reading()

    def _take_notification(self, method: object, params: object) -> None:
        """Queue an event; if the queue is full, stop reading after the bytes at hand."""
        if method != "receive":
            return
        if isinstance(params, dict) and "result" in params:  # the form after `subscribeReceive`
            params = params["result"]
        event = take_frame(params, self._account, self.receipts.take)
        if event is None:
            return
        self._queue.put(event)
        if self._connection is not None and len(self._queue) >= MAX_QUEUE:
            self._connection.pause_reading()

    async def _set_up(self) -> None:
        """Learn the bot's ACI and subscribe, unless that is done already."""
        if self._is_missing and await self._finds_no_account():
            return
        if self._account.aci is None:  # before the first message, which may mention it
            await self._learn_aci()
        if self._wants_messages and not self._is_missing:
            await self._subscribe()

    async def _finds_no_account(self) -> bool:
        """Ask signal-cli if it lacks the account, which explains a refusal.

        While it does, ask at growing intervals: signal-cli may ask Signal each time.
        """
        if self._connection is None:
            return False
        if self._is_missing and time.monotonic() < self._look_at:
            return True
        try:
            is_listed = await self._is_registered(self._connection)
        except SignalError:
            return False
        if is_listed:
            if self._is_missing:
                self._looks, self.trouble = 0, None
            return False
        self._looks += 1
        self._look_at = time.monotonic() + ACCOUNT_LOOKS.seconds(self._looks)
        self._subscription = None  # signal-cli has ended it without a word
        SIGNAL_CONNECTED.set(0)
        self._note_trouble(trouble_of_missing(self._data_dir, self._account.number))
        return True

    @property
    def _is_missing(self) -> bool:
        """Whether signal-cli did not list the account at the last look."""
        return self._looks > 0

    async def _subscribe(self) -> None:
        """Ask for messages; keep the connection if signal-cli refuses (account not registered)."""
        async with self._subscribing:
            if self._subscription is not None or not self._wants_messages:
                return
            try:
                self._subscription = _read(_SUBSCRIPTION, await self._ask("subscribeReceive", {}))
            except (SignalRejected, SignalAccountTrouble):
                if not await self._finds_no_account():
                    log.error("signal.subscription_refused")
                return
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

    async def _connect_and_watch(self) -> None:
        async with JsonRpcConnection.connect(
            self._url, self._take_notification, look_seconds=self._bounds.look
        ) as connection:
            self._connection = connection
            self._connected_at = time.monotonic()
            try:
                await self._set_up()
                self._note_success()
                await self._watch(connection)
                SIGNAL_RECONNECTS.inc()
            finally:
                self._connection = None
                self._subscription = None
                self.trouble, self._looks = None, 0
                self._missed_probes = 0
                SIGNAL_CONNECTED.set(0)

    async def _watch(self, connection: JsonRpcConnection) -> None:
        """Return when the connection is lost, or signal-cli has fallen silent."""
        renew_at = time.monotonic() + self._bounds.renew_every
        while self._missed_probes < MISSED_PROBES:
            self.last_sign = time.monotonic()
            with suppress(TimeoutError):
                async with asyncio.timeout(0 if self._missed_probes else self._bounds.probe_every):
                    await connection.lost.wait()
            if connection.lost.is_set():
                return
            if await self._is_alive(connection):
                self._missed_probes = 0
                if time.monotonic() >= renew_at and not connection.reading_paused:
                    # Once signal-cli has dropped an account and taken it back, it is silent.
                    await self._unsubscribe()
                    renew_at = time.monotonic() + self._bounds.renew_every
                await self._set_up()
            else:
                self._missed_probes += 1
        log.warning("signal.silent")

    async def _is_alive(self, connection: JsonRpcConnection) -> bool:
        """Whether signal-cli answers; while the bot reads nothing, its silence proves nothing."""
        try:
            await connection.call("version", {}, seconds=self._bounds.probe_answer)
        except JsonRpcError:
            return True
        except SignalError:
            return connection.reading_paused
        return True

    async def _ask(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        patiently: bool = False,
        is_send: bool = False,
    ) -> object:
        """Make a request about the bot's account; `patiently` if it goes to people."""
        if self._connection is None:
            raise SignalUnavailable("There is no connection to signal-cli.")
        try:
            return await _call(
                self._connection,
                method,
                {"account": self._account.number, **params},
                seconds=self._bounds.send if patiently else self._bounds.request,
                guarded=patiently,
                is_send=is_send,
            )
        except SignalAccountTrouble as error:
            if method != "subscribeReceive" and not await self._finds_no_account():
                self._note_trouble(error.trouble)
            raise


async def _call(
    connection: JsonRpcConnection,
    method: str,
    params: dict[str, Any],
    *,
    seconds: float,
    guarded: bool = False,
    is_send: bool = False,
) -> object:
    """Make a request; its failure is a SignalError. An error of a send may follow a delivery."""
    try:
        return await connection.call(method, params, seconds=seconds, guarded=guarded)
    except JsonRpcError as failure:
        response = failure.data.get("response") if isinstance(failure.data, dict) else None
        try:
            sent = _SENT.validate_python(response)
        except ValidationError:
            sent = None
        # With a timestamp, the message may have reached some of its recipients.
        if sent is None and (trouble := trouble_in(failure.message)) is not None:
            raise SignalAccountTrouble(trouble) from None
        refusal = _failed_send if is_send else _refusal
        raise refusal(failure.code, sent, failure.message) from None


def _read(answer: TypeAdapter[T], value: object) -> T:
    """Parse an answer; SignalTimeout if it is unreadable: the request may have been done."""
    try:
        return answer.validate_python(value)
    except ValidationError:
        raise SignalTimeout(UNREADABLE) from None


def _timestamp_of(value: object) -> int:
    """Return the timestamp of a send that had no recipients or reached at least one."""
    sent = _read(_SENT, value)
    if sent.results and all(recipient.type != "SUCCESS" for recipient in sent.results):
        raise _failed_send(USER_ERROR, sent)
    return sent.timestamp


_NOT_SENT: Final = frozenset(
    {"IDENTITY_FAILURE", "UNREGISTERED_FAILURE", "INVALID_PRE_KEY_FAILURE"}
)
"""Failures before anything leaves signal-cli."""

_NOT_READ: Final = frozenset({PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS})
"""Errors of JSON-RPC itself: no command has begun."""

_REFUSED_BEFORE_SENDING: Final = re.compile(
    # CommandUtil.getRecipientIdentifiers, getSingleRecipientIdentifier, getGroupId
    r"No recipients given|Invalid phone number '|Invalid group id: "
    # SendCommand.handleCommand and its parsers of styles and quotes
    r"|Sending empty message is not allowed|Quote author parameter is missing"
    r"|Invalid (textStyle|mention) syntax \(|Invalid style: "
    # SendPollCreateCommand.handleCommand
    r"|Poll needs at least two options|Poll cannot have more than "
    # GroupNotFoundException, NotAGroupMemberException, GroupSendingNotAllowedException: all are
    # thrown by SendHelper before it encrypts
    r"|Group not found\b|User is not a (member in group: |group member\b)"
    r"|User (is not allowed|does not have permission) to send\b"
    # SendCommand, SendPollCreateCommand: UnregisteredRecipientException;
    # SendMessageResultUtils.getErrorMessageFromSendMessageResult
    r"|The user \S+ is not registered|Unregistered user\b"
    # SendCommand: AttachmentInvalidException; files are uploaded before the message is encrypted
    r"|Failed to send message: [^\n]{0,500} \(AttachmentInvalidException\)$"
)
"""Texts of signal-cli's errors before it sends, each with the class that writes it."""


def _failed_send(code: int, sent: _Sent | None, message: str = "") -> SignalError:
    """Return the SignalError of a failed send, without signal-cli's words: they may name people.

    Every error is a doubt unless it proves that nothing left: signal-cli may fail after the
    delivery, for example while it tells the account's other devices.
    """
    fates = {recipient.type for recipient in sent.results} if sent else set[str]()
    if _is_rate_limit(code, fates, message):
        return _rate_limited(sent)
    is_unsent = bool(fates) and fates <= _NOT_SENT
    if code == UNTRUSTED or (is_unsent and "IDENTITY_FAILURE" in fates):
        return SignalUntrusted("The recipient's new key is not trusted yet.")
    if code == METHOD_NOT_FOUND:
        return SignalLacks("This signal-cli does not know the method.")
    is_refused = sent is None and _REFUSED_BEFORE_SENDING.match(message)
    if code in _NOT_READ or is_refused or is_unsent:
        return SignalRejected(f"signal-cli refused the request (error {code}).")
    return SignalUnclear(timestamp=sent.timestamp if sent else None)


def _refusal(code: int, sent: _Sent | None, message: str = "") -> SignalError:
    """Return the SignalError of a failed request that sends no message."""
    fates = {recipient.type for recipient in sent.results} if sent else set[str]()
    if _is_rate_limit(code, fates, message):
        return _rate_limited(sent)
    if code in {IO_ERROR, INTERNAL_ERROR}:
        return SignalUnavailable(f"signal-cli could not reach Signal (error {code}).")
    if code == UNTRUSTED:
        return SignalUntrusted("The recipient's new key is not trusted yet.")
    if code == METHOD_NOT_FOUND:
        return SignalLacks("This signal-cli does not know the method.")
    return SignalRejected(f"signal-cli refused the request (error {code}).")


def _is_rate_limit(code: int, fates: set[str], message: str) -> bool:
    limited = code == INTERNAL_ERROR and _TOO_MANY.search(message) is not None
    return limited or code == RATE_LIMITED or "RATE_LIMIT_FAILURE" in fates


def _rate_limited(sent: _Sent | None) -> SignalRateLimited:
    results = sent.results if sent else []
    waits = (recipient.retry_after_seconds or 0.0 for recipient in results)
    return SignalRateLimited(
        retry_after_seconds=max(waits, default=0.0) or None,
        timestamp=sent.timestamp if sent else None,
    )


def _delete(folder: Path, name: str) -> None:
    """Delete a file in signal-cli's folder; never follow a link out of it."""
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        os.unlink(name, dir_fd=descriptor)
    finally:
        os.close(descriptor)


def can_discard(data_dir: Path) -> bool:
    """Whether this process may delete files in signal-cli's own folder."""
    attachments = data_dir / ATTACHMENTS
    folder = attachments if os.access(attachments, os.F_OK) else data_dir
    return os.access(folder, os.W_OK | os.X_OK) and not attachments.is_symlink()
