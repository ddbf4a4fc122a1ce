"""`delegate`: a turn inside the turn, with a conversation, tools and a budget of its own.

A helper knows its task and nothing else. It runs through the same tool loop as its turn, goes the
same way through the models, and each of its steps is stored before the next one uses it, so that a
restart goes on with it. What it spends is spent by the turn; what strangers told the turn counts as
told to it, and what they told it comes back marked as theirs. It has no helpers of its own.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Final

from pydantic import Field

from bot.chat.allowance import AllowanceUsedUp
from bot.chat.live_turns import LiveTurn
from bot.chat.prompt import Prompt, Prompts
from bot.chat.tool_loop import ToolLoop
from bot.chat.turn_context import Signs
from bot.chat.turn_state import TurnState
from bot.llm.errors import LlmError
from bot.llm.estimate import estimated_so_far
from bot.llm.messages import Completion
from bot.llm.model import Model
from conversation_store.models import Message, NewExchange, Role, StoredHelper, TokenSpend
from conversation_store.sections.helpers import HelperStore
from tools.base import Caller, Heard, ToolOutput
from tools.errors import InvalidArguments, ToolError
from tools.registry import Registry
from tools.results import holds_marked

HELPER_SECONDS: Final = 600.0
"""For all of a helper, with the time that people take to answer its questions."""

MAX_TOKENS: Final = 100_000
"""What a helper may read and write before it has to answer with what it has."""

MAX_TASK_CHARACTERS: Final = 10_000
MAX_TOOLS: Final = 50

NOT_FOR_HELPERS: Final = frozenset(
    {
        *("ask_user", "propose_plan", "todo", "delegate"),
        *("remember", "forget", "remind", "schedule", "cancel_reminder", "set_timezone"),
    }
)
"""What speaks with the person, or stays when the turn is over, is the turn's own business."""

_GONE: Final = "This call is not open any more."
_NOTHING: Final = (
    "The helper had nothing to say. Give it the task in other words, or do it yourself."
)
_FAILED: Final = "The helper had to give up: {why}"
_CUT: Final = "\n[The helper's answer became too long for its model and ends here.]"

Task = Annotated[str, Field(min_length=1, max_length=MAX_TASK_CHARACTERS)]
Names = Annotated[tuple[Annotated[str, Field(max_length=64)], ...], Field(max_length=MAX_TOOLS)]


HelpWith = Callable[[str, Sequence[str]], Awaitable[ToolOutput]]
"""Lets a helper work off a task with the tools that are named."""


async def delegate(help_with: HelpWith, task: Task, tools: Names = ()) -> ToolOutput:
    """Give a part of longer work to a helper. Several calls at once work at the same time.

    Args:
        help_with: The turn that asks for help.
        task: All that the helper needs to know: it sees nothing of this conversation.
        tools: Names of the tools that it may use. Without any, those that only read.
    """
    return await help_with(task, tools)


class HelperState(TurnState):
    """A helper on its way through the tool loop.

    Args:
        turn: the turn that it belongs to, which pays.
        messages: what it has been shown so far.
        prompt: how that is put before a model.
    """

    def __init__(self, turn: TurnState, messages: Sequence[Message], prompt: Prompt) -> None:
        super().__init__(
            replace(turn.turn, messages=tuple(messages), notices=()),
            (),
            person=turn.person,
            chat=turn.chat,
            route=turn.route.fork(),
            prompt=prompt,
            still_trying=turn.still_trying,
        )
        self._turn = turn
        self._tokens = estimated_so_far(messages)  # a restart has lost the count

    @property
    def is_exhausted(self) -> bool:
        """Whether it, or its turn, has used up what it may read and write."""
        return self._tokens >= MAX_TOKENS or self._turn.is_exhausted

    @property
    def heard(self) -> Heard:
        """What its turn has been told, and what its own tools returned; its task is a model's."""
        told = self._turn.heard
        return replace(told, results=[*told.results, *self._results])

    @property
    def has_read_strangers(self) -> bool:
        """Whether strangers' words are among what its tools returned."""
        return any(map(holds_marked, self._results))

    @property
    def _results(self) -> list[str]:
        return [one.content or "" for one in self.messages if one.role is Role.TOOL]

    def count(self, model: Model, completion: Completion) -> None:
        """Let the turn pay for an answer."""
        self._turn.count(model, completion)
        for answer in (*completion.earlier, completion):
            if answer.usage is not None:
                self._tokens += answer.usage.prompt_tokens + answer.usage.completion_tokens

    async def check_allowance(self) -> None:
        """Make sure that its turn may still ask a model.

        Raises:
            AllowanceUsedUp: it may not.
        """
        await self._turn.check_allowance()

    def take_exchanged(self) -> tuple[NewExchange, ...]:
        """Return the exchanges of the turn that are not stored yet."""
        return self._turn.take_exchanged()

    def take_spent(self) -> tuple[TokenSpend, ...]:
        """Return what the turn has spent and is not stored yet."""
        return self._turn.take_spent()


class Helpers:
    """Runs the helpers of all turns.

    Args:
        loop: the one that turns run through.
        store: keeps what helpers do.
        registry: the tools that there are.
        prompts: how helpers are told what they are.
        turn_of: finds the turn that a call belongs to.
        clock: seconds since 1970.
    """

    def __init__(
        self,
        *,
        loop: ToolLoop,
        store: HelperStore,
        registry: Registry,
        prompts: Prompts,
        turn_of: Callable[[Caller], LiveTurn],
        clock: Callable[[], float],
    ) -> None:
        self._loop = loop
        self._store = store
        self._registry = registry
        self._prompts = prompts
        self._turn_of = turn_of
        self._clock = clock

    def of(self, caller: Caller) -> HelpWith:
        """Return what works off a call of a turn that runs; raises ToolError where none does."""
        return partial(self._help, self._turn_of(caller), caller)

    async def _help(
        self, turn: LiveTurn, caller: Caller, task: str, names: Sequence[str]
    ) -> ToolOutput:
        """Let a helper work off the call that asks for it.

        Raises:
            ToolError: it has no answer.
        """
        confined = replace(caller, tools=self._tools(caller, names))
        async with turn.helper_places:
            stored = await self._store.begin(turn.state.turn.id, caller.call, task)
            if stored is None:
                raise ToolError(_GONE)
            signs = turn.context.progress.helper(task)
            with signs.working():
                return await self._answer(turn, confined, stored, signs)

    async def _answer(
        self, turn: LiveTurn, caller: Caller, stored: StoredHelper, signs: Signs
    ) -> ToolOutput:
        state = HelperState(turn.state, stored.messages, self._prompts.of_helper(caller))
        context = turn.context.of_helper(stored.id, caller, signs)
        try:
            answer = await self._loop.run(state, context, self._now())
        except (LlmError, AllowanceUsedUp) as error:
            raise ToolError(_FAILED.format(why=error.sentence)) from error
        if not answer:
            raise ToolError(_NOTHING)
        return ToolOutput(answer + _CUT * state.is_cut, untrusted=state.has_read_strangers)

    def _tools(self, caller: Caller, names: Sequence[str]) -> frozenset[str]:
        """Return the names of the tools that a helper has.

        Raises:
            InvalidArguments: it cannot have one of those that are named.
        """
        possible = {
            tool.name: tool
            for tool in self._registry.offered_to(caller)
            if tool.name not in NOT_FOR_HELPERS
        }
        if not names:
            return frozenset(name for name, tool in possible.items() if tool.only_reads)
        if any(name not in possible for name in names):
            raise InvalidArguments(f"A helper can have these tools: {', '.join(possible)}.")
        return frozenset(names)

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock(), UTC)
