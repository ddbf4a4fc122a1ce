"""What came in, as it is stored."""

from dataclasses import replace

from bot.messaging.events import Deletion, Edit, IncomingMessage
from conversation_store.models import (
    ReceivedKind,
    ReceivedMessage,
)


def received(message: IncomingMessage, now_ms: int) -> ReceivedMessage:
    """Return a message as it is stored.

    When it was sent is what Signal's server says; the author's own clock may be anywhere.
    """
    expires_at = now_ms + message.expires_seconds * 1_000 if message.expires_seconds else None
    return ReceivedMessage(
        account=message.account,
        author=message.author.aci,
        author_number=message.author.number,
        author_name=message.author.name,
        timestamp=message.timestamp,
        chat=message.chat,
        text=message.text,
        received_at=now_ms,
        sent_at=min(message.server_timestamp or now_ms, now_ms),
        files=message.files,
        quote=message.quote,
        expires_at=expires_at,
        view_once=message.view_once,
    )


def received_edit(edit: Edit, now_ms: int) -> ReceivedMessage:
    """Return an edit as it is stored: the message as it reads now, and which one it was."""
    return replace(
        received(edit.message, now_ms),
        kind=ReceivedKind.EDIT,
        target_author=edit.message.author.aci,
        target_timestamp=edit.target_timestamp,
    )


def received_deletion(deletion: Deletion, now_ms: int) -> ReceivedMessage:
    """Return a deletion as it is stored: it has no words."""
    return ReceivedMessage(
        account=deletion.account,
        author=deletion.author.aci,
        author_number=deletion.author.number,
        timestamp=deletion.timestamp,
        chat=deletion.chat,
        text="",
        received_at=now_ms,
        sent_at=now_ms,
        kind=ReceivedKind.DELETION,
        target_author=deletion.target_author,
        target_timestamp=deletion.target_timestamp,
    )
