"""Build the bot from its settings, run it, and stop it.

Start: store, model, tools, unfinished work, then Signal. Stop, in bounded steps: begin no more
work and take no more messages. Store the messages that were read, waiting for room on a full disk.
Let turns and sends in progress finish within the grace time, and interrupt the rest, which the next
start resumes. Close everything, and report messages that could not be stored. A second signal ends
the process at once.
"""

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Final

import structlog

from bot import __version__
from bot.chat import upkeep
from bot.chat.access import Access, LoopGuard, TokenBudget
from bot.chat.alarm import Alarm
from bot.chat.ask import Questions
from bot.chat.caretaker import Caretaker
from bot.chat.chat import Chats
from bot.chat.door import Door, Identities, MessageRequests, Pairing
from bot.chat.groups import GroupPermissions, GroupTalk
from bot.chat.handler import ChatHandler
from bot.chat.helpers import Helpers
from bot.chat.intake import Intake
from bot.chat.loop import ToolLoop
from bot.chat.media import Inbox, open_media, words_limit
from bot.chat.outbox import Notices, Outbox
from bot.chat.own_tools import (
    PartsOfTools,
    memory_of,
    move_to,
    offer_own_tools,
    past_of,
    reminders_of,
    uses_memory,
)
from bot.chat.pictures import Draw, open_pictures
from bot.chat.polls import Polls
from bot.chat.presence import Presence
from bot.chat.profile import keep_profile, wanted_profile
from bot.chat.prompt import Prompt
from bot.chat.proofs import AnswerProofs
from bot.chat.registration_lock import RegistrationLock
from bot.chat.rendering import Renderer, open_renderer
from bot.chat.replies import Replies
from bot.chat.summaries import Summaries
from bot.chat.turn import Turn, TurnParts, running_turn
from bot.chat.upkeep import Expiry, FileCleanup, hold_while_refused
from bot.chat.voice import Voice, is_speech
from bot.commands.base import Parts
from bot.commands.catalog import available, told_to_model
from bot.config.llm import DEFAULT
from bot.config.settings import Settings
from bot.errors import MessagesLost
from bot.foundation import Foundation, Start, open_foundation
from bot.language.languages import Languages
from bot.llm.errors import LlmContextTooLong, LlmError, LlmNotAttested
from bot.llm.models import Model
from bot.llm.speech import Voices
from bot.observability import logs, metrics
from bot.observability.process import calm_collector, prepare_descriptors, signals
from bot.observability.systemd import ServiceManager, service_manager
from bot.signal.events import Person
from conversation_store.models import Attachment
from conversation_store.store import ConversationStore
from tools.executor import RateLimits, ToolExecutor
from tools.registry import probe

log = structlog.get_logger()

Task = Callable[[], Coroutine[Any, Any, object]]

NO_MANAGER: Final = ServiceManager(None, None)
"""Stand-in for a bot that no service manager started."""

STATUS_EVERY_SECONDS: Final = 1.0

THREAD_SWITCH_SECONDS: Final = 0.0005
"""Interval in which Python switches threads. Database threads hand rows to the event loop; with
Python's default of 5 ms, each hand-over to a busy loop would delay a turn that much."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Time limits of a running bot.

    Attributes:
        grace_seconds: time for turns and sends in progress to finish.
        store_seconds: time to store the messages that were read, because Signal believes that they
            arrived. Together with the end of the subscription (5 s) and the grace time, this fits
            into the 45 s of units and compose files.
        stuck_seconds: after this time without a sign or a new attempt, the connection to Signal
            counts as stuck for good, and the bot stops feeding the watchdog.
    """

    grace_seconds: float = 10.0
    store_seconds: float = 20.0
    stuck_seconds: float = 180.0


BOUNDS: Final = Bounds()


# The parts ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Bot:
    """The connected parts of a bot.

    Attributes:
        chats: answers messages until it is told to wind down.
        presence: shows typing, reactions and read receipts.
        resume: queues the unfinished work of an earlier process; await it before anything runs.
        background: runs as long as the bot.
    """

    base: Foundation
    intake: Intake
    chats: Chats
    presence: Presence
    resume: Task
    background: tuple[Task, ...]

    def status(self) -> str:
        """Return the bot's state in one line for the operator."""
        if (refusal := self.base.store.refusal) is not None:
            return f"Takes no messages: {refusal}."
        connected = "Connected" if self.base.messenger.connected else "Not connected"
        return f"{connected} to Signal; answers in progress: {self.chats.running()}."


@asynccontextmanager
async def build(start: Start) -> AsyncIterator[Bot]:
    """Open and connect all parts; close them in reverse order.

    Raises:
        BotError: a part cannot start.
        StoreError: the store cannot be opened.
    """
    settings, clock, tasks = start.settings, start.clock, asyncio.TaskGroup()
    async with AsyncExitStack() as stack:
        base = await stack.enter_async_context(open_foundation(start))
        store, messenger, workspaces = base.store, base.messenger, base.tools.workspaces

        # People
        access, languages = Access(settings.access, settings.signal.phone_number), Languages(store)
        draw = await stack.enter_async_context(open_pictures(base.tools.sandboxes))
        renderer = await stack.enter_async_context(open_renderer(base.tools.sandboxes))
        speaker, voices = base.endpoints[DEFAULT].speaker, Voices(store)
        voice = None
        if speaker is not None:
            voice = Voice(speaker, voices, renderer, store)
        outbox = Outbox(messenger, store, make_file=partial(_made, draw, voice))
        notices = Notices(outbox, languages, access)
        identities = Identities(
            messenger, store, notices, policy=settings.signal.trust, clock=clock
        )
        groups = GroupPermissions(messenger, store, access, number=settings.signal.phone_number)
        door = Door(access, identities, groups, LoopGuard())
        pairing = Pairing(
            pairings=store.pairings,
            access=access,
            notices=notices,
            now_ms=lambda: int(clock() * 1_000),
        )
        budget = TokenBudget(access, store.usage.spent_today, clock=clock)

        # Sending
        ack_reaction, read_receipts = _acknowledgements(settings)
        presence = Presence(
            messenger,
            may_write=groups.may_write,
            ack_reaction=ack_reaction,
            read_receipts=read_receipts,
            tasks=tasks,
            clock=clock,
        )
        proofs = AnswerProofs(
            signatures={
                name: endpoint.signatures
                for name, endpoint in base.endpoints.items()
                if endpoint.signatures is not None
            },
            store=store,
            notices=notices,
            warn=settings.attestation.model_policy == "require",
        )

        # Turns
        answered_turns, reminders_changed = asyncio.Queue[int](), asyncio.Event()
        questions = Questions(
            store=store,
            channel=outbox.doubts,
            is_admin=access.is_admin,
            languages=languages,
            render=partial(renderer.messages, notices=()),
            go_on=answered_turns.put,
            clock=clock,
        )
        conversation = await stack.enter_async_context(
            _open_conversation(
                base,
                TurnParts(
                    store,
                    questions,
                    outbox.doubts,
                    languages,
                    progress_shown=presence.message_sent,
                    stops=budget.stops,
                    clock=clock,
                ),
                is_admin=access.is_admin,
                renderer=renderer,
                languages=languages,
                answered=proofs.wake if proofs.signatures else lambda: None,
                reminders_changed=reminders_changed.set,
                voice=voice,
            )
        )
        parts = Parts(
            store=store,
            messenger=messenger,
            models=base.models,
            languages=languages,
            voices=voices if speaker is not None else None,
            tools=base.tools,
            prover=base.prover,
            is_admin=access.is_admin,
            tokens_per_day=budget.of,
            until_next_day=budget.until_next_day,
            let_in=pairing.approve if access.pairing else None,
            trust=identities.trust,
            uses_memory=uses_memory(settings),
            move_reminders=partial(_move_reminders, store, reminders_changed),
            clock=clock,
        )
        commands = available(parts, note_to_self=settings.access.note_to_self)

        def tell_model(changed: Settings) -> None:
            days = changed.store.retention_days
            conversation.prompt.about = told_to_model(
                commands.values(), days, speaks=speaker is not None
            )

        tell_model(settings)
        base.reload.register(tell_model)

        # Chats
        file_cleanup = FileCleanup(messenger, store.files, workspaces)
        chats = Chats(
            tasks=tasks,
            store=store,
            replies=Replies(commands, parts, budget),
            conversation=conversation,
            questions=questions,
            notices=notices,
            presence=presence,
            door=door,
            file_cleanup=file_cleanup,
            reminders_changed=reminders_changed,
        )
        expiry = Expiry(store, clock=clock)
        wanted = settings.locks_registration(in_tee=base.in_tee)
        lock = RegistrationLock(messenger, store, wanted=wanted, clock=clock)
        caretaker = Caretaker(messenger, base.signal_cli, notices, store, lock, clock=clock)
        alarm = Alarm(store.reminders, chats, messenger, disappears=expiry.timer.at, clock=clock)
        intake = Intake(
            chats=chats,
            pairing=pairing,
            message_requests=MessageRequests(messenger, tasks),
            expiry=expiry,
            alarm=alarm,
            clock=clock,
        )
        base.reload.register(partial(_apply, base, access, presence))

        # Entered last, so that no task outlives a part that it uses.
        await stack.enter_async_context(tasks)
        stack.callback(presence.cancel)  # otherwise its timers begin tasks, even after a failure
        yield Bot(
            base=base,
            intake=intake,
            chats=chats,
            presence=presence,
            resume=partial(_resume, languages, voices, identities, pairing, chats),
            background=(
                *_background(base),
                partial(outbox.doubts.run, notices.queue),
                partial(chats.run, answered_turns),
                partial(expiry.run, chats.disappeared),
                alarm.run,
                questions.run,
                Polls(questions).run,
                *(() if conversation.summaries is None else (conversation.summaries.run,)),
                caretaker.run,
                file_cleanup.run,
                pairing.run,
                partial(_check_signatures, base, proofs),
            ),
        )


@asynccontextmanager
async def _open_conversation(
    base: Foundation,
    parts: TurnParts,
    *,
    is_admin: Callable[[Person], bool],
    renderer: Renderer,
    languages: Languages,
    answered: Callable[[], None],
    reminders_changed: Callable[[], None],
    voice: Voice | None,
) -> AsyncIterator[ChatHandler]:
    """Provide the part that answers by the model: prompt, tool loop, files."""
    settings, clock, store, models = base.start.settings, base.start.clock, base.store, base.models
    registry, workspaces = base.tools.registry, base.tools.workspaces
    prompt = Prompt(
        registry,
        system_prompt=settings.bot.system_prompt,
        in_tee=base.in_tee,
        max_rounds=settings.tools.max_tool_calls,
    )
    limits = RateLimits(
        per_person=settings.tools.calls_per_minute,
        per_bot=settings.tools.calls_per_minute_total,
    )
    executor = ToolExecutor(
        registry,
        limits=limits,
        timeout_seconds=settings.tools.timeout_seconds,
        result_limit_bytes=base.result_limit_bytes,
    )
    running: dict[int, Turn] = {}
    turn_of = partial(running_turn, running)
    loop = ToolLoop(registry=registry, executor=executor)
    helpers = Helpers(
        loop=loop, store=store.turns, registry=registry, prompt=prompt, turn_of=turn_of
    )
    parts_of_tools = PartsOfTools(
        turn_of=turn_of,
        helpers_of=helpers.of,
        reminders_of=partial(reminders_of, store.reminders, reminders_changed, clock),
        memory_of=partial(memory_of, store.memory),
        missed=GroupTalk(store.catch_up, base.messenger).missed,
        past_of=partial(past_of, store.search),
        choose=parts.questions.choose,
        decide=parts.questions.decide,
    )
    offer_own_tools(settings, registry, parts_of_tools)

    def apply(changed: Settings) -> None:
        prompt.system_prompt = changed.bot.system_prompt
        limits.per_person = changed.tools.calls_per_minute
        limits.per_bot = changed.tools.calls_per_minute_total
        executor.timeout_seconds = changed.tools.timeout_seconds
        prompt.max_rounds = changed.tools.max_tool_calls
        offer_own_tools(changed, registry, parts_of_tools)

    base.reload.register(apply)
    summaries = None
    if settings.bot.summaries:
        summaries = Summaries(store, models, stops=parts.stops)
    else:
        await store.summaries.forget_all()
    inbox = Inbox(workspaces, is_admin, store.files) if workspaces is not None else None
    async with open_media(
        base.messenger,
        transcriber=base.endpoints[DEFAULT].transcriber,
        words_bytes=words_limit(settings.llm.context_tokens),
        sandboxes=base.tools.sandboxes,
        inbox=inbox,
    ) as media:
        yield ChatHandler(
            loop=loop,
            running=running,
            parts=parts,
            prompt=prompt,
            uses_memory=uses_memory(settings),
            is_admin=is_admin,
            store=store,
            media=media,
            renderer=renderer,
            answered=answered,
            languages=languages,
            models=models,
            words_for=partial(_words_for, to_operator=base.start.to_operator),
            summaries=summaries,
            voice=voice,
        )


def _words_for(error: LlmError, model: Model, *, to_operator: bool) -> str:
    """Return the text for a person whose model cannot answer; operators read the reason."""
    if not to_operator or isinstance(error, LlmContextTooLong | LlmNotAttested):
        return error.sentence
    return f"The model gave no answer. {model.client.reach.explained(error)}"


async def _made(draw: Draw, voice: Voice | None, source: str) -> Attachment | None:
    """Return a file that an answer needs: a voice note, or the picture of a table."""
    if is_speech(source):
        return None if voice is None else await voice.made(source)
    return await draw(source)


def _acknowledgements(settings: Settings) -> tuple[str | None, bool]:
    """Return the emoji for every new message, and whether messages are marked as read."""
    if settings.access.note_to_self:  # the owner needs no such signs in the note to self
        return None, False
    return settings.bot.ack_reaction, settings.bot.read_receipts


async def _check_signatures(base: Foundation, proofs: AnswerProofs) -> None:
    """Check the signatures of answers, once the models' proofs say whose signatures count."""
    for endpoint in base.endpoints.values():
        await endpoint.proof.settled()
    await proofs.run()


async def _move_reminders(
    store: ConversationStore, changed: asyncio.Event, person: str, place: str, now: datetime
) -> str:
    zone = await move_to(store.reminders, person, place, now)
    changed.set()
    return zone


def _background(base: Foundation) -> Iterator[Task]:
    """Yield the work of the parts below the chat."""
    start, store = base.start, base.store
    bot, retention_days = start.settings.bot, start.settings.store.retention_days
    profile = wanted_profile(
        name=bot.profile_name, about=bot.profile_about, picture=bot.profile_picture
    )
    if base.signal_cli is not None:
        yield base.signal_cli.run
    yield metrics.measure_lag
    yield partial(upkeep.tend, store.upkeep, start.clock)
    yield partial(upkeep.keep_indexed, store.search)
    if base.tools.workspaces is not None:
        yield partial(upkeep.tend_folders, base.tools.workspaces, retention_days)
    yield partial(probe, base.tools.registry)
    yield partial(hold_while_refused, store.refusal_other_than, base.messenger)
    yield partial(keep_profile, base.messenger, store, profile)
    for endpoint in base.endpoints.values():
        yield endpoint.proof.keep_verified


async def _resume(
    languages: Languages, voices: Voices, identities: Identities, pairing: Pairing, chats: Chats
) -> None:
    """Load the facts of an earlier process, then queue its unfinished work."""
    await languages.resume()
    await voices.resume()
    await identities.resume()
    await chats.resume()
    await pairing.refresh()


def _apply(base: Foundation, access: Access, presence: Presence, settings: Settings) -> None:
    """Apply settings that were reloaded."""
    access.settings = settings.access
    presence.ack_reaction, presence.read_receipts = _acknowledgements(settings)
    logs.set_level(settings.log.level)
    base.store.retention_days = settings.store.retention_days
    for name, endpoint in base.endpoints.items():
        endpoint.use_key(settings.llm.of(name).key)


# Running ------------------------------------------------------------------------------------------


async def run_until_signalled(settings: Settings) -> None:
    """Run the daemon until SIGTERM or SIGINT; raises what `run` raises."""
    sys.setswitchinterval(THREAD_SWITCH_SECONDS)
    prepare_descriptors(model_connections=settings.llm.max_concurrency)
    stop, reload = asyncio.Event(), asyncio.Event()
    with signals(stop, reload):
        await run(
            Start(settings),
            told_to_stop=stop,
            told_to_reload=reload,
            manager=service_manager(),
        )


async def run(
    start: Start,
    *,
    told_to_stop: asyncio.Event,
    told_to_reload: asyncio.Event | None = None,
    ready: Callable[[], None] = lambda: None,
    manager: ServiceManager = NO_MANAGER,
    bounds: Bounds = BOUNDS,
) -> None:
    """Run the bot until told to stop.

    Args:
        told_to_stop: begins the shutdown when set.
        told_to_reload: reloads the settings each time it is set.
        ready: called once the bot takes messages.
        manager: receives the bot's state.

    Raises:
        BotError: a part cannot start, or (MessagesLost) messages could not be stored.
        StoreError: the store cannot be opened, or failed while running.
    """
    async with build(start) as bot:

        def moves() -> bool:  # a call of this proves that the loop runs
            return time.monotonic() - bot.base.messenger.last_sign < bounds.stuck_seconds

        await bot.resume()
        async with asyncio.TaskGroup() as tasks:
            background = [
                tasks.create_task(bot.base.messenger.run(bot.intake.deliver)),
                *(tasks.create_task(work()) for work in bot.background),
                tasks.create_task(manager.watch(moves)),
                tasks.create_task(_tell_status(manager, bot)),
            ]
            reloading = tasks.create_task(
                _reload_when_told(told_to_reload or asyncio.Event(), bot, manager)
            )
            log.info("app.started", version=__version__)
            manager.ready()
            ready()
            with calm_collector():
                await told_to_stop.wait()
            log.info("app.stopping")
            reloading.cancel()
            manager.stopping()
            lost = await _wind_down(bot, bounds)
            for task in background:
                task.cancel()
    log.info("app.stopped")
    if lost:
        raise MessagesLost(lost)


async def _tell_status(manager: ServiceManager, bot: Bot) -> None:
    """Keep the service manager's status line up to date, until cancelled."""
    told = ""
    while True:
        if (message := bot.status()) != told:
            manager.status(message)
            told = message
        await asyncio.sleep(STATUS_EVERY_SECONDS)


async def _reload_when_told(told: asyncio.Event, bot: Bot, manager: ServiceManager) -> None:
    """Reload the settings on each request, until cancelled.

    A request during a reload leads to another reload.
    """
    while True:
        await told.wait()
        told.clear()
        manager.reloading()
        await bot.base.reload()
        manager.ready()


async def _wind_down(bot: Bot, bounds: Bounds) -> int:
    """Stop new work and new messages, store the messages that were read, let turns finish.

    Returns:
        the number of messages that were read but could not be stored.
    """
    messenger = bot.base.messenger
    bot.chats.wind_down()
    await messenger.stop_receiving(delivery_seconds=bounds.store_seconds)
    try:
        async with asyncio.timeout(bounds.grace_seconds):
            await bot.chats.drain()
    except TimeoutError:
        log.warning("app.turns_interrupted")
    bot.chats.cancel()
    bot.presence.cancel()
    lost = messenger.undelivered
    if lost:
        metrics.INTAKE.labels("lost").inc(lost)
        log.error("app.messages_lost", count=lost)
    return lost
