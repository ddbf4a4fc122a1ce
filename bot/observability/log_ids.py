"""Names for chats and people in the log that do not identify them.

A name is a keyed hash (BLAKE2b, RFC 7693). Its key is a random salt of this install, kept in its
store: the log shows which lines belong to one conversation, also across restarts, and the log
alone does not let anybody try numbers until one fits.
"""

import secrets
from hashlib import blake2b
from typing import Final, Protocol

METADATA_NAME: Final = "log_salt"
SALT_BYTES: Final = 32
DIGEST_BYTES: Final = 4
"""Enough to distinguish the chats of one bot, and short enough to read and to search for."""


class LogId(str):
    """Eight hexadecimal characters that stand for a chat or a person. Made only here."""

    __slots__ = ()


class Metadata(Protocol):
    """Facts of this install by name. Implemented by `ConversationStore`."""

    async def get_metadata(self, name: str) -> str | None:
        """Return a stored value."""
        ...

    async def set_metadata(self, name: str, value: str) -> None:
        """Store a value."""
        ...


class _Salt:
    """One salt for the process, like the configuration of its log."""

    value: bytes | None = None


async def use_salt_of(metadata: Metadata) -> None:
    """Use the install's salt, or make one; until then chats and people have no names."""
    known = await metadata.get_metadata(METADATA_NAME)
    if known is None:
        known = secrets.token_hex(SALT_BYTES)
        await metadata.set_metadata(METADATA_NAME, known)
    _Salt.value = bytes.fromhex(known)


def chat(chat: str) -> LogId | None:
    """Return the name of a chat; None while there is no salt."""
    return _name(chat, b"chat")


def person(person: str) -> LogId | None:
    """Return the name of a person, by ACI or number; None while there is no salt."""
    return _name(person, b"person")


def _name(value: str, kind: bytes) -> LogId | None:
    if _Salt.value is None:
        return None
    digest = blake2b(value.encode(), digest_size=DIGEST_BYTES, key=_Salt.value, person=kind)
    return LogId(digest.hexdigest())
