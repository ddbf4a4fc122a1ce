"""Asking the model while the person may still be writing.

A person often writes several short messages, so the bot waits for a silence before it answers. The
model is asked at the first pause meanwhile. The turn takes that answer over if it asks for exactly
the same; else it is thrown away, and nobody has seen anything of it.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final, NamedTuple

from bot.llm.errors import LlmError
from bot.llm.messages import Completion, ModelRequest
from bot.observability import metrics
from conversation_store.models import AcceptedMessage

MAX_EARLY_REQUESTS: Final = 3
"""For one turn: whoever pauses more often is waited for, as each request may cost money."""


class Question(NamedTuple):
    """Which model is asked, by its name, and what."""

    model: str
    request: ModelRequest


Prepare = Callable[[Sequence[AcceptedMessage]], Awaitable[Question | None]]
"""Returns what a turn of these messages would ask first; None where that cannot be told yet."""

StillTrying = Callable[[], None]
"""Told once that the model makes its caller wait."""

Ask = Callable[[Question, StillTrying], Awaitable[Completion]]
"""Asks a model; raises LlmError."""


class EarlyRequest:
    """One request at a time that a turn may or may not make use of.

    Args:
        prepare: makes a question of messages.
        ask: sends it.
    """

    def __init__(self, prepare: Prepare, ask: Ask) -> None:
        self._prepare = prepare
        self._ask = ask
        self._question: Question | None = None
        self._answer: asyncio.Task[Completion | LlmError | None] | None = None
        self._begun = 0
        self._is_slow = False
        self._still_trying: StillTrying | None = None

    def ask(self, pieces: Sequence[AcceptedMessage]) -> None:
        """Ask about these messages, instead of those that were asked about before."""
        self.discard()
        if self._begun < MAX_EARLY_REQUESTS:
            self._begun += 1
            self._is_slow = False
            self._answer = asyncio.create_task(self._run(pieces))

    async def answer_to(self, question: Question, still_trying: StillTrying) -> Completion | None:
        """Return the answer to a question, once; None unless exactly that was asked.

        None as well where the model has failed already: it may fare better now.

        Args:
            question: what a turn asks.
            still_trying: told when the model makes the turn wait, at once if it has so far.

        Raises:
            LlmError: the model could not answer it.
        """
        if self._answer is None or self._question != question or _has_failed(self._answer):
            self.discard()
            return None
        answer, self._answer = self._answer, None
        metrics.EARLY_REQUESTS.labels("used").inc()
        self._still_trying = still_trying
        if self._is_slow:
            still_trying()
        completion = await answer
        if isinstance(completion, LlmError):
            raise completion
        return completion

    def discard(self) -> None:
        """Throw the answer away."""
        if self._answer is not None:
            metrics.EARLY_REQUESTS.labels("discarded").inc()
            self._answer.cancel()
        self._answer = self._question = None

    async def _run(self, pieces: Sequence[AcceptedMessage]) -> Completion | LlmError | None:
        self._question = await self._prepare(pieces)
        if self._question is None:
            return None
        try:
            return await self._ask(self._question, self._note_slow)
        except LlmError as error:  # the turn raises it, if it wants this answer at all
            return error

    def _note_slow(self) -> None:
        self._is_slow = True
        if self._still_trying is not None:
            self._still_trying()


def _has_failed(answer: asyncio.Task[Completion | LlmError | None]) -> bool:
    return answer.done() and not answer.cancelled() and isinstance(answer.result(), LlmError)


@asynccontextmanager
async def asking_early(prepare: Prepare, ask: Ask) -> AsyncIterator[EarlyRequest]:
    """Provide an early request that ends with the block."""
    early = EarlyRequest(prepare, ask)
    try:
        yield early
    finally:
        early.discard()
