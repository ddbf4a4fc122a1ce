"""Open the store by the settings: its key, and the secrets that it keeps for the bot."""

import secrets
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from hashlib import blake2b
from typing import Final

from bot.config.settings import Settings
from bot.observability import logs, metrics
from conversation_store.store import ConversationStore, open_store

FOLDER_KEY: Final = "workspace_key"
"""Name of the store's entry with the key that hashes the folders' names."""
FOLDER_KEY_BYTES: Final = 32
FOLDER_NAME_BYTES: Final = 16


async def store_key(settings: Settings) -> str | None:
    """Return the key of the store from its source in the settings.

    Raises:
        AgentError: the guest agent gives no key.
        SettingsError: the key would be lost.
    """
    if settings.store.key_source == "setting":
        key = settings.store.key
        return key.get_secret_value() if key is not None else None
    # Imported here: a bot without a guest agent saves 13 MB of cryptography.
    from bot.attestation.dstack import DstackAgent, derive_store_key  # noqa: PLC0415

    agent = DstackAgent(settings.attestation.dstack_socket)
    return await derive_store_key(agent, may_be_lost=settings.store.key_may_be_lost)


@asynccontextmanager
async def open_bot_store(
    settings: Settings, clock: Callable[[], float] = time.time
) -> AsyncIterator[ConversationStore]:
    """Open the store, count its commits in a metric, and take the log's salt from it."""
    async with open_store(
        settings.store.path,
        key=await store_key(settings),
        retention_days=settings.store.retention_days,
        clock=clock,
        committed=metrics.count_commit,
    ) as store:
        known = await store.get_metadata(logs.SALT_NAME)
        salt = logs.use_salt(known)
        if known is None:
            await store.set_metadata(logs.SALT_NAME, salt)
        yield store


async def folder_names(store: ConversationStore) -> Callable[[str], str]:
    """Return a function that names the folder of a chat by a keyed hash.

    The key is random, created once and kept in the store. BLAKE2b: RFC 7693.
    """
    known = await store.get_metadata(FOLDER_KEY)
    if known is None:
        known = secrets.token_hex(FOLDER_KEY_BYTES)
        await store.set_metadata(FOLDER_KEY, known)
    key = bytes.fromhex(known)
    return lambda chat: blake2b(chat.encode(), digest_size=FOLDER_NAME_BYTES, key=key).hexdigest()
