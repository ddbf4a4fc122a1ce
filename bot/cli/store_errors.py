"""The message about a store that cannot be used."""

from typing import Final

from bot.config.settings import Settings
from conversation_store.backup import is_plain
from conversation_store.errors import StoreError, WrongKey

PLAIN: Final = (
    "the store is not encrypted yet, but a key is set: signal-tee-bot encrypt encrypts it"
)
NO_KEY: Final = (
    "the store is encrypted, and no key is set: put the one that it was made with into .env"
)
OTHER_KEY: Final = (
    "the key does not fit, or the file is no database. Set the key that the store was made with; to"
    " change it on purpose: signal-tee-bot encrypt. If it is lost, so are the conversations: move"
    " {path} away, and the next start begins a new store"
)


def said(error: StoreError, settings: Settings) -> str:
    """Return what is wrong behind the name of its setting, and what to do."""
    if not isinstance(error, WrongKey):
        return f"STORE__PATH: {error}"
    return f"STORE__KEY: {_advice(settings)}"


def _advice(settings: Settings) -> str:
    if is_plain(settings.store.path):
        return PLAIN
    if settings.store.key is None and settings.store.key_source == "setting":
        return NO_KEY
    return OTHER_KEY.format(path=settings.store.path)
