"""What can go wrong with a model's endpoint.

LlmError
├── LlmUnavailable    down, overloaded or rate limited, and still so after every retry
├── LlmTimeout        connected, but no byte for longer than the bound
├── LlmBroken         the answer broke off or made no sense, several times
├── LlmRejected       the endpoint refuses this request (400, 404, 413, 422, ...)
│   └── LlmContextTooLong  because the conversation is longer than the model can read
├── LlmUnauthorized   wrong or missing key, no credit (401, 402, 403)
└── LlmNotAttested    it has not proven what it must prove, so it is not used

No message of these errors holds what a person or a model wrote.
"""

from bot.errors import BotError


class LlmError(BotError):
    """The model's endpoint gave no usable answer."""


class LlmUnavailable(LlmError):
    """Down, overloaded or rate limited; every retry is used up, or the answer had begun."""


class LlmTimeout(LlmError):
    """Nothing came for longer than the bound."""


class LlmBroken(LlmError):
    """Answers began and then broke off, or could not be understood, as often as was tried."""


class LlmRejected(LlmError):
    """The endpoint refuses the request as it is.

    Args:
        status: the HTTP status.
        message: the endpoint's own short code for it; never its prose, which may quote people.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"HTTP {status}: {message}")
        self.status = status


class LlmContextTooLong(LlmRejected):
    """The conversation is longer than the model can read."""


class LlmUnauthorized(LlmError):
    """The key is missing or wrong, or the account has no credit."""


class LlmNotAttested(LlmError):
    """The endpoint has not proven what it must prove: nothing is sent, or its answer not used.

    Args:
        sentence: for the person; says why.
    """

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence)
        self.sentence = sentence
