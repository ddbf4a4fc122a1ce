"""What the bot says of its own accord: stored first, then sent behind what its chat has waiting."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from bot.dispatch.mailboxes import Job, Mailboxes
from bot.language.languages import Languages
from conversation_store.models import ChatId, OutgoingMessage
from conversation_store.store import ConversationStore


class Sender(Protocol):
    """Sends what is stored. Implemented by `bot.dispatch.outgoing.outbox.Outbox`."""

    async def deliver(self, parts: Sequence[OutgoingMessage]) -> object:
        """Send parts one after the other."""
        ...


class Notices:
    """Sends messages that answer none.

    Args:
        store: keeps them until they are sent, also over a restart.
        mailboxes: keep the order of each chat.
        outbox: sends them.
        languages: in which the bot itself speaks.
        admins: returns the numbers or ACIs of those who administer the bot.
    """

    def __init__(
        self,
        *,
        store: ConversationStore,
        mailboxes: Mailboxes,
        outbox: Sender,
        languages: Languages,
        admins: Callable[[], frozenset[str]],
    ) -> None:
        self._store = store
        self._mailboxes = mailboxes
        self._outbox = outbox
        self._languages = languages
        self._admins = admins

    @property
    def has_admins(self) -> bool:
        """Whether anybody is an admin."""
        return bool(self._admins())

    async def send(self, chat: ChatId, text: str) -> None:
        """Say something in a chat; returns when it is stored. Raises StoreError."""
        self.queue(await self._store.outbox.add_note(chat, self._languages.say(chat, text)))

    def queue(self, note: OutgoingMessage) -> None:
        """Send a message that is stored already, behind what its chat has waiting."""
        self._mailboxes.add(note.chat, Job(partial(self._outbox.deliver, (note,))))

    async def to_admins(self, text: str) -> None:
        """Say something to each admin in private."""
        for admin in sorted(self._admins()):
            await self.send(ChatId.direct(admin), text)
