"""What a person writes while a turn runs joins that turn, between two of its steps."""

import time
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import structlog

from bot.dispatch.mailboxes import Mailboxes
from bot.dispatch.turns.batching import MAX_PIECES
from conversation_store.models import AcceptedMessage, ChatId, ReceivedKind

log = structlog.get_logger()

MAX_STEP_BYTES: Final = 4_096
"""UTF-8 bytes that one step of a turn takes up; what is longer waits for the next step, or for a
turn of its own, which has more room for it."""


class IdentityPolicy(Protocol):
    """Whose key counts. Implemented by `bot.dispatch.incoming.identities.Identities`."""

    def is_verified(self, person: str) -> bool:
        """Whether somebody's key, by ACI, is as good as the policy asks, as far as is known."""
        ...


class Steering:
    """Takes what waits behind a turn, for the turn to hear.

    Args:
        mailboxes: where further messages wait.
        identity_policy: whose words count.
        enabled: without it each waits for its own turn.
        clock: seconds since 1970.

    Attributes:
        enabled: may be changed at any time.
    """

    def __init__(
        self,
        mailboxes: Mailboxes,
        identity_policy: IdentityPolicy,
        *,
        enabled: bool,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._mailboxes = mailboxes
        self._identity_policy = identity_policy
        self.enabled = enabled
        self._clock = clock

    def take(self, chat: ChatId, pieces: list[AcceptedMessage]) -> Sequence[AcceptedMessage]:
        """Move what the asker has written meanwhile to the pieces of a turn, and return it.

        It is in the one or the other at each moment, so that an edit, a deletion and `!stop` find
        it. It ends at whatever is not for this turn: a command, a file, which takes long to read,
        or what somebody else wrote; nothing overtakes that.

        Args:
            chat: the chat.
            pieces: the messages that its turn answers.
        """
        taken: list[AcceptedMessage] = []
        room = MAX_STEP_BYTES

        def joins(following: AcceptedMessage) -> bool:
            message = following.message
            expires_at = message.expires_at
            return (
                message.kind is ReceivedKind.MESSAGE
                and message.author == pieces[0].message.author
                and bool(message.text.strip())
                and not message.files
                and len(message.text.encode()) <= room
                and (expires_at is None or expires_at > self._clock() * 1_000)
                and self._identity_policy.is_verified(message.author)
            )

        while self.enabled and len(pieces) < MAX_PIECES:
            following = self._mailboxes.take_joining(chat, joins)
            if following is None:
                break
            room -= len(following.message.text.encode())
            pieces.append(following)
            taken.append(following)
        if taken:
            log.debug("turn.steered", turn=pieces[0].id, count=len(taken))
        return taken
