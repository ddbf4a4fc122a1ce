"""`signal-tee-bot encrypt`: encrypt a plain store, or change its key, while no bot runs."""

import asyncio
import secrets
from argparse import Namespace
from typing import Final

from bot.cli.account_setup import UNKNOWN_NUMBER
from bot.cli.console import Console
from bot.cli.env import ENV_FILE, add_setting, read_key
from bot.cli.store_errors import said
from bot.config.loading import load_settings
from bot.errors import BotError
from bot.store import store_key
from conversation_store.backup import encrypt, is_plain, is_there, key_fits, upgrade_is_due
from conversation_store.connections import StoreError, StoreLocked, WrongKey
from conversation_store.database import locked

KEY_BYTES: Final = 32

NEW_KEY: Final = (
    f"Made STORE__KEY, in {ENV_FILE}. Keep a copy of it elsewhere: without it, nobody can read the"
    " conversations again."
)
NO_STORE: Final = "There are no conversations yet. The first start encrypts them with STORE__KEY."
SAME_KEY: Final = (
    "The store is encrypted with STORE__KEY already. To change the key, put another one into .env"
    " and run this again: it asks for the present one."
)
ENCRYPTED: Final = (
    "The store is encrypted with STORE__KEY now. Backups and copies from before are as they were;"
    " signal-tee-bot check names those next to the store."
)
NOT_THE_OLD_KEY: Final = "That is not the key that the store has now; nothing was changed."
OLD_KEY: Final = "The key that the store has now (it is not shown):"


def run(arguments: Namespace) -> None:
    """Encrypt the store with the key of the settings."""
    settings = load_settings({"signal": {"phone_number": UNKNOWN_NUMBER}})
    path, key = settings.store.path, asyncio.run(store_key(settings))
    file = arguments.old_key_file
    old_key_in_file = read_key("--old-key-file", file) if file else None
    try:
        present, plain = is_there(path), is_plain(path)
        if key is None:
            if present and not plain:
                raise WrongKey
            if present:
                # With a key for a plain store, a bot that runs now could not start again. For a
                # store of another build, the key would be of no use.
                with locked(path):
                    upgrade_is_due(path, None)
            key = secrets.token_hex(KEY_BYTES)
            # Before the store: a crash in between must not lose the only key.
            add_setting("STORE__KEY", key)
            print(NEW_KEY)
        if not present:
            print(NO_STORE)
        elif not plain and key_fits(path, key):
            print(SAME_KEY)
        else:
            old_key = None
            if not plain:
                old_key = old_key_in_file or asyncio.run(Console().ask(OLD_KEY, secret=True))
            if old_key is not None and not key_fits(path, old_key):
                raise BotError(NOT_THE_OLD_KEY)
            encrypt(path, old_key, key)
            print(ENCRYPTED)
    except StoreLocked as error:
        raise BotError(f"{error}: stop the bot first") from error
    except StoreError as error:
        raise BotError(said(error, settings)) from error
