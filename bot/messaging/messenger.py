"""The one seam between the bot and Signal.

Two implementations: `signal_daemon.SignalDaemon` (signal-cli's own JSON-RPC daemon) and
`signal_rest.SignalRest` (signal-cli-rest-api). `tests/contract/test_messenger.py` holds both to
what is written here.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from bot.messaging.account import Attachment, OwnIdentity
from bot.messaging.events import ChatId, Incoming

Deliver = Callable[[Sequence[Incoming]], Awaitable[None]]
"""Takes messages and reactions, oldest first. While it waits, the transport queues, and then reads
nothing more: back-pressure. It must not wait for a send, whose answer may be behind what is not
read."""

MAX_DELIVERY: Final = 256
"""What is handed over together at the most: what one commit of the store takes."""


@dataclass(frozen=True, slots=True)
class AccountStatus:
    """What the Signal side says about the bot's account, for `check`."""

    server: str
    registered: bool


class Messenger(Protocol):
    """A connection to Signal that mends itself."""

    @property
    def connected(self) -> bool:
        """Whether messages can come in and go out right now."""
        ...

    async def run(self, deliver: Deliver) -> None:
        """Keep the connection and hand over every message and reaction, until cancelled.

        Reconnects by itself with jittered backoff. A frame that cannot be read is counted and
        skipped. Errors that `deliver` raises are not caught.
        """
        ...

    async def stop_receiving(self) -> None:
        """Take no more messages from Signal; those already read are still delivered.

        Sending goes on. Returns within a bound, also when the Signal side does not answer.
        """
        ...

    async def send(
        self,
        chat: ChatId,
        text: str,
        *,
        replaces: int | None = None,
        attachments: Sequence[Attachment] = (),
    ) -> int:
        """Send plain text, perhaps with files, and return Signal's timestamp of it, in ms.

        When the answer is lost in a private chat, a receipt from the person's phone takes its
        place: it is waited for within a bound, while messages keep coming in. Sends to one chat
        are made one after the other; see `receipts` for why.

        Args:
            chat: where to.
            text: shown as it is; nothing in it is markup.
            replaces: timestamp of an own message, or of its last edit, that this text replaces.
            attachments: files that go with it; never with a text that replaces another.

        Raises:
            ValueError: attachments together with `replaces`.
            SignalUnavailable: not sent; try again.
            SignalTimeout: perhaps sent; the answer was lost and no receipt came in its place.
            SignalRateLimited: not sent; wait, then try again.
            SignalRejected: not sent, and never will be.
        """
        ...

    async def group_admins(self, chat: ChatId) -> frozenset[str]:
        """Return ACIs and numbers of a group's admins; empty for an unknown group.

        Raises:
            SignalError: the Signal side did not answer.
        """
        ...

    async def own_identity(self) -> OwnIdentity:
        """Ask the Signal side for the account's own ACI, identity key and linked devices.

        It is asked anew every time, because what is proven must be true now. Without an answer
        about the devices there is no identity: none of them is ever taken for granted.

        Raises:
            SignalRejected: it does not know them, or names no key.
            SignalError: it did not answer.
        """
        ...

    async def account_status(self) -> AccountStatus:
        """Ask the Signal side for its version and whether the bot's account is registered.

        Raises:
            SignalError: the Signal side did not answer.
        """
        ...


def check_message(replaces: int | None, attachments: Sequence[Attachment]) -> None:
    """Refuse what no Signal message can be; ValueError, because only a bug asks for it."""
    if replaces is not None and attachments:
        raise ValueError("A message that replaces another carries no attachments.")


async def take_delivery(queue: asyncio.Queue[Incoming]) -> list[Incoming]:
    """Wait for what comes in and return it with what is queued behind it."""
    delivery = [await queue.get()]
    while len(delivery) < MAX_DELIVERY and not queue.empty():
        delivery.append(queue.get_nowait())
    return delivery
