"""The bot, wired: every part built from the settings, lowest first, and closed in reverse."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import structlog

from bot import __version__
from bot.approvals import ApprovalDesk
from bot.attestation.trust import Trust
from bot.chat.handler import ChatHandler
from bot.chat.media import Media, open_media
from bot.chat.prompt import Prompt
from bot.commands import catalog as command_catalog
from bot.commands.base import Command
from bot.commands.clear import Clear
from bot.commands.models import Models
from bot.commands.pair import Pair
from bot.commands.status import Status
from bot.commands.stop import Stop
from bot.commands.tools import Tools
from bot.commands.trust import Trust as TrustCommand
from bot.commands.verify import Prover, Verify
from bot.config import Settings
from bot.dispatch import recovery
from bot.dispatch.access import Access
from bot.dispatch.changes import Changes
from bot.dispatch.discards import Discards
from bot.dispatch.expiry import Expiry
from bot.dispatch.groups import GroupRooms, SignsByRights
from bot.dispatch.guests import Guests
from bot.dispatch.identities import Identities
from bot.dispatch.intake import Intake
from bot.dispatch.loop_guard import LoopGuard
from bot.dispatch.mailboxes import Job, Mailboxes
from bot.dispatch.message_requests import MessageRequests
from bot.dispatch.notices import Notices
from bot.dispatch.outbox import Outbox
from bot.dispatch.pairing import Pairing
from bot.dispatch.pieces import Pieces
from bot.dispatch.presence import Presence
from bot.dispatch.profile import ProfileKeeper, wanted_profile
from bot.dispatch.proofs import AnswerProofs
from bot.dispatch.router import Router
from bot.dispatch.turns import Turns
from bot.endpoint import OpenEndpoint
from bot.llm.vision import Vision
from bot.messaging.events import ChatId, ChatKind, IdentityChanged, Person
from bot.messaging.messenger import Messenger
from bot.parts import (
    make_messenger,
    open_endpoint,
    result_limit,
    spawned_signal_cli,
    store_key,
    tool_settings,
    words_limit,
)
from bot.readiness import health_checks, serve_health
from conversation_store.store import ConversationStore, open_store
from tools.catalog import open_tools
from tools.executor import ToolExecutor
from tools.probing import probe
from tools.rate_limits import RateLimits
from tools.registry import Registry

Work = Callable[[], Coroutine[Any, Any, None]]

log = structlog.get_logger()

PURGE_EVERY_SECONDS: Final = 3_600.0


@dataclass(frozen=True, slots=True)
class Parts:
    """What is running, wired.

    Attributes:
        messenger: the Signal side; `intake` takes what comes from it.
        mailboxes: the ordinary lane.
        urgent: the lane of what may not wait.
        presence: gives signs of life.
        resume: queues what an earlier process has left; to be awaited before anything runs.
        background: what runs beside, as long as the bot runs.
    """

    messenger: Messenger
    intake: Intake
    mailboxes: Mailboxes
    urgent: Mailboxes
    presence: Presence
    resume: Work
    background: tuple[Work, ...]


@dataclass(frozen=True, slots=True)
class _Ground:
    """What the bot stands on: the open parts that know nothing of each other."""

    store: ConversationStore
    endpoint: OpenEndpoint
    vision: Vision
    media: Media
    messenger: Messenger
    prover: Prover | None
    in_tee: bool
    registry: Registry
    tasks: asyncio.TaskGroup


@asynccontextmanager
async def wired(settings: Settings, trust: Trust) -> AsyncIterator[Parts]:
    """Open and connect every part; what was opened is closed in reverse.

    Raises:
        BotError: a part cannot start.
        StoreError: the store cannot be opened.
    """
    async with AsyncExitStack() as open_parts:
        store = await open_parts.enter_async_context(
            open_store(
                settings.store.path,
                key=await store_key(settings),
                retention_days=settings.store.retention_days,
            )
        )
        endpoint = await open_parts.enter_async_context(open_endpoint(settings, trust=trust))
        messenger = make_messenger(settings)
        prover = await open_parts.enter_async_context(_prover(settings, messenger, endpoint, trust))
        if settings.health.listen:
            checks = health_checks(messenger, store, endpoint.client)
            await open_parts.enter_async_context(serve_health(settings.health.listen, checks))
        vision = Vision(settings.llm.vision, endpoint.client)
        media = await open_parts.enter_async_context(
            open_media(
                messenger,
                vision=vision,
                transcriber=endpoint.transcriber,
                words_bytes=words_limit(settings.llm.context_tokens),
            )
        )
        registry = await open_parts.enter_async_context(open_tools(tool_settings(settings)))
        tasks = await open_parts.enter_async_context(asyncio.TaskGroup())
        ground = _Ground(
            store=store,
            endpoint=endpoint,
            vision=vision,
            media=media,
            messenger=messenger,
            prover=prover,
            in_tee=prover is not None and await _can_quote(settings, trust),
            registry=registry,
            tasks=tasks,
        )
        yield _wire(settings, ground)


def _wire(settings: Settings, ground: _Ground) -> Parts:
    store, messenger, tasks = ground.store, ground.messenger, ground.tasks
    access = _access(settings)
    mailboxes, urgent = Mailboxes(tasks), Mailboxes(tasks)
    discards = Discards(messenger)
    turns = Turns(mailboxes, store, discards)

    def look_at_key(chat: str) -> None:
        peer = ChatId.parse(chat)
        if peer.is_group:
            return
        person = Person(peer.value)
        new_key = IdentityChanged(settings.signal.phone_number, person)
        urgent.add(person.aci, Job(partial(identities.changed, new_key)))

    outbox = Outbox(messenger, store, untrusted=look_at_key)
    notices = Notices(
        store=store, mailboxes=mailboxes, outbox=outbox, admins=settings.access.admins
    )
    approvals = ApprovalDesk(store=store, channel=messenger, is_admin=access.is_admin)
    proofs = _answer_proofs(settings, ground, mailboxes=mailboxes, outbox=outbox)
    pairing = Pairing(pairings=store.pairings, access=access, notes=notices)
    loop_guard = LoopGuard(messages_per_minute=settings.access.messages_per_minute)
    rooms = GroupRooms(
        messenger, store, number=settings.signal.phone_number, admins=settings.access.admins
    )

    async def send_what_waited(person: str) -> None:
        chat = str(ChatId(ChatKind.DIRECT, person))
        mailboxes.add(chat, Job(partial(outbox.deliver, outbox.take_back(chat))))

    identities = Identities(
        messenger, store, notices, policy=settings.signal.trust, on_trusted=send_what_waited
    )
    presence = Presence(
        SignsByRights(messenger, rooms),
        # Nobody marks the own notes of the account's owner.
        ack_reaction=None if settings.access.note_to_self else settings.bot.ack_reaction,
        read_receipts=settings.bot.read_receipts and not settings.access.note_to_self,
        tasks=tasks,
    )
    router = Router(
        commands=_commands(
            settings,
            ground,
            access=access,
            turns=turns,
            pairing=pairing,
            identities=identities,
        ),
        conversation=_conversation(settings, ground, approvals, proofs, presence),
        turns=turns,
        pieces=Pieces(mailboxes, settle_seconds=settings.bot.settle_seconds),
        approvals=approvals,
        outbox=outbox,
        store=store,
        discards=discards,
        presence=presence,
        loop_guard=loop_guard,
        rooms=rooms,
        doorkeeper=identities,
    )
    changes = Changes(
        store=store,
        turns=turns,
        mailboxes=mailboxes,
        urgent=urgent,
        router=router,
        discards=discards,
        is_group_admin=rooms.is_group_admin,
    )
    expiry = Expiry(store)
    intake = Intake(
        access=access,
        store=store,
        approvals=approvals,
        mailboxes=mailboxes,
        urgent=urgent,
        router=router,
        changes=changes,
        guests=Guests(
            pairing=pairing if access.pairing else None,
            requests=MessageRequests(messenger, tasks),
            rooms=rooms,
            identities=identities,
        ),
        discards=discards,
        loop_guard=loop_guard,
        expiry=expiry,
    )

    async def resume() -> None:
        await identities.resume()
        await recovery.resume(
            store=store,
            approvals=approvals,
            mailboxes=mailboxes,
            urgent=urgent,
            outbox=outbox,
            router=router,
            changes=changes,
            discards=discards,
        )
        await pairing.refresh()

    return Parts(
        messenger=messenger,
        intake=intake,
        mailboxes=mailboxes,
        urgent=urgent,
        presence=presence,
        resume=resume,
        background=tuple(
            _background(
                settings, ground, pairing if access.pairing else None, expiry, proofs, discards
            )
        ),
    )


def _background(
    settings: Settings,
    ground: _Ground,
    pairing: Pairing | None,
    expiry: Expiry,
    proofs: AnswerProofs | None,
    discards: Discards,
) -> Iterator[Work]:
    """What runs beside the taking and answering of messages."""
    signal_cli = spawned_signal_cli(settings)
    if signal_cli is not None:
        yield signal_cli.run
    yield partial(_purge_regularly, ground.store)
    yield partial(_probe_tools, ground.registry)
    yield expiry.run
    yield discards.run
    yield _profile_keeper(settings, ground).run
    yield ground.endpoint.keep_verified
    if pairing is not None:
        yield pairing.run
    if proofs is not None:
        yield partial(_check_signatures, ground.endpoint, proofs)


def _profile_keeper(settings: Settings, ground: _Ground) -> ProfileKeeper:
    bot = settings.bot
    profile = wanted_profile(
        name=bot.profile_name, about=bot.profile_about, picture=bot.profile_picture
    )
    return ProfileKeeper(ground.messenger, ground.store, profile)


def _access(settings: Settings) -> Access:
    wanted = settings.access
    # In the note to self there is nobody but the account's owner.
    owner = frozenset({settings.signal.phone_number} if wanted.note_to_self else ())
    return Access(
        policy="open" if wanted.note_to_self else wanted.policy,
        allowed=wanted.allowed,
        admins=wanted.admins | owner,
        groups=wanted.groups,
        messages_per_minute=wanted.messages_per_minute,
    )


def _conversation(
    settings: Settings,
    ground: _Ground,
    approvals: ApprovalDesk,
    proofs: AnswerProofs | None,
    presence: Presence,
) -> ChatHandler:
    tools = settings.tools
    return ChatHandler(
        model=ground.endpoint.client,
        model_name=settings.llm.model,
        prompt=Prompt(
            settings.llm.context_tokens,
            ground.registry,
            system_prompt=settings.bot.system_prompt,
            in_tee=ground.in_tee,
        ),
        registry=ground.registry,
        executor=ToolExecutor(
            ground.registry,
            limits=RateLimits(
                per_person=tools.calls_per_minute, per_bot=tools.calls_per_minute_total
            ),
            timeout_seconds=tools.timeout_seconds,
            result_limit_bytes=result_limit(settings.llm.context_tokens),
        ),
        store=ground.store,
        approvals=approvals,
        media=ground.media,
        eyes=ground.vision,
        progress=ground.messenger,
        progress_shown=presence.message_sent,
        keep_arguments=tools.audit_arguments == "keep",
        proofs=proofs,
        max_tool_calls=tools.max_tool_calls,
    )


def _commands(
    settings: Settings,
    ground: _Ground,
    *,
    access: Access,
    turns: Turns,
    pairing: Pairing,
    identities: Identities,
) -> dict[str, Command]:
    return command_catalog.build(
        (
            Clear(ground.store, ground.messenger, access),
            Models(ground.endpoint.client, settings.llm.model),
            Tools(ground.registry),
            Status(
                version=__version__,
                model=settings.llm.model,
                model_state=ground.endpoint.proof,
                registry=ground.registry,
                workload=turns,
            ),
            Stop(turns),
            Verify(ground.prover, ground.endpoint.proof, ground.store),
        ),
        for_admins=(
            *([Pair(pairing, access)] if access.pairing else []),
            TrustCommand(identities, access),
        ),
        admins=access,
    )


def _answer_proofs(
    settings: Settings, ground: _Ground, *, mailboxes: Mailboxes, outbox: Outbox
) -> AnswerProofs | None:
    """Return what checks the signatures of answers, where the endpoint signs them."""
    if ground.endpoint.signatures is None:
        return None
    return AnswerProofs(
        signatures=ground.endpoint.signatures,
        store=ground.store,
        mailboxes=mailboxes,
        outbox=outbox,
        warn=settings.attestation.model_policy == "require",
    )


async def _check_signatures(endpoint: OpenEndpoint, proofs: AnswerProofs) -> None:
    """Check what endpoints sign, once it is known whose signatures count."""
    await endpoint.settled()
    await proofs.run()


async def _probe_tools(registry: Registry) -> None:
    await probe(registry)


async def _purge_regularly(store: ConversationStore) -> None:
    while True:
        deleted = await store.purge()
        if deleted:
            log.info("store.purged", deleted=deleted)
        await asyncio.sleep(PURGE_EVERY_SECONDS)


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
