"""`signal-tee-bot restore`: go back to a copy of the store."""

import asyncio
from argparse import Namespace
from typing import Final

from bot.cli.backup import account_of
from bot.cli.console import complain
from bot.config.loading import load_settings
from bot.signal import account_copy
from bot.store import store_key
from conversation_store.backup import is_plain, restore
from conversation_store.connections import StoreError, StoreLocked, WrongKey

NOT_ITS_KEY: Final = (
    "This file is no copy, or STORE__KEY is not its key. Set STORE__KEY to the key which the store"
    " had when the copy was made."
)
PLAIN_COPY: Final = (
    "This copy is not encrypted, and STORE__KEY is set. Take STORE__KEY out of the settings for a"
    " moment and run this again; then put it back, and signal-tee-bot encrypt encrypts the store."
)


def run(arguments: Namespace) -> bool:
    """Go back to a copy, and return whether that worked."""
    settings = load_settings()
    key = asyncio.run(store_key(settings))
    account = account_of(settings, key) if arguments.with_signal is not None else None
    try:
        restored = restore(settings.store.path, key, arguments.file)
    except StoreError as error:
        why = str(error)
        if isinstance(error, StoreLocked):
            why += ": stop the bot first"
        elif isinstance(error, WrongKey):
            why = PLAIN_COPY if is_plain(arguments.file) else NOT_ITS_KEY
        complain(f"restore: {why} (from {arguments.file} to {settings.store.path})")
        return False
    print(f"Restored from {arguments.file}")
    if restored.aside is not None:
        print(f"The store before is now {restored.aside}: delete it once it is not needed.")
    if restored.messages or restored.sends:
        print(
            "Not answered or sent again, because that may have happened after the copy was made:"
            f" {restored.messages} messages that waited, {restored.sends} on their way."
        )
    if account is not None:
        aside = account_copy.load(*account, arguments.with_signal)
        print(f"The Signal account is in {account[0]} again. Never run it in two places.")
        if aside is not None:
            print(f"The account before is now {aside}: delete it once it is not needed.")
    return True
