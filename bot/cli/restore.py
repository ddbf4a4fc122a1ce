"""`signal-tee-bot restore`: go back to a copy of the store."""

import asyncio
import sys
from argparse import Namespace
from typing import Final

from bot.cli.exit_codes import FAILED, OK
from bot.config.loading import load_settings
from bot.store import store_key
from conversation_store.backup import restore
from conversation_store.connections import StoreError, StoreLocked, WrongKey

OTHER_KEY: Final = (
    "This file is no copy, or STORE__KEY is not its key. Set STORE__KEY to the key which the store"
    " had when the copy was made."
)


def run(arguments: Namespace) -> int:
    """Go back to a copy; return the exit code."""
    settings = load_settings()
    try:
        restored = restore(settings.store.path, asyncio.run(store_key(settings)), arguments.file)
    except StoreLocked as error:
        print(f"restore: {error}: stop the bot first", file=sys.stderr)
        return FAILED
    except StoreError as error:
        print(f"restore: {OTHER_KEY if isinstance(error, WrongKey) else error}", file=sys.stderr)
        return FAILED
    print(f"Restored from {arguments.file}")
    if restored.aside is not None:
        print(f"The store before is now {restored.aside}: delete it once it is not needed.")
    if restored.messages or restored.sends:
        print(
            "Not answered or sent again, because that was done after the copy was made:"
            f" {restored.messages} messages that waited, {restored.sends} on their way."
        )
    return OK
