"""What `/readyz` asks: Signal, the model, the store."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Final

from bot.errors import BotError
from bot.llm.client import LlmClient
from bot.llm.errors import LlmError
from bot.messaging.messenger import Messenger
from bot.observability import metrics
from bot.observability.health import Check, Health, health_server
from conversation_store.errors import StoreError
from conversation_store.store import ConversationStore

PING_SECONDS: Final = 3.0
MODEL_HEALTH_SECONDS: Final = 60.0
"""How long what is known about the model's endpoint counts before it is asked again."""


@asynccontextmanager
async def serve_health(listen: str, checks: Mapping[str, Check]) -> AsyncIterator[None]:
    """Serve health and metrics; an address that cannot be had is the operator's to mend."""
    async with AsyncExitStack() as open_parts:
        server = health_server(listen=listen, checks=checks, metrics=metrics.exposition)
        try:
            await open_parts.enter_async_context(server)
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise BotError(f"HEALTH__LISTEN: {listen} cannot be listened on: {reason}") from error
        yield


def health_checks(
    messenger: Messenger, store: ConversationStore, model: LlmClient
) -> dict[str, Check]:
    """Return what is asked, by its name; each answers within a bound of its own."""

    async def signal_health() -> Health:
        if messenger.connected:
            return Health(ok=True, detail="Connected.")
        return Health(ok=False, detail="Not connected; trying again.")

    known = Health(ok=False, detail="Not asked yet.")
    asked_at = -MODEL_HEALTH_SECONDS

    async def model_health() -> Health:
        nonlocal known, asked_at
        if known.ok and time.monotonic() - asked_at < MODEL_HEALTH_SECONDS:
            return known
        asked_at = time.monotonic()
        try:
            await model.models()
        except LlmError as error:
            known = Health(
                ok=False, detail=f"The endpoint does not answer: {type(error).__name__}."
            )
        else:
            known = Health(ok=True, detail="The endpoint answers.")
        return known

    return {"signal": signal_health, "llm": model_health, "store": partial(_store_health, store)}


async def _store_health(store: ConversationStore) -> Health:
    # What is refused waits in the store, so nothing more is put there.
    if store.refusal is None:
        try:
            async with asyncio.timeout(PING_SECONDS):
                await store.ping()
        except StoreError as error:
            return Health(ok=False, detail=str(error))
        except TimeoutError:
            if store.refusal is None:
                return Health(ok=False, detail=f"No write within {PING_SECONDS:g} seconds.")
    if store.refusal is not None:
        words = f"Nothing can be stored: {store.refusal}. No message is taken until it can."
        return Health(ok=False, detail=words)
    return Health(ok=True, detail="Takes what is to be stored.")
