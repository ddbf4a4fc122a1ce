"""A turn from its first message to its stored answer, with its model conversation and costs.

Every step is on disk before the next one uses it, so a turn that a crash interrupts goes on from
its last stored step.
"""

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, InitVar, dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from typing import Final

from bot.chat.ask import Questions
from bot.chat.history import NO_PAST, Past
from bot.chat.joining import RunningTurn
from bot.chat.media import CANNOT_SEE
from bot.chat.plan import LAST_ROUND, MISTAKES, is_accepted
from bot.chat.progress import Ended, Progress, ToolSigns
from bot.chat.prompt import Prompt, bytes_of
from bot.chat.quotes import checked, own_words
from bot.language.languages import Languages
from bot.llm.messages import Completion
from bot.llm.models import Model, Route
from bot.observability import metrics
from bot.signal.events import Person
from bot.signal.messenger import Sender
from conversation_store.history import EndedCalls
from conversation_store.models import (
    AcceptedMessage,
    Attachment,
    AuditEntry,
    ChatId,
    Image,
    Message,
    NewExchange,
    ReceivedMessage,
    Role,
    StoredTurn,
    StyledText,
    TokenSpend,
    TokenSum,
    ToolCall,
    TurnStatus,
)
from conversation_store.outbox import FileToMake
from conversation_store.outgoing import Outgoing
from conversation_store.store import ConversationStore
from tools import ledger
from tools.base import UNKNOWN_ZONE, Caller, Decision, Heard, ToolError, ToolRequest, ToolResult
from tools.question import CallQuestion
from tools.settings import FILE_TOOLS

MAX_HELPERS_AT_ONCE: Final = 8
"""Helpers of one turn that run at the same time; others wait."""

JOINED: Final = "[Sent while you worked on the answer:]"
"""Stands above messages that joined a running turn."""

RAN: Final = frozenset({"ok", "failed", "timeout", "bug"})
"""Outcomes of calls that ran; only these are shown again after a restart."""


class AllowanceUsedUp(Exception):
    """The person of a turn has used up today's tokens."""

    def __init__(self, sentence: str) -> None:
        super().__init__("a person's allowance is used up")
        self.sentence = sentence


@dataclass(frozen=True, slots=True)
class TurnParts:
    """The parts of the bot that every turn works with.

    Attributes:
        progress_shown: called with the chat when a progress message was sent.
        stops: returns the text for a person whose budget is used up, or None. Its second argument
            returns the tokens that are not stored yet.
    """

    store: ConversationStore
    questions: Questions
    channel: Sender
    languages: Languages
    progress_shown: Callable[[ChatId], None]
    stops: Callable[[Person, Callable[[], int]], Awaitable[str | None]]
    clock: Callable[[], float]

    def remember_progress(self, chat: ChatId, turn_id: int, timestamp: int) -> None:
        """Note that the progress message of a turn was sent."""
        self.progress_shown(chat)
        self.store.turns.record_progress(turn_id, timestamp)


@dataclass(eq=False, repr=False, slots=True)
class Costs:
    """The costs of a turn and its helpers; some counts are estimates.

    Attributes:
        exchanged: exchanges that are not stored yet, if signatures are checked.
        spent: tokens that the store has not counted yet.
    """

    prompt_tokens: int = 0
    completion_tokens: int = 0
    exchanged: list[NewExchange] = field(default_factory=list)
    spent: list[TokenSpend] = field(default_factory=list)

    def unstored(self) -> int:
        """Return how many tokens the store has not counted yet."""
        return sum(one.prompt_tokens + one.completion_tokens for one in self.spent)

    def take(self) -> tuple[tuple[NewExchange, ...], tuple[TokenSpend, ...]]:
        """Take the exchanges and tokens that are not stored yet; the caller stores them."""
        taken = tuple(self.exchanged), tuple(self.spent)
        self.exchanged.clear()
        self.spent.clear()
        return taken


@dataclass(eq=False, repr=False, slots=True)
class Turn:
    """A turn: the model's input and output so far, its calls, its costs and its answer.

    Attributes:
        accepted: the last message that it answers; its calls are made for its author.
        final_prompt: the prompt, except while the turn plans.
        fleeting: images that are shown and never kept.
        planning: the prompt until a plan is accepted; None if no plan is needed.
        running: takes the messages that join the turn; None if none can.
        is_retry: it answers an earlier question again; see `Questions.allow`.
        most_tokens: after so many, the turn may make no more calls; None means no limit.
        helper: the helper whose turn this is; None for the turn of a person.
        rounds: how often tools were called.
        last_call: id of the call whose result tells that no more may follow; empty if some may.
        is_cut: the model's limit cut off the answer.
        answer: the text, as the model wrote it.
        reaction: an emoji that is the answer instead of a text.
        to_make: a file that is made of the answer.
        past_before: the past ends before this turn; None: it is whole.
    """

    parts: TurnParts
    stored: StoredTurn
    accepted: AcceptedMessage
    caller: Caller
    route: Route
    final_prompt: Prompt
    past: Past = NO_PAST
    _: KW_ONLY
    past_before: int | None = None
    fleeting: InitVar[Sequence[Image]] = ()
    planning: Prompt | None = None
    running: RunningTurn | None = None
    is_retry: bool = False
    most_tokens: int | None = None
    helper: int | None = field(default=None, init=False)
    began_at: datetime = field(init=False)
    messages: list[Message] = field(init=False)
    notices: list[str] = field(init=False)
    rounds: int = field(init=False)
    last_call: str = field(default="", init=False)
    costs: Costs = field(init=False)
    progress: Progress = field(init=False)
    signs: ToolSigns = field(init=False)
    helper_places: asyncio.Semaphore = field(init=False)
    is_cut: bool = field(default=False, init=False)
    status: TurnStatus = field(default="failed", init=False)
    answer: str = field(default="", init=False)
    reaction: str = field(default="", init=False)
    to_make: FileToMake | None = field(default=None, init=False)
    shown: Sequence[StyledText] = field(default=(), init=False)
    _shown_calls: set[str] = field(default_factory=set, init=False)

    def __post_init__(self, fleeting: Sequence[Image]) -> None:
        self.began_at = datetime.fromtimestamp(self.parts.clock(), UTC)
        self.messages = [*self.stored.messages]
        if fleeting:
            asked = self.messages[0]
            self.messages[0] = replace(asked, images=(*asked.images, *fleeting))
        self.notices = list(self.stored.notices)
        self.rounds = sum(bool(message.tool_calls) for message in self.messages)
        self.costs = Costs()
        self.progress = Progress(
            self.parts.channel,
            self.chat,
            self.stored.progress_timestamp,
            edits=self.stored.progress_edits,
            # Not a method of the turn: a turn in a reference cycle keeps its history for long.
            remember=partial(self.parts.remember_progress, self.chat, self.id),
            say=partial(self.parts.languages.say, self.chat),
        )
        self.signs = self.progress.tools
        self.helper_places = asyncio.Semaphore(MAX_HELPERS_AT_ONCE)

    @property
    def id(self) -> int:
        """The id of the turn, and of its first message."""
        return self.stored.id

    @property
    def person(self) -> Person:
        """The author of the last message; pays for the turn."""
        message = self.accepted.message
        return Person(message.author, message.author_number)

    @property
    def chat(self) -> ChatId:
        """The chat of the turn."""
        return self.accepted.message.chat

    # The model's input -----------------------------------------------------------------------

    @property
    def _is_planning(self) -> bool:
        return self.planning is not None and not is_accepted(self.messages)

    @property
    def prompt(self) -> Prompt:
        """The prompt for the next request: the one for planning, or the final one."""
        return self.planning if self.planning and self._is_planning else self.final_prompt

    @property
    def confined_caller(self) -> Caller:
        """The caller of the turn, limited to the tools that it may use now."""
        if not self._is_planning:
            return self.caller
        return replace(self.caller, tools=frozenset(tool.name for tool in self.prompt.tools))

    async def learn_zone(self) -> None:
        """Let later calls of the turn know the zone that one of its calls has set."""
        zone = await self.parts.store.reminders.zone_of(self.caller.person)
        self.caller = replace(self.caller, zone=zone or UNKNOWN_ZONE)

    @property
    def heard(self) -> Heard:
        """The words that the model has heard so far."""
        heard = heard_in([*chain.from_iterable(self.past.turns), *self.messages])
        if self.past.summary is not None:  # not a person's words, and perhaps strangers'
            heard = replace(heard, results=[self.past.summary.content or "", *heard.results])
        own = () if self.running is None else self.running.said_by(self.caller.person)
        return replace(heard, own=own, of_turn=sum(one.role is Role.TOOL for one in self.messages))

    @property
    def bytes_in_chat(self) -> int | None:
        """Bytes of this turn and all before it; None if the model does not see all of them."""
        if self.past.size is None:
            return None
        return self.past.size + bytes_of(self.messages) + len(self.answer.encode())

    async def join(self) -> None:
        """Store and add the messages that the person has sent in the meantime."""
        pieces = () if self.running is None else self.running.take()
        if not pieces:
            return
        store = self.parts.store
        messages = await checked_messages(store, pieces)
        reacted = await store.reactions.waiting(self.chat)
        traits = self.route.model.traits
        content = self.final_prompt.user_content(messages, traits, reactions=reacted)
        if self.messages[-1].role is Role.TOOL:
            content = f"{JOINED}\n{content}"
        # If a message was deleted in the meantime, nothing is added, and the turn starts again.
        if await store.turns.hear(self.id, pieces, content, reacted):
            self.messages.append(Message(Role.USER, content))

    def note_unseen(self) -> None:
        """Add a notice that the model cannot see images, if the message had any."""
        shown = any(message.images for message in self.messages)
        unseen = self.parts.languages.say(self.chat, CANNOT_SEE)
        if shown and unseen not in self.notices:
            self.notices.append(unseen)

    # Costs -----------------------------------------------------------------------------------

    @property
    def is_exhausted(self) -> bool:
        """Whether the turn has used up its tokens, so that it may make no more calls."""
        used = self.costs.prompt_tokens + self.costs.completion_tokens
        return self.most_tokens is not None and used >= self.most_tokens

    async def check_allowance(self) -> None:
        """Raise AllowanceUsedUp if the person, with this turn, has no tokens left."""
        if (sentence := await self.parts.stops(self.person, self.costs.unstored)) is not None:
            raise AllowanceUsedUp(sentence)

    def count(self, model: Model, completion: Completion) -> None:
        """Add the costs of an answer, and its exchange if signatures are checked."""
        for one in (*completion.earlier, completion):
            if model.signs:
                self.costs.exchanged.append(exchange_of(model, one))
            self.count_tokens(model, one.usage or TokenSum(0, 0))

    def count_tokens(self, model: Model, usage: TokenSum) -> None:
        """Add the tokens of an answer, or of a request that was cancelled."""
        costs, counts = self.costs, (usage.prompt_tokens, usage.completion_tokens)
        costs.prompt_tokens += usage.prompt_tokens
        costs.completion_tokens += usage.completion_tokens
        spent = TokenSpend(self.person.aci, self.chat, model.name, *counts, usage.is_estimated)
        costs.spent.append(spent)

    # Calls -----------------------------------------------------------------------------------

    @property
    def open_calls(self) -> tuple[ToolCall, ...]:
        """Calls of the last assistant message that have no result yet."""
        open_ids = {
            message.tool_call_id
            for message in self.messages
            if message.role is Role.TOOL and message.content is None
        }
        asked = next((one for one in reversed(self.messages) if one.tool_calls), None)
        calls = () if asked is None else asked.tool_calls
        return tuple(call for call in calls if call.id in open_ids)

    def check_reaction(self) -> None:
        """Raise ToolError unless a reaction to the last message may be the whole answer."""
        asked = next((one for one in reversed(self.messages) if one.tool_calls), None)
        if asked is None or len(asked.tool_calls) > 1:
            raise ToolError(
                "Not sent: a reaction ends your answer, so call react alone, as the last call."
            )
        # Nobody has just written a scheduled question. The answer to an edit and a repeated answer
        # replace words, and lines for the person stand above words.
        running = self.running
        if (
            running is None
            or self.is_retry
            or self.notices
            or running.pieces[0].replaces is not None
        ):
            raise ToolError("Not sent: this needs an answer in words.")

    async def add_calls(self, assistant: Message) -> None:
        """Store the calls that the model asks for, and add them; make their ids unique."""
        used = {call.id for message in self.messages for call in message.tool_calls}
        calls = []
        for call in assistant.tool_calls:
            own_id = call.id
            while own_id in used:
                own_id = f"{call.id}_{len(used)}"
            used.add(own_id)
            calls.append(replace(call, id=own_id))
        asked = replace(assistant, tool_calls=tuple(calls))
        self.rounds += 1
        self.messages.append(asked)
        self.messages += [Message(Role.TOOL, None, tool_call_id=call.id) for call in calls]
        self._note_reader(call.name for call in calls)
        await self.parts.store.turns.record_calls(
            self.id, asked, *self.costs.take(), helper=self.helper
        )

    def _note_reader(self, tools: Iterable[str]) -> None:
        if not FILE_TOOLS.isdisjoint(tools):
            self.parts.store.files.note_reader(self.id)

    def show(self, requests: Iterable[ToolRequest]) -> None:
        """Show in the chat that calls run."""
        for request in requests:
            self._shown_calls.add(request.call_id)
            self.signs.show(request.tool)

    async def ask(self, request: ToolRequest, question: CallQuestion) -> Decision:
        """Ask a person if a call may run; see `Questions.allow`."""
        return await self.parts.questions.allow(
            request, question, self.accepted.message, self.id, self.helper, is_retry=self.is_retry
        )

    async def starting(self, request: ToolRequest) -> None:
        """Store that an allowed call runs now, and show it."""
        await self.parts.store.questions.begin(self.id, request.call_id, self.helper)
        self.show([request])

    async def finished(self, result: ToolResult) -> None:
        """Store the result and its audit entry in one transaction, count it and show it."""
        request = result.request
        # The name comes from the model: only names of real tools may become labels.
        tool = "unknown" if result.outcome == "unknown" else request.tool
        metrics.count_tool_call(tool, result.outcome, result.duration_seconds)
        entry = AuditEntry(
            at=int(self.parts.clock() * 1_000),
            chat=self.chat,
            author=self.caller.person,
            turn_id=self.id,
            tool=tool,
            arguments_sha256=hashlib.sha256(request.arguments.encode()).hexdigest(),
            outcome=result.outcome,
            duration_ms=round(result.duration_seconds * 1000),
        )
        for file in result.files:
            ledger.note("file", "", file.name, len(file.data))
        self._note_reader([tool])  # files may have come while the bot waited for a person
        await self.parts.store.turns.record_result(
            request.call_id,
            self._told(result),
            entry,
            images=_images_of(result),
            files=[Attachment(file.name, file.content_type, file.data) for file in result.files],
            helper=self.helper,
        )
        if request.call_id in self._shown_calls:
            self._shown_calls.remove(request.call_id)
            self.signs.finished(request.tool, ok=result.outcome == "ok")

    def _told(self, result: ToolResult) -> str:
        """Return a result as the model reads it."""
        ran = result.outcome != "refused" and result.outcome not in MISTAKES
        is_last = ran and result.request.call_id == self.last_call
        return result.content + LAST_ROUND * is_last

    def close(self, result: ToolResult) -> None:
        """Give an open call its result; a call that waits for a person stays open."""
        if result.outcome == "awaits_person":
            return
        for place, message in enumerate(self.messages):
            if message.tool_call_id == result.request.call_id and message.content is None:
                self.messages[place] = replace(
                    message,
                    content=self._told(result),
                    images=_images_of(result),
                    failed=result.outcome != "ok",
                )

    async def show_again(self, is_shown: Callable[[str], bool]) -> None:
        """Show how calls before a restart ended, if their tools are shown."""
        ended = await self.parts.store.turns.ended_calls(self.id)
        if self.helper is not None:
            self.signs.show_again(_signs_of(ended[self.helper], is_shown))
            return
        self.progress.show_again(_signs_of(ended[None], is_shown))
        for helper in ended.values():
            if helper.outcome is not None:
                signs = self.progress.helper(helper.task)
                signs.show_again(_signs_of(helper, is_shown))
                signs.ended(ok=helper.outcome == "ok")


def exchange_of(model: Model, completion: Completion) -> NewExchange:
    """Return the exchange of an answer; without hashes it counts, but cannot be checked."""
    known = completion.exchange or NewExchange("", "", "")
    return replace(known, model=model.name)


def note_outgoing(store: ConversationStore, turn_id: int, entry: ledger.Entry) -> None:
    """Store that something leaves for a turn."""
    kind, target, detail, size, is_proven = entry
    store.outgoing.note(turn_id, Outgoing(kind, target, detail, is_proven, 1, size))


@contextmanager
def audited(
    store: ConversationStore, turn_id: int, what: str, sent: str, remark: str = ""
) -> Iterator[None]:
    """Audit the request for a turn that is made inside, and note what leaves for it.

    Args:
        remark: added to the details of these notes.
    """

    def note(entry: ledger.Entry) -> None:
        note_outgoing(store, turn_id, entry._replace(detail=entry.detail + remark))

    outcome, began = "failed", time.monotonic()
    try:
        with ledger.noting(note):
            yield
        outcome = "ok"
    finally:
        digest = hashlib.sha256(sent.encode(errors="replace")).hexdigest()
        taken = round((time.monotonic() - began) * 1_000)
        store.outgoing.audit(turn_id, what, digest, outcome=outcome, duration_ms=taken)


def running_turn(running: dict[int, Turn], caller: Caller) -> Turn:
    """Return the running turn that a call belongs to; ToolError without one."""
    turn = None if caller.turn is None else running.get(caller.turn)
    if turn is None:
        raise ToolError("This works only while a message is being answered.")
    return turn


async def checked_messages(
    store: ConversationStore, pieces: Sequence[AcceptedMessage]
) -> list[ReceivedMessage]:
    """Return messages with checked quotes."""
    messages = [piece.message for piece in pieces]
    return [
        await checked(one, store.outbox, store.reminders) if one.quote else one for one in messages
    ]


def heard_in(told: Sequence[Message]) -> Heard:
    """Return the words that a model has heard, separated by speakers."""
    return Heard(
        people=[own_words(one.content or "") for one in told if one.role is Role.USER],
        results=[one.content or "" for one in told if one.role is Role.TOOL],
    )


def _signs_of(ended: EndedCalls, is_shown: Callable[[str], bool]) -> Ended:
    return [
        (tool, outcome == "ok")
        for tool, outcome in ended.calls
        if outcome in RAN and is_shown(tool)
    ]


def _images_of(result: ToolResult) -> tuple[Image, ...]:
    return tuple(Image(image.content_type, image.data) for image in result.images)
