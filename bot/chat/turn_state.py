"""A turn on its way through the tool loop: what the model has been shown, and what it cost."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain

from bot.chat.allowance import AllowanceUsedUp, Stops, never_stops
from bot.chat.early_request import EarlyRequest, StillTrying
from bot.chat.media import CANNOT_SEE
from bot.chat.plan_mode import is_accepted
from bot.chat.prompt import Prompt
from bot.chat.quotes import without_bots_words
from bot.llm.failover import Route
from bot.llm.messages import Completion, Usage
from bot.llm.model import Model
from conversation_store.models import (
    ChatId,
    Image,
    Message,
    NewExchange,
    Role,
    TokenSpend,
    ToolCall,
    Turn,
    TurnUsage,
)
from tools.base import Caller, Heard

Further = Callable[[], Awaitable[Message | None]]
"""Returns what a person has written while a turn runs; stored before the model sees it."""


async def nothing_further() -> None:
    """Be what nobody adds to."""


class TurnState:
    """One turn on its way: what the model has been shown so far, and what it cost.

    Args:
        turn: which.
        history: what came before.
        fleeting: images that are shown and never kept.
        early: may have the answer to the first request already.
        person: who asks, by ACI, and pays.
        chat: where.
        route: through the models.
        prompt: how the turn is put before a model.
        still_trying: told when the model makes the turn wait.
        further: returns what the person has written meanwhile, as the model sees it.
        most_tokens: after so many it asks for no more calls; None: no bound.
        stops: says whether its person has used up what they may use.
        planning: how the turn is put before a model until a plan is accepted; None where none has
            to be.

    Attributes:
        is_cut: the answer ends where the model may not write more.
    """

    def __init__(
        self,
        turn: Turn,
        history: Sequence[Sequence[Message]],
        fleeting: Sequence[Image] = (),
        early: EarlyRequest | None = None,
        *,
        person: str,
        chat: ChatId,
        route: Route,
        prompt: Prompt,
        still_trying: StillTrying,
        further: Further = nothing_further,
        most_tokens: int | None = None,
        stops: Stops = never_stops,
        planning: Prompt | None = None,
    ) -> None:
        self.turn = turn
        self.early = early
        self.person = person
        self.chat = chat
        self.route = route
        self._prompt = prompt
        self._planning = planning
        self.still_trying = still_trying
        self._further = further
        self._most_tokens = most_tokens
        self._stops = stops
        self.history = history
        asked, *rest = turn.messages
        self.messages = [replace(asked, images=(*asked.images, *fleeting)), *rest]
        self.notices = list(turn.notices)
        self.usage = TurnUsage()
        self.is_cut = False
        self.rounds = sum(bool(message.tool_calls) for message in turn.messages)
        self.exchanged: list[NewExchange] = []
        self._spent: list[TokenSpend] = []

    @property
    def _is_planning(self) -> bool:
        return self._planning is not None and not is_accepted(self.messages)

    @property
    def prompt(self) -> Prompt:
        """How the turn is put before a model now."""
        return self._planning if self._planning and self._is_planning else self._prompt

    def confined(self, caller: Caller) -> Caller:
        """Return the caller of the turn with the tools that exist for it now."""
        if not self._is_planning:
            return caller
        return replace(caller, tools=frozenset(tool.name for tool in self.prompt.tools))

    @property
    def calls(self) -> Iterator[ToolCall]:
        """The calls that were asked for, whatever became of them."""
        return (call for message in self.messages for call in message.tool_calls)

    @property
    def is_exhausted(self) -> bool:
        """Whether it may ask for no more calls, however many it has asked for."""
        used = self.usage.prompt_tokens + self.usage.completion_tokens
        return self._most_tokens is not None and used >= self._most_tokens

    async def check_allowance(self) -> None:
        """Make sure that a model may be asked, and what it asks for be done.

        Raises:
            AllowanceUsedUp: by all that the person has asked today, helpers of this turn included.
        """
        if (sentence := await self._stops(self._unstored)) is not None:
            raise AllowanceUsedUp(sentence)

    def _unstored(self) -> int:
        return sum(one.prompt_tokens + one.completion_tokens for one in self._spent)

    @property
    def open_calls(self) -> tuple[ToolCall, ...]:
        """Calls of the last assistant message that have no result yet."""
        open_ids = {
            message.tool_call_id
            for message in self.messages
            if message.role == "tool" and message.content is None
        }
        asked = [message for message in self.messages if message.tool_calls]
        return tuple(call for call in asked[-1].tool_calls if call.id in open_ids) if asked else ()

    @property
    def heard(self) -> Heard:
        """What the model has been told so far."""
        return heard_in([*chain.from_iterable(self.history), *self.messages])

    async def hear(self) -> None:
        """Add what the person has written since tools were called."""
        if self.rounds and (message := await self._further()) is not None:
            self.messages.append(message)

    def ask(self, assistant: Message) -> Message:
        """Add a message that calls tools, with every call open and no id used twice."""
        used = {call.id for message in self.messages for call in message.tool_calls}
        calls = []
        for call in assistant.tool_calls:
            own_id = call.id
            while own_id in used:
                own_id = f"{call.id}_{len(used)}"
            used.add(own_id)
            calls.append(replace(call, id=own_id))
        assistant = replace(assistant, tool_calls=tuple(calls))
        self.rounds += 1
        self.messages.append(assistant)
        self.messages += [
            Message(Role.TOOL, None, tool_call_id=call.id) for call in assistant.tool_calls
        ]
        return assistant

    def close(self, call_id: str, content: str, images: Sequence[Image] = ()) -> None:
        """Give an open call its result, and what that shows."""
        for index, message in enumerate(self.messages):
            if message.tool_call_id == call_id and message.content is None:
                self.messages[index] = replace(message, content=content, images=tuple(images))

    def note_unseen(self) -> None:
        """Say that the model saw no images, where one came with the message."""
        shown = any(message.images for message in self.messages)
        if shown and CANNOT_SEE not in self.notices:
            self.notices.append(CANNOT_SEE)

    def take_exchanged(self) -> tuple[NewExchange, ...]:
        """Return the exchanges that are not stored yet; whoever takes them stores them."""
        taken = tuple(self.exchanged)
        self.exchanged.clear()
        return taken

    def take_spent(self) -> tuple[TokenSpend, ...]:
        """Return what was spent and is not stored yet; whoever takes it stores it."""
        taken = tuple(self._spent)
        self._spent.clear()
        return taken

    def count(self, model: Model, completion: Completion) -> None:
        """Add what an answer cost, and what is to be checked of it."""
        for earlier in completion.earlier:
            self._count(model, earlier)
        self._count(model, completion)

    def _count(self, model: Model, completion: Completion) -> None:
        if model.signs:
            self.exchanged.append(_exchange(model, completion))
        usage = completion.usage or Usage(0, 0)
        self.usage = TurnUsage(
            requests=self.usage.requests + 1,
            prompt_tokens=self.usage.prompt_tokens + usage.prompt_tokens,
            completion_tokens=self.usage.completion_tokens + usage.completion_tokens,
        )
        self._spent.append(
            TokenSpend(
                self.person,
                self.chat,
                model.name,
                usage.prompt_tokens,
                usage.completion_tokens,
                usage.is_estimated,
            )
        )


def heard_in(told: Sequence[Message]) -> Heard:
    """Return what a model has been told, by whom it was said."""
    return Heard(
        people=[without_bots_words(one.content or "") for one in told if one.role == "user"],
        results=[one.content or "" for one in told if one.role == "tool"],
    )


def _exchange(model: Model, completion: Completion) -> NewExchange:
    """Return the hashes of an exchange; one without a name is counted and cannot be checked."""
    known = completion.exchange
    if known is None:
        return NewExchange("", "", "", model.name)
    return NewExchange(known.completion_id, known.request_sha256, known.response_sha256, model.name)
