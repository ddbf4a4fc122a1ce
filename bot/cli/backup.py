"""`signal-tee-bot backup`: a copy of the store, also while the bot runs."""

import asyncio
from argparse import Namespace

from bot.cli.console import complain
from bot.cli.store_errors import said
from bot.config.loading import load_settings
from bot.store import store_key
from conversation_store.backup import backup
from conversation_store.connections import StoreError, WrongKey


def run(arguments: Namespace) -> bool:
    """Copy the store, and return whether that worked."""
    settings = load_settings()
    try:
        backup(settings.store.path, asyncio.run(store_key(settings)), arguments.file)
    except StoreError as error:
        why = said(error, settings) if isinstance(error, WrongKey) else error
        complain(f"backup: {why} (from {settings.store.path} to {arguments.file})")
        return False
    print(f"Copied to {arguments.file}")
    return True
