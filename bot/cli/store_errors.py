"""The message about a store that cannot be used."""

from pathlib import Path
from typing import Final

from bot.config.settings import Settings
from conversation_store.backup import is_plain
from conversation_store.connections import StoreError, StoreFailed, StoreLocked, WrongKey

SMALLEST_PAGE_BYTES: Final = 512

PLAIN: Final = (
    "the store is not encrypted yet, but a key is set: signal-tee-bot encrypt encrypts it"
)
NO_KEY: Final = (
    "the store is encrypted, and no key is set: put the one that it was made with into .env"
)
NO_STORE: Final = (
    "{path} is {what}, and no store of this bot: move it away, or name another file, such as"
    " data/conversations.db"
)
MEND_PATH: Final = "a file in a folder that the bot may read and write is needed: {error}"
OTHER_KEY: Final = (
    "the key does not fit, or the file is no database. Set the key that the store was made with; to"
    " change it on purpose: signal-tee-bot encrypt. If it is lost, so are the conversations: move"
    " {path} away, and the next start begins a new store"
)


def said(error: StoreError, settings: Settings) -> str:
    """Return the setting, the problem and the remedy."""
    if (what := _no_store(settings.store.path)) is not None:
        return f"STORE__PATH: {NO_STORE.format(path=settings.store.path, what=what)}"
    if isinstance(error, StoreLocked):
        return f"STORE__PATH: {error}; stop that one first, perhaps a bot that runs already"
    if isinstance(error, StoreFailed) and "cannot be opened" in str(error):
        return f"STORE__PATH: {MEND_PATH.format(error=error)}"
    if not isinstance(error, WrongKey):
        return f"STORE__PATH: {error}"
    return f"STORE__KEY: {_advice(settings)}"


def _no_store(path: Path) -> str | None:
    """Return the kind of thing at the path if it cannot be a store, or None."""
    try:
        if path.is_dir():
            return "a folder"
        # SQLite's file, encrypted or not, consists of whole pages.
        is_odd = path.is_file() and path.stat().st_size % SMALLEST_PAGE_BYTES
    except OSError:
        return None
    return "no database" if is_odd else None


def _advice(settings: Settings) -> str:
    if is_plain(settings.store.path):
        return PLAIN
    if settings.store.key is None and settings.store.key_source == "setting":
        return NO_KEY
    return OTHER_KEY.format(path=settings.store.path)
