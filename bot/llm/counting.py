"""How requests to the model's endpoint are counted and timed."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Literal

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
from bot.observability.metrics import LLM_REQUESTS, LLM_SECONDS

_OUTCOMES: Final[tuple[tuple[type[LlmError], str], ...]] = (
    (LlmContextTooLong, "context_too_long"),
    (LlmRejected, "rejected"),
    (LlmUnavailable, "unavailable"),
    (LlmTimeout, "timeout"),
    (LlmBroken, "broken"),
    (LlmUnauthorized, "unauthorized"),
    (LlmNotAttested, "not_attested"),
    (LlmError, "failed"),
)
"""What a request that was not answered is counted as, most specific first."""


@contextmanager
def counted(asked_for: Literal["answer", "transcription"]) -> Iterator[None]:
    """Count a request by its outcome, and time one that was answered."""
    began = time.monotonic()
    outcome = "cancelled"
    try:
        yield
        outcome = "ok"
        LLM_SECONDS.labels(asked_for).observe(time.monotonic() - began)
    except LlmError as error:
        outcome = next(name for kind, name in _OUTCOMES if isinstance(error, kind))
        raise
    finally:
        LLM_REQUESTS.labels(asked_for, outcome).inc()
