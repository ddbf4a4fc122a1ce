"""Signal through signal-cli-rest-api in json-rpc mode.

The bot sends by signalbot's public API. Requests that signalbot lacks (files, groups, keys, the
profile, the end of a poll) go over our own HTTP session. Every request holds one of few places, has
a time limit, and fails with a SignalError.

signalbot's own reception would lose messages, so the bot reads the websocket itself and delivers
each frame before it reads the next. In the meantime frames wait in the buffers of the connection.
The server keeps nothing for a client that is away. If signal-cli dies behind the server, the
websocket stays open and silent. A probe finds that out. The bot keeps the websocket, because
messages come over it again as soon as signal-cli is back.
"""

import asyncio
import base64
import json
import logging
import re
import time
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import cached_property, partial
from http import HTTPStatus
from typing import Any, Final, Literal, TypeVar
from urllib.parse import quote as quoted
from urllib.parse import urlsplit

import aiohttp
import structlog
from aiohttp import WSMsgType
from pydantic import BaseModel, TypeAdapter
from signalbot import (
    LOGGER_NAME,
    Config,
    ConnectionMode,
    CreatePoll,
    DataMessage,
    GroupInfo,
    InMemoryConfig,
    ReceiptType,
    SendMessage,
    SentMessage,
    SignalBot,
    TextMode,
)

from bot.observability.metrics import SIGNAL_CONNECTED, SIGNAL_RECONNECTS
from bot.signal.account import (
    DEVICES,
    IDENTITIES,
    Group,
    GroupRow,
    Identity,
    OwnIdentity,
    PeerIdentity,
    Profile,
    TrustLevel,
    own_identity,
    peer_identity,
)
from bot.signal.errors import (
    SignalAccountTrouble,
    SignalError,
    SignalRejected,
    SignalTimeout,
    SignalUnavailable,
    SignalUntrusted,
)
from bot.signal.frames import take_frame
from bot.signal.messenger import (
    STOP_DELIVERY_SECONDS,
    AccountStatus,
    Deliver,
    FileTooBig,
    Poll,
    Transport,
    check_message,
    check_size,
)
from bot.signal.rest_requests import (
    Places,
    Refused,
    RequestKind,
    RestTimeouts,
    error_from_answer,
    escaped_markup,
)
from bot.signal.trouble import AccountTrouble
from conversation_store.models import Attachment, ChatId, Quote, ReceivedFile, StyleRange
from tools.http import new_session, whole_body

MAX_FRAME_BYTES: Final = 32 * 2**20
MAX_ANSWER_BYTES: Final = 16 * 2**20
DRAIN_SECONDS: Final = 0.1
"""At the end, the bot reads until no frame has come for this long."""

OLDEST_VERSION: Final = (0, 101)
"""signalbot reads the answers of this version of the server and later ones."""
TOO_OLD: Final = "signal-cli-rest-api is too old. The bot needs 0.101 or a later version."

PROBE_PATH: Final = "/v1/accounts"
_VERSION: Final = re.compile(r"(\d{1,6})\.(\d{1,6})")

log = structlog.get_logger()

T = TypeVar("T")
_Websocket = aiohttp.ClientWebSocketResponse[Literal[False]]


class _About(BaseModel):
    version: str
    mode: str


_ABOUT: Final = TypeAdapter(_About)
_NUMBERS: Final = TypeAdapter(list[str])
_GROUP: Final[TypeAdapter[GroupRow | None]] = TypeAdapter(GroupRow | None)


class SignalRest(Transport):
    """The Messenger over signal-cli-rest-api.

    Args:
        url: `http://host:port` or `https://host:port`.
        number: the bot's registered number, E.164.
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
        self._url = url.rstrip("/")
        self._bounds = bounds or RestTimeouts()
        super().__init__(number, self._bounds.backoff, note_to_self=note_to_self)
        self._places = Places(self._bounds)
        self._session: aiohttp.ClientSession | None = None
        self._websocket_open = False
        self._waiting: asyncio.Timeout | None = None
        self._read_until = 0.0
        self._finished = asyncio.Event()
        self._finished.set()
        self._alive = False
        self._receiving = True
        self.undelivered = 0
        logging.getLogger(LOGGER_NAME).disabled = True  # it writes texts, numbers and names

    @cached_property
    def _bot(self) -> SignalBot:
        """Return signalbot's client. It needs the running loop, or it would set its own.

        It is never started: only its objects for sending are used. The size of answers is not
        bounded; the server holds the account, so the bot has to trust it anyway.
        """
        parts = urlsplit(self._url)
        secure = parts.scheme == "https"
        config = Config(
            phone_number=self._account.number,
            signal_service=parts.netloc + parts.path,
            storage=InMemoryConfig(),
            connection_mode=ConnectionMode.HTTPS_ONLY if secure else ConnectionMode.HTTP_ONLY,
        )
        bot = SignalBot(config)
        logging.getLogger(LOGGER_NAME).handlers.clear()
        # Its requests hold a whole file, which costs the event loop up to 0.1 s.
        warnings.filterwarnings("ignore", message="Sending a large body", category=ResourceWarning)
        return bot

    @property
    def connected(self) -> bool:
        return self._alive and (self._websocket_open or not self._receiving)

    @property
    def stuck(self) -> bool:
        return self._places.stuck

    async def run(self, deliver: Deliver) -> None:
        try:
            await self._stay_connected(partial(self._connect_and_read, deliver))
        finally:
            if "_bot" in self.__dict__:
                await self._bot.close()
            if self._session is not None:
                await self._session.close()
                self._session = None

    async def stop_receiving(self, *, delivery_seconds: float = STOP_DELIVERY_SECONDS) -> None:
        """Deliver the frames that have arrived, then close the websocket."""
        self._receiving = False
        now = asyncio.get_running_loop().time()
        self._read_until = now + self._bounds.stop
        if self._waiting is not None and not self._waiting.expired():
            self._waiting.reschedule(now)
        try:
            async with asyncio.timeout(self._bounds.stop + delivery_seconds):
                await self._finished.wait()
        except TimeoutError:
            log.warning("signal.stop_timed_out", waiting=self.undelivered)

    async def hold_receiving(self) -> None:
        """Do nothing: without a websocket the server would drop messages."""

    async def resume_receiving(self) -> None:
        """Do nothing: nothing was held."""

    # Sending

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
        message = SendMessage(
            text=escaped_markup(text, styles) if styles else text,
            text_mode=TextMode.STYLED if styles else TextMode.NORMAL,
            notify_self=False,
            edit_timestamp=replaces,
            quote_timestamp=quote.timestamp if quote else None,
            quote_author=quote.author if quote else None,
            quote_text=quote.text if quote else None,
            base64_attachments=[attachment.data_uri for attachment in attachments] or None,
        )
        kind = "file" if attachments else _kind_of(chat)
        send_out = partial(self._bot.messages.send, message, self._recipient(chat))
        return await self.receipts.settle(chat, self._sent(chat, kind, send_out))

    async def send_poll(self, chat: ChatId, poll: Poll) -> int:
        created = CreatePoll(
            question=poll.question,
            answers=[*poll.options],
            allow_multiple_selections=poll.multiple,
        )
        send_out = partial(self._bot.polls.create, created, self._recipient(chat))
        return await self.receipts.settle(chat, self._sent(chat, _kind_of(chat), send_out))

    async def delete(self, chat: ChatId, timestamp: int) -> None:
        with self.receipts.unnamed(chat):
            await self._know_group(chat)
            sent = SentMessage(recipient=self._recipient(chat), timestamp=timestamp)
            async with self._places.take("change"):
                await self._bot.messages.remote_delete(sent)

    async def end_poll(self, chat: ChatId, timestamp: int) -> None:
        body = {"recipient": self._recipient(chat), "poll_timestamp": str(timestamp)}
        with self.receipts.unnamed(chat):
            await self._request("DELETE", self._of_account("polls"), body)

    async def react(self, chat: ChatId, emoji: str, *, author: str, timestamp: int) -> None:
        with self.receipts.unnamed(chat):
            await self._know_group(chat)
            message: SentMessage | DataMessage = _received(chat, author, timestamp)
            if author in self._account.names:
                message = SentMessage(recipient=self._recipient(chat), timestamp=timestamp)
            async with self._places.take("sign_of_life"):
                await self._bot.reactions.react(message, emoji)

    async def show_typing(self, chat: ChatId, *, stop: bool = False) -> None:
        if chat.value in self._account.names:
            return
        await self._know_group(chat)
        typing = self._bot.messages.stop_typing if stop else self._bot.messages.start_typing
        async with self._places.take("sign_of_life"):
            await typing(self._recipient(chat))

    async def mark_read(self, person: str, timestamps: Sequence[int]) -> None:
        """Tell a person that messages were read; the server takes one message at a time."""
        if person in self._account.names:
            return
        for timestamp in timestamps:
            message = _received(ChatId.direct(person), person, timestamp)
            async with self._places.take("sign_of_life"):
                await self._bot.receipts.send(message, ReceiptType.READ)

    async def accept_request(self, person: str) -> None:
        """Do nothing: the server has no way to accept a message request."""

    async def _sent(
        self, chat: ChatId, kind: RequestKind, send_out: Callable[[], Awaitable[Any]]
    ) -> int:
        """Send through signalbot and return the timestamp."""
        await self._know_group(chat)
        try:
            async with self._places.take(kind):
                return int((await send_out()).timestamp)
        except Refused:
            if not chat.is_group and await self._is_untrusted(chat.value):
                raise SignalUntrusted("The recipient's new key is not trusted yet.") from None
            raise

    async def _is_untrusted(self, person: str) -> bool:
        """Whether the person's new key explains a refusal."""
        try:
            identity = await self.peer_identity(person)
        except SignalError:
            return False
        return identity is not None and identity.trust is TrustLevel.UNTRUSTED

    async def _know_group(self, chat: ChatId) -> None:
        """Refresh signalbot's list of groups if it lacks this one; it refuses unknown groups."""
        if not chat.is_group or chat.value in self._bot.groups:
            return
        try:
            async with self._places.take("question"):
                await self._bot.groups.refresh()
        except SignalTimeout:  # nothing was sent yet
            raise SignalUnavailable("signal-cli-rest-api does not list the groups.") from None

    # Files

    async def fetch_file(self, chat: ChatId, file: ReceivedFile, *, max_bytes: int) -> bytes:
        check_size(file.size, max_bytes)
        data = await self._request("GET", _file_path(file), kind="file")
        check_size(len(data), max_bytes)
        return data

    async def discard_file(self, file: ReceivedFile) -> None:
        with suppress(SignalRejected):
            await self._request("DELETE", _file_path(file))

    # Groups

    async def group(self, chat: ChatId) -> Group | None:
        try:
            row = await self._ask(f"{self._of_group(chat)}?expand=true", _GROUP)
        except SignalRejected:
            return None
        return None if row is None else row.to_group(self._account.names)

    async def join_group(self, chat: ChatId) -> None:
        await self._request("POST", f"{self._of_group(chat)}/join")

    async def leave_group(self, chat: ChatId) -> None:
        await self._request("POST", f"{self._of_group(chat)}/quit")

    # Keys and the account

    async def peer_identity(self, person: str) -> PeerIdentity | None:
        return peer_identity(person, await self._own_rows())

    async def trust(self, person: str, *, safety_number: str | None) -> None:
        proof: dict[str, Any] = {"trust_all_known_keys": True}
        if safety_number is not None:
            proof = {"verified_safety_number": safety_number}
        path = f"{self._of_account('identities')}/trust/{quoted(person, safe='')}"
        await self._request("PUT", path, proof)

    async def lock_registration(self, pin: str | None) -> None:
        path = f"{self._of_account('accounts')}/pin"
        if pin is None:
            await self._request("DELETE", path)
        else:
            await self._request("POST", path, {"pin": pin})

    async def own_identity(self) -> OwnIdentity:
        identities = await self._own_rows()
        devices = await self._ask(self._of_account("devices"), DEVICES)
        self.trouble = None  # Signal itself has answered that
        return own_identity(self._account.number, identities, devices)

    async def set_profile(self, profile: Profile) -> None:
        """Set name and picture together, with or without the line below.

        Raises:
            SignalRejected: one of the two is missing, and the server would remove it.
        """
        if profile == Profile():
            return
        if profile.name is None or profile.picture is None:
            raise SignalRejected("signal-cli-rest-api sets name and picture only together.")
        picture = base64.b64encode(profile.picture).decode()
        body = {"name": profile.name, "base64_avatar": picture}
        if profile.about is not None:
            body["about"] = profile.about
        await self._request("PUT", self._of_account("profiles"), body)

    async def account_status(self) -> AccountStatus:
        """Ask over a separate session; works without `run`."""
        async with self._new_session() as session:
            about = await self._ask("/v1/about", _ABOUT, session=session)
            _check_version(about)
            numbers = await self._ask(PROBE_PATH, _NUMBERS, session=session)
        self.server = f"signal-cli-rest-api {about.version} in {about.mode} mode"
        return AccountStatus(self.server, registered=self._account.number in numbers)

    # Our own requests

    def _new_session(self) -> aiohttp.ClientSession:
        return new_session(aiohttp.ClientTimeout(total=None, sock_connect=self._bounds.connect))

    def _own_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = self._new_session()
        return self._session

    async def _ask(
        self,
        path: str,
        answer: TypeAdapter[T],
        *,
        kind: RequestKind = "question",
        session: aiohttp.ClientSession | None = None,
    ) -> T:
        try:
            return answer.validate_json(
                await self._request("GET", path, kind=kind, session=session)
            )
        except ValueError:
            raise SignalUnavailable("signal-cli-rest-api gave an unreadable answer.") from None

    async def _request(
        self,
        verb: Literal["GET", "POST", "PUT", "DELETE"],
        path: str,
        body: dict[str, Any] | None = None,
        *,
        kind: RequestKind = "change",
        session: aiohttp.ClientSession | None = None,
    ) -> bytes:
        session = session or self._own_session()
        async with (
            self._places.take(kind),
            session.request(verb, self._url + path, json=body, allow_redirects=False) as response,
        ):
            too_big = FileTooBig("signal-cli-rest-api gave an answer that is too big.")
            answer = await whole_body(response, MAX_ANSWER_BYTES, too_big)
        if response.status >= HTTPStatus.MULTIPLE_CHOICES:
            text = answer.decode(errors="replace")
            error = error_from_answer(response.status, text, response.url.path)
            if isinstance(error, SignalAccountTrouble):
                self._note_trouble(error.trouble)
            raise error
        return answer

    def _recipient(self, chat: ChatId) -> str:
        """Return the server's name of a chat; the account's own number is its note to self."""
        if chat.is_group:
            return _group_id(chat)
        return self._account.number if chat.value in self._account.names else chat.value

    def _of_account(self, what: str) -> str:
        return f"/v1/{what}/{self._account.number}"

    def _of_group(self, chat: ChatId) -> str:
        return f"{self._of_account('groups')}/{_group_id(chat)}"

    # Receiving

    async def _connect_and_read(self, deliver: Deliver) -> None:
        """Receive over one websocket until it ends; after `stop_receiving`, wait for ever."""
        if not self._receiving:
            await asyncio.Event().wait()  # sending goes on until `run` is cancelled
        _check_version(await self._ask("/v1/about", _ABOUT))
        await self._probe()
        if not self._receiving:
            return  # `stop_receiving` came first and would not wait for these frames
        self._finished.clear()
        try:
            async with self._open_websocket() as websocket, asyncio.TaskGroup() as tasks:
                watch = tasks.create_task(self._watch())
                while (frame := await self._next_frame(websocket)) is not None:
                    await self._take(frame, deliver)
                watch.cancel()
        finally:
            self._finished.set()

    @asynccontextmanager
    async def _open_websocket(self) -> AsyncIterator[_Websocket]:
        """Open the websocket; the bot counts as connected inside the block."""
        try:
            async with asyncio.timeout(self._bounds.connect):
                # Keep frames as bytes: invalid UTF-8 in text frames would end the connection.
                websocket = await self._own_session().ws_connect(
                    self._url + self._of_account("receive"),
                    timeout=aiohttp.ClientWSTimeout(ws_close=self._bounds.close),
                    autoping=False,
                    max_msg_size=MAX_FRAME_BYTES,
                    decode_text=False,
                )
        except (TimeoutError, aiohttp.ClientError):
            raise SignalUnavailable("signal-cli-rest-api does not open its websocket.") from None
        self._websocket_open = True
        self._connected_at = time.monotonic()
        self._note_success()
        self._set_alive(True)
        try:
            yield websocket
        finally:
            await websocket.close()
            self._websocket_open = False
            if self._receiving:
                self._set_alive(False)
                SIGNAL_RECONNECTS.inc()

    async def _next_frame(self, websocket: _Websocket) -> bytes | None:
        """Wait for a frame; None at the end of the connection.

        A silent server is pinged; without an answer, the connection counts as lost. After
        `stop_receiving`, only frames that have arrived already are returned.
        """
        pinged = False
        while (seconds := self._seconds_to_wait(pinged=pinged)) > 0:
            stopping = not self._receiving
            try:
                async with asyncio.timeout(seconds) as self._waiting:
                    message = await websocket.receive()
            except TimeoutError:
                if stopping or (pinged and self._receiving):
                    return None
                pinged = True
                with suppress(aiohttp.ClientError):  # frames may still wait in the buffers
                    await websocket.ping()
                continue
            finally:
                self._waiting = None
            if message.type in {WSMsgType.TEXT, WSMsgType.BINARY}:
                return bytes(message.data)
            if message.type is WSMsgType.PING:
                with suppress(aiohttp.ClientError):
                    await websocket.pong(message.data)
            elif message.type is not WSMsgType.PONG:
                return None
            pinged = False
        return None

    def _seconds_to_wait(self, *, pinged: bool) -> float:
        if not self._receiving:
            return min(DRAIN_SECONDS, self._read_until - asyncio.get_running_loop().time())
        return self._bounds.ping_answer if pinged else self._bounds.ping_every

    async def _take(self, frame: bytes, deliver: Deliver) -> None:
        try:
            decoded = json.loads(frame)
        except (ValueError, RecursionError):
            decoded = None  # counted as broken
        event = take_frame(decoded, self._account, self.receipts.take)
        if event is not None:
            self.undelivered = 1
            await deliver([event])
            self.undelivered = 0

    # Signs of life

    async def _watch(self) -> None:
        while True:
            self.last_sign = time.monotonic()
            await self._until_the_next_probe()
            try:
                await self._probe()
            except SignalError:
                self._set_alive(False)
                self._places.line.refuse_all()
            else:
                self._set_alive(True)

    async def _until_the_next_probe(self) -> None:
        """Wait until a probe is due or a request runs late."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._bounds.probe_every):
                await self._places.ran_late.wait()
        self._places.ran_late.clear()

    def _set_alive(self, alive: bool) -> None:
        if alive is not self._alive:
            log.info("signal.connected" if alive else "signal.disconnected")
        self._alive = alive
        SIGNAL_CONNECTED.set(alive)

    async def _probe(self) -> None:
        """Ask something that signal-cli must answer; the server also answers while it is dead.

        Raises:
            SignalError: it did not answer, or it does not know the account.
        """
        numbers = await self._ask(PROBE_PATH, _NUMBERS, kind="probe")
        if self._account.number not in numbers:
            self._note_trouble(AccountTrouble.ABSENT)
            raise SignalRejected(AccountTrouble.ABSENT)
        if self.trouble is AccountTrouble.ABSENT:
            self.trouble = None
        if self._account.aci is None:
            await self._learn_aci()

    async def _own_rows(self) -> Sequence[Identity]:
        return await self._ask(self._of_account("identities"), IDENTITIES)


def _check_version(about: _About) -> None:
    """Refuse a server too old for signalbot; a version without numbers counts as new."""
    found = _VERSION.match(about.version)
    if found and (int(found[1]), int(found[2])) < OLDEST_VERSION:
        raise SignalRejected(TOO_OLD)


def _kind_of(chat: ChatId) -> RequestKind:
    return "group" if chat.is_group else "text"


def _received(chat: ChatId, author: str, timestamp: int) -> DataMessage:
    """Return a received message in signalbot's form."""
    return DataMessage(
        source_uuid=author,
        timestamp=timestamp,
        group_info=GroupInfo(groupId=chat.value, revision=0) if chat.is_group else None,
        server_received_timestamp=timestamp,
        server_delivered_timestamp=timestamp,
    )


def _group_id(chat: ChatId) -> str:
    """Return the server's name of a group: its internal id, encoded once more."""
    return "group." + base64.b64encode(chat.value.encode()).decode()


def _file_path(file: ReceivedFile) -> str:
    return f"/v1/attachments/{quoted(file.id, safe='')}"
