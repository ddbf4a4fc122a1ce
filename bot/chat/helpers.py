"""`delegate`: a turn inside a turn, with its own conversation, tools and budget.

A helper knows only its task. It uses the same loop and the same models as its turn. Each of its
steps is stored before the next one uses it, so a restart continues it. The turn pays for it. Words
of strangers in the turn count as read by the helper. An answer made from such words is marked.
A helper has no helpers.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Final

from pydantic import Field

from bot.chat.loop import ToolLoop
from bot.chat.progress import ToolSigns
from bot.chat.prompt import Prompt
from bot.chat.turn import AllowanceUsedUp, Turn
from bot.llm.errors import LlmError
from bot.llm.messages import estimated_so_far
from bot.llm.models import Model
from conversation_store.models import Role, StoredTurn, TokenSum
from conversation_store.turns import TurnStore
from tools.base import Caller, Heard, InvalidArguments, ToolError, ToolOutput, holds_marked
from tools.registry import Registry

HELPER_SECONDS: Final = 600.0
"""Time of a whole helper, including the time that people take to answer its questions."""

MAX_TOKENS: Final = 100_000
"""A helper that has read and written so many tokens has to answer."""

MAX_TASK_CHARACTERS: Final = 10_000
MAX_TOOLS: Final = 50

NOT_FOR_HELPERS: Final = frozenset(
    {
        *("ask_user", "propose_plan", "todo", "delegate", "react"),
        *("remember", "forget", "remind", "schedule", "cancel_reminder", "set_timezone"),
    }
)
"""Tools that talk to the person, or have effects beyond the turn."""

OF_THE_CHAT: Final = frozenset({"search_chat", "recall", "catch_up", "list_reminders"})
"""Tools that show what people said; a helper has them only if its task names them."""

_GONE: Final = "This call is not open any more."
_NOTHING: Final = (
    "The helper had nothing to say. Give it the task in other words, or do it yourself."
)
_FAILED: Final = "The helper had to give up: {why}"
_CUT: Final = "\n[The helper's answer became too long for its model and ends here.]"

Task = Annotated[str, Field(min_length=1, max_length=MAX_TASK_CHARACTERS)]
Names = Annotated[tuple[Annotated[str, Field(max_length=64)], ...], Field(max_length=MAX_TOOLS)]


HelpWith = Callable[[str, Sequence[str]], Awaitable[ToolOutput]]
"""Runs a helper for a task with the named tools."""


async def delegate(help_with: HelpWith, task: Task, tools: Names = ()) -> ToolOutput:
    """Give a self-contained part of longer research to a helper, which answers you.

    Several in one message work at the same time.

    Args:
        task: All that it has to know, and what to return. It does not see this chat.
        tools: Names of tools. Default: all that only read, without those about this chat.
    """
    return await help_with(task, tools)


class HelperTurn(Turn):
    """The turn of a helper; the turn around it pays."""

    def __init__(
        self, turn: Turn, stored: StoredTurn, caller: Caller, prompt: Prompt, signs: ToolSigns
    ) -> None:
        own = replace(turn.stored, messages=stored.messages, notices=())
        super().__init__(turn.parts, own, turn.accepted, caller, turn.route.fork(), prompt)
        self.helper = stored.id
        self.costs, self.progress, self.signs = turn.costs, turn.progress, signs
        self.is_retry = turn.is_retry
        self._turn = turn
        self._tokens = estimated_so_far(stored.messages)  # a restart loses the count

    @property
    def is_exhausted(self) -> bool:
        """Whether the helper, or its turn, has used up its tokens."""
        return self._tokens >= MAX_TOKENS or self._turn.is_exhausted

    @property
    def heard(self) -> Heard:
        """The words in its turn and the results of its own tools; a model wrote its task."""
        told = self._turn.heard
        results = [*told.results, *self.results]
        return replace(told, results=results, of_turn=told.of_turn + len(self.results))

    @property
    def results(self) -> list[str]:
        """The results of its tools."""
        return [one.content or "" for one in self.messages if one.role is Role.TOOL]

    def count_tokens(self, model: Model, usage: TokenSum) -> None:
        """Add the tokens of an answer, or of a request that was cancelled."""
        super().count_tokens(model, usage)
        self._tokens += usage.prompt_tokens + usage.completion_tokens


@dataclass(eq=False, repr=False, slots=True, kw_only=True)
class Helpers:
    """Runs the helpers of all turns."""

    loop: ToolLoop
    store: TurnStore
    registry: Registry
    prompt: Prompt
    turn_of: Callable[[Caller], Turn]

    def of(self, caller: Caller) -> HelpWith:
        """Return the function that helps a running turn; ToolError without one."""
        return partial(self._help, self.turn_of(caller), caller)

    async def _help(
        self, turn: Turn, caller: Caller, task: str, names: Sequence[str]
    ) -> ToolOutput:
        """Run a helper for the call that asks for it; ToolError without an answer."""
        confined = replace(caller, tools=self._tools(caller, names))
        async with turn.helper_places:
            stored = await self.store.begin_helper(turn.id, caller.call, task)
            if stored is None:
                raise ToolError(_GONE)
            signs = turn.progress.helper(task)
            prompt = self.prompt.of_helper(confined)
            return await self._answer(HelperTurn(turn, stored, confined, prompt, signs))

    async def _answer(self, helper: HelperTurn) -> ToolOutput:
        answer = None
        try:
            answer = await self.loop.run(helper)
        except (LlmError, AllowanceUsedUp) as error:
            raise ToolError(_FAILED.format(why=error.sentence)) from error
        finally:
            helper.signs.ended(ok=bool(answer))
        if not answer:
            raise ToolError(_NOTHING)
        has_read_strangers = any(map(holds_marked, helper.results))
        return ToolOutput(answer + _CUT * helper.is_cut, untrusted=has_read_strangers)

    def _tools(self, caller: Caller, names: Sequence[str]) -> frozenset[str]:
        """Return the names of a helper's tools; InvalidArguments if it cannot have them."""
        possible = {
            tool.name: tool
            for tool in self.registry.offered_to(caller)
            if tool.name not in NOT_FOR_HELPERS
        }
        if not names:
            reading = {name for name, tool in possible.items() if tool.only_reads}
            return frozenset(reading - OF_THE_CHAT)
        if any(name not in possible for name in names):
            raise InvalidArguments(f"A helper can have these tools: {', '.join(possible)}.")
        return frozenset(names)
