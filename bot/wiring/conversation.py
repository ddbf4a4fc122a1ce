"""What answers a conversation, wired: prompt, tool loop, files, rendering."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial

from bot.approvals.desk import ApprovalDesk
from bot.chat.allowance import Budget
from bot.chat.group_talk import GroupTalk
from bot.chat.handler import ChatHandler
from bot.chat.helpers import Helpers
from bot.chat.inbox import Inbox
from bot.chat.live_turns import LiveTurn, LiveTurns
from bot.chat.media import open_media
from bot.chat.memory_book import MemoryBook
from bot.chat.notes import ChatNotes
from bot.chat.prompt import Prompts
from bot.chat.rendering.client import Renderer
from bot.chat.tool_loop import ToolLoop
from bot.chat.turn_context import TurnContexts
from bot.config.settings import Settings
from bot.dispatch.outgoing.noted_sends import NotedSends
from bot.dispatch.outgoing.presence import Presence
from bot.dispatch.outgoing.proofs import AnswerProofs
from bot.language.languages import Languages
from bot.llm.errors import LlmContextTooLong, LlmError, LlmNotAttested
from bot.llm.model import Model
from bot.messaging.events import Person
from bot.messaging.messenger import Messenger
from bot.wiring.models import OpenModels
from bot.wiring.own_tools import offer_own_tools, uses_memory
from bot.wiring.parts import result_limit, words_limit
from bot.wiring.reload import Reload
from conversation_store.store import ConversationStore
from sandbox.policy import SandboxPolicy
from tools.base import Caller
from tools.catch_up import Missed
from tools.executor import ToolExecutor
from tools.people import People
from tools.rate_limits import RateLimits
from tools.registry import Registry
from tools.reminders.tool import Reminders
from tools.workspace.workspaces import Workspaces


@asynccontextmanager
async def open_conversation(
    settings: Settings,
    *,
    messenger: Messenger,
    store: ConversationStore,
    models: OpenModels,
    registry: Registry,
    workspaces: Workspaces | None,
    is_admin: Callable[[Person], bool],
    budget: Budget,
    sandboxes: SandboxPolicy,
    in_tee: bool,
    approvals: ApprovalDesk,
    people: People,
    renderer: Renderer,
    noted_sends: NotedSends,
    presence: Presence,
    proofs: AnswerProofs | None,
    languages: Languages,
    clock: Callable[[], float],
    to_operator: bool,
    reload: Reload,
    reminders_changed: Callable[[], None],
) -> AsyncIterator[ChatHandler]:
    """Provide what answers a conversation; the settings that it goes by can be reloaded."""
    prompts = Prompts(registry, system_prompt=settings.bot.system_prompt, in_tee=in_tee)
    limits = RateLimits(
        per_person=settings.tools.calls_per_minute,
        per_bot=settings.tools.calls_per_minute_total,
    )
    executor = ToolExecutor(
        registry,
        limits=limits,
        timeout_seconds=settings.tools.timeout_seconds,
        result_limit_bytes=result_limit(settings.llm.context_tokens),
    )
    live = LiveTurns()
    loop = ToolLoop(
        registry=registry,
        executor=executor,
        store=store,
        max_tool_calls=settings.tools.max_tool_calls,
    )
    helpers = Helpers(
        loop=loop,
        store=store.helpers,
        registry=registry,
        prompts=prompts,
        turn_of=live.of,
        clock=clock,
    )
    offer_tools = partial(
        offer_own_tools,
        registry=registry,
        turn_of=live.of,
        helpers_of=helpers.of,
        reminders_of=partial(_reminders_of, settings, store, reminders_changed, clock),
        memory_of=MemoryBook(store.memory).of,
        missed_by=partial(_missed_by, GroupTalk(store.catch_up, messenger), live.of),
        people=people,
    )
    offer_tools(settings)

    def apply(changed: Settings) -> None:
        prompts.begin_with(changed.bot.system_prompt)
        limits.per_person = changed.tools.calls_per_minute
        limits.per_bot = changed.tools.calls_per_minute_total
        executor.timeout_seconds = changed.tools.timeout_seconds
        loop.max_tool_calls = changed.tools.max_tool_calls
        offer_tools(changed)

    reload.register(apply)
    async with (
        open_media(
            messenger,
            transcriber=models.default.transcriber,
            words_bytes=words_limit(settings.llm.context_tokens),
            sandboxes=sandboxes,
            inbox=Inbox(workspaces, is_admin) if workspaces is not None else None,
        ) as media,
    ):
        yield ChatHandler(
            loop=loop,
            live=live,
            contexts=TurnContexts(
                store,
                approvals,
                noted_sends,
                progress_shown=presence.message_sent,
                keep_arguments=settings.tools.audit_arguments == "keep",
                clock=clock,
            ),
            prompts=prompts,
            notes=ChatNotes(store, uses_memory=uses_memory(settings), clock=clock),
            is_admin=is_admin,
            budget=budget,
            store=store,
            media=media,
            renderer=renderer,
            proofs=proofs,
            languages=languages,
            models=models.models,
            words_for=_explained if to_operator else _sentence,
            clock=clock,
        )


def _reminders_of(
    settings: Settings,
    store: ConversationStore,
    changed: Callable[[], None],
    clock: Callable[[], float],
    caller: Caller,
) -> Reminders:
    """Return the reminders of whoever calls a tool."""
    return Reminders(
        store.reminders,
        caller,
        datetime.fromtimestamp(clock(), UTC),
        at_most=settings.tools.reminders.max_per_person,
        changed=changed,
    )


def _sentence(error: LlmError, _: Model) -> str:
    return error.sentence


def _explained(error: LlmError, model: Model) -> str:
    """Return what tells an operator where a model failed and why."""
    if isinstance(error, LlmContextTooLong | LlmNotAttested):
        return error.sentence  # says all there is to say
    return f"The model gave no answer. {model.client.reach.explained(error)}"


def _missed_by(talk: GroupTalk, turn_of: Callable[[Caller], LiveTurn], caller: Caller) -> Missed:
    """Return what somebody has missed in groups, to be told in the turn that a call belongs to."""
    turn = turn_of(caller)

    async def missed(group: str, hours: int) -> str:
        context = turn.context
        return await talk.missed(
            context.person, context.chat, group, hours, turn_id=turn.state.turn.id
        )

    return missed
