"""Names by which the log tells chats and people apart without telling who they are.

A name is a keyed hash (BLAKE2b, RFC 7693) whose key is a random salt of this install, kept in its
store: one conversation can be followed through the log, also over restarts, and nobody who has
the log alone can try numbers until one fits.
"""

import secrets
from hashlib import blake2b
from typing import Final, Protocol

METADATA_NAME: Final = "log_salt"
SALT_BYTES: Final = 32
DIGEST_BYTES: Final = 4
"""Enough to tell the chats of one bot apart, and short enough to be read and searched for."""


class LogId(str):
    """Eight hexadecimal characters that stand for a chat or a person. Made here only."""

    __slots__ = ()


class Metadata(Protocol):
    """What an install remembers about itself. Implemented by `ConversationStore`."""

    async def get_metadata(self, name: str) -> str | None:
        """Return what is known by a name."""
        ...

    async def set_metadata(self, name: str, value: str) -> None:
        """Remember a value by a name."""
        ...


class _Salt:
    """The salt of this process, as the configuration of its log is one for the whole process."""

    value: bytes | None = None


async def use_salt_of(metadata: Metadata) -> None:
    """Take the install's salt, or give it one; before that, no chat and no person has a name."""
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
