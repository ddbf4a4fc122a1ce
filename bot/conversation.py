"""Connect the parts that answer a conversation: prompt, tool loop, files, rendering."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial

from bot.chat.access import Access, TokenBudget
from bot.chat.ask import Questions
from bot.chat.groups import GroupTalk
from bot.chat.handler import ChatHandler
from bot.chat.helpers import Helpers
from bot.chat.loop import ToolLoop
from bot.chat.media import Inbox, open_media, words_limit
from bot.chat.outbox import NotedSends
from bot.chat.own_tools import PartsOfTools, memory_of, offer_own_tools, reminders_of, uses_memory
from bot.chat.presence import Presence
from bot.chat.prompt import Prompts
from bot.chat.rendering import Renderer
from bot.chat.turn import Turn, TurnParts, running_turn
from bot.config.settings import Settings
from bot.foundation import Foundation
from bot.language.languages import Languages
from bot.llm.errors import LlmContextTooLong, LlmError, LlmNotAttested
from bot.llm.models import Model
from tools.executor import RateLimits, ToolExecutor


@dataclass(frozen=True, slots=True)
class Speaking:
    """The parts that write to people."""

    presence: Presence
    noted_sends: NotedSends
    renderer: Renderer
    languages: Languages


@asynccontextmanager
async def open_conversation(
    base: Foundation,
    *,
    access: Access,
    budget: TokenBudget,
    speaking: Speaking,
    questions: Questions,
    answered: Callable[[], None],
    reminders_changed: Callable[[], None],
) -> AsyncIterator[ChatHandler]:
    """Provide the part that answers with the model's help."""
    settings, clock, store, models = base.start.settings, base.start.clock, base.store, base.models
    registry, workspaces = base.tools.registry, base.tools.workspaces
    prompts = Prompts(registry, system_prompt=settings.bot.system_prompt, in_tee=base.in_tee)
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
    loop = ToolLoop(
        registry=registry,
        executor=executor,
        max_tool_calls=settings.tools.max_tool_calls,
    )
    helpers = Helpers(
        loop=loop,
        store=store.turns,
        registry=registry,
        prompts=prompts,
        turn_of=turn_of,
    )
    parts_of_tools = PartsOfTools(
        turn_of=turn_of,
        helpers_of=helpers.of,
        reminders_of=partial(reminders_of, store.reminders, reminders_changed, clock),
        memory_of=partial(memory_of, store.memory),
        missed=GroupTalk(store.catch_up, base.messenger).missed,
        choose=questions.choose,
        decide=questions.decide,
    )
    offer_own_tools(settings, registry, parts_of_tools)

    def apply(changed: Settings) -> None:
        prompts.begin_with(changed.bot.system_prompt)
        limits.per_person = changed.tools.calls_per_minute
        limits.per_bot = changed.tools.calls_per_minute_total
        executor.timeout_seconds = changed.tools.timeout_seconds
        loop.max_tool_calls = changed.tools.max_tool_calls
        offer_own_tools(changed, registry, parts_of_tools)

    base.reload.register(apply)
    inbox = Inbox(workspaces, access.is_admin, store.files) if workspaces is not None else None
    async with (
        open_media(
            base.messenger,
            transcriber=models.default.transcriber,
            words_bytes=words_limit(settings.llm.context_tokens),
            sandboxes=base.tools.sandboxes,
            inbox=inbox,
        ) as media,
    ):
        yield ChatHandler(
            loop=loop,
            running=running,
            parts=TurnParts(
                store,
                questions,
                speaking.noted_sends,
                progress_shown=speaking.presence.message_sent,
                stops=budget.stops,
                clock=clock,
            ),
            prompts=prompts,
            uses_memory=uses_memory(settings),
            is_admin=access.is_admin,
            store=store,
            media=media,
            renderer=speaking.renderer,
            answered=answered,
            languages=speaking.languages,
            models=models.models,
            words_for=_explained if base.start.to_operator else _sentence,
        )


def _sentence(error: LlmError, _: Model) -> str:
    return error.sentence


def _explained(error: LlmError, model: Model) -> str:
    """Return the reason of a model's failure for the operator."""
    if isinstance(error, LlmContextTooLong | LlmNotAttested):
        return error.sentence  # says all there is to say
    return f"The model gave no answer. {model.client.reach.explained(error)}"
