"""What `/readyz` and `/metrics` ask: Signal, the model, the store."""

import asyncio
import errno
import os
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Final

import structlog

from bot.config.settings import Settings
from bot.errors import BotError
from bot.llm.errors import LlmError
from bot.llm.model import Model
from bot.llm.models import Models
from bot.messaging.messenger import NOT_REGISTERED, Messenger
from bot.messaging.spawned import SpawnedSignalCli
from bot.observability import metrics
from bot.observability.health import Check, Health, health_server
from bot.wiring.models import OpenModels
from conversation_store.errors import StoreError
from conversation_store.models import StoreSizes
from conversation_store.store import ConversationStore

log = structlog.get_logger()

PING_SECONDS: Final = 3.0
MODEL_HEALTH_SECONDS: Final = 15.0
"""How long an answer of the model's endpoint counts before it is asked again."""

SIZES_SECONDS: Final = 2.0
"""How long a scrape waits for the store's sizes; after that it gets the previous ones."""

UNPROVEN: Final = (
    "Nothing is sent to the model: it is not verified, and ATTESTATION__MODEL_POLICY is require."
)

STUCK: Final = "The Signal side takes requests and does not answer; if that lasts, restart it."
SILENT: Final = "signal-cli does not answer; if that lasts, it is ended and started again."


@asynccontextmanager
async def open_health(
    settings: Settings,
    messenger: Messenger,
    store: ConversationStore,
    models: OpenModels,
    signal_cli: SpawnedSignalCli | None,
) -> AsyncIterator[None]:
    """Serve health and metrics, if the settings say where."""
    if not settings.health.listen:
        yield
        return
    checks = health_checks(
        messenger,
        store,
        models.models,
        proof_required=settings.attestation.model_policy == "require",
        signal_cli=signal_cli,
    )
    async with serve_health(settings.health.listen, checks, store) as port:
        log.info("health.listening", port=port)
        yield


@asynccontextmanager
async def serve_health(
    listen: str, checks: Mapping[str, Check], store: ConversationStore | None = None
) -> AsyncIterator[int]:
    """Serve health and metrics, with the sizes of a store if there is one; yield the port.

    Raises:
        BotError: the bot cannot listen on this address.
    """
    async with AsyncExitStack() as open_parts:
        exposition = partial(_exposition, store)
        server = health_server(listen=listen, checks=checks, metrics=exposition)
        try:
            port = await open_parts.enter_async_context(server)
        except OSError as error:
            reason = _reason(error)
            raise BotError(f"HEALTH__LISTEN: {listen} cannot be listened on: {reason}") from error
        yield port


def _reason(error: OSError) -> str:
    """Return the system's text without the details that Python adds."""
    if error.errno is not None and error.errno in errno.errorcode:
        return os.strerror(error.errno)
    return error.strerror or type(error).__name__


def health_checks(
    messenger: Messenger,
    store: ConversationStore,
    models: Models,
    *,
    proof_required: bool,
    signal_cli: SpawnedSignalCli | None = None,
) -> dict[str, Check]:
    """Return the checks of `/readyz` by name.

    Args:
        messenger: the Signal side.
        store: of the conversations.
        models: all of them.
        proof_required: nothing is sent to an unverified model.
        signal_cli: the process that the bot itself runs, if it does.
    """
    asked = {model.name: _ModelHealth(model, proof_required=proof_required) for model in models}

    async def model_health() -> Health:
        """Ask all at the same time; one that answers is enough where it may stand in."""
        found = await asyncio.gather(*(one.check() for one in asked.values()))
        by_name = dict(zip(asked, found, strict=True))
        for name, health in by_name.items():
            metrics.LLM_ENDPOINT_UP.labels(name).set(health.ok)
        can_answer = any(by_name[model.name].ok for model in models.route_of_default)
        if len(by_name) == 1:
            return found[0]
        details = (f"{name}: {health.detail}" for name, health in by_name.items())
        return Health(ok=can_answer, detail=" ".join(details))

    return {
        "signal": partial(_signal_health, messenger, signal_cli),
        "llm": model_health,
        "store": partial(_store_health, store),
    }


class _ModelHealth:
    """Asks a model's endpoint whether it is there, and not too often."""

    def __init__(self, model: Model, *, proof_required: bool) -> None:
        self._model = model
        self._proof_required = proof_required
        self._known = Health(ok=False, detail="Not asked yet.")
        self._asked_at = -MODEL_HEALTH_SECONDS

    async def check(self) -> Health:
        if self._proof_required and not self._model.proof.proven:
            return Health(ok=False, detail=UNPROVEN)
        if self._known.ok and time.monotonic() - self._asked_at < MODEL_HEALTH_SECONDS:
            return self._known
        self._asked_at = time.monotonic()
        client = self._model.client
        try:
            await client.models()
        except LlmError as error:
            self._known = Health(ok=False, detail=client.reach.explained(error))
        else:
            self._known = Health(ok=True, detail="The endpoint answers.")
        return self._known


async def _signal_health(messenger: Messenger, signal_cli: SpawnedSignalCli | None) -> Health:
    if signal_cli is not None and signal_cli.silent:
        return Health(ok=False, detail=SILENT)
    if messenger.stuck:
        return Health(ok=False, detail=STUCK)
    if messenger.unregistered:
        return Health(ok=False, detail=NOT_REGISTERED)
    if messenger.connected:
        return Health(ok=True, detail="Connected.")
    return Health(ok=False, detail="Not connected; trying again.")


async def _store_health(store: ConversationStore) -> Health:
    # A refused write waits in the store's queue, so no ping is added to it.
    if store.refusal is None:
        try:
            async with asyncio.timeout(PING_SECONDS):
                await store.upkeep.ping()
        except StoreError as error:
            return Health(ok=False, detail=str(error))
        except TimeoutError:
            if store.refusal is None:
                return Health(ok=False, detail=f"No write within {PING_SECONDS:g} seconds.")
    if store.refusal is not None:
        message = f"Nothing can be stored: {store.refusal}. No message is taken until it can."
        return Health(ok=False, detail=message)
    return Health(ok=True, detail="Takes what is to be stored.")


async def _exposition(store: ConversationStore | None) -> bytes:
    """Return all metrics, with those that are measured only when somebody asks."""
    metrics.TASKS.set(len(asyncio.all_tasks()))
    if store is not None:
        try:
            async with asyncio.timeout(SIZES_SECONDS):
                _show(await store.upkeep.sizes())
        except (StoreError, TimeoutError) as error:
            log.warning("health.sizes_unknown", error=type(error).__name__)
    # In a thread: with many tools this takes milliseconds, which would hold up the event loop.
    return await asyncio.to_thread(metrics.exposition)


def _show(sizes: StoreSizes) -> None:
    metrics.STORE_BYTES.labels("file").set(sizes.file_bytes)
    metrics.STORE_BYTES.labels("free").set(sizes.free_bytes)
    metrics.STORE_BYTES.labels("log").set(sizes.log_bytes)
    metrics.DISK_FREE_BYTES.set(sizes.disk_free_bytes)
    metrics.UNANSWERED.set(sizes.waiting_messages)
    metrics.UNSENT.set(sizes.waiting_sends)
    metrics.WAITING_SIGNATURES.set(sizes.waiting_signatures)
    oldest = sizes.oldest_waiting_at
    age = 0.0 if oldest is None else time.time() - oldest / 1_000
    metrics.OLDEST_UNANSWERED_SECONDS.set(max(0.0, age))
