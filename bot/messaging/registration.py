"""What Signal refuses on the way to an account, read from signal-cli's words.

signal-cli and signal-cli-rest-api say it alike, in sentences: the code of the error is the same
for most of them. The words are those of signal-cli 0.13 and 0.14.
"""

import math
import re
import time
from enum import StrEnum
from typing import Final

from bot.errors import SignalError, SignalRateLimited, SignalRejected, SignalUnavailable

REQUEST_SECONDS: Final = 90.0
"""For one request; a registration asks several of Signal's servers, one after the other."""

LINK_URI: Final = r"^sgnl://linkdevice\?[!-~]{1,500}$"
NUMBER: Final = r"^\+[1-9]\d{6,14}$"
"""What is shown on a terminal is nothing else than that."""

SECONDS_PER_MINUTE: Final = 60


class Reason(StrEnum):
    """Why there is no account yet, as a sentence for whoever sets the bot up."""

    CAPTCHA_NEEDED = "Signal wants a captcha solved first."
    CAPTCHA_REJECTED = (
        "Signal did not take the captcha. Each can be used once, for some minutes, and must be"
        " solved on the machine or network that registers."
    )
    VOICE_TOO_EARLY = (
        "Signal calls only after an SMS was tried: register without --voice, wait a minute, then"
        " register again with it."
    )
    NEW_CODE_NEEDED = "That code is no longer good; register again for a new one."
    PIN_NEEDED = "The number has a registration lock."
    PIN_REJECTED = "That is not the PIN."
    PIN_LOST = (
        "The number has a registration lock, and Signal has deleted its PIN after too many wrong"
        " ones. It can be registered when seven days have passed without use."
    )
    OUTDATED = "Signal no longer takes this version of signal-cli; install a newer one."
    ALREADY_HERE = "This signal-cli has that account already; nothing was changed."
    LINK_EXPIRED = "The code has expired."
    ONE_ACCOUNT_ONLY = "This signal-cli serves one account only; start it without -a."
    REFUSED = (
        "Signal did not accept that, and does not say why. Try again later, or with --voice; an old"
        " signal-cli is refused as well."
    )


class RegistrationRefused(SignalRejected):
    """There is no account yet, for a reason.

    Args:
        reason: why.
        remaining: hours until a registration lock ends, or tries that are left for its PIN, where
            Signal says so.
    """

    def __init__(self, reason: Reason, remaining: int | None = None) -> None:
        super().__init__(reason.value)
        self.reason = reason
        self.remaining = remaining


_REASONS: Final = (
    (r"invalid captcha|captcha (not accepted|rejected|has invalid)", Reason.CAPTCHA_REJECTED),
    (r"captcha", Reason.CAPTCHA_NEEDED),
    (r"requesting voice verification", Reason.VOICE_TOO_EARLY),
    (r"invalid pin", Reason.PIN_REJECTED),
    (r"pin data has been deleted", Reason.PIN_LOST),
    (r"locked with a pin", Reason.PIN_NEEDED),
    (r"already exists", Reason.ALREADY_HERE),
    (r"timed out, please try again|unknown device link uri", Reason.LINK_EXPIRED),
    (r"StatusCode: 499|DeprecatedVersion", Reason.OUTDATED),
    (r"StatusCode: 40[49]|MustRequestNewCode|NoSuchSession", Reason.NEW_CODE_NEEDED),
    (r"method not implemented", Reason.ONE_ACCOUNT_ONLY),
)
_NO_NETWORK: Final = re.compile(
    r"UnknownHost|PushNetwork|Connect(ion)?Exception|SocketTimeout|NoRouteToHost|connection closed"
    r"|broken pipe|(read|write|dial) tcp",
    re.IGNORECASE,
)
_RATE_LIMIT: Final = re.compile(r"rate.?limit|\[429\]|StatusCode: 429", re.IGNORECASE)
_NEXT_ATTEMPT: Final = re.compile(r"may be tried at (\d{13})")
_REMAINING: Final = re.compile(r"(?:until reset|tries remaining): (\d{1,4})\b")


def registration_error(message: str) -> SignalError:
    """Return the error that words of signal-cli about a registration stand for."""
    if _RATE_LIMIT.search(message):
        return _rate_limited(message)
    for pattern, reason in _REASONS:
        if re.search(pattern, message, re.IGNORECASE):
            remaining = _REMAINING.search(message)
            return RegistrationRefused(reason, int(remaining[1]) if remaining else None)
    if _NO_NETWORK.search(message):
        return SignalUnavailable("signal-cli could not reach Signal. Is there a network?")
    return RegistrationRefused(Reason.REFUSED)


def _rate_limited(message: str) -> SignalRateLimited:
    """Say how long to wait, where signal-cli names the time of the next attempt, in ms."""
    named = _NEXT_ATTEMPT.search(message)
    if named is None:
        return SignalRateLimited(
            "There were too many attempts for now. Signal does not say how long to wait; try again"
            " in some hours, not sooner."
        )
    seconds = max(1.0, int(named[1]) / 1_000 - time.time())
    minutes = math.ceil(seconds / SECONDS_PER_MINUTE)
    wait = "a minute" if minutes == 1 else f"{minutes} minutes"
    return SignalRateLimited(
        f"There were too many attempts for now. Signal takes the next one in {wait}.",
        retry_after_seconds=seconds,
    )
