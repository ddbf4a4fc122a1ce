"""The one seam between the bot and Signal.

Two implementations: `signal_daemon.SignalDaemon` (signal-cli's own JSON-RPC daemon) and
`signal_rest.SignalRest` (signal-cli-rest-api). `tests/contract/test_messenger*.py` hold both to
what is written here.

A private chat with the account's own ACI or number is its note to self. Nobody sees signs of life
there, so none are sent.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from bot.errors import SignalRejected
from bot.messaging.account import Group, OwnIdentity, PeerIdentity, Profile
from bot.messaging.events import Incoming
from bot.messaging.receipts import Witness
from conversation_store.models import Attachment, ChatId, Quote, ReceivedFile, StyleRange


class FileTooBig(SignalRejected):
    """A file has more bytes than whoever asked for it takes."""


Deliver = Callable[[Sequence[Incoming]], Awaitable[None]]
"""Takes what people write and do, oldest first. While it waits, the transport queues, and then
reads nothing more: back-pressure. It must not wait for a send, whose answer may be behind what is
not read."""

STOP_DELIVERY_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class Poll:
    """A question that phones show as a poll.

    Attributes:
        question: on one line.
        options: what may be voted for, no two alike.
        multiple: whether somebody may vote for several.
    """

    question: str
    options: tuple[str, ...]
    multiple: bool


@dataclass(frozen=True, slots=True)
class AccountStatus:
    """What the Signal side says about the bot's account, for `check`."""

    server: str
    registered: bool


class Sender(Protocol):
    """Where plain messages leave: every Messenger, and what notes them first (`noted_sends`)."""

    async def send(
        self,
        chat: ChatId,
        text: str,
        *,
        styles: Sequence[StyleRange] = (),
        replaces: int | None = None,
        attachments: Sequence[Attachment] = (),
    ) -> int:
        """Send or edit a message and return Signal's timestamp of it; raises SignalError."""
        ...


class PollSender(Sender, Protocol):
    """Where polls leave as well: every Messenger, and `noted_sends`."""

    async def send_poll(self, chat: ChatId, poll: Poll) -> int:
        """Send a poll and return Signal's timestamp of it; raises SignalError."""
        ...

    async def end_poll(self, chat: ChatId, timestamp: int) -> None:
        """Let nobody vote any more in an own poll; raises SignalError."""
        ...


NOT_REGISTERED: Final = (
    "SIGNAL__PHONE_NUMBER is not registered there."
    " Register or link it: signal-tee-bot register, or signal-tee-bot link."
)


class Messenger(Protocol):
    """A connection to Signal that mends itself.

    Every method that asks the Signal side for something raises a SignalError where it is not
    done: SignalUnavailable (not done: try again), SignalTimeout (perhaps done), SignalRateLimited,
    SignalUntrusted, SignalRejected (not done, and never will be).
    """

    @property
    def connected(self) -> bool:
        """Whether messages can come in and go out right now."""
        ...

    @property
    def stuck(self) -> bool:
        """Whether the Signal side takes requests right now and does not answer them."""
        ...

    @property
    def unregistered(self) -> bool:
        """Whether the Signal side has said that it does not have the bot's account."""
        ...

    @property
    def connected_since(self) -> float | None:
        """When, by `time.monotonic`, the present connection began; None while there is none."""
        ...

    @property
    def last_sign(self) -> float:
        """When, by `time.monotonic`, the connection last moved.

        It moves while it works, and also while it fails and is tried again; one that does not is
        stuck.
        """
        ...

    async def run(self, deliver: Deliver, witness: Witness | None = None) -> None:
        """Keep the connection and hand over everything that came in, until cancelled.

        Reconnects by itself with jittered backoff. A frame that cannot be read is counted and
        skipped. Errors that `deliver` raises are not caught.

        Args:
            deliver: takes what people write and do.
            witness: told of what their phones confirm, before anything that waits for it goes on.
        """
        ...

    @property
    def undelivered(self) -> int:
        """How many messages were read and are not delivered yet."""
        ...

    async def stop_receiving(self, *, delivery_seconds: float = STOP_DELIVERY_SECONDS) -> None:
        """Take no more messages from Signal; wait until those already read are delivered.

        Sending goes on. Returns within a bound, also when the Signal side does not answer.

        Args:
            delivery_seconds: how long the delivery may take.
        """
        ...

    async def hold_receiving(self) -> None:
        """Leave what people write with Signal until `resume_receiving`, where it is kept there.

        signal-cli-rest-api keeps nothing; over it, what comes is queued. What was read already is
        delivered, and sending goes on. Returns within a bound, whether the Signal side answers or
        not.
        """
        ...

    async def resume_receiving(self) -> None:
        """Take messages again, what waited first."""
        ...

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

        When the answer is lost in a private chat, a receipt from the person's phone takes its
        place: it is waited for within a bound, while messages keep coming in. Sends to one chat
        are made one after the other; see `receipts` for why.

        Args:
            chat: where to.
            text: shown as it is; nothing in it is markup.
            styles: ranges of it that look different.
            quote: the message that it replies to.
            replaces: timestamp of an own message, or of its last edit, that this text replaces.
            attachments: files that go with it; never with a text that replaces another.

        Raises:
            ValueError: attachments together with `replaces`.
            SignalUnavailable: not sent; try again.
            SignalTimeout: perhaps sent; the answer was lost and no receipt came in its place.
            SignalRateLimited: not sent; wait, then try again.
            SignalUntrusted: not sent; the recipient's new key is not trusted.
            SignalRejected: not sent, and never will be.
        """
        ...

    async def send_poll(self, chat: ChatId, poll: Poll) -> int:
        """Send a poll and return Signal's timestamp of it, in ms; else as `send`.

        Raises:
            SignalLacks: the Signal side knows no polls; nothing was sent.
        """
        ...

    async def end_poll(self, chat: ChatId, timestamp: int) -> None:
        """Let nobody vote any more in an own poll, named by its timestamp."""
        ...

    async def delete(self, chat: ChatId, timestamp: int) -> None:
        """Delete an own message for everyone, named by its first timestamp or its last edit's."""
        ...

    async def react(self, chat: ChatId, emoji: str, *, author: str, timestamp: int) -> None:
        """Put an emoji on somebody's message; a new one replaces the one before."""
        ...

    async def show_typing(self, chat: ChatId, *, stop: bool = False) -> None:
        """Let a chat see that an answer is being written; phones show it for 15 seconds."""
        ...

    async def mark_read(self, person: str, timestamps: Sequence[int]) -> None:
        """Tell a person, by ACI, that messages were read; also for messages in groups."""
        ...

    async def fetch_file(self, chat: ChatId, file: ReceivedFile, *, max_bytes: int) -> bytes:
        """Return the bytes of a file that came with a message of a chat.

        Raises:
            FileTooBig: it has more than `max_bytes`.
            SignalRejected: it is not there.
        """
        ...

    async def discard_file(self, file: ReceivedFile) -> None:
        """Delete the Signal side's copy of a file; that one is gone or out of reach is no error."""
        ...

    async def group(self, chat: ChatId) -> Group | None:
        """Return what a group is now; None for one that the Signal side does not know."""
        ...

    async def join_group(self, chat: ChatId) -> None:
        """Accept the invitation to a group."""
        ...

    async def leave_group(self, chat: ChatId) -> None:
        """Leave a group, or refuse the invitation to it."""
        ...

    async def peer_identity(self, person: str) -> PeerIdentity | None:
        """Return the newest key of a person, by ACI; None where none is known."""
        ...

    async def trust(self, person: str, *, safety_number: str | None) -> None:
        """Trust the new key of a person, by ACI; what waits from there is delivered then.

        Args:
            person: ACI.
            safety_number: 60 digits that somebody has compared, which makes the key a verified
                one; None trusts what is there, unseen.

        Raises:
            SignalRejected: it is another safety number.
        """
        ...

    async def accept_request(self, person: str) -> None:
        """Accept the message request of a person, by ACI, where the Signal side can."""
        ...

    async def set_profile(self, profile: Profile) -> None:
        """Change what people see of the account, and leave the rest as it is.

        Raises:
            SignalRejected: the Signal side cannot change this much and leave the rest.
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
