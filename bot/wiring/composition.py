"""The bot, wired: every part built from the settings, lowest first, and closed in reverse."""

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from bot.approvals import ApprovalDesk
from bot.attestation.trust import Trust
from bot.chat.handler import ChatHandler
from bot.chat.prompt import Prompt
from bot.chat.tool_loop import ToolLoop
from bot.chat.turn_context import TurnContexts
from bot.config.settings import Settings
from bot.dispatch.background import upkeep
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
from bot.dispatch.mailboxes import Job, Mailboxes
from bot.dispatch.outgoing.doubts import Doubts
from bot.dispatch.outgoing.noted_sends import NotedSends
from bot.dispatch.outgoing.notices import Notices
from bot.dispatch.outgoing.outbox import Outbox
from bot.dispatch.outgoing.presence import Presence
from bot.dispatch.outgoing.proofs import AnswerProofs
from bot.dispatch.turns.batching import Batching
from bot.dispatch.turns.loop_guard import LoopGuard
from bot.dispatch.turns.router import Router
from bot.dispatch.turns.running import Turns
from bot.messaging.events import IdentityChanged, Person
from bot.messaging.messenger import Messenger
from bot.observability.event_loop import measure_lag
from bot.wiring.adjustable import Adjustable
from bot.wiring.chat_commands import chat_commands
from bot.wiring.endpoint import OpenEndpoint
from bot.wiring.ground import Ground, open_ground
from bot.wiring.parts import (
    access_rules,
    acknowledgements,
    result_limit,
)
from conversation_store.models import ChatId
from tools.executor import ToolExecutor
from tools.probing import probe
from tools.rate_limits import RateLimits

Work = Callable[[], Coroutine[Any, Any, object]]


@dataclass(frozen=True, slots=True)
class Parts:
    """What is running, wired.

    Attributes:
        messenger: the Signal side; `intake` takes what comes from it, `doubts` the receipts.
        mailboxes: the ordinary lane.
        urgent: the lane of what may not wait.
        presence: gives signs of life.
        resume: queues what an earlier process has left; to be awaited before anything runs.
        background: what runs beside, as long as the bot runs.
        status: how the bot is, in a line for its operator.
        adjustable: what takes other settings while it runs.
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
    adjustable: Adjustable


@asynccontextmanager
async def wired(
    settings: Settings,
    trust: Trust,
    clock: SteadyClock | None = None,
    messenger: Messenger | None = None,
) -> AsyncIterator[Parts]:
    """Open and connect every part; what was opened is closed in reverse.

    Args:
        settings: everything there is to know.
        trust: whom verifications trust.
        clock: what time it is; only tests give another than the machine's.
        messenger: carries the messages; None: the transport that SIGNAL__URL names.

    Raises:
        BotError: a part cannot start.
        StoreError: the store cannot be opened.
    """
    async with open_ground(settings, trust, clock, messenger) as ground:
        yield _Wiring(settings, ground).parts()


class _Wiring:
    """Every part, made when the first other one needs it; so no order has to be kept here."""

    def __init__(self, settings: Settings, ground: Ground) -> None:
        self._settings = settings
        self._ground = ground
        self.mailboxes = Mailboxes(ground.tasks)
        self.urgent = Mailboxes(ground.tasks, lane="urgent")

    def parts(self) -> Parts:
        """Return what the daemon runs."""
        return Parts(
            messenger=self._ground.messenger,
            intake=self.intake,
            doubts=self.doubts,
            mailboxes=self.mailboxes,
            urgent=self.urgent,
            presence=self.presence,
            resume=self._resume,
            background=tuple(self._background()),
            status=self._status,
            adjustable=self._adjustable(),
        )

    def _adjustable(self) -> Adjustable:
        return Adjustable(
            makes_proofs=self._ground.prover is not None,
            access=self.access,
            group_permissions=self.group_permissions,
            notices=self.notices,
            loop_guard=self.loop_guard,
            batching=self.batching,
            presence=self.presence,
            prompt=self.prompt,
            tool_loop=self.tool_loop,
            executor=self.executor,
            tool_limits=self.tool_limits,
            endpoint=self._ground.endpoint,
            store=self._ground.store,
        )

    def _status(self) -> str:
        store, messenger = self._ground.store, self._ground.messenger
        if store.refusal is not None:
            return f"Takes no messages: {store.refusal}."
        signal = "Connected to Signal" if messenger.connected else "Not connected to Signal"
        return f"{signal}; answers in progress: {self.turns.running}."

    async def _resume(self) -> None:
        await self.identities.resume()
        await recovery.resume(
            store=self._ground.store,
            approvals=self.approvals,
            mailboxes=self.mailboxes,
            urgent=self.urgent,
            doubts=self.doubts,
            router=self.router,
            changes=self.changes,
            file_cleanup=self.file_cleanup,
        )
        await self.pairing.refresh()

    def _background(self) -> Iterator[Work]:
        """What runs beside the taking and answering of messages."""
        if self._ground.signal_cli is not None:
            yield self._ground.signal_cli.run
        yield measure_lag
        yield partial(upkeep.tend, self._ground.store.upkeep, self._ground.clock.past)
        yield partial(probe, self._ground.registry)
        yield StorageWatch(self._ground.store, self._ground.messenger).run
        yield self.doubts.run
        yield self.expiry.run
        yield self.file_cleanup.run
        yield self.profile_keeper.run
        yield self._ground.endpoint.keep_verified
        yield self.pairing.run
        if self.proofs is not None:
            yield partial(_check_signatures, self._ground.endpoint, self.proofs)

    # What comes in

    @cached_property
    def access(self) -> Access:
        return Access(access_rules(self._settings))

    @cached_property
    def intake(self) -> Intake:
        return Intake(
            access=self.access,
            store=self._ground.store,
            approvals=self.approvals,
            mailboxes=self.mailboxes,
            urgent=self.urgent,
            router=self.router,
            changes=self.changes,
            pairing=self.pairing,
            message_requests=MessageRequests(self._ground.messenger, self._ground.tasks),
            group_permissions=self.group_permissions,
            identities=self.identities,
            file_cleanup=self.file_cleanup,
            loop_guard=self.loop_guard,
            expiry=self.expiry,
            clock=self._ground.clock,
        )

    @cached_property
    def loop_guard(self) -> LoopGuard:
        return LoopGuard(messages_per_minute=self._settings.access.messages_per_minute)

    @cached_property
    def pairing(self) -> Pairing:
        pairings = self._ground.store.pairings
        return Pairing(
            pairings=pairings,
            access=self.access,
            notes=self.notices,
            now_ms=self._ground.clock.now_ms,
        )

    @cached_property
    def group_permissions(self) -> GroupPermissions:
        return GroupPermissions(
            self._ground.messenger,
            self._ground.store,
            number=self._settings.signal.phone_number,
            admins=self._settings.access.admins,
        )

    @cached_property
    def identities(self) -> Identities:
        return Identities(
            self._ground.messenger,
            self._ground.store,
            self.notices,
            policy=self._settings.signal.trust,
            on_trusted=self._send_what_waited,
            clock=self._ground.clock.time,
        )

    async def _send_what_waited(self, person: str) -> None:
        chat = ChatId.direct(person)
        self.mailboxes.add(chat, Job(partial(self.outbox.deliver, self.outbox.take_back(chat))))

    @cached_property
    def changes(self) -> Changes:
        return Changes(
            store=self._ground.store,
            turns=self.turns,
            mailboxes=self.mailboxes,
            urgent=self.urgent,
            router=self.router,
            file_cleanup=self.file_cleanup,
            is_group_admin=self.group_permissions.is_group_admin,
        )

    @cached_property
    def expiry(self) -> Expiry:
        return Expiry(self._ground.store, clock=self._ground.clock.past)

    # What is answered

    @cached_property
    def turns(self) -> Turns:
        return Turns(self.mailboxes, self._ground.store, self.file_cleanup)

    @cached_property
    def file_cleanup(self) -> FileCleanup:
        return FileCleanup(self._ground.messenger)

    @cached_property
    def approvals(self) -> ApprovalDesk:
        return ApprovalDesk(
            store=self._ground.store,
            channel=self.noted_sends,
            is_admin=self.access.is_admin,
            clock=self._ground.clock.time,
        )

    @cached_property
    def router(self) -> Router:
        return Router(
            commands=chat_commands(
                self._settings,
                self._ground,
                access=self.access,
                identities=self.identities,
                pairing=self.pairing,
                turns=self.turns,
            ),
            conversation=self.conversation,
            turns=self.turns,
            batching=self.batching,
            approvals=self.approvals,
            outbox=self.outbox,
            store=self._ground.store,
            file_cleanup=self.file_cleanup,
            presence=self.presence,
            loop_guard=self.loop_guard,
            group_permissions=self.group_permissions,
            identity_policy=self.identities,
            clock=self._ground.clock.time,
        )

    @cached_property
    def batching(self) -> Batching:
        return Batching(
            self.mailboxes,
            settle_seconds=self._settings.bot.settle_seconds,
            clock=self._ground.clock.time,
        )

    @cached_property
    def prompt(self) -> Prompt:
        return Prompt(
            self._settings.llm.context_tokens,
            self._ground.registry,
            system_prompt=self._settings.bot.system_prompt,
            in_tee=self._ground.in_tee,
        )

    @cached_property
    def tool_limits(self) -> RateLimits:
        tools = self._settings.tools
        return RateLimits(per_person=tools.calls_per_minute, per_bot=tools.calls_per_minute_total)

    @cached_property
    def executor(self) -> ToolExecutor:
        return ToolExecutor(
            self._ground.registry,
            limits=self.tool_limits,
            timeout_seconds=self._settings.tools.timeout_seconds,
            result_limit_bytes=result_limit(self._settings.llm.context_tokens),
        )

    @cached_property
    def tool_loop(self) -> ToolLoop:
        ground = self._ground
        return ToolLoop(
            model=ground.endpoint.client,
            prompt=self.prompt,
            registry=ground.registry,
            executor=self.executor,
            store=ground.store,
            vision=ground.vision,
            keeps_exchanges=self.proofs is not None,
            max_tool_calls=self._settings.tools.max_tool_calls,
        )

    @cached_property
    def conversation(self) -> ChatHandler:
        ground = self._ground
        return ChatHandler(
            loop=self.tool_loop,
            contexts=TurnContexts(
                ground.store,
                self.approvals,
                self.noted_sends,
                progress_shown=self.presence.message_sent,
                keep_arguments=self._settings.tools.audit_arguments == "keep",
                clock=ground.clock.time,
            ),
            prompt=self.prompt,
            store=ground.store,
            media=ground.media,
            renderer=ground.renderer,
            proofs=self.proofs,
            model_name=self._settings.llm.model,
            clock=ground.clock.time,
        )

    @cached_property
    def proofs(self) -> AnswerProofs | None:
        """What checks the signatures of answers, where the endpoint signs them."""
        if self._ground.endpoint.signatures is None:
            return None
        return AnswerProofs(
            signatures=self._ground.endpoint.signatures,
            store=self._ground.store,
            mailboxes=self.mailboxes,
            outbox=self.outbox,
            warn=self._settings.attestation.model_policy == "require",
        )

    # What goes out

    @cached_property
    def noted_sends(self) -> NotedSends:
        return NotedSends(self._ground.messenger, self._ground.store)

    @cached_property
    def outbox(self) -> Outbox:
        return Outbox(self._ground.messenger, self._ground.store, untrusted=self._look_at_key)

    @cached_property
    def doubts(self) -> Doubts:
        return Doubts(
            self._ground.messenger,
            self._ground.store,
            self.outbox,
            reacts=lambda: self.presence.ack_reaction is not None,
        )

    def _look_at_key(self, chat: ChatId) -> None:
        new_key = IdentityChanged(self._settings.signal.phone_number, Person(chat.value))
        self.urgent.add(chat, Job(partial(self.identities.changed, new_key)))

    @cached_property
    def notices(self) -> Notices:
        return Notices(
            store=self._ground.store,
            mailboxes=self.mailboxes,
            outbox=self.outbox,
            admins=self._settings.access.admins,
        )

    @cached_property
    def presence(self) -> Presence:
        ack_reaction, read_receipts = acknowledgements(self._settings)
        return Presence(
            SignsByRights(self._ground.messenger, self.group_permissions),
            ack_reaction=ack_reaction,
            read_receipts=read_receipts,
            tasks=self._ground.tasks,
            clock=self._ground.clock.time,
        )

    @cached_property
    def profile_keeper(self) -> ProfileKeeper:
        bot = self._settings.bot
        profile = wanted_profile(
            name=bot.profile_name, about=bot.profile_about, picture=bot.profile_picture
        )
        return ProfileKeeper(self._ground.messenger, self._ground.store, profile)


async def _check_signatures(endpoint: OpenEndpoint, proofs: AnswerProofs) -> None:
    """Check what endpoints sign, once it is known whose signatures count."""
    await endpoint.settled()
    await proofs.run()
