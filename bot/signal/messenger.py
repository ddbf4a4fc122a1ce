"""The one seam between the bot and Signal.

Two transports implement `Messenger`: `signal_daemon.SignalDaemon` (signal-cli's own JSON-RPC
daemon) and `signal_rest.SignalRest` (signal-cli-rest-api). `tests/contract/test_messenger*.py` hold
both to the promises in this module.

A private chat with the account's own ACI or number is its note to self. The bot shows no typing and
no read marks there.
"""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import structlog

from bot.backoff import Backoff
from bot.observability.metrics import SIGNAL_QUEUE
from bot.signal.account import (
    Group,
    Identity,
    OwnIdentity,
    PeerIdentity,
    Profile,
    own_aci,
)
from bot.signal.errors import SignalError, SignalRejected
from bot.signal.events import Incoming
from bot.signal.frames import Account
from bot.signal.receipts import DeliveryReceipts
from bot.signal.trouble import AccountTrouble
from conversation_store.models import Attachment, ChatId, Quote, ReceivedFile, StyleRange

RECONNECT: Final = Backoff(first_seconds=0.2, longest_seconds=10.0)
"""Waits between two attempts to connect."""
STOP_DELIVERY_SECONDS: Final = 5.0
MAX_DELIVERY: Final = 256
"""Number of events in one commit of the store."""

log = structlog.get_logger()

Deliver = Callable[[Sequence[Incoming]], Awaitable[None]]
"""Takes events, oldest first. While it waits, the transport queues, and then stops reading. It must
not wait for a send, because the answer to the send may still be unread."""


class FileTooBig(SignalRejected):
    """A file has more bytes than the caller accepts."""


@dataclass(frozen=True, slots=True)
class Poll:
    """A question that phones show as a poll.

    Attributes:
        question: on one line.
        options: all different.
        multiple: people may vote for several options.
    """

    question: str
    options: tuple[str, ...]
    multiple: bool


@dataclass(frozen=True, slots=True)
class AccountStatus:
    """The Signal side's version, and whether it has the bot's account."""

    server: str
    registered: bool


class Sender(Protocol):
    """Sends messages and polls: a Messenger, or `Doubts`, which notes them in the store."""

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
        """Send a text, perhaps with files, and return Signal's timestamp of it, in ms.

        Args:
            text: shown as it is; nothing in it is markup.
            replaces: timestamp of a message of the bot, or of its last edit, to replace.
            attachments: never together with `replaces`.

        Raises:
            ValueError: attachments together with `replaces`.
            SignalTimeout: perhaps sent; its `sending` is the send in doubt.
            SignalRateLimited: perhaps sent; wait before trying again.
            SignalError: not sent, see `Messenger`.
        """

    async def send_poll(self, chat: ChatId, poll: Poll) -> int:
        """Send a poll and return Signal's timestamp of it, in ms; otherwise like `send`.

        Raises:
            SignalLacks: the Signal side has no polls; nothing was sent.
        """

    async def end_poll(self, chat: ChatId, timestamp: int) -> None:
        """End the voting in a poll of the bot; raises SignalError."""


class Messenger(Sender, Protocol):
    """A connection to Signal that reconnects by itself.

    A failed request raises a SignalError: SignalUnavailable (not done: try again), SignalTimeout
    (perhaps done), SignalUntrusted (not done: the key is not trusted), or SignalRejected (not done,
    and trying again changes nothing).
    """

    @property
    def receipts(self) -> DeliveryReceipts:
        """Receipts of phones, and the sends that they may settle."""

    @property
    def connected(self) -> bool:
        """Whether messages can come in and go out right now."""

    @property
    def stuck(self) -> bool:
        """Whether the Signal side takes requests right now and does not answer."""

    @property
    def trouble(self) -> AccountTrouble | None:
        """Trouble with the account that the Signal side has reported, or None."""

    @property
    def server(self) -> str | None:
        """Name and version of the Signal side, as `account_status` told last."""

    @property
    def connected_since(self) -> float | None:
        """Beginning of the present connection by `time.monotonic`; None without a connection."""

    @property
    def last_sign(self) -> float:
        """Time by `time.monotonic` when the connection last worked, or failed and was retried.

        If it does not change, the transport itself is stuck.
        """

    @property
    def undelivered(self) -> int:
        """Number of messages that were read but are not delivered yet."""

    async def run(self, deliver: Deliver) -> None:
        """Keep the connection and deliver everything that comes in, until cancelled.

        Reconnects with jittered backoff. An unreadable frame is counted and skipped. Errors of
        `deliver` are not caught.
        """

    async def stop_receiving(self, *, delivery_seconds: float = STOP_DELIVERY_SECONDS) -> None:
        """Stop receiving, and wait until the messages that were read are delivered.

        Sending goes on. Returns within a bound, even if the Signal side does not answer.
        """

    async def hold_receiving(self) -> None:
        """Leave new messages with Signal until `resume_receiving`, if Signal keeps them.

        Over signal-cli-rest-api, which keeps nothing, messages still come in. Messages that were
        read are delivered, and sending goes on. Returns within a bound.
        """

    async def resume_receiving(self) -> None:
        """Receive again, beginning with the waiting messages."""

    async def delete(self, chat: ChatId, timestamp: int) -> None:
        """Delete a message of the bot for everyone, by its first timestamp or its last edit's."""

    async def react(self, chat: ChatId, emoji: str, *, author: str, timestamp: int) -> None:
        """Put an emoji on a message; a new one replaces the previous one."""

    async def show_typing(self, chat: ChatId, *, stop: bool = False) -> None:
        """Show that an answer is being written; phones show it for 15 seconds."""

    async def mark_read(self, person: str, timestamps: Sequence[int]) -> None:
        """Tell a person, by ACI, that messages were read, also messages in groups."""

    async def fetch_file(self, chat: ChatId, file: ReceivedFile, *, max_bytes: int) -> bytes:
        """Return the bytes of a file that came with a message of a chat.

        Raises:
            FileTooBig: it has more than `max_bytes`.
            SignalRejected: it is not there.
        """

    async def discard_file(self, file: ReceivedFile) -> None:
        """Delete the Signal side's copy of a file; a missing file is fine."""

    async def group(self, chat: ChatId) -> Group | None:
        """Return the current state of a group; None if the Signal side does not know it."""

    async def join_group(self, chat: ChatId) -> None:
        """Accept the invitation to a group."""

    async def leave_group(self, chat: ChatId) -> None:
        """Leave a group, or refuse the invitation to it."""

    async def peer_identity(self, person: str) -> PeerIdentity | None:
        """Return the newest key of a person, by ACI, or None."""

    async def trust(self, person: str, *, safety_number: str | None) -> None:
        """Trust the new key of a person, by ACI; the person's waiting messages are delivered then.

        Args:
            safety_number: 60 digits that an admin has compared, so that the key becomes verified;
                None trusts the current key unseen.

        Raises:
            SignalRejected: the key has another safety number.
        """

    async def accept_request(self, person: str) -> None:
        """Accept the message request of a person, by ACI, if the Signal side can."""

    async def set_profile(self, profile: Profile) -> None:
        """Change the given parts of the public profile.

        Raises:
            SignalRejected: the Signal side cannot change these parts without the others.
        """

    async def lock_registration(self, pin: str | None) -> None:
        """Set the PIN of the account's registration lock; None removes the lock.

        Raises:
            SignalRejected: the account is that of a linked device.
        """

    async def own_identity(self) -> OwnIdentity:
        """Ask the Signal side for the account's own ACI, identity key and linked devices.

        Asks every time, because proofs must be current. Fails without an answer about the devices.

        Raises:
            SignalRejected: the Signal side does not know them, or names no key.
        """

    async def account_status(self) -> AccountStatus:
        """Ask the Signal side for its version and whether it has the bot's account.

        Raises:
            SignalRejected: its version is too old.
        """


def check_message(replaces: int | None, attachments: Sequence[Attachment]) -> None:
    """Raise ValueError for an impossible message, which only a bug can cause."""
    if replaces is not None and attachments:
        raise ValueError("A message that replaces another carries no attachments.")


def check_size(size: int | None, max_bytes: int) -> None:
    """Refuse a file that is too big; raises FileTooBig."""
    if size is not None and size > max_bytes:
        raise FileTooBig("The file is too big.")


class DeliveryQueue:
    """Unlimited queue; `undelivered` counts the events in it and in the present delivery."""

    def __init__(self) -> None:
        self._waiting = asyncio.Queue[Incoming]()
        self.undelivered = 0

    def __len__(self) -> int:
        return self._waiting.qsize()

    def put(self, event: Incoming) -> None:
        """Add an event."""
        self._waiting.put_nowait(event)
        self.undelivered += 1
        SIGNAL_QUEUE.set(len(self))

    async def deliver_all(
        self, deliver: Deliver, *, taken: Callable[[], None] = lambda: None
    ) -> None:
        """Deliver as many waiting events at a time as possible, until cancelled.

        Args:
            taken: called when there is room again.
        """
        while True:
            delivery = [await self._waiting.get()]
            while len(delivery) < MAX_DELIVERY and not self._waiting.empty():
                delivery.append(self._waiting.get_nowait())
            taken()
            await deliver(delivery)
            for _ in delivery:
                self._waiting.task_done()
            self.undelivered -= len(delivery)
            SIGNAL_QUEUE.set(len(self))

    async def all_delivered(self, *, seconds: float) -> None:
        """Wait until every event is delivered, within a bound."""
        try:
            async with asyncio.timeout(seconds):
                await self._waiting.join()
        except TimeoutError:
            log.warning("signal.stop_timed_out", waiting=self.undelivered)


class Transport(ABC):
    """Base of both transports: the account, and a connection that reopens after failures.

    `Messenger` describes its attributes.
    """

    def __init__(self, number: str, backoff: Backoff, *, note_to_self: bool) -> None:
        self._account = Account(number, note_to_self=note_to_self)
        self._backoff = backoff
        self.receipts = DeliveryReceipts()
        self.trouble: AccountTrouble | None = None
        self.server: str | None = None
        self.last_sign = time.monotonic()
        self._connected_at = self.last_sign
        self._may_start_until = self.last_sign  # no warnings about failures until then
        self._last_failure = ""

    @property
    @abstractmethod
    def connected(self) -> bool:
        """See `Messenger`."""

    @property
    def connected_since(self) -> float | None:
        """See `Messenger`."""
        return self._connected_at if self.connected else None

    async def _stay_connected(self, connect: Callable[[], Awaitable[None]]) -> None:
        """Connect, and reconnect after each failure, until cancelled.

        Args:
            connect: returns or raises a SignalError when the connection has ended.
        """
        failures = 0
        while True:
            began = time.monotonic()
            try:
                await connect()
            except SignalError as error:
                self._log_failure(error)
            self.last_sign = time.monotonic()
            lasted = self.last_sign - began > self._backoff.longest_seconds
            failures = 1 if lasted else failures + 1
            delay = self._backoff.seconds(failures)
            say = log.info if failures == 1 else log.debug
            say("signal.reconnecting", attempt=failures, delay_seconds=round(delay, 1))
            await asyncio.sleep(delay)

    def _log_failure(self, error: SignalError) -> None:
        """Warn of a failure once, because it may last for days."""
        kind, reason = type(error.__cause__ or error).__name__, str(error)
        say = log.debug if self._last_failure == kind + reason else log.warning
        self._last_failure = kind + reason
        if time.monotonic() < self._may_start_until:
            say, self._last_failure = log.debug, ""
        say("signal.failed", error=type(error).__name__, kind=kind, reason=reason)

    def _note_success(self) -> None:
        """Note that a connection works, so that the next failure is logged as a warning."""
        self._last_failure, self._may_start_until = "", 0.0

    def _note_trouble(self, trouble: AccountTrouble | None) -> None:
        """Note trouble with the account, or its end, and log each trouble once."""
        if trouble is not None and trouble is not self.trouble:
            log.error("signal.account_trouble", reason=trouble.value)
        self.trouble = trouble

    @abstractmethod
    async def _own_rows(self) -> Sequence[Identity]:
        """Ask for the identity of the account itself."""

    async def _learn_aci(self) -> None:
        """Learn the bot's ACI from its own identity; until then, mentions are found by number."""
        try:
            rows = await self._own_rows()
        except SignalError as error:
            log.warning("signal.own_identity_unknown", error=type(error).__name__)
        else:
            self._account.aci = own_aci(self._account.number, rows)
