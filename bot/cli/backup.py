"""`signal-tee-bot backup`: a copy of the store, also while the bot runs."""

import asyncio
from argparse import Namespace
from pathlib import Path

from bot.cli.console import complain
from bot.cli.store_errors import said
from bot.config.loading import load_settings
from bot.config.settings import Settings
from bot.errors import SettingsError
from bot.signal import account_copy
from bot.signal.transport import accounts_folder
from bot.store import store_key
from conversation_store.backup import backup
from conversation_store.connections import StoreError, WrongKey


def run(arguments: Namespace) -> bool:
    """Copy the store, and return whether that worked."""
    settings = load_settings()
    key = asyncio.run(store_key(settings))
    account = account_of(settings, key) if arguments.with_signal is not None else None
    try:
        backup(settings.store.path, key, arguments.file)
    except StoreError as error:
        why = said(error, settings) if isinstance(error, WrongKey) else error
        complain(f"backup: {why} (from {settings.store.path} to {arguments.file})")
        return False
    print(f"Copied to {arguments.file}")
    if account is not None:
        print(f"The Signal account: {account_copy.save(*account, arguments.with_signal)}")
    return True


def account_of(settings: Settings, key: str | None) -> tuple[Path, str]:
    """Return signal-cli's folder, and the key of the account's copy; raises SettingsError."""
    folder = accounts_folder(settings)
    if folder is None:
        raise SettingsError("SIGNAL__DATA_DIR: --with-signal needs signal-cli's folder")
    if key is None:
        raise SettingsError("STORE__KEY: --with-signal needs it: the copy has the account's keys")
    return folder, key
