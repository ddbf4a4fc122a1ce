"""The tool loop: ask the model, run the tools that it calls, until it answers in words.

A helper of a turn runs through the same loop, with a state and a context of its own. Every step is
stored before the next one uses it, so a turn that a crash interrupts goes on from its last stored
message.
"""

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Final

import structlog

from bot.chat.call_count import CallCount
from bot.chat.early_request import Question
from bot.chat.prompt import Prompt
from bot.chat.turn_context import TurnContext, images_of
from bot.chat.turn_state import TurnState
from bot.llm.errors import LlmError, LlmRejected
from bot.llm.images import without_images
from bot.llm.messages import CUT_OFF, Completion, ModelRequest, ToolSpec
from bot.llm.model import Model
from bot.llm.vision import may_be_about_images
from conversation_store.models import Message, Role
from conversation_store.store import ConversationStore
from tools.base import Heard, Outcome, ToolRequest, ToolResult
from tools.executor import ToolExecutor
from tools.registry import Registry
from tools.results import UNTRUSTED

log = structlog.get_logger()

FINISH_REASONS: Final = frozenset({"", "content_filter", "length", "stop", "tool_calls"})
"""Reasons that may be logged; an endpoint could also put a person's words there."""

TOOLS_START_SECONDS: Final = 20.0
"""How long a turn waits for tools that are still starting, such as MCP servers."""

OVER_LIMIT: Final = (
    "Not run: no more tool calls are allowed for this message. Answer with what you have."
)

OVER_STEP: Final = (
    "Not run: this step of the plan may make no more calls. If it is done, say so with todo, and go"
    " on with the next one. Otherwise answer with what you have."
)


class ToolLoop:
    """Finds the answer of a turn.

    Args:
        registry: the tools that exist.
        executor: runs them.
        store: keeps every call and result.
        max_tool_calls: of one turn; after them the model has to answer in words.

    Attributes:
        max_tool_calls: may be changed at any time.
    """

    def __init__(
        self,
        *,
        registry: Registry,
        executor: ToolExecutor,
        store: ConversationStore,
        max_tool_calls: int,
    ) -> None:
        self._registry = registry
        self._executor = executor
        self._store = store
        self.max_tool_calls = max_tool_calls

    async def run(self, state: TurnState, context: TurnContext, now: datetime) -> str | None:
        """Return the model's answer, empty when it twice says nothing; may be cancelled.

        None where the turn waits for people: its only open calls are questions to them.

        Raises:
            LlmError: the model cannot answer.
            AllowanceUsedUp: its person may use no more today.
        """
        await self._wait_for_tools()
        await self._resume(state, context)
        while not state.open_calls and self._may_call(state) and self._tools(state.prompt):
            await state.hear()
            completion = await self._ask(state, now, self._tools(state.prompt))
            if not completion.message.tool_calls:
                return await self._words(state, completion, now)
            await state.check_allowance()  # nothing is done that nobody could tell of
            asked = state.ask(completion.message)
            await context.record_calls(asked, state.take_exchanged(), state.take_spent())
            await self._run_open_calls(state, context)
        if state.open_calls:
            return None
        await state.hear()
        tools = self._tools(state.prompt)
        completion = await self._ask(state, now, tools, may_call=False)
        return await self._words(state, completion, now)

    async def first_request(
        self,
        prompt: Prompt,
        model: Model,
        history: Sequence[Sequence[Message]],
        content: str,
        now: datetime,
    ) -> Question | None:
        """Return what a turn with this user message asks a model first, if it may be early.

        None where others would have to wait for that, and where images are to be shown, because the
        model may turn out not to see them.
        """
        await self._wait_for_tools()
        if model.client.busy:
            return None
        turn = [Message(Role.USER, content)]
        messages = prompt.build(now, model.traits, history, turn)
        if any(message.images for message in messages):
            return None
        return Question(model.name, ModelRequest(messages, self._tools(prompt)))

    def _may_call(self, state: TurnState) -> bool:
        return self._counted(state).has_room and not state.is_exhausted

    def _counted(self, state: TurnState) -> CallCount:
        count = CallCount(self.max_tool_calls, self._is_bookkeeping)
        count.add(state.messages)
        return count

    def _is_bookkeeping(self, name: str) -> bool:
        tool = self._registry.get(name)
        return tool is not None and tool.bookkeeping

    def _tools(self, prompt: Prompt) -> tuple[ToolSpec, ...]:
        """Return the tools that the model is shown."""
        return prompt.tools if self.max_tool_calls else ()

    async def _wait_for_tools(self) -> None:
        """Wait for tools that are still starting."""
        with suppress(TimeoutError):
            async with asyncio.timeout(TOOLS_START_SECONDS):
                await self._registry.settled()

    async def _ask(
        self,
        state: TurnState,
        now: datetime,
        tools: Sequence[ToolSpec],
        *,
        may_call: bool = True,
    ) -> Completion:
        await state.check_allowance()
        while True:
            try:
                return await self._ask_model(state, now, tools, may_call=may_call)
            except LlmError as error:
                if not state.route.go_on(error):
                    raise

    async def _ask_model(
        self, state: TurnState, now: datetime, tools: Sequence[ToolSpec], *, may_call: bool
    ) -> Completion:
        """Ask the model that the turn has come to; without images where it cannot see."""
        model = state.route.model
        messages = state.prompt.build(now, model.traits, state.history, state.messages)
        shows_images = any(message.images for message in messages)
        # History may hold images from before the model refused one.
        if shows_images and not await model.vision.can_see():
            state.note_unseen()
            messages, shows_images = without_images(messages), False
        request = ModelRequest(messages, tools, may_call)
        try:
            completion = await self._complete(state, request)
        except LlmRejected as error:
            if not shows_images or not may_be_about_images(error):
                raise
            request = replace(request, messages=without_images(messages))
            completion = await self._complete(state, request)
            model.vision.refused()
            state.note_unseen()
        state.count(model, completion)
        return completion

    async def _complete(self, state: TurnState, request: ModelRequest) -> Completion:
        """Return the answer to a request, which may have been made early."""
        early, state.early = state.early, None
        if early is not None:
            question = Question(state.route.model.name, request)
            completion = await early.answer_to(question, state.still_trying)
            if completion is not None:
                return completion
        return await state.route.model.complete(
            request, still_trying=state.still_trying, patience=state.route.patience
        )

    async def _words(self, state: TurnState, completion: Completion, now: datetime) -> str:
        """Return a completion's text; where it has none, ask once more, for words alone."""
        if words := self._said(state, completion):
            return words
        said = completion.finish_reason
        reason = said if said in FINISH_REASONS else "other"
        log.info("turn.empty_answer", finish_reason=reason, turn=state.turn.id)
        # Whoever calls tools against `tool_choice` is not shown any.
        tools = () if completion.message.tool_calls else self._tools(state.prompt)
        again = await self._ask(state, now, tools, may_call=False)
        return self._said(state, again)

    def _said(self, state: TurnState, completion: Completion) -> str:
        state.is_cut = completion.finish_reason == CUT_OFF
        return (completion.message.content or "").strip()

    async def _resume(self, state: TurnState, context: TurnContext) -> None:
        """Show what ran before a crash, and finish the calls that it left open.

        Those with side effects do not run again.
        """
        if state.rounds:
            await context.show_again(self._is_shown)
        if state.open_calls:
            log.info("turn.resumed", turn=state.turn.id, count=len(state.open_calls))
            await self._run_open_calls(state, context, resumed=True)

    async def _run_open_calls(
        self, state: TurnState, context: TurnContext, *, resumed: bool = False
    ) -> None:
        """Run the open calls at the same time, and show them while they run.

        Those that a person answers may stay open.
        """
        count = self._counted(state)
        allowed = count.allowed
        heard, caller = await self._heard(state, context), state.confined(context.caller)
        requests = [
            ToolRequest(call.id, call.name, call.arguments, caller, heard, resumed=resumed)
            for call in state.open_calls
        ]
        context.show(self._shown_at_once(one for one in requests if one.call_id in allowed))
        running = []
        async with asyncio.TaskGroup() as tasks:
            for request in requests:
                refusal = None if request.call_id in allowed else _refusal(count)
                call = self._run_call(request, context, refusal)
                running.append(tasks.create_task(call))
                await asyncio.sleep(0)  # others' turns go on between the questions of many calls
        for task in running:
            result = task.result()
            if result.outcome is not Outcome.AWAITS_PERSON:
                state.close(result.request.call_id, result.content, images_of(result))

    async def _heard(self, state: TurnState, context: TurnContext) -> Heard:
        """Return what the model knows; only tools that take an address, or last, need it."""
        called = (self._registry.get(call.name) for call in state.open_calls)
        if not any(tool is not None and (tool.address or tool.lasting) for tool in called):
            return Heard()
        strangers_before = await self._store.turns.has_result_with(context.chat, UNTRUSTED)
        return replace(state.heard, strangers_before=strangers_before)

    async def _run_call(
        self, request: ToolRequest, context: TurnContext, refusal: str | None
    ) -> ToolResult:
        if refusal is None or self._registry.get(request.tool) is None:
            return await self._executor.execute(request, context, context.approval)
        result = ToolResult(request, Outcome.REFUSED, refusal, 0.0)
        await context.finished(result)
        return result

    def _shown_at_once(self, requests: Iterable[ToolRequest]) -> list[ToolRequest]:
        """Return the calls that run now.

        Those that ask first are shown once they are allowed; a question shows itself.
        """
        return [
            request
            for request in requests
            if self._is_shown(request.tool) and not self._executor.asks_first(request)
        ]

    def _is_shown(self, name: str) -> bool:
        tool = self._registry.get(name)
        return tool is not None and not tool.bookkeeping and not tool.answered_by_person


def _refusal(count: CallCount) -> str:
    """Return what the model is told of a call that may not run any more."""
    return OVER_STEP if count.is_in_plan else OVER_LIMIT
