"""A Messenger of which a test plays the part that it needs."""

from collections.abc import Sequence
from functools import cached_property

from bot.signal.account import Group, OwnIdentity, PeerIdentity, Profile
from bot.signal.messenger import STOP_DELIVERY_SECONDS, AccountStatus, Deliver, Poll
from bot.signal.receipts import DeliveryReceipts
from conversation_store.models import Attachment, ChatId, Quote, ReceivedFile, StyleRange


class PartialMessenger:
    """Can do nothing; a subclass does what is asked of it, and anything else fails the test."""

    connected: bool = True
    stuck: bool = False
    unregistered: bool = False
    connected_since: float | None = None
    last_sign: float = 0.0
    undelivered: int = 0

    @cached_property
    def receipts(self) -> DeliveryReceipts:
        return DeliveryReceipts()

    async def run(self, deliver: Deliver) -> None:
        raise NotImplementedError

    async def stop_receiving(self, *, delivery_seconds: float = STOP_DELIVERY_SECONDS) -> None:
        raise NotImplementedError

    async def hold_receiving(self) -> None:
        raise NotImplementedError

    async def resume_receiving(self) -> None:
        raise NotImplementedError

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
        raise NotImplementedError

    async def send_poll(self, chat: ChatId, poll: Poll) -> int:
        raise NotImplementedError

    async def end_poll(self, chat: ChatId, timestamp: int) -> None:
        raise NotImplementedError

    async def delete(self, chat: ChatId, timestamp: int) -> None:
        raise NotImplementedError

    async def react(self, chat: ChatId, emoji: str, *, author: str, timestamp: int) -> None:
        raise NotImplementedError

    async def show_typing(self, chat: ChatId, *, stop: bool = False) -> None:
        raise NotImplementedError

    async def mark_read(self, person: str, timestamps: Sequence[int]) -> None:
        raise NotImplementedError

    async def fetch_file(self, chat: ChatId, file: ReceivedFile, *, max_bytes: int) -> bytes:
        raise NotImplementedError

    async def discard_file(self, file: ReceivedFile) -> None:
        raise NotImplementedError

    async def group(self, chat: ChatId) -> Group | None:
        raise NotImplementedError

    async def join_group(self, chat: ChatId) -> None:
        raise NotImplementedError

    async def leave_group(self, chat: ChatId) -> None:
        raise NotImplementedError

    async def peer_identity(self, person: str) -> PeerIdentity | None:
        raise NotImplementedError

    async def trust(self, person: str, *, safety_number: str | None) -> None:
        raise NotImplementedError

    async def accept_request(self, person: str) -> None:
        raise NotImplementedError

    async def set_profile(self, profile: Profile) -> None:
        raise NotImplementedError

    async def own_identity(self) -> OwnIdentity:
        raise NotImplementedError

    async def account_status(self) -> AccountStatus:
        raise NotImplementedError
