"""What can go wrong, as a tree. What a person may read is decided where the error is answered.

BotError
├── SettingsError         wrong settings or arguments: exit 2, one line per problem
├── SignalError           the Signal side
│   ├── SignalUnavailable   no connection, or it broke before the request went out: try again
│   ├── SignalTimeout       no answer within the bound: perhaps done, perhaps not
│   │   └── SignalPassedOver  signal-cli answers later requests, but never took this one
│   ├── SignalRateLimited   Signal asks to wait; carries the seconds where it says them
│   ├── SignalUntrusted     the recipient's key is new and not trusted: it waits for somebody's word
│   └── SignalRejected      the request was understood and refused: trying again changes nothing
├── MessagesLost          messages that were read could not be stored before the end
└── LlmError              the model's endpoint, see bot.llm.errors
"""


class BotError(Exception):
    """Root of every error that this program raises on purpose."""


class SettingsError(BotError):
    """Settings or arguments are wrong.

    Args:
        problems: one line each, naming the setting and what is expected, never a secret's value.
    """

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class MessagesLost(BotError):
    """Messages were read from Signal, and the store took them no more before the process ended.

    Args:
        count: how many, at the most.
    """

    def __init__(self, count: int) -> None:
        messages = "1 message" if count == 1 else f"{count} messages"
        super().__init__(
            f"Lost: the store could not take {messages} that had been read from Signal. Ask people"
            " to send again what has no answer."
        )
        self.count = count


class SignalError(BotError):
    """Something on the Signal side did not work."""


class SignalUnavailable(SignalError):
    """There is no connection, or it broke before the request can have had an effect."""


class SignalTimeout(SignalError):
    """No answer came within the bound; whether the request had an effect is unknown."""


class SignalPassedOver(SignalTimeout):
    """signal-cli was silent when it was asked, and answers again: the request was hardly done."""


class SignalRateLimited(SignalError):
    """Signal asks to wait.

    Args:
        message: what the Signal side said, without anything about a person.
        retry_after_seconds: how long, where it said so.
    """

    def __init__(self, message: str, *, retry_after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class SignalUntrusted(SignalError):
    """The recipient's new key is not trusted: nothing is sent until somebody says that it is."""


class SignalRejected(SignalError):
    """The request was refused for what it is."""
