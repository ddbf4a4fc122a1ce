"""The tool loop: model ← prompt and tools; calls → results; until words come.

Everything that happened is on disk before the next step looks at it, so a turn that a crash
has cut goes on from its last stored message.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Final, Protocol

import structlog

from bot.approvals import ApprovalDesk, TurnApproval
from bot.chat.audit import TurnAudit
from bot.chat.loop import Loop
from bot.chat.media import Prepared
from bot.chat.progress import Progress, ProgressChannel
from bot.chat.prompt import Prompt, as_stored
from bot.chat.quotes import checked
from bot.chat.rendering.layout import plain
from bot.llm.errors import (
    LlmBroken,
    LlmContextTooLong,
    LlmError,
    LlmNotAttested,
    LlmRejected,
    LlmTimeout,
    LlmUnauthorized,
    LlmUnavailable,
)
from bot.llm.images import without_images
from bot.llm.messages import Completion, Message, ToolSpec
from bot.llm.vision import may_be_about_images
from bot.messaging.events import ChatId
from bot.messaging.styled import StyledText
from bot.observability import metrics
from conversation_store.models import (
    AcceptedMessage,
    AnswerPart,
    NewExchange,
    OutgoingMessage,
    ReceivedMessage,
    StoredImage,
    StoredQuote,
    StoredStyle,
    Turn,
    TurnState,
    TurnUsage,
)
from conversation_store.store import ConversationStore
from tools.base import Heard, Outcome, ToolRequest, ToolResult
from tools.executor import ToolExecutor
from tools.registry import Registry
from tools.results import UNTRUSTED

log = structlog.get_logger()

MAX_ATTEMPTS: Final = 10
"""A turn that was begun so often and never ended is given up: it may be what ends the process."""

FINISH_REASONS: Final = frozenset({"", "content_filter", "length", "stop", "tool_calls"})
"""What an endpoint may say of why an answer ended, to be logged: it could as well quote it."""

TOOLS_START_SECONDS: Final = 20.0
"""How long a turn waits for tools that are just being started, as MCP servers are."""

OVER_LIMIT: Final = (
    "Not run: no more tool calls are allowed for this message. Answer with what you have."
)
EMPTY: Final = "The model had nothing to say to that, twice. Please say it in other words."
GIVEN_UP: Final = (
    "I was interrupted several times while answering this and have given up on it."
    " Please send it again if you still need it."
)
TOO_LONG: Final = (
    "This conversation has become longer than the model can read."
    " Send !clear to start afresh, then ask again."
)
SENTENCES: Final[tuple[tuple[type[LlmError], str], ...]] = (
    (LlmContextTooLong, TOO_LONG),
    (LlmTimeout, "The model took too long to answer. Please try again."),
    (LlmBroken, "The model's answer broke off on the way. Please send your message again."),
    (LlmUnauthorized, "The model refuses my access. Please tell the operator of this bot."),
    (LlmRejected, "The model did not accept this request. Please tell the operator of this bot."),
    (LlmUnavailable, "The model cannot be reached right now. Please try again in a few minutes."),
    (LlmError, "The model gave no answer. Please try again."),
)


class TurnForgotten(Exception):
    """One of the messages was deleted at the last moment, and with it all that was begun."""


class ChatModel(Protocol):
    """What answers. Implemented by `bot.llm.client.LlmClient`."""

    async def complete(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()
    ) -> Completion:
        """Return the model's whole answer; raises LlmError."""
        ...


class Reader(Protocol):
    """What reads the files of messages. Implemented by `bot.chat.media.Media`."""

    async def prepare(self, messages: Sequence[ReceivedMessage]) -> Prepared:
        """Return what the model is told and shown of messages, and what people are."""
        ...

    async def discard(self, messages: Sequence[ReceivedMessage]) -> None:
        """Delete the Signal side's copies of the files of messages."""
        ...


class Eyes(Protocol):
    """Whether the model sees. Implemented by `bot.llm.vision.Vision`."""

    async def can_see(self) -> bool:
        """Return whether images are to be sent to it."""
        ...

    def refused(self) -> None:
        """Take note that the model has refused images."""
        ...


class Renderer(Protocol):
    """Makes messages of answers. Implemented by `bot.chat.rendering.client.Renderer`."""

    async def messages(self, answer: str, notices: Sequence[str]) -> Sequence[StyledText]:
        """Return what shows an answer below some plain lines."""
        ...

    async def as_typed(self, text: str, notices: Sequence[str]) -> Sequence[StyledText]:
        """Return what shows a text below some plain lines, as it stands."""
        ...


class SignatureDesk(Protocol):
    """Checks signatures of answers. Implemented by `dispatch.outgoing.proofs.AnswerProofs`."""

    def wake(self) -> None:
        """Look for exchanges of turns that have just ended."""
        ...


@dataclass(frozen=True, slots=True)
class Thought:
    """An answer that is found and not yet stored.

    Attributes:
        turn: what it answers.
        state: ANSWERED or FAILED.
        answer: the words.
        shown: the messages that show them.
        usage: what they cost.
        rounds: how often tools were called.
        exchanged: requests and answers that are not stored yet, where signatures are checked.
    """

    turn: Turn
    state: TurnState
    answer: str
    shown: Sequence[StyledText]
    usage: TurnUsage
    rounds: int = 0
    exchanged: tuple[NewExchange, ...] = ()


class ChatHandler:
    """Answers messages with the model's help.

    Args:
        model: what answers.
        model_name: for the record.
        prompt: what the model is shown.
        registry: what tools there are.
        executor: runs them.
        store: where everything is kept.
        approvals: asks people before a call with side effects.
        media: reads what comes with messages.
        eyes: whether the model sees images.
        renderer: makes messages of answers.
        progress: where work is shown.
        progress_shown: told that it was, by the chat.
        keep_arguments: whether the audit keeps the arguments of calls, beside their hash.
        proofs: checks the signatures of answers; None where the endpoint signs none.
        max_tool_calls: in one turn; then the model must answer in words.
        clock: seconds since 1970.

    Attributes:
        max_tool_calls: may be changed at any time.
    """

    def __init__(
        self,
        *,
        model: ChatModel,
        model_name: str,
        prompt: Prompt,
        registry: Registry,
        executor: ToolExecutor,
        store: ConversationStore,
        approvals: ApprovalDesk,
        media: Reader,
        eyes: Eyes,
        renderer: Renderer,
        progress: ProgressChannel,
        progress_shown: Callable[[ChatId], None],
        keep_arguments: bool,
        proofs: SignatureDesk | None,
        max_tool_calls: int,
        clock: Callable[[], float],
    ) -> None:
        self._model = model
        self._model_name = model_name
        self._prompt = prompt
        self._registry = registry
        self._executor = executor
        self._store = store
        self._approvals = approvals
        self._media = media
        self._eyes = eyes
        self._renderer = renderer
        self._progress = progress
        self._progress_shown = progress_shown
        self._keep_arguments = keep_arguments
        self._proofs = proofs
        self.max_tool_calls = max_tool_calls
        self._clock = clock

    async def think(self, pieces: Sequence[AcceptedMessage]) -> Thought:
        """Find the answer to a message, or to several that belong together; may be cancelled.

        A model that cannot answer becomes a plain sentence, never an exception.

        Raises:
            TurnForgotten: there is nothing to go on with.
        """
        now = datetime.fromtimestamp(self._clock(), UTC)
        accepted = pieces[-1]
        turn, fleeting, can_be_asked = await self._begin(pieces)
        log.debug("turn.began", turn=turn.id, attempt=turn.attempts, count=len(pieces))
        if turn.attempts > MAX_ATTEMPTS:
            log.error("turn.given_up", attempts=turn.attempts, turn=turn.id)
            return Thought(turn, TurnState.FAILED, GIVEN_UP, plain(GIVEN_UP, ()), TurnUsage())
        if not can_be_asked:
            refusal = "\n".join(turn.notices)
            shown = await self._renderer.as_typed(refusal, ())
            return Thought(turn, TurnState.FAILED, refusal, shown, TurnUsage())
        history = await self._store.history(
            accepted.message.chat, max_bytes=self._prompt.history_bytes(now, turn.messages)
        )
        loop = Loop(turn, history, fleeting)
        try:
            answer = await self._answer(loop, accepted, now)
        except LlmError as error:
            log.warning("turn.failed", error=type(error).__name__, turn=turn.id)
            return await self._failed(loop, _sentence(error))
        if not answer:
            return await self._failed(loop, EMPTY)
        shown = await self._renderer.messages(answer, loop.notices)
        return _thought(loop, TurnState.ANSWERED, answer, shown)

    async def _failed(self, loop: Loop, sentence: str) -> Thought:
        shown = await self._renderer.as_typed(sentence, loop.notices)
        return _thought(loop, TurnState.FAILED, sentence, shown)

    async def _begin(
        self, pieces: Sequence[AcceptedMessage]
    ) -> tuple[Turn, tuple[StoredImage, ...], bool]:
        """Begin a turn, or go on with one; with images that are not kept, and whether to ask."""
        messages = [await checked(piece.message, self._store) for piece in pieces]
        has_files = any(message.files for message in messages)
        if pieces[0].begun:
            resumed = await self._store.resume_turn(pieces[0])
            if resumed is None:
                raise TurnForgotten
            return resumed, (), True
        prepared = await self._media.prepare(messages) if has_files else _as_written(messages)
        chat = messages[0].chat
        overheard = await self._store.overheard(chat) if ChatId.parse(chat).is_group else ()
        turn = self._store.begin_turn(
            pieces,
            self._prompt.user_content(
                messages, words=_said(messages, prepared), overheard=overheard
            ),
            images=prepared.images,
            notices=prepared.notices,
            overheard=overheard,
        )
        at_once = [message for message in messages if message.view_once]
        if at_once:
            await self._store.ping()  # behind it, the turn's beginning is on disk
            await self._media.discard(at_once)
        return turn, prepared.fleeting, prepared.has_words

    async def finish(
        self, pieces: Sequence[AcceptedMessage], thought: Thought, *, quote: StoredQuote
    ) -> tuple[OutgoingMessage, ...]:
        """Store the answer as what is to be sent, and count the turn.

        Args:
            pieces: what is answered.
            thought: the answer.
            quote: what it is shown as a reply to, where that is called for.

        Raises:
            TurnForgotten: nothing of it was stored.
        """
        first = pieces[0]
        # Not before: a turn whose pieces are changed begins afresh and reads them again. And not
        # after: what is answered is never looked at again, whatever ends the process now.
        messages = [piece.message for piece in pieces]
        if any(message.files for message in messages):
            await self._store.ping()  # behind it, what was read is on disk
            await self._media.discard(messages)
        outgoing = await self._store.finish_turn(
            thought.turn,
            state=thought.state,
            answer=thought.answer,
            parts=[_stored(message) for message in thought.shown],
            quote=quote,
            always_quote=ChatId.parse(first.message.chat).is_group,
            replaces=first.replaces,
            model=self._model_name,
            usage=thought.usage,
            exchanged=thought.exchanged,
        )
        if not outgoing:
            raise TurnForgotten
        if self._proofs is not None:
            self._proofs.wake()
        log.debug("turn.finished", turn=first.id, outcome=thought.state, count=thought.rounds)
        metrics.TURNS.labels(thought.state).inc()
        metrics.TURN_ROUNDS.observe(thought.rounds)
        with_tools = "yes" if thought.rounds else "no"
        metrics.TURN_TOKENS.labels(with_tools, "prompt").inc(thought.usage.prompt_tokens)
        metrics.TURN_TOKENS.labels(with_tools, "completion").inc(thought.usage.completion_tokens)
        return outgoing

    async def _answer(self, loop: Loop, accepted: AcceptedMessage, now: datetime) -> str:
        """Go round until the model answers in words; empty when it does not."""
        await self._tools_started()
        calls = self._calls_of(loop, accepted)
        async with calls.progress.running():
            return await self._rounds(loop, calls, now)

    async def _rounds(self, loop: Loop, calls: "_Calls", now: datetime) -> str:
        await self._resume(loop, calls)
        while self.max_tool_calls > loop.calls and self._prompt.tools:
            completion = await self._ask(loop, now, self._prompt.tools)
            if not completion.message.tool_calls:
                return await self._words(loop, completion, now)
            asked = loop.ask(as_stored(completion.message))
            await self._store.record_calls(loop.turn.id, asked, loop.take_exchanged())
            await self._run_calls(loop, calls)
        return await self._words(loop, await self._ask(loop, now, ()), now)

    async def _tools_started(self) -> None:
        """Wait, after a start, for tools that are not there at once."""
        with suppress(TimeoutError):
            async with asyncio.timeout(TOOLS_START_SECONDS):
                await self._registry.settled()

    def _calls_of(self, loop: Loop, accepted: AcceptedMessage) -> "_Calls":
        turn = loop.turn
        chat = ChatId.parse(accepted.message.chat)
        progress = Progress(
            self._progress,
            chat,
            turn.progress_timestamp,
            remember=partial(self._remember_progress, turn.id, chat),
        )
        audit = TurnAudit(
            self._store,
            accepted,
            turn.id,
            progress,
            keep_arguments=self._keep_arguments,
            clock=self._clock,
        )
        return _Calls(str(chat), audit, progress, self._approvals.for_turn(accepted, turn.id))

    def _remember_progress(self, turn_id: int, chat: ChatId, timestamp: int) -> None:
        self._progress_shown(chat)
        self._store.record_progress(turn_id, timestamp)

    async def _ask(self, loop: Loop, now: datetime, tools: Sequence[ToolSpec]) -> Completion:
        messages = self._prompt.build(now, loop.history, loop.messages)
        shows_images = any(message.images for message in messages)
        # Images of earlier turns are shown again, also when the model has refused others since.
        if shows_images and not loop.is_blind and not await self._eyes.can_see():
            loop.go_blind()
        if loop.is_blind:
            messages = without_images(messages)
        try:
            completion = await self._model.complete(messages, tools)
        except LlmRejected as error:
            if loop.is_blind or not shows_images or not may_be_about_images(error):
                raise
            completion = await self._model.complete(without_images(messages), tools)
            self._eyes.refused()
            loop.go_blind()
        loop.count(completion)
        if self._proofs is not None:
            loop.exchanged.append(_exchange(completion))
        return completion

    async def _words(self, loop: Loop, completion: Completion, now: datetime) -> str:
        """Return a completion's words; an empty one is asked for once more, without tools."""
        words = (completion.message.content or "").strip()
        if words:
            return words
        said = completion.finish_reason
        reason = said if said in FINISH_REASONS else "other"
        log.info("turn.empty_answer", finish_reason=reason, turn=loop.turn.id)
        again = await self._ask(loop, now, ())
        return (again.message.content or "").strip()

    async def _resume(self, loop: Loop, calls: "_Calls") -> None:
        """Finish the calls that a crash has left open; what had side effects is not run again."""
        if loop.open_calls:
            log.info("turn.resumed", turn=loop.turn.id, count=len(loop.open_calls))
            await self._run_calls(loop, calls)

    async def _run_calls(self, loop: Loop, calls: "_Calls") -> None:
        """Run the open calls at the same time, and show that while they run."""
        waiting = loop.open_calls
        # Below zero when the setting was lowered while the turn waited for a restart.
        allowed = max(0, self.max_tool_calls - (loop.calls - len(waiting)))
        heard = await self._heard(loop, calls)
        requests = [
            ToolRequest(call.id, call.name, call.arguments, calls.audit.caller, heard)
            for call in waiting
        ]
        calls.audit.show(self._shown_at_once(requests[:allowed]))
        async with asyncio.TaskGroup() as tasks:
            running = [
                tasks.create_task(self._run_call(request, calls, within=number < allowed))
                for number, request in enumerate(requests)
            ]
        for task in running:
            result = task.result()
            loop.close(result.request.call_id, result.content)

    async def _heard(self, loop: Loop, calls: "_Calls") -> Heard:
        """Return what the model knows; only a tool that chooses addresses needs all of it."""
        called = (self._registry.get(call.name) for call in loop.open_calls)
        if not any(tool is not None and tool.address is not None for tool in called):
            return Heard()
        strangers_before = await self._store.has_result_with(calls.chat, UNTRUSTED)
        return replace(loop.heard, strangers_before=strangers_before)

    async def _run_call(self, request: ToolRequest, calls: "_Calls", *, within: bool) -> ToolResult:
        if within or self._registry.get(request.tool) is None:
            return await self._executor.execute(request, calls.audit, calls.approval)
        result = ToolResult(request, Outcome.REFUSED, OVER_LIMIT, 0.0)
        await calls.audit.finished(result)
        return result

    def _shown_at_once(self, requests: Sequence[ToolRequest]) -> list[ToolRequest]:
        """Return the calls that run now; the others are shown when somebody has allowed them."""
        return [
            request
            for request in requests
            if self._registry.get(request.tool) is not None
            and not self._executor.asks_first(request)
        ]


@dataclass(frozen=True, slots=True)
class _Calls:
    """What every call of one turn goes through."""

    chat: str
    audit: TurnAudit
    progress: Progress
    approval: TurnApproval


def _thought(loop: Loop, state: TurnState, answer: str, shown: Sequence[StyledText]) -> Thought:
    return Thought(
        loop.turn,
        state,
        answer,
        shown,
        loop.usage,
        rounds=loop.rounds,
        exchanged=loop.take_exchanged(),
    )


def _as_written(messages: Sequence[ReceivedMessage]) -> Prepared:
    return Prepared(words=("",) * len(messages))


def _said(messages: Sequence[ReceivedMessage], prepared: Prepared) -> list[str]:
    """What each message says: its text, then what is in its files."""
    both = zip(messages, prepared.words, strict=True)
    return ["\n".join(filter(None, (message.text, words))) for message, words in both]


def _stored(message: StyledText) -> AnswerPart:
    styles = (StoredStyle(one.start, one.length, one.style) for one in message.styles)
    return AnswerPart(message.text, tuple(styles))


def _exchange(completion: Completion) -> NewExchange:
    """Return what was exchanged; without a name it can be counted and not be checked."""
    known = completion.exchange
    if known is None:
        return NewExchange("", "", "")
    return NewExchange(known.completion_id, known.request_sha256, known.response_sha256)


def _sentence(error: LlmError) -> str:
    if isinstance(error, LlmNotAttested):
        return error.sentence
    return next(sentence for kind, sentence in SENTENCES if isinstance(error, kind))
