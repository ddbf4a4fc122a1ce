"""Errors of the Signal side."""

from typing import Any

from bot.errors import BotError
from bot.signal.trouble import AccountTrouble


class SignalError(BotError):
    """Something on the Signal side did not work.

    Attributes:
        retry_after_seconds: how long the Signal side asks to wait, if it says so.
    """

    retry_after_seconds: float | None = None


class SignalUnavailable(SignalError):
    """There is no connection, or it broke before the request could have an effect."""


class SignalAccountTrouble(SignalUnavailable):
    """Signal does nothing for the account, or for this version of signal-cli; nothing was done.

    Args:
        trouble: only the operator can end it.
    """

    def __init__(self, trouble: AccountTrouble) -> None:
        super().__init__(trouble.value)
        self.trouble = trouble


class SignalTimeout(SignalError):
    """The request may have had an effect: the answer is missing or unclear.

    Attributes:
        answered: there was an answer, so the request has ended.
        timestamp: Signal's timestamp of the message, if the answer told it.
        sending: the send in doubt, an `Attempt` of `bot.signal.receipts`.
    """

    answered = False
    timestamp: int | None = None
    sending: Any = None


class SignalPassedOver(SignalTimeout):
    """signal-cli answers again after a silence; it almost certainly never took the request."""


class SignalRateLimited(SignalTimeout):
    """Signal asks to wait; it may do so even after it has delivered the message."""

    answered = True

    def __init__(
        self,
        message: str = "Signal asks to wait before anything else is sent.",
        *,
        retry_after_seconds: float | None = None,
        timestamp: int | None = None,
    ) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds
        self.timestamp = timestamp


class SignalUnclear(SignalTimeout):
    """A send failed, and nothing proves that this was before the delivery."""

    answered = True

    def __init__(self, *, timestamp: int | None = None) -> None:
        super().__init__("The result of the send is unknown: its message may have arrived.")
        self.timestamp = timestamp


class SignalUntrusted(SignalError):
    """The recipient's new key is not trusted: nothing is sent until an admin trusts it."""


class SignalRejected(SignalError):
    """The request itself was refused; trying again changes nothing."""


class SignalLacks(SignalRejected):
    """This version of the Signal side does not know the request."""
