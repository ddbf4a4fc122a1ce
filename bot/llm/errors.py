"""What can go wrong with a model's endpoint.

LlmError
├── LlmUnavailable    down, overloaded or rate limited, and still so after every retry
│   └── LlmUnreachable     nothing usable is at the address, and nothing has been since the start
├── LlmTimeout        connected, but no byte for longer than the bound
├── LlmBroken         the answer broke off or made no sense, several times
├── LlmRejected       the endpoint refuses this request (400, 404, 413, 422, ...)
│   ├── LlmContextTooLong  because the conversation is longer than the model can read
│   └── LlmToolsRefused    because it knows no tools
├── LlmUnauthorized   wrong or missing key, no credit (401, 402, 403)
└── LlmNotAttested    it has not proven what it must prove, so it is not used

No message of these errors holds what a person or a model wrote. `reason` is for operators: a
sentence from a closed set, without the host, fit for the log.
"""

from bot.errors import BotError


class LlmError(BotError):
    """The model's endpoint gave no usable answer.

    Attributes:
        outcome: as what it is counted.
        sentence: for the person.
        reason: for the operator; the error's own text where nothing else is given.
    """

    outcome: str = "failed"
    sentence: str = "The model gave no answer. Please try again."

    def __init__(self, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason or message


class LlmUnavailable(LlmError):
    """Down, overloaded or rate limited; every retry is used up, or the answer had begun."""

    outcome = "unavailable"
    sentence = "The model cannot be reached right now. Please try again in a few minutes."


class LlmUnreachable(LlmUnavailable):
    """The address is wrong, or its server has not answered once: somebody has to look at it.

    Args:
        message: for the operator.
        final: trying again changes nothing.
    """

    sentence = "I cannot reach my model. Please tell the operator of this bot."

    def __init__(self, message: str, *, final: bool) -> None:
        super().__init__(message)
        self.final = final


class LlmTimeout(LlmError):
    """Nothing came for longer than the bound."""

    outcome = "timeout"
    sentence = "The model took too long to answer. Please try again."


class LlmBroken(LlmError):
    """Answers began and then broke off, or could not be understood, as often as was tried."""

    outcome = "broken"
    sentence = "The model's answer broke off on the way. Please send your message again."


class LlmRejected(LlmError):
    """The endpoint refuses the request as it is.

    Args:
        status: the HTTP status.
        message: the endpoint's own short code for it; never its prose, which may quote people.
        reason: for the operator.
    """

    outcome = "rejected"
    sentence = "The model did not accept this request. Please tell the operator of this bot."

    def __init__(self, status: int, message: str, reason: str = "") -> None:
        super().__init__(f"HTTP {status}: {message}", reason or f"HTTP {status}.")
        self.status = status


class LlmContextTooLong(LlmRejected):
    """The conversation is longer than the model can read."""

    outcome = "context_too_long"
    sentence = (
        "This conversation has become longer than the model can read."
        " Send !clear to start afresh, then ask again."
    )


class LlmToolsRefused(LlmRejected):
    """The endpoint, or its model, knows no tools."""


class LlmUnauthorized(LlmError):
    """The key is missing or wrong, or the account has no credit."""

    outcome = "unauthorized"
    sentence = "The model refuses my access. Please tell the operator of this bot."


class LlmNotAttested(LlmError):
    """The endpoint has not proven what it must prove: nothing is sent, or its answer not used.

    Args:
        sentence: for the person; says why.
    """

    outcome = "not_attested"

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence, "It has not proven who reads along.")
        self.sentence = sentence
