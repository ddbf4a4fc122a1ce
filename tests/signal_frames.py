"""The recorded frames, the people in them, and the messages that the parser has to return."""

import json
from pathlib import Path
from typing import Any, Final

from bot.signal.events import Deletion, Edit, IncomingMessage, Person, Reaction
from bot.signal.frames import Account
from conversation_store.models import ChatId, ReceivedFile, ReceivedQuote

FRAMES: Final[dict[str, dict[str, Any]]] = json.loads(
    (Path(__file__).parent / "fixtures" / "signal_frames.json").read_text()
)
ADA: Final = "7f3c1a52-6b1e-4a0e-9a55-3a1e1b6f0d11"
PHONE: Final = "+4915200000001"
BOT_ACI: Final = "9d578c56-e167-564c-8fb4-cdda901237d9"
BOT: Final = Account("+4915100000000", BOT_ACI)
OWNER: Final = Account(BOT.number, BOT_ACI, note_to_self=True)
GROUP: Final = ChatId.group("AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=")
DIRECT: Final = ChatId.direct(ADA)
NOTE_TO_SELF: Final = ChatId.direct(BOT_ACI)


def message(
    text: str,
    *,
    chat: ChatId = DIRECT,
    number: str | None = PHONE,
    addresses_bot: bool = False,
    files: tuple[ReceivedFile, ...] = (),
    unread: tuple[ReceivedFile, ...] = (),
    quote: ReceivedQuote | None = None,
    view_once: bool = False,
) -> IncomingMessage:
    """Message from Ada, or from the account's owner in the note to self."""
    author = Person(ADA, number, "Ada")
    if chat == NOTE_TO_SELF:
        author = Person(BOT_ACI, BOT.number, "Bot")
    return IncomingMessage(
        account=BOT.number,
        chat=chat,
        author=author,
        timestamp=1795291728387,
        text=text,
        addresses_bot=addresses_bot,
        files=files,
        unread=unread,
        quote=quote,
        view_once=view_once,
        server_timestamp=1795291728600,
    )


def edit(new: IncomingMessage) -> Edit:
    return Edit(message=new, target_timestamp=1795291719387)


def reaction(emoji: str = "👍", *, removed: bool = False) -> Reaction:
    return Reaction(
        account=BOT.number,
        chat=DIRECT,
        author=Person(ADA, PHONE, "Ada"),
        timestamp=1795291728387,
        emoji=emoji,
        target_timestamp=1795291723387,
        removed=removed,
    )


def deletion(
    *, chat: ChatId = DIRECT, number: str | None = PHONE, target_author: str = ADA
) -> Deletion:
    author = Person(ADA, number, "Ada")
    if chat == NOTE_TO_SELF:
        author = Person(BOT_ACI, BOT.number, "Bot")
    return Deletion(
        account=BOT.number,
        chat=chat,
        author=author,
        timestamp=1795291728387,
        target_author=target_author,
        target_timestamp=1795291719387,
    )
