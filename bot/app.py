"""The one composition root: settings in, a running bot out.

Start: store, tools, model, mailboxes, unfinished work, then Signal. Stop, in this order, each
step bounded: no more work is begun and no more messages are taken; what was read is stored; turns
and sends in progress may finish within the grace time; what is left is interrupted (the store
knows where to go on); everything is closed. A second signal forces.
"""

import asyncio
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Final

import structlog
from pydantic import SecretStr

from bot import __version__
from bot.approvals import ApprovalDesk
from bot.attestation.trust import REAL, Trust
from bot.chat.handler import ChatHandler
from bot.chat.prompt import BYTES_PER_TOKEN, Prompt
from bot.commands import catalog as command_catalog
from bot.commands.clear import Clear
from bot.commands.models import Models
from bot.commands.status import Status
from bot.commands.stop import Stop
from bot.commands.tools import Tools
from bot.commands.verify import Prover, Verify
from bot.config import McpServerSettings, Settings, SignalSettings
from bot.dispatch import recovery
from bot.dispatch.access import Access
from bot.dispatch.intake import Intake
from bot.dispatch.mailboxes import Mailboxes
from bot.dispatch.outbox import Outbox
from bot.dispatch.proofs import AnswerProofs
from bot.dispatch.router import Router
from bot.dispatch.turns import Turns
from bot.endpoint import OpenEndpoint, has_to_prove, open_unproven
from bot.errors import BotError
from bot.llm.client import LlmClient
from bot.llm.errors import LlmError
from bot.messaging.messenger import Messenger
from bot.observability import metrics
from bot.observability.health import Check, Health, health_server
from conversation_store.errors import StoreError
from conversation_store.store import ConversationStore, open_store
from tools.catalog import CATALOG, open_tools
from tools.executor import ToolExecutor
from tools.probing import probe
from tools.rate_limits import RateLimits
from tools.registry import Registry
from tools.results import LEAST_LIMIT_BYTES
from tools.settings import (
    RESULT_LIMIT_BYTES,
    McpServer,
    SearchProvider,
    ToolSettings,
    WeatherSettings,
    WebSearchSettings,
)

log = structlog.get_logger()

GRACE_SECONDS: Final = 10.0

PURGE_EVERY_SECONDS: Final = 3_600.0
MODEL_HEALTH_SECONDS: Final = 60.0
"""How long what is known about the model's endpoint counts before it is asked again."""

THREAD_SWITCH_SECONDS: Final = 0.0005
"""The database's threads hand rows to the event loop; Python's default of 5 ms between two
threads would be added to a turn at every hand-over while the loop is busy."""


@dataclass(frozen=True, slots=True)
class _Parts:
    """What is running, wired."""

    messenger: Messenger
    intake: Intake
    mailboxes: Mailboxes
    urgent: Mailboxes
    resume: Callable[[], Awaitable[None]]
    store: ConversationStore
    registry: Registry
    endpoint: OpenEndpoint
    proofs: AnswerProofs | None


async def run_until_signalled(settings: Settings) -> None:
    """Be the daemon until SIGTERM or SIGINT; raises what `run` raises."""
    sys.setswitchinterval(THREAD_SWITCH_SECONDS)
    with _signals() as told_to_stop:
        await run(settings, told_to_stop=told_to_stop)


async def run(
    settings: Settings,
    *,
    told_to_stop: asyncio.Event,
    ready: Callable[[], None] = lambda: None,
    grace_seconds: float = GRACE_SECONDS,
    trust: Trust = REAL,
) -> None:
    """Be the bot until told to stop.

    Args:
        settings: everything there is to know.
        told_to_stop: begins the shutdown.
        ready: called once the bot takes messages.
        grace_seconds: how long turns and sends in progress may take to finish.
        trust: whom verifications trust; only tests give another than the real one.

    Raises:
        BotError: a part cannot start.
        StoreError: the store cannot be opened, or failed while running.
    """
    async with _wired(settings, trust) as parts:
        await parts.resume()
        async with asyncio.TaskGroup() as tasks:
            background = [
                tasks.create_task(work)
                for work in (
                    parts.messenger.run(parts.intake.deliver),
                    _purge_regularly(parts.store),
                    _probe_tools(parts.registry),
                    parts.endpoint.keep_verified(),
                    _check_signatures(parts),
                )
            ]
            log.info("app.started", version=__version__)
            ready()
            await told_to_stop.wait()
            log.info("app.stopping")
            await _wind_down(parts, grace_seconds)
            for task in background:
                task.cancel()
    log.info("app.stopped")


async def _probe_tools(registry: Registry) -> None:
    await probe(registry)


async def _check_signatures(parts: _Parts) -> None:
    """Check what endpoints sign, once it is known whose signatures count."""
    if parts.proofs is not None:
        await parts.endpoint.settled()
        await parts.proofs.run()


async def _wind_down(parts: _Parts, grace_seconds: float) -> None:
    """Take nothing more, begin nothing more, store what was read, let turns finish."""
    parts.mailboxes.wind_down()
    await parts.messenger.stop_receiving()
    try:
        async with asyncio.timeout(grace_seconds):
            await parts.mailboxes.drain()
            await parts.urgent.drain()
    except TimeoutError:
        log.warning("app.turns_interrupted")
    parts.mailboxes.cancel()
    parts.urgent.cancel()


@contextmanager
def _signals() -> Iterator[asyncio.Event]:
    """Turn the first SIGTERM or SIGINT into an event; the second ends the process as it is."""
    loop = asyncio.get_running_loop()
    told = asyncio.Event()

    def stop() -> None:
        if told.is_set():
            log.warning("app.forced")
            # Safe at any moment: the store is written as if every moment were the last.
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.raise_signal(signal.SIGTERM)
        told.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    try:
        yield told
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


@asynccontextmanager
async def _wired(settings: Settings, trust: Trust) -> AsyncIterator[_Parts]:
    """Build every part from the settings, lowest first, and close them in reverse."""
    async with AsyncExitStack() as open_parts:
        store = await open_parts.enter_async_context(
            open_store(
                settings.store.path,
                key=await store_key(settings),
                retention_days=settings.store.retention_days,
            )
        )
        endpoint = await open_parts.enter_async_context(open_endpoint(settings, trust=trust))
        messenger = make_messenger(settings.signal)
        prover = await open_parts.enter_async_context(_prover(settings, messenger, endpoint, trust))
        if settings.health.listen:
            checks = _health_checks(messenger, store, endpoint.client)
            await open_parts.enter_async_context(_health(settings.health.listen, checks))
        registry = await open_parts.enter_async_context(open_tools(tool_settings(settings)))
        tasks = await open_parts.enter_async_context(asyncio.TaskGroup())
        yield _wire(
            settings,
            store=store,
            registry=registry,
            endpoint=endpoint,
            prover=prover,
            in_tee=prover is not None and await _can_quote(settings, trust),
            messenger=messenger,
            tasks=tasks,
        )


@asynccontextmanager
async def _health(listen: str, checks: Mapping[str, Check]) -> AsyncIterator[None]:
    """Serve health and metrics; an address that cannot be had is the operator's to mend."""
    async with AsyncExitStack() as open_parts:
        server = health_server(listen=listen, checks=checks, metrics=metrics.exposition)
        try:
            await open_parts.enter_async_context(server)
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise BotError(f"HEALTH__LISTEN: {listen} cannot be listened on: {reason}") from error
        yield


def _wire(
    settings: Settings,
    *,
    store: ConversationStore,
    registry: Registry,
    endpoint: OpenEndpoint,
    prover: Prover | None,
    in_tee: bool,
    messenger: Messenger,
    tasks: asyncio.TaskGroup,
) -> _Parts:
    access = Access(
        policy=settings.access.policy,
        allowed=settings.access.allowed,
        admins=settings.access.admins,
        groups=settings.access.groups,
        messages_per_minute=settings.access.messages_per_minute,
    )
    mailboxes, urgent = Mailboxes(tasks), Mailboxes(tasks)
    turns = Turns(mailboxes, store)
    outbox = Outbox(messenger, store)
    approvals = ApprovalDesk(store=store, channel=messenger, is_admin=access.is_admin)
    proofs = _answer_proofs(settings, endpoint, store=store, mailboxes=mailboxes, outbox=outbox)
    conversation = ChatHandler(
        model=endpoint.client,
        model_name=settings.llm.model,
        prompt=Prompt(
            settings.llm.context_tokens,
            registry,
            system_prompt=settings.bot.system_prompt,
            in_tee=in_tee,
        ),
        registry=registry,
        executor=ToolExecutor(
            registry,
            limits=RateLimits(
                per_person=settings.tools.calls_per_minute,
                per_bot=settings.tools.calls_per_minute_total,
            ),
            timeout_seconds=settings.tools.timeout_seconds,
            result_limit_bytes=_result_limit(settings.llm.context_tokens),
        ),
        store=store,
        approvals=approvals,
        progress=messenger,
        keep_arguments=settings.tools.audit_arguments == "keep",
        proofs=proofs,
        max_tool_calls=settings.tools.max_tool_calls,
    )
    commands = command_catalog.build(
        (
            Clear(store, messenger, access),
            Models(endpoint.client, settings.llm.model),
            Tools(registry),
            Status(
                version=__version__,
                model=settings.llm.model,
                model_state=endpoint.proof,
                registry=registry,
                workload=turns,
            ),
            Stop(turns),
            Verify(prover, endpoint.proof, store),
        )
    )
    router = Router(
        commands=commands,
        conversation=conversation,
        turns=turns,
        approvals=approvals,
        outbox=outbox,
        store=store,
    )
    intake = Intake(
        access=access,
        store=store,
        approvals=approvals,
        mailboxes=mailboxes,
        urgent=urgent,
        router=router,
    )

    async def resume() -> None:
        await recovery.resume(
            store=store,
            approvals=approvals,
            mailboxes=mailboxes,
            urgent=urgent,
            outbox=outbox,
            router=router,
        )

    return _Parts(
        messenger=messenger,
        intake=intake,
        mailboxes=mailboxes,
        urgent=urgent,
        resume=resume,
        store=store,
        registry=registry,
        endpoint=endpoint,
        proofs=proofs,
    )


def _answer_proofs(
    settings: Settings,
    endpoint: OpenEndpoint,
    *,
    store: ConversationStore,
    mailboxes: Mailboxes,
    outbox: Outbox,
) -> AnswerProofs | None:
    """Return what checks the signatures of answers, where the endpoint signs them."""
    if endpoint.signatures is None:
        return None
    return AnswerProofs(
        signatures=endpoint.signatures,
        store=store,
        mailboxes=mailboxes,
        outbox=outbox,
        warn=settings.attestation.model_policy == "require",
    )


@asynccontextmanager
async def open_endpoint(settings: Settings, *, trust: Trust = REAL) -> AsyncIterator[OpenEndpoint]:
    """Open the model's endpoint, with proof of who reads along where it has to give some."""
    if has_to_prove(settings):
        # Imported here: who asks for no proof does without 13 MB of cryptography.
        from bot.attested_endpoint import open_attested  # noqa: PLC0415

        async with open_attested(settings, trust) as attested:
            yield attested
    else:
        async with open_unproven(settings) as unproven:
            yield unproven


@asynccontextmanager
async def _prover(
    settings: Settings, messenger: Messenger, endpoint: OpenEndpoint, trust: Trust
) -> AsyncIterator[Prover | None]:
    """Provide what makes the bot's proofs; None where there is no guest agent."""
    if not settings.attestation.has_agent:
        yield None
        return
    from bot.prover import open_prover  # noqa: PLC0415 - as above

    async with open_prover(settings, messenger, endpoint.proof.evidence, trust=trust) as prover:
        yield prover


async def _can_quote(settings: Settings, trust: Trust) -> bool:
    """Whether the guest agent makes quotes of closed hardware; else nothing is claimed of it."""
    from bot.prover import can_quote  # noqa: PLC0415 - as above

    return await can_quote(settings, trust=trust)


async def store_key(settings: Settings) -> str | None:
    """Return the key of the store, from where the settings say.

    Raises:
        AgentError: the guest agent does not give one.
        SettingsError: it gives one that would be lost.
    """
    if settings.store.key_source == "setting":
        return _secret(settings.store.key)
    from bot.attestation.dstack import DstackAgent  # noqa: PLC0415 - as above
    from bot.attestation.store_key import derive_store_key  # noqa: PLC0415

    agent = DstackAgent(settings.attestation.dstack_socket)
    return await derive_store_key(agent, may_be_lost=settings.store.key_may_be_lost)


def tool_settings(settings: Settings) -> ToolSettings:
    """Return which tools are wanted; none where the model could not call them anyway."""
    wanted = settings.tools
    if not wanted.enabled or wanted.max_tool_calls == 0:
        return ToolSettings(disabled=frozenset(CATALOG))
    switches = {
        "calculate": wanted.calculator.enabled,
        "current_time": wanted.current_time.enabled,
        "get_weather": wanted.weather.enabled,
        "web_search": wanted.web_search.enabled,
        "web_fetch": wanted.web_fetch.enabled,
    }
    return ToolSettings(
        disabled=frozenset(name for name, on in switches.items() if not on),
        weather=WeatherSettings(wanted.weather.geocoding_url, wanted.weather.forecast_url),
        web_search=WebSearchSettings(
            provider=SearchProvider(wanted.web_search.provider),
            api_key=_secret(wanted.web_search.api_key),
            url=wanted.web_search.url,
            max_results=wanted.web_search.max_results,
        ),
        mcp_servers=tuple(
            _mcp_server(name, server) for name, server in sorted(settings.mcp.servers.items())
        ),
        result_limit_bytes=_result_limit(settings.llm.context_tokens),
    )


def _mcp_server(name: str, server: McpServerSettings) -> McpServer:
    token = _secret(server.token)
    return McpServer(
        name=name,
        command=server.command,
        # Settings have no case, variables do: by custom they are upper case.
        environment={key.upper(): value.get_secret_value() for key, value in server.env.items()},
        url=server.url,
        headers={"Authorization": f"Bearer {token}"} if token else {},
        timeout_seconds=server.timeout_seconds,
    )


def _secret(value: SecretStr | None) -> str | None:
    return value.get_secret_value() if value is not None else None


def make_messenger(settings: SignalSettings) -> Messenger:
    """Return the transport that `SIGNAL__URL` names."""
    if settings.url.startswith(("http://", "https://")):
        # Imported here: signalbot costs 0.7 s and 25 MB that the daemon transport does not need.
        from bot.messaging.signal_rest import SignalRest  # noqa: PLC0415

        return SignalRest(settings.url, settings.phone_number)
    from bot.messaging.signal_daemon import SignalDaemon  # noqa: PLC0415

    return SignalDaemon(settings.url, settings.phone_number)


def _result_limit(context_tokens: int) -> int:
    """A tool's result takes an eighth of the context at the most."""
    eighth = context_tokens * BYTES_PER_TOKEN // 8
    return min(RESULT_LIMIT_BYTES, max(LEAST_LIMIT_BYTES, eighth))


def _health_checks(
    messenger: Messenger, store: ConversationStore, model: LlmClient
) -> dict[str, Check]:
    async def signal_health() -> Health:
        if messenger.connected:
            return Health(ok=True, detail="Connected.")
        return Health(ok=False, detail="Not connected; trying again.")

    async def store_health() -> Health:
        try:
            await store.ping()
        except StoreError as error:
            return Health(ok=False, detail=str(error))
        return Health(ok=True, detail="Answers.")

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

    return {"signal": signal_health, "llm": model_health, "store": store_health}


async def _purge_regularly(store: ConversationStore) -> None:
    while True:
        deleted = await store.purge()
        if deleted:
            log.info("store.purged", deleted=deleted)
        await asyncio.sleep(PURGE_EVERY_SECONDS)
