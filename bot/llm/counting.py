"""How requests to the model's endpoint are counted and timed."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from bot.llm.errors import LlmError
from bot.observability.metrics import LLM_REQUESTS, LLM_SECONDS


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
        outcome = error.outcome
        raise
    finally:
        LLM_REQUESTS.labels(asked_for, outcome).inc()
