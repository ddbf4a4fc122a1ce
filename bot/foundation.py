"""The parts below the chat: store, models, Signal, proofs and tools."""

import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial

import structlog

from bot import __version__, built_from
from bot.attestation.trust import REAL, Trust
from bot.chat.media import open_images, view
from bot.commands.base import Prover, Tools
from bot.config.llm import DEFAULT
from bot.config.reload import Reload
from bot.config.settings import Settings
from bot.llm.messages import BYTES_PER_TOKEN
from bot.llm.models import Models
from bot.models import OpenEndpoint, open_models
from bot.observability import metrics
from bot.observability.health import Check, health_server, store_health
from bot.signal.messenger import Messenger
from bot.signal.spawned import SpawnedSignalCli
from bot.signal.transport import make_messenger, signal_health, spawned_signal_cli
from bot.store import folder_names, open_bot_store
from conversation_store.store import ConversationStore
from tools.base import MIN_LIMIT_BYTES
from tools.catalog import open_tools
from tools.sandbox.pool import SandboxPolicy
from tools.settings import MAX_RESULT_BYTES
from tools.workspace.workspaces import Workspaces

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Start:
    """The values with which a bot starts.

    Attributes:
        trust: the roots of verifications; only tests replace the real ones.
        clock: seconds since 1970; only tests replace the machine's.
        messenger: carries the messages; None: the transport that `SIGNAL__URL` names.
        to_operator: the people who write are operators, and learn why a model fails.
    """

    settings: Settings
    trust: Trust = REAL
    clock: Callable[[], float] = time.time
    messenger: Messenger | None = None
    to_operator: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Foundation:
    """The open parts below the chat.

    Attributes:
        endpoints: of the models, by model name.
        signal_cli: the process, if the bot starts signal-cli itself.
        prover: makes the bot's proofs; None without a guest agent.
        in_tee: whether the guest agent gives quotes of a trusted execution environment.
        result_limit_bytes: of a tool's result, as UTF-8: an eighth of the model's context.
    """

    start: Start
    store: ConversationStore
    models: Models
    endpoints: Mapping[str, OpenEndpoint]
    messenger: Messenger
    signal_cli: SpawnedSignalCli | None
    prover: Prover | None
    in_tee: bool
    tools: Tools
    result_limit_bytes: int
    reload: Reload


@asynccontextmanager
async def open_foundation(start: Start) -> AsyncIterator[Foundation]:
    """Open these parts, and serve health and metrics.

    Raises:
        BotError: a part cannot start.
        StoreError: the store cannot be opened.
    """
    settings, clock = start.settings, start.clock
    metrics.BUILD_INFO.labels(__version__, built_from()).set(1)
    async with AsyncExitStack() as stack:
        opened = stack.enter_async_context
        store = await opened(open_bot_store(settings, clock))
        models, endpoints = await opened(
            open_models(settings, store, start.trust, clock=clock, to_operator=start.to_operator)
        )
        signal_cli = spawned_signal_cli(settings) if start.messenger is None else None
        messenger = start.messenger or make_messenger(settings)
        prover, in_tee = await opened(_prover(start, messenger, endpoints[DEFAULT]))
        if settings.health.listen:
            checks: dict[str, Check] = {
                "signal": partial(signal_health, messenger, signal_cli),
                "llm": models.health,
                "store": partial(store_health, store),
            }
            server = health_server(
                listen=settings.health.listen,
                checks=checks,
                metrics=partial(metrics.measured, store),
            )
            log.info("health.listening", port=await opened(server))
        eighth = settings.llm.context_tokens * BYTES_PER_TOKEN // 8
        limit = min(MAX_RESULT_BYTES, max(MIN_LIMIT_BYTES, eighth))
        yield Foundation(
            start=start,
            store=store,
            models=models,
            endpoints=endpoints,
            messenger=messenger,
            signal_cli=signal_cli,
            prover=prover,
            tools=await opened(_tools(settings, store, models, limit)),
            in_tee=in_tee,
            result_limit_bytes=limit,
            reload=Reload(settings, makes_proofs=prover is not None),
        )


@asynccontextmanager
async def _tools(
    settings: Settings, store: ConversationStore, models: Models, limit: int
) -> AsyncIterator[Tools]:
    """Provide the tools, with the folders of chats if they have any."""
    sandboxes = SandboxPolicy(required=settings.sandbox_required)
    wanted = settings.tools
    async with AsyncExitStack() as stack:
        workspaces = None
        if wanted.in_use and wanted.workspace.for_ != "nobody":
            images = await stack.enter_async_context(open_images(sandboxes=sandboxes))
            workspaces = await stack.enter_async_context(
                Workspaces(
                    settings.workspaces_folder,
                    wanted.workspace,
                    await folder_names(store),
                    sandboxes,
                    partial(view, models, images),
                )
            )
        registry = await stack.enter_async_context(
            open_tools(
                wanted,
                sandboxes,
                servers=settings.mcp.servers,
                workspaces=workspaces,
                result_limit_bytes=limit,
            )
        )
        yield Tools(registry, sandboxes, workspaces)


@asynccontextmanager
async def _prover(
    start: Start, messenger: Messenger, endpoint: OpenEndpoint
) -> AsyncIterator[tuple[Prover | None, bool]]:
    """Provide the part that makes proofs, and whether the bot runs in a TEE that gives quotes."""
    metrics.IN_TEE.set(0)
    if not start.settings.attestation.has_agent:
        yield None, False
        return
    from bot.attestation.proof import can_quote, open_prover  # noqa: PLC0415 - as in bot.store

    proof, trust = endpoint.proof, start.trust
    async with open_prover(
        start.settings,
        messenger,
        proof.evidence,
        settled=proof.settled,
        trust=trust,
        clock=start.clock,
    ) as prover:
        in_tee = await can_quote(start.settings, trust=trust)
        metrics.IN_TEE.set(in_tee)
        yield Prover(prover.make), in_tee
