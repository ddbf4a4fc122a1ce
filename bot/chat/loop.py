"""The loop: ask the model and run its calls, until it answers in words or by a reaction.

A helper's turn runs through the same loop. Each step is stored before the next one uses it.
"""

import asyncio
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import structlog

from bot.backoff import set_within
from bot.chat.plan import (
    INSTEAD_OF_WORDS,
    OVER_LIMIT,
    REPEATED,
    allowed_calls,
    reaction_in,
)
from bot.chat.prompt import without_copies
from bot.chat.turn import Turn
from bot.llm.errors import LlmError, LlmRejected, may_be_about_images
from bot.llm.messages import CUT_OFF, Completion, ModelRequest
from bot.llm.rearranged import without_images
from tools.base import UNTRUSTED, Heard, ToolRequest, ToolResult
from tools.executor import ToolExecutor
from tools.registry import Registry
from tools.reminders import SET_TIMEZONE

log = structlog.get_logger()

FINISH_REASONS: Final = frozenset({"", "content_filter", "length", "stop", "tool_calls"})
"""Reasons that may be logged; other values could contain a person's words."""

TOOLS_START_SECONDS: Final = 20.0
"""How long a turn waits for tools that are still starting, such as MCP servers."""


@dataclass(eq=False, repr=False, slots=True, kw_only=True)
class ToolLoop:
    """Finds the answers of turns."""

    registry: Registry
    executor: ToolExecutor

    async def run(self, turn: Turn) -> str | None:
        """Return the model's answer, empty if it says nothing twice; may be cancelled.

        None if the turn waits for people, because only questions to them are open. Raise LlmError
        if the model cannot answer, and AllowanceUsedUp if the person has no tokens left today.
        """
        await set_within(self.registry.settled, TOOLS_START_SECONDS)
        await self._resume(turn)
        while not turn.open_calls:
            if emoji := reaction_in(turn.messages):
                turn.reaction = emoji
                return INSTEAD_OF_WORDS.format(emoji=emoji)
            await turn.join()
            _, has_room = self._allowed(turn)
            may_call = bool(turn.prompt.tools) and has_room and not turn.is_exhausted
            ask = partial(self._ask, turn, may_call=may_call)
            completion = await (
                ask() if turn.running is None else turn.running.unless_message_joins(ask)
            )
            if completion is None:
                continue  # a message has joined
            if not (may_call and completion.message.tool_calls):
                return await self._words(turn, completion)
            await turn.check_allowance()  # without tokens left, no answer could tell of the calls
            await turn.add_calls(completion.message)
            await self._run_open_calls(turn)
        return None

    async def _resume(self, turn: Turn) -> None:
        """Show the calls that ran before a crash, and finish the open ones.

        Calls with side effects do not run again.
        """
        if turn.rounds:
            await turn.show_again(self._is_shown)
        if turn.open_calls:
            log.info("turn.resumed", turn=turn.id, count=len(turn.open_calls))
            await self._run_open_calls(turn, resumed=True)

    # Ask the model ---------------------------------------------------------------------------

    def _allowed(self, turn: Turn) -> tuple[frozenset[str], bool]:
        return allowed_calls(turn.messages, turn.final_prompt.max_rounds, self._is_bookkeeping)

    def _is_bookkeeping(self, name: str) -> bool:
        tool = self.registry.get(name)
        return tool is not None and tool.bookkeeping

    async def _ask(self, turn: Turn, *, may_call: bool, with_tools: bool = True) -> Completion:
        """Ask the models of the turn's route until one answers."""
        await turn.check_allowance()
        has_shrunk = False
        while True:
            model = turn.route.model
            context_tokens = model.traits.context_tokens
            try:
                return await self._ask_model(turn, may_call=may_call, with_tools=with_tools)
            except LlmError as error:
                if not has_shrunk and model.traits.context_tokens < context_tokens:
                    has_shrunk = True  # the refusal named a size, so the next prompt is shorter
                elif not turn.route.go_on(error):
                    raise

    async def _ask_model(self, turn: Turn, *, may_call: bool, with_tools: bool) -> Completion:
        """Ask the current model of the route; without images if it cannot see."""
        model = turn.route.model
        messages = turn.prompt.build(turn.began_at, model.traits, turn.past, turn.messages)
        shows_images = any(message.images for message in messages)
        # History may hold images from before the model refused one.
        if shows_images and not await model.sees_images():
            turn.note_unseen()
            messages, shows_images = without_images(messages), False
        tools = turn.prompt.shown(model.traits) if with_tools else ()
        complete = partial(
            model.complete,
            still_trying=turn.progress.still_trying,
            cancelled=partial(turn.count_tokens, model),
            patience=turn.route.patience,
        )
        try:
            completion = await complete(ModelRequest(messages, tools, may_call))
        except LlmRejected as error:
            if not shows_images or not may_be_about_images(error):
                raise
            completion = await complete(ModelRequest(without_images(messages), tools, may_call))
            model.note_refused_images()
            turn.note_unseen()
        turn.count(model, completion)
        return completion

    async def _words(self, turn: Turn, completion: Completion) -> str:
        """Return a completion's text; if it has none, ask once more, for words alone."""
        if words := _said(turn, completion):
            return words
        said = completion.finish_reason
        reason = said if said in FINISH_REASONS else "other"
        log.info("turn.empty_answer", finish_reason=reason, turn=turn.id)
        # If the model calls tools in spite of `tool_choice`, show it none.
        with_tools = not completion.message.tool_calls
        return _said(turn, await self._ask(turn, may_call=False, with_tools=with_tools))

    # Run the calls ---------------------------------------------------------------------------

    async def _run_open_calls(self, turn: Turn, *, resumed: bool = False) -> None:
        """Run the open calls at the same time, and show them while they run.

        Questions to a person may stay open.
        """
        allowed, has_room = self._allowed(turn)
        refused = self._refused(turn, allowed)
        run = [call for call in turn.open_calls if call.id not in refused]
        shown = [call.id for call in run if self._is_shown(call.name)]
        turn.last_call = "" if has_room or not shown else shown[-1]
        heard, caller = await self._heard(turn), turn.confined_caller
        requests = [
            ToolRequest(call.id, call.name, call.arguments, caller, heard, resumed=resumed)
            for call in turn.open_calls
        ]
        # Calls that ask first are shown once they are allowed; a question is visible anyway.
        at_once = (one for one in requests if not self.executor.asks_first(one))
        turn.show(one for one in at_once if one.call_id in shown)
        zones = [one for one in requests if one.tool == SET_TIMEZONE]  # other calls need the zone
        for group in (zones, [one for one in requests if one not in zones]):
            running = []
            caller = turn.confined_caller
            async with asyncio.TaskGroup() as tasks:
                for request in (replace(one, caller=caller) for one in group):
                    call = self._run_call(turn, request, refused.get(request.call_id))
                    running.append(tasks.create_task(call))
                    await asyncio.sleep(0)  # other turns may run between questions of many calls
            for task in running:
                turn.close(task.result())
            if group is zones and zones:
                await turn.learn_zone()

    async def _heard(self, turn: Turn) -> Heard:
        """Return the words that the model has read; empty if no open call needs a check."""
        called = (self.registry.get(call.name) for call in turn.open_calls)
        if not any(
            tool is not None and (tool.address or tool.lasting or tool.side_effects)
            for tool in called
        ):
            return Heard()
        before = await turn.parts.store.turns.has_result_with(turn.chat, UNTRUSTED)
        return replace(turn.heard, strangers_before=before)

    def _refused(self, turn: Turn, allowed: Collection[str]) -> dict[str, str]:
        """Return why calls do not run, by their ids; the executor answers to wrong names itself."""
        asked = next((one.tool_calls for one in reversed(turn.messages) if one.tool_calls), ())
        first = {(one.name, one.arguments): one.id for one in reversed(asked)}
        known = [one for one in turn.open_calls if self.registry.get(one.name) is not None]
        over = {one.id: OVER_LIMIT for one in known if one.id not in allowed}
        repeated = (one.id for one in known if first[one.name, one.arguments] != one.id)
        return over | dict.fromkeys(repeated, REPEATED)

    async def _run_call(self, turn: Turn, request: ToolRequest, refusal: str | None) -> ToolResult:
        if refusal is None:
            return await self.executor.execute(
                request, ask=turn.ask, starting=turn.starting, finished=turn.finished
            )
        result = ToolResult(request, "refused", refusal, 0.0)
        await turn.finished(result)
        return result

    def _is_shown(self, name: str) -> bool:
        tool = self.registry.get(name)
        return tool is not None and not tool.bookkeeping and not tool.answered_by_person


def _said(turn: Turn, completion: Completion) -> str:
    turn.is_cut = completion.finish_reason == CUT_OFF
    return without_copies((completion.message.content or "").strip())
