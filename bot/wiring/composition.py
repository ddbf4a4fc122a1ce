"""The bot, wired: every part is made from the settings in `wired`, and closed in reverse."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from bot import __version__, build
from bot.approvals.desk import ApprovalDesk
from bot.attestation.trust import Trust
from bot.chat.images.client import open_images
from bot.chat.images.viewer import ImageViewer
from bot.chat.rendering.client import open_renderer
from bot.commands.verify import Prover
from bot.config.settings import Settings
from bot.dispatch.background import upkeep
from bot.dispatch.background.alarm import Alarm
from bot.dispatch.background.expiry import Expiry
from bot.dispatch.background.file_cleanup import FileCleanup
from bot.dispatch.background.profile import ProfileKeeper, wanted_profile
from bot.dispatch.background.steady_clock import SteadyClock
from bot.dispatch.background.storage_watch import StorageWatch
from bot.dispatch.incoming import recovery
from bot.dispatch.incoming.access import Access
from bot.dispatch.incoming.changes import Changes
from bot.dispatch.incoming.groups import GroupPermissions, SignsByRights
from bot.dispatch.incoming.identities import Identities
from bot.dispatch.incoming.intake import Intake
from bot.dispatch.incoming.message_requests import MessageRequests
from bot.dispatch.incoming.pairing import Pairing
from bot.dispatch.incoming.still_welcome import StillWelcome
from bot.dispatch.mailboxes import Job, Mailboxes
from bot.dispatch.outgoing.doubts import Doubts
from bot.dispatch.outgoing.noted_sends import NotedSends
from bot.dispatch.outgoing.notices import Notices
from bot.dispatch.outgoing.outbox import Outbox
from bot.dispatch.outgoing.presence import Presence
from bot.dispatch.outgoing.proofs import AnswerProofs
from bot.dispatch.turns.batching import Batching
from bot.dispatch.turns.budget import TokenBudget
from bot.dispatch.turns.loop_guard import LoopGuard
from bot.dispatch.turns.requests import Request
from bot.dispatch.turns.router import Router
from bot.dispatch.turns.running import Turns
from bot.dispatch.turns.steering import Steering
from bot.language.languages import Languages
from bot.llm.models import Models
from bot.messaging.events import IdentityChanged, Person
from bot.messaging.messenger import Messenger
from bot.observability import log_ids, logs, metrics
from bot.observability.event_loop import measure_lag
from bot.wiring.asking import Asking
from bot.wiring.chat_commands import chat_commands
from bot.wiring.conversation import open_conversation
from bot.wiring.endpoint import OpenEndpoint, api_key
from bot.wiring.models import OpenModels, open_models, settings_of
from bot.wiring.parts import (
    access_rules,
    acknowledgements,
    make_messenger,
    spawned_signal_cli,
    store_key,
    tool_settings,
    workspace_names,
)
from bot.wiring.readiness import open_health
from bot.wiring.reload import Reload
from conversation_store.models import AcceptedMessage, ChatId
from conversation_store.store import ConversationStore, open_store
from sandbox.policy import SandboxPolicy
from tools.catalog import open_tools
from tools.probing import probe
from tools.registry import Registry
from tools.workspace.workspaces import Workspaces

Work = Callable[[], Coroutine[Any, Any, object]]


@dataclass(frozen=True, slots=True)
class Parts:
    """The wired bot, as `bot.app` runs it.

    Attributes:
        messenger: the Signal side; `intake` takes its messages, `doubts` its receipts.
        mailboxes: the ordinary lane.
        urgent: the lane of messages that may not wait.
        presence: shows typing, reactions and read receipts.
        resume: queues what an earlier process left; to be awaited before anything runs.
        background: runs as long as the bot.
        status: one line for the operator.
        reload: reads the settings anew.
    """

    messenger: Messenger
    intake: Intake
    doubts: Doubts
    mailboxes: Mailboxes
    urgent: Mailboxes
    presence: Presence
    resume: Work
    background: tuple[Work, ...]
    status: Callable[[], str]
    reload: Reload


@asynccontextmanager
async def wired(
    settings: Settings,
    trust: Trust,
    clock: SteadyClock | None = None,
    messenger: Messenger | None = None,
    *,
    to_operator: bool = False,
) -> AsyncIterator[Parts]:
    """Open and connect every part.

    Args:
        settings: of the bot.
        trust: whom verifications trust.
        clock: only tests give another than the machine's.
        messenger: carries the messages; None: the transport that SIGNAL__URL names.
        to_operator: whoever writes runs the bot, and is told why the model gives no answer.

    Raises:
        BotError: a part cannot start.
        StoreError: the store cannot be opened.
    """
    clock = clock or SteadyClock()
    tasks = asyncio.TaskGroup()
    async with AsyncExitStack() as stack:
        opened = stack.enter_async_context

        # What the bot stands on
        store = await opened(_store(settings, clock))
        models = await opened(
            open_models(settings, store, trust, clock=clock.time, to_operator=to_operator)
        )
        signal_cli = spawned_signal_cli(settings) if messenger is None else None
        messenger = messenger or make_messenger(settings)
        prover = await opened(_prover(settings, messenger, models.default, trust, clock))
        reload = Reload(settings, makes_proofs=prover is not None)
        await opened(open_health(settings, messenger, store, models, signal_cli))
        sandboxes = SandboxPolicy(required=settings.sandbox_required)
        registry, workspaces = await opened(_tools(settings, store, models.models, sandboxes))
        in_tee = prover is not None and await _can_quote(settings, trust)

        access, languages = Access(access_rules(settings)), Languages(store)

        # What goes out
        mailboxes, urgent = Mailboxes(tasks), Mailboxes(tasks, lane="urgent")
        group_permissions = GroupPermissions(
            messenger,
            store,
            number=settings.signal.phone_number,
            admins=lambda: access.admins,
        )
        presence = _presence(settings, messenger, group_permissions, tasks, clock)
        noted_sends = NotedSends(messenger, store)

        def look_at_key(chat: ChatId) -> None:
            new_key = IdentityChanged(settings.signal.phone_number, Person(chat.value))
            urgent.add(chat, Job(partial(identities.changed, new_key)))

        outbox = Outbox(messenger, store, untrusted=look_at_key)
        doubts = Doubts(messenger, store, outbox, reacts=lambda: presence.ack_reaction is not None)
        notices = Notices(
            store=store,
            mailboxes=mailboxes,
            outbox=outbox,
            languages=languages,
            admins=lambda: access.admins,
        )
        proofs = _answer_proofs(settings, models, store, mailboxes, outbox)

        # Who may talk
        pairing = Pairing(
            pairings=store.pairings,
            access=access,
            notes=notices,
            languages=languages,
            now_ms=clock.now_ms,
        )

        async def send_what_waited(person: str) -> None:
            chat = ChatId.direct(person)
            mailboxes.add(chat, Job(partial(outbox.deliver, outbox.take_back(chat))))

        identities = Identities(
            messenger,
            store,
            notices,
            policy=settings.signal.trust,
            on_trusted=send_what_waited,
            clock=clock.time,
        )
        loop_guard = LoopGuard(messages_per_minute=settings.access.messages_per_minute)

        # What asks people
        file_cleanup, renderer = FileCleanup(messenger), await opened(open_renderer(sandboxes))

        def queue(accepted: AcceptedMessage) -> None:
            changes.queue(Request(accepted, router.command_in(accepted.message)))

        asking = Asking.made_of(
            store=store,
            channel=noted_sends,
            is_admin=access.is_admin,
            languages=languages,
            file_cleanup=file_cleanup,
            quorum=settings.access.quorum,
            render=partial(renderer.messages, notices=()),
            queue=queue,
            clock=clock,
        )

        # What is said at its time
        expiry = Expiry(store, ended=asking.disappeared, clock=clock.past)
        alarm = Alarm(
            store.reminders,
            lane=urgent,
            turns=mailboxes,
            answering=lambda question: router.job(router.classify(question)),
            connection=messenger,
            outbox=outbox,
            is_welcome=StillWelcome(access, group_permissions, identities).is_welcome,
            languages=languages,
            disappears=expiry.at,
            clock=clock.time,
        )

        # What is answered
        turns = Turns(mailboxes, store, file_cleanup, asking.suspended)
        batching, steering = (
            Batching(mailboxes, settle_seconds=settings.bot.settle_seconds, clock=clock.time),
            Steering(mailboxes, identities, enabled=settings.bot.steering, clock=clock.time),
        )
        budget = TokenBudget(access, store.usage, clock=clock.time)
        conversation = await opened(
            open_conversation(
                settings,
                messenger=messenger,
                store=store,
                models=models,
                registry=registry,
                workspaces=workspaces,
                is_admin=access.is_admin,
                budget=budget,
                sandboxes=sandboxes,
                in_tee=in_tee,
                approvals=asking.approvals,
                people=asking.questions,
                renderer=renderer,
                noted_sends=noted_sends,
                presence=presence,
                proofs=proofs,
                languages=languages,
                clock=clock.time,
                to_operator=to_operator,
                reload=reload,
                reminders_changed=alarm.look,
            )
        )
        router = Router(
            commands=chat_commands(
                settings,
                store=store,
                messenger=messenger,
                models=models,
                prover=prover,
                registry=registry,
                workspaces=workspaces,
                sandboxes=sandboxes,
                access=access,
                identities=identities,
                pairing=pairing,
                turns=turns,
                clock=clock.time,
                languages=languages,
                reminders_changed=alarm.look,
            ),
            conversation=conversation,
            turns=turns,
            batching=batching,
            answers=asking.answers,
            suspended=asking.suspended,
            steering=steering,
            outbox=outbox,
            store=store,
            file_cleanup=file_cleanup,
            presence=presence,
            loop_guard=loop_guard,
            budget=budget,
            group_permissions=group_permissions,
            identity_policy=identities,
            languages=languages,
            clock=clock.time,
        )

        # What comes in
        changes = Changes(
            store=store,
            turns=turns,
            suspended=asking.suspended,
            mailboxes=mailboxes,
            urgent=urgent,
            router=router,
            file_cleanup=file_cleanup,
            is_group_admin=group_permissions.is_group_admin,
        )
        intake = Intake(
            access=access,
            store=store,
            answers=asking.answers,
            mailboxes=mailboxes,
            urgent=urgent,
            router=router,
            changes=changes,
            pairing=pairing,
            message_requests=MessageRequests(messenger, tasks),
            group_permissions=group_permissions,
            identities=identities,
            file_cleanup=file_cleanup,
            loop_guard=loop_guard,
            expiry=expiry,
            alarm=alarm,
            clock=clock,
        )
        reload.register(
            partial(_reload_access, access, asking.approvals, loop_guard),
            partial(_reload_manners, presence, batching, steering),
            partial(_reload_service, store, models),
        )

        # Entered last, so that no task outlives a part that it works with.
        await opened(tasks)
        yield Parts(
            messenger=messenger,
            intake=intake,
            doubts=doubts,
            mailboxes=mailboxes,
            urgent=urgent,
            presence=presence,
            resume=partial(
                _resume,
                languages,
                identities,
                pairing,
                partial(
                    recovery.resume,
                    store=store,
                    answers=asking.answers,
                    suspended=asking.suspended,
                    mailboxes=mailboxes,
                    urgent=urgent,
                    doubts=doubts,
                    router=router,
                    changes=changes,
                    file_cleanup=file_cleanup,
                ),
            ),
            background=(
                *((signal_cli.run,) if signal_cli is not None else ()),
                measure_lag,
                partial(upkeep.tend, store.upkeep, clock.past),
                *_tending_folders(settings, workspaces),
                partial(probe, registry),
                StorageWatch(store, messenger).run,
                doubts.run,
                expiry.run,
                alarm.run,
                asking.questions.run,
                asking.poll_ends.run,
                file_cleanup.run,
                _profile_keeper(settings, messenger, store).run,
                *(endpoint.keep_verified for endpoint in models.endpoints.values()),
                pairing.run,
                *((partial(_check_signatures, models, proofs),) if proofs is not None else ()),
            ),
            status=partial(_status, store, messenger, turns),
            reload=reload,
        )


async def _resume(
    languages: Languages, identities: Identities, pairing: Pairing, unfinished: Work
) -> None:
    """Know again what was known, then queue unfinished work."""
    await languages.resume()
    await identities.resume()
    await unfinished()
    await pairing.refresh()


@asynccontextmanager
async def _store(settings: Settings, clock: SteadyClock) -> AsyncIterator[ConversationStore]:
    """Open the store, and take from it what the log and the clock need."""
    async with open_store(
        settings.store.path,
        key=await store_key(settings),
        retention_days=settings.store.retention_days,
        clock=clock.time,
        committed=metrics.count_commit,
    ) as store:
        metrics.BUILD_INFO.labels(__version__, build.commit()).set(1)
        await log_ids.use_salt_of(store)
        clock.start_from(await store.upkeep.newest())
        yield store


@asynccontextmanager
async def _tools(
    settings: Settings, store: ConversationStore, models: Models, sandboxes: SandboxPolicy
) -> AsyncIterator[tuple[Registry, Workspaces | None]]:
    """Provide the tools, and the folders of chats; None where nobody has one."""
    wanted = tool_settings(settings)
    if wanted.workspaces is None:
        async with open_tools(wanted, sandboxes) as registry:
            yield registry, None
        return
    names = await workspace_names(store)
    async with (
        open_images(sandboxes=sandboxes) as images,
        Workspaces(wanted.workspaces, names, sandboxes, ImageViewer(models, images)) as workspaces,
        open_tools(wanted, sandboxes, workspaces=workspaces) as registry,
    ):
        yield registry, workspaces


def _tending_folders(settings: Settings, workspaces: Workspaces | None) -> Iterator[Work]:
    if workspaces is not None:
        yield partial(upkeep.tend_folders, workspaces, settings.store.retention_days)


@asynccontextmanager
async def _prover(
    settings: Settings,
    messenger: Messenger,
    endpoint: OpenEndpoint,
    trust: Trust,
    clock: SteadyClock,
) -> AsyncIterator[Prover | None]:
    """Provide what makes the bot's proofs; None without a guest agent."""
    metrics.IN_TEE.set(0)
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
    """Whether the guest agent quotes closed hardware; without that, the bot claims nothing."""
    from bot.wiring.prover import can_quote  # noqa: PLC0415 - as in bot.wiring.parts

    in_tee = await can_quote(settings, trust=trust)
    metrics.IN_TEE.set(in_tee)
    return in_tee


def _presence(
    settings: Settings,
    messenger: Messenger,
    group_permissions: GroupPermissions,
    tasks: asyncio.TaskGroup,
    clock: SteadyClock,
) -> Presence:
    ack_reaction, read_receipts = acknowledgements(settings)
    return Presence(
        SignsByRights(messenger, group_permissions),
        ack_reaction=ack_reaction,
        read_receipts=read_receipts,
        tasks=tasks,
        clock=clock.time,
    )


def _answer_proofs(
    settings: Settings,
    models: OpenModels,
    store: ConversationStore,
    mailboxes: Mailboxes,
    outbox: Outbox,
) -> AnswerProofs | None:
    """Return what checks the signatures of answers; None if no endpoint signs any."""
    signatures = {
        name: endpoint.signatures
        for name, endpoint in models.endpoints.items()
        if endpoint.signatures is not None
    }
    if not signatures:
        return None
    return AnswerProofs(
        signatures=signatures,
        store=store,
        mailboxes=mailboxes,
        outbox=outbox,
        warn=settings.attestation.model_policy == "require",
    )


def _profile_keeper(
    settings: Settings, messenger: Messenger, store: ConversationStore
) -> ProfileKeeper:
    bot = settings.bot
    profile = wanted_profile(
        name=bot.profile_name, about=bot.profile_about, picture=bot.profile_picture
    )
    return ProfileKeeper(messenger, store, profile)


async def _check_signatures(models: OpenModels, proofs: AnswerProofs) -> None:
    """Check the signatures of answers, once it is known whose signatures count."""
    for endpoint in models.endpoints.values():
        await endpoint.settled()
    await proofs.run()


def _status(store: ConversationStore, messenger: Messenger, turns: Turns) -> str:
    if store.refusal is not None:
        return f"Takes no messages: {store.refusal}."
    signal = "Connected to Signal" if messenger.connected else "Not connected to Signal"
    return f"{signal}; answers in progress: {turns.running}."


# What a reload changes


def _reload_access(
    access: Access, approvals: ApprovalDesk, loop_guard: LoopGuard, settings: Settings
) -> None:
    access.rules = access_rules(settings)
    approvals.quorum = settings.access.quorum
    loop_guard.messages_per_minute = settings.access.messages_per_minute


def _reload_manners(
    presence: Presence, batching: Batching, steering: Steering, settings: Settings
) -> None:
    presence.ack_reaction, presence.read_receipts = acknowledgements(settings)
    batching.settle_seconds = settings.bot.settle_seconds
    steering.enabled = settings.bot.steering


def _reload_service(store: ConversationStore, models: OpenModels, settings: Settings) -> None:
    logs.set_level(settings.log.level)
    store.retention_days = settings.store.retention_days
    for name, endpoint in models.endpoints.items():
        key = api_key(settings_of(settings, name))
        for use_key in endpoint.use_key:
            use_key(key)
