"""The demo's `Messenger`: its other side is the phone in the same process.

There is one person with one private chat. Reactions and receipts are not shown.
"""

import asyncio
import mimetypes
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bot.signal.account import Group, OwnIdentity, PeerIdentity, Profile
from bot.signal.errors import SignalLacks, SignalRejected
from bot.signal.events import Incoming, IncomingMessage, Person
from bot.signal.messenger import (
    STOP_DELIVERY_SECONDS,
    AccountStatus,
    Deliver,
    DeliveryQueue,
    Poll,
    check_message,
    check_size,
)
from bot.signal.receipts import DeliveryReceipts
from conversation_store.models import Attachment, ChatId, Quote, ReceivedFile, StyleRange

BOT_NUMBER: Final = "+15550100000"
PERSON: Final = Person(
    aci="7f3c1a52-6b1e-4a0e-9a55-3a1e1b6f0d11", number="+15550100001", name="Ada"
)
CHAT: Final = ChatId.direct(PERSON.aci)


@dataclass(frozen=True, slots=True)
class FromBot:
    """A message as the bot sent it; `replaces` is the timestamp of the message that it edits."""

    timestamp: int
    text: str
    replaces: int | None = None
    attachments: tuple[Attachment, ...] = ()
    styles: tuple[StyleRange, ...] = ()
    quote: Quote | None = None


class DemoMessenger:
    """Carries messages between the bot and the phone on the terminal.

    Attributes:
        on_typing: told whether the bot is writing.
    """

    stuck = False
    trouble = None
    server = None

    def __init__(self) -> None:
        self.on_typing: Callable[[bool], None] = lambda _: None
        self.receipts = DeliveryReceipts()
        self._to_bot = DeliveryQueue()
        self._to_phone: asyncio.Queue[FromBot] = asyncio.Queue()
        self._receiving = asyncio.Event()
        self._receiving.set()
        self._began: float | None = None
        self._files: dict[str, Path] = {}
        self._last_timestamp = 0

    # Side of the phone

    async def say(self, text: str, file: Path | None = None) -> int:
        """Write to the bot, perhaps with a file, and return the message's timestamp, in ms."""
        timestamp = self._new_timestamp()
        files = []
        if file is not None:
            self._files[str(timestamp)] = file
            kind = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
            files = [ReceivedFile(str(timestamp), kind, file.name)]
        message = IncomingMessage(
            account=BOT_NUMBER,
            chat=CHAT,
            author=PERSON,
            timestamp=timestamp,
            text=text,
            files=tuple(files),
            addresses_bot=False,
        )
        self._to_bot.put(message)
        return timestamp

    async def next_sent(self, *, seconds: float) -> FromBot:
        """Return the next message of the bot; TimeoutError when none comes in time."""
        async with asyncio.timeout(seconds):
            return await self._to_phone.get()

    # Side of the bot; see `Messenger`

    @property
    def connected(self) -> bool:
        """Whether messages are delivered."""
        return self._began is not None

    @property
    def connected_since(self) -> float | None:
        """When delivery began, by `time.monotonic`."""
        return self._began

    @property
    def last_sign(self) -> float:
        """Now: this connection cannot hang."""
        return time.monotonic()

    @property
    def undelivered(self) -> int:
        """How many messages the bot has not taken yet."""
        return self._to_bot.undelivered

    async def run(self, deliver: Deliver) -> None:
        """Deliver what is typed, until cancelled."""
        self._began = time.monotonic()

        async def deliver_unless_held(delivery: Sequence[Incoming]) -> None:
            await self._receiving.wait()
            await deliver(delivery)

        await self._to_bot.deliver_all(deliver_unless_held)

    async def stop_receiving(self, *, delivery_seconds: float = STOP_DELIVERY_SECONDS) -> None:
        """Wait until the bot has taken what was typed."""
        await self._to_bot.all_delivered(seconds=delivery_seconds)

    async def hold_receiving(self) -> None:
        """Deliver nothing until `resume_receiving`."""
        self._receiving.clear()

    async def resume_receiving(self) -> None:
        """Deliver again."""
        self._receiving.set()

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
        """Show a message on the phone."""
        check_message(replaces, attachments)
        timestamp = self._new_timestamp()
        self._to_phone.put_nowait(
            FromBot(timestamp, text, replaces, tuple(attachments), tuple(styles), quote)
        )
        return timestamp

    async def send_poll(self, chat: ChatId, poll: Poll) -> int:
        """Refuse: the phone in the terminal shows no polls."""
        raise SignalLacks("There are no polls in the demo.")

    async def end_poll(self, chat: ChatId, timestamp: int) -> None:
        """Ignore the request: the demo has no polls."""

    async def delete(self, chat: ChatId, timestamp: int) -> None:
        """Ignore the request: a terminal cannot take back its lines."""

    async def react(self, chat: ChatId, emoji: str, *, author: str, timestamp: int) -> None:
        """Show the emoji like a message: a terminal cannot put it on an earlier line."""
        self._to_phone.put_nowait(FromBot(self._new_timestamp(), emoji))

    async def show_typing(self, chat: ChatId, *, stop: bool = False) -> None:
        """Show on the phone whether the bot is writing."""
        self.on_typing(not stop)

    async def mark_read(self, person: str, timestamps: Sequence[int]) -> None:
        """Show nothing."""

    async def fetch_file(self, chat: ChatId, file: ReceivedFile, *, max_bytes: int) -> bytes:
        """Read a file that was attached."""
        path = self._files.get(file.id)
        if path is None:
            raise SignalRejected("There is no such file in the demo.")
        return await asyncio.to_thread(_read, path, max_bytes)

    async def discard_file(self, file: ReceivedFile) -> None:
        """Forget where a file is; the person keeps it."""
        self._files.pop(file.id, None)

    async def group(self, chat: ChatId) -> Group | None:
        """Return None: the demo has no groups."""
        return None

    async def join_group(self, chat: ChatId) -> None:
        """Refuse: the demo has no groups."""
        raise SignalRejected("There are no groups in the demo.")

    async def leave_group(self, chat: ChatId) -> None:
        """Refuse: the demo has no groups."""
        raise SignalRejected("There are no groups in the demo.")

    async def peer_identity(self, person: str) -> PeerIdentity | None:
        """Return None: the demo has no keys."""
        return None

    async def trust(self, person: str, *, safety_number: str | None) -> None:
        """Refuse: the demo has no keys."""
        raise SignalRejected("There are no safety numbers in the demo.")

    async def accept_request(self, person: str) -> None:
        """Ignore the request: the demo has no message requests."""

    async def set_profile(self, profile: Profile) -> None:
        """Show nothing."""

    async def lock_registration(self, pin: str | None) -> None:
        """Lock nothing: the demo has no account."""

    async def own_identity(self) -> OwnIdentity:
        """Refuse: the demo has no account."""
        raise SignalRejected("The demo has no Signal account.")

    async def account_status(self) -> AccountStatus:
        """Say that it is the demo."""
        return AccountStatus("demo", registered=True)

    def _new_timestamp(self) -> int:
        """Return the time in ms, never the same one twice: it identifies a message."""
        self._last_timestamp = max(time.time_ns() // 1_000_000, self._last_timestamp + 1)
        return self._last_timestamp


def _read(path: Path, max_bytes: int) -> bytes:
    check_size(path.stat().st_size, max_bytes)
    return path.read_bytes()
