"""The message about a store that cannot be used."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from bot.config.settings import Settings
from bot.errors import BotError
from conversation_store.backup import is_plain
from conversation_store.connections import StoreError, StoreLocked, WrongKey

PLAIN: Final = (
    "the store is not encrypted yet, but a key is set: signal-tee-bot encrypt encrypts it"
)
NO_KEY: Final = (
    "the store is encrypted, and no key is set: put the one that it was made with into .env; or the"
    " file is no database: name another one, such as data/conversations.db"
)
IS_FOLDER: Final = (
    "{path} is a folder, and no store of this bot: move it away, or name another file, such as"
    " data/conversations.db"
)
MEND_PATH: Final = "a file in a folder that the bot may read and write is needed: {path}: {error}"
OTHER_KEY: Final = (
    "the key does not fit, or the file is no database. Set the key that the store was made with; to"
    " change it on purpose: signal-tee-bot encrypt. If it is lost, so are the conversations: move"
    " {path} away, and the next start begins a new store"
)


@contextmanager
def explained(settings: Settings) -> Iterator[None]:
    """Turn a StoreError inside the block into a BotError with `said`."""
    try:
        yield
    except StoreError as error:
        raise BotError(said(error, settings)) from error


def said(error: StoreError, settings: Settings) -> str:
    """Return the setting, the problem and the remedy."""
    if isinstance(error, WrongKey):
        return f"STORE__KEY: {_about_key(settings)}"
    path = settings.store.path
    if isinstance(error, StoreLocked):
        stop = "stop that process first; it may be a running bot"
        return f"STORE__PATH: {error}; {stop} ({path})"
    if "cannot be opened" not in str(error):
        return f"STORE__PATH: {error} ({path})"
    with suppress(OSError):  # a folder above it is closed to the bot
        if path.is_dir():
            return f"STORE__PATH: {IS_FOLDER.format(path=path)}"
    return f"STORE__PATH: {MEND_PATH.format(error=error, path=path)}"


def _about_key(settings: Settings) -> str:
    if is_plain(settings.store.path):
        return PLAIN
    if settings.store.key is None and settings.store.key_source == "setting":
        return NO_KEY
    return OTHER_KEY.format(path=settings.store.path)
