"""The errors of this program. The code that catches an error decides what people read."""


class BotError(Exception):
    """Root of every error that this program raises on purpose."""


def first_of(error: BaseException) -> BaseException:
    """Return the first error in a group of errors; the others are mostly its consequences."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


class SettingsError(BotError):
    """Settings or arguments are wrong.

    Args:
        problems: one line each with the setting and the expected value, never a secret.
    """

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class MessagesLost(BotError):
    """At most `count` messages were read from Signal and could not be stored before the end."""

    def __init__(self, count: int) -> None:
        messages = "1 message" if count == 1 else f"{count} messages"
        super().__init__(
            f"Lost: the store could not take {messages} that had been read from Signal. Ask people"
            " to send again what has no answer."
        )
        self.count = count
