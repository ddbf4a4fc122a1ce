"""What the bot says of its own accord: stored first, then sent behind what its chat has waiting."""

from functools import partial

from bot.dispatch.mailboxes import Job, Mailboxes
from bot.dispatch.outbox import Outbox
from bot.messaging.events import ChatId, ChatKind
from conversation_store.models import OutgoingMessage
from conversation_store.store import ConversationStore


class Notices:
    """Sends messages that answer none.

    Args:
        store: keeps them until they are sent, also over a restart.
        mailboxes: keep the order of each chat.
        outbox: sends them.
        admins: numbers or ACIs of those who administer the bot.
    """

    def __init__(
        self,
        *,
        store: ConversationStore,
        mailboxes: Mailboxes,
        outbox: Outbox,
        admins: frozenset[str],
    ) -> None:
        self._store = store
        self._mailboxes = mailboxes
        self._outbox = outbox
        self._admins = tuple(sorted(admins))

    async def send(self, chat: ChatId, text: str) -> None:
        """Say something in a chat; returns when it is stored. Raises StoreError."""
        self.queue(await self._store.add_note(str(chat), text))

    def queue(self, note: OutgoingMessage) -> None:
        """Send a message that is stored already, behind what its chat has waiting."""
        self._mailboxes.add(note.chat, Job(partial(self._outbox.deliver, (note,))))

    async def to_admins(self, text: str) -> bool:
        """Say something to each admin in private; False where nobody is one."""
        for admin in self._admins:
            await self.send(ChatId(ChatKind.DIRECT, admin), text)
        return bool(self._admins)
