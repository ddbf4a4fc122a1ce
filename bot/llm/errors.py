"""Errors of a model's endpoint. They never quote people or models.

```
LlmError
├── LlmUnavailable    down, overloaded or rate limited, and still so after every retry
│   └── LlmUnreachable     the address is wrong, or its server has not answered once
├── LlmTimeout        connected, but silent for too long, or not finished in time
├── LlmBroken         the answer broke off or made no sense, several times
├── LlmRejected       the endpoint refuses this request (400, 404, 413, 422, ...)
│   ├── LlmContextTooLong  because the conversation is longer than the model can read
│   └── LlmToolsRefused    because it supports no tools
├── LlmUnauthorized   wrong or missing key, no credit (401, 402, 403)
└── LlmNotAttested    it lacks a required proof, so it is not used
```
"""

from collections.abc import Collection
from typing import Final

from bot.errors import BotError

REFUSING_IMAGES: Final = frozenset({400, 404, 413, 415, 422})
"""Statuses that may refuse images: OpenRouter uses 404, a small proxy 413."""


class LlmError(BotError):
    """The model's endpoint gave no usable answer.

    Attributes:
        outcome: label for metrics.
        is_final: whether the same request would fail again.
        sentence: text for the person.
        reason: text for the operator and the log, without the host; by default `str(error)`.
        came_first: the error came before any part of an answer.
        refused_parts: `Parameter`s that the endpoint refuses; the request may work without them.
        after_seconds: the wait that the endpoint asks for.
    """

    outcome: str = "failed"
    is_final: bool = True
    sentence: str = "The model gave no answer. Please try again."
    came_first: bool = False
    refused_parts: Collection[str] = ()
    after_seconds: float | None = None

    def __init__(self, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason or message


class LlmUnavailable(LlmError):
    """Down, overloaded or rate limited, and every retry failed or the answer had begun."""

    outcome = "unavailable"
    is_final = False
    sentence = "The model cannot be reached right now. Please try again in a few minutes."


class LlmUnreachable(LlmUnavailable):
    """The address is wrong, or its server has not answered once."""

    sentence = "I cannot reach my model. Please tell the operator of this bot."

    def __init__(self, message: str, *, is_final: bool) -> None:
        super().__init__(message)
        self.is_final = is_final


class LlmTimeout(LlmError):
    """The endpoint was silent for too long, or did not finish its answer in time."""

    outcome = "timeout"
    sentence = "The model took too long to answer. Please try again."


class LlmBroken(LlmError):
    """An answer broke off or could not be understood."""

    outcome = "broken"
    is_final = False
    sentence = "The model's answer broke off on the way. Please send your message again."


class LlmRejected(LlmError):
    """The endpoint refuses the request as it is.

    Args:
        message: the endpoint's short code; never its prose, which may quote people.
    """

    outcome = "rejected"
    sentence = "The model did not accept this request. Please tell the operator of this bot."

    def __init__(self, status: int, message: str, reason: str = "") -> None:
        super().__init__(f"HTTP {status}: {message}", reason or f"HTTP {status}.")
        self.status = status


class LlmContextTooLong(LlmRejected):
    """The conversation is longer than the model can read.

    Attributes:
        context_tokens: how much the model can read, if the endpoint says so.
    """

    context_tokens: int | None = None
    outcome = "context_too_long"
    sentence = (
        "This conversation has become longer than the model can read."
        " Send !clear to start afresh, then ask again."
    )


class LlmToolsRefused(LlmRejected):
    """The endpoint, or its model, supports no tools."""


class LlmUnauthorized(LlmError):
    """The key is missing or wrong, or the account has no credit."""

    outcome = "unauthorized"
    sentence = "The model refuses my access. Please tell the operator of this bot."


class LlmNotAttested(LlmError):
    """The endpoint lacks a required proof: the bot sends nothing, or drops its answer."""

    outcome = "not_attested"

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence, "It has not proven who reads along.")
        self.sentence = sentence


def may_be_about_images(error: LlmError) -> bool:
    """Whether a request with images may have been refused because of them."""
    if isinstance(error, LlmContextTooLong):
        return False
    return isinstance(error, LlmRejected) and error.status in REFUSING_IMAGES
