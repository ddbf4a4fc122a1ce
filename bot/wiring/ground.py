"""What the bot stands on: the parts that are opened, in order, and closed in reverse."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from bot import __version__, build
from bot.attestation.trust import Trust
from bot.chat.media import Media, open_media
from bot.chat.rendering.client import Renderer, open_renderer
from bot.commands.verify import Prover
from bot.config.settings import Settings
from bot.dispatch.background.steady_clock import SteadyClock
from bot.llm.vision import Vision
from bot.messaging.messenger import Messenger
from bot.messaging.spawned import SpawnedSignalCli
from bot.observability import log_ids, metrics
from bot.wiring.endpoint import OpenEndpoint
from bot.wiring.parts import (
    make_messenger,
    open_endpoint,
    spawned_signal_cli,
    store_key,
    tool_settings,
    words_limit,
)
from bot.wiring.readiness import health_checks, serve_health
from conversation_store.store import ConversationStore, open_store
from sandbox.policy import SandboxPolicy
from tools.catalog import open_tools
from tools.registry import Registry


@dataclass(frozen=True, slots=True)
class Ground:
    """The open parts, which know nothing of each other."""

    store: ConversationStore
    endpoint: OpenEndpoint
    vision: Vision
    media: Media
    signal_cli: SpawnedSignalCli | None
    renderer: Renderer
    messenger: Messenger
    prover: Prover | None
    in_tee: bool
    registry: Registry
    sandboxes: SandboxPolicy
    tasks: asyncio.TaskGroup
    clock: SteadyClock


@asynccontextmanager
async def open_ground(
    settings: Settings,
    trust: Trust,
    clock: SteadyClock | None,
    messenger: Messenger | None,
) -> AsyncIterator[Ground]:
    """Open what the bot stands on; see `composition.wired`."""
    clock = clock or SteadyClock()
    async with AsyncExitStack() as open_parts:
        store = await open_parts.enter_async_context(
            open_store(
                settings.store.path,
                key=await store_key(settings),
                retention_days=settings.store.retention_days,
                clock=clock.time,
                committed=metrics.count_commit,
            )
        )
        metrics.BUILD_INFO.labels(__version__, build.commit()).set(1)
        await log_ids.use_salt_of(store)
        clock.start_from(await store.upkeep.newest())
        endpoint = await open_parts.enter_async_context(
            open_endpoint(settings, trust=trust, clock=clock.time)
        )
        signal_cli = spawned_signal_cli(settings) if messenger is None else None
        messenger = messenger or make_messenger(settings)
        prover = await open_parts.enter_async_context(
            _prover(settings, messenger, endpoint, trust, clock)
        )
        if settings.health.listen:
            proof_required = settings.attestation.model_policy == "require"
            checks = health_checks(
                messenger,
                store,
                endpoint,
                proof_required=proof_required,
                signal_cli=signal_cli,
            )
            served = serve_health(settings.health.listen, checks, store)
            await open_parts.enter_async_context(served)
        vision = Vision(settings.llm.vision, endpoint.client)
        sandboxes = SandboxPolicy(required=settings.sandbox_required)
        media = await open_parts.enter_async_context(
            open_media(
                messenger,
                vision=vision,
                transcriber=endpoint.transcriber,
                words_bytes=words_limit(settings.llm.context_tokens),
                sandboxes=sandboxes,
            )
        )
        renderer = await open_parts.enter_async_context(open_renderer(sandboxes))
        registry = await open_parts.enter_async_context(
            open_tools(tool_settings(settings), sandboxes)
        )
        tasks = await open_parts.enter_async_context(asyncio.TaskGroup())
        ground = Ground(
            store=store,
            endpoint=endpoint,
            vision=vision,
            media=media,
            signal_cli=signal_cli,
            renderer=renderer,
            messenger=messenger,
            prover=prover,
            in_tee=prover is not None and await _can_quote(settings, trust),
            registry=registry,
            sandboxes=sandboxes,
            tasks=tasks,
            clock=clock,
        )
        metrics.IN_TEE.set(ground.in_tee)
        yield ground


@asynccontextmanager
async def _prover(
    settings: Settings,
    messenger: Messenger,
    endpoint: OpenEndpoint,
    trust: Trust,
    clock: SteadyClock,
) -> AsyncIterator[Prover | None]:
    """Provide what makes the bot's proofs; None where there is no guest agent."""
    if not settings.attestation.has_agent:
        yield None
        return
    from bot.wiring.prover import open_prover  # noqa: PLC0415 - as in bot.wiring.parts

    async with open_prover(
        settings,
        messenger,
        endpoint.proof.evidence,
        settled=endpoint.settled,
        trust=trust,
        clock=clock.time,
    ) as prover:
        yield prover


async def _can_quote(settings: Settings, trust: Trust) -> bool:
    """Whether the guest agent makes quotes of closed hardware; else nothing is claimed of it."""
    from bot.wiring.prover import can_quote  # noqa: PLC0415 - as in bot.wiring.parts

    return await can_quote(settings, trust=trust)
