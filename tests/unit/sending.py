"""A way out for what the bot says of its own accord, for tests of what it says."""

from collections.abc import Sequence

from conversation_store.models import OutgoingMessage


class Letterbox:
    """Takes every message; `sent` holds the chats and the texts."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, str]] = []

    async def deliver(self, parts: Sequence[OutgoingMessage]) -> None:
        self.sent += [(part.chat, part.text) for part in parts]

    def texts(self, chat: str) -> list[str]:
        """Return what was sent to a chat."""
        return [text for sent_to, text in self.sent if sent_to == chat]
