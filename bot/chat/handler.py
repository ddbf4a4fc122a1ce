"""The tool loop: model ← prompt and tools; calls → results; until words come.

Everything that happened is on disk before the next step looks at it, so a turn that a crash
has cut goes on from its last stored message.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final, Protocol

import structlog

from bot.chat.audit import TurnAudit
from bot.chat.progress import Progress, ProgressChannel
from bot.chat.prompt import Prompt, as_stored
from bot.llm.errors import (
    LlmBroken,
    LlmContextTooLong,
    LlmError,
    LlmRejected,
    LlmTimeout,
    LlmUnauthorized,
    LlmUnavailable,
)
from bot.llm.messages import Completion, Message, ToolSpec
from bot.messaging.events import ChatId
from bot.messaging.formatting import split
from bot.observability import metrics
from conversation_store.models import (
    AcceptedMessage,
    OutgoingMessage,
    StoredMessage,
    StoredToolCall,
    Turn,
    TurnState,
    TurnUsage,
)
from conversation_store.store import INTERRUPTED, ConversationStore
from tools.base import Outcome, ToolRequest, ToolResult
from tools.executor import ToolExecutor
from tools.registry import Registry

log = structlog.get_logger()

MAX_ATTEMPTS: Final = 10
"""A turn that was begun so often and never ended is given up: it may be what ends the process."""

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


class ChatModel(Protocol):
    """What answers. Implemented by `bot.llm.client.LlmClient`."""

    async def complete(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()
    ) -> Completion:
        """Return the model's whole answer; raises LlmError."""
        ...


@dataclass(frozen=True, slots=True)
class Thought:
    """An answer that is found and not yet stored."""

    turn: Turn
    state: TurnState
    answer: str
    usage: TurnUsage


class _Loop:
    """One turn on its way: what the model has been shown so far, and what it cost."""

    def __init__(self, turn: Turn, history: Sequence[Sequence[StoredMessage]]) -> None:
        self.turn = turn
        self.history = history
        self.messages = list(turn.messages)
        self.usage = TurnUsage()

    @property
    def calls(self) -> int:
        return sum(message.role == "tool" for message in self.messages)

    @property
    def open_calls(self) -> tuple[StoredToolCall, ...]:
        """Calls of the last assistant message that have no result yet."""
        open_ids = {
            message.tool_call_id
            for message in self.messages
            if message.role == "tool" and message.content is None
        }
        asked = [message for message in self.messages if message.tool_calls]
        return tuple(call for call in asked[-1].tool_calls if call.id in open_ids) if asked else ()

    def ask(self, assistant: StoredMessage) -> None:
        """Add a message that calls tools, with every call open."""
        self.messages.append(assistant)
        self.messages += [
            StoredMessage("tool", None, tool_call_id=call.id) for call in assistant.tool_calls
        ]

    def close(self, call_id: str, content: str) -> None:
        """Give an open call its result."""
        for index, message in enumerate(self.messages):
            if message.tool_call_id == call_id and message.content is None:
                self.messages[index] = replace(message, content=content)

    def count(self, completion: Completion) -> None:
        """Add what a request cost."""
        usage = completion.usage
        self.usage = TurnUsage(
            requests=self.usage.requests + 1,
            prompt_tokens=self.usage.prompt_tokens + (usage.prompt_tokens if usage else 0),
            completion_tokens=self.usage.completion_tokens
            + (usage.completion_tokens if usage else 0),
        )


class ChatHandler:
    """Answers messages with the model's help.

    Args:
        model: what answers.
        model_name: for the record.
        prompt: what the model is shown.
        registry: what tools there are.
        executor: runs them.
        store: where everything is kept.
        progress: where work is shown.
        max_tool_calls: in one turn; then the model must answer in words.
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
        progress: ProgressChannel,
        max_tool_calls: int,
    ) -> None:
        self._model = model
        self._model_name = model_name
        self._prompt = prompt
        self._registry = registry
        self._executor = executor
        self._store = store
        self._progress = progress
        self._max_tool_calls = max_tool_calls

    async def think(self, accepted: AcceptedMessage) -> Thought:
        """Find the answer to a message; may be cancelled at any point.

        A model that cannot answer becomes a plain sentence, never an exception.
        """
        now = datetime.now(UTC)
        message = accepted.message
        if accepted.begun:
            turn = await self._store.resume_turn(accepted)
        else:
            turn = self._store.begin_turn(accepted, self._prompt.user_content(message))
        if turn.attempts > MAX_ATTEMPTS:
            log.error("turn.given_up", attempts=turn.attempts, turn=turn.id)
            return Thought(turn, TurnState.FAILED, GIVEN_UP, TurnUsage())
        history = await self._store.history(
            message.chat, max_bytes=self._prompt.history_bytes(now, turn.messages)
        )
        loop = _Loop(turn, history)
        try:
            answer = await self._answer(loop, accepted, now)
        except LlmError as error:
            log.warning("turn.failed", error=type(error).__name__, turn=turn.id)
            return Thought(turn, TurnState.FAILED, _sentence(error), loop.usage)
        if not answer:
            return Thought(turn, TurnState.FAILED, EMPTY, loop.usage)
        return Thought(turn, TurnState.ANSWERED, answer, loop.usage)

    async def finish(
        self, accepted: AcceptedMessage, thought: Thought
    ) -> tuple[OutgoingMessage, ...]:
        """Store the answer as what is to be sent, and count the turn."""
        outgoing = await self._store.finish_turn(
            thought.turn,
            state=thought.state,
            answer=thought.answer,
            parts=split(thought.answer),
            model=self._model_name,
            usage=thought.usage,
        )
        metrics.TURNS.labels(thought.state).inc()
        metrics.TURN_SECONDS.observe(max(0.0, time.time() - accepted.message.received_at / 1000))
        return outgoing

    async def _answer(self, loop: _Loop, accepted: AcceptedMessage, now: datetime) -> str:
        """Go round until the model answers in words; empty when it does not."""
        audit = TurnAudit(self._store, accepted, loop.turn.id)
        progress = Progress(
            self._progress, ChatId.parse(accepted.message.chat), loop.turn.progress_timestamp
        )
        await self._resume(loop, audit, progress)
        while self._max_tool_calls > loop.calls and self._prompt.tools:
            completion = await self._ask(loop, now, self._prompt.tools)
            if not completion.message.tool_calls:
                return await self._words(loop, completion, now)
            loop.ask(as_stored(completion.message))
            await self._store.record_calls(loop.turn.id, as_stored(completion.message))
            await self._run_calls(loop, audit, progress)
        return await self._words(loop, await self._ask(loop, now, ()), now)

    async def _ask(self, loop: _Loop, now: datetime, tools: Sequence[ToolSpec]) -> Completion:
        completion = await self._model.complete(
            self._prompt.build(now, loop.history, loop.messages), tools
        )
        loop.count(completion)
        return completion

    async def _words(self, loop: _Loop, completion: Completion, now: datetime) -> str:
        """Return a completion's words; an empty one is asked for once more, without tools."""
        words = (completion.message.content or "").strip()
        if words:
            return words
        log.info("turn.empty_answer", finish_reason=completion.finish_reason, turn=loop.turn.id)
        again = await self._ask(loop, now, ())
        return (again.message.content or "").strip()

    async def _resume(self, loop: _Loop, audit: TurnAudit, progress: Progress) -> None:
        """Finish the calls that a crash has left open; side effects are not run again."""
        if loop.open_calls:
            log.info("turn.resumed", turn=loop.turn.id, count=len(loop.open_calls))
            await self._run_calls(loop, audit, progress, resumed=True)

    async def _run_calls(
        self, loop: _Loop, audit: TurnAudit, progress: Progress, *, resumed: bool = False
    ) -> None:
        """Run the open calls at the same time, and show that while they run."""
        calls = loop.open_calls
        # Below zero when the setting was lowered while the turn waited for a restart.
        allowed = max(0, self._max_tool_calls - (loop.calls - len(calls)))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._show(loop.turn, progress, calls[:allowed]))
            running = [
                tasks.create_task(
                    self._run_call(call, audit, within=number < allowed, resumed=resumed)
                )
                for number, call in enumerate(calls)
            ]
        for task in running:
            result = task.result()
            loop.close(result.request.call_id, result.content)

    async def _run_call(
        self, call: StoredToolCall, audit: TurnAudit, *, within: bool, resumed: bool
    ) -> ToolResult:
        request = ToolRequest(call.id, call.name, call.arguments, audit.caller)
        tool = self._registry.get(call.name)
        if tool is not None and not within:
            result = ToolResult(request, Outcome.REFUSED, OVER_LIMIT, 0.0)
        elif tool is not None and tool.side_effects and resumed:
            result = ToolResult(request, Outcome.INTERRUPTED, INTERRUPTED, 0.0)
        else:
            return await self._executor.execute(request, audit)
        await audit.finished(result)
        return result

    async def _show(self, turn: Turn, progress: Progress, calls: Sequence[StoredToolCall]) -> None:
        known = [call.name for call in calls if self._registry.get(call.name) is not None]
        timestamp = await progress.show(known)
        if timestamp is not None:
            await self._store.record_progress(turn.id, timestamp)


def _sentence(error: LlmError) -> str:
    return next(sentence for kind, sentence in SENTENCES if isinstance(error, kind))
