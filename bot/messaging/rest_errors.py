"""What signal-cli-rest-api's error answers mean.

Its bodies quote numbers, ids and texts, so nothing of a body is ever passed on, only its meaning.
"""

import re
from http import HTTPStatus
from typing import Final

from bot.errors import (
    SignalError,
    SignalLacks,
    SignalRateLimited,
    SignalRejected,
    SignalTimeout,
    SignalUnavailable,
    SignalUntrusted,
)

LOOKED_AT_CHARACTERS: Final = 8_192
"""Of a body; what went wrong is said first, and searching all of a long one would take long."""

_RATE_LIMIT: Final = re.compile(r"rate.?limit", re.IGNORECASE)
_CAPTCHA_TOKEN: Final = re.compile(r'"challenge_tokens"\s*:\s*\[[^\]]*"[^"]')
_UNTRUSTED: Final = re.compile(r"untrusted", re.IGNORECASE)
_NOT_REGISTERED: Final = re.compile(
    r"not registered|specified account does not exist", re.IGNORECASE
)
_NO_FILE: Final = re.compile(r"no attachment with that name", re.IGNORECASE)
_NO_SUCH_PAGE: Final = "404 page not found"
"""What the server's router says of a request that it does not know."""

_POLLS: Final = "/v1/polls/"

_NO_SUCH_METHOD: Final = re.compile(r"method not implemented", re.IGNORECASE)
_BROKEN_INSIDE: Final = re.compile(
    r"failed to send message|broken pipe|connection (reset|refused|closed)|(read|write|dial) tcp",
    re.IGNORECASE,
)


def error_from_answer(status: int, body: str, path: str = "") -> SignalError:
    """Return the error that an answer with a status of 400 or more stands for.

    Args:
        status: of the answer.
        body: of the answer.
        path: of the request. Every server that the bot works with knows all of them but polls, so
            a page that is not found elsewhere is a server, or a proxy before it, in trouble.
    """
    body = body[:LOOKED_AT_CHARACTERS]
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        return _rate_limited(body)
    if status == HTTPStatus.GATEWAY_TIMEOUT:
        return SignalTimeout("A proxy before signal-cli-rest-api waited in vain for its answer.")
    if status == HTTPStatus.BAD_REQUEST:
        return _refusal(body)
    if status == HTTPStatus.NOT_FOUND and _NO_FILE.search(body):
        return SignalRejected("signal-cli-rest-api has no such file.")
    is_of_polls = path.startswith(_POLLS)
    if status == HTTPStatus.NOT_FOUND and is_of_polls and body.startswith(_NO_SUCH_PAGE):
        return SignalLacks("This signal-cli-rest-api does not know the request.")
    return SignalUnavailable(f"signal-cli-rest-api answered with status {status}.")


def error_from_reasons(reasons: frozenset[str]) -> SignalError:
    """Return the error that the reasons stand for which every recipient failed with."""
    if "RATE_LIMIT_FAILURE" in reasons:
        return SignalRateLimited("Signal asks to wait before anything else is sent.")
    if "NETWORK_FAILURE" in reasons:
        return SignalUnavailable("signal-cli could not reach Signal.")
    if "IDENTITY_FAILURE" in reasons:
        return _untrusted()
    return SignalRejected("Signal does not deliver to this recipient.")


def _rate_limited(body: str) -> SignalError:
    if _CAPTCHA_TOKEN.search(body):
        return SignalRateLimited("Signal wants a captcha solved before anything else is sent.")
    return SignalRateLimited("Signal asks to wait before anything else is sent.")


def _refusal(body: str) -> SignalError:
    """Read a 400: the server uses it for whatever did not work, so its text decides."""
    if _UNTRUSTED.search(body):
        return _untrusted()
    if _RATE_LIMIT.search(body):
        return _rate_limited(body)
    if _NOT_REGISTERED.search(body):
        return SignalRejected("The account or the recipient is not registered with Signal.")
    if _NO_SUCH_METHOD.search(body):
        return SignalLacks("The signal-cli of signal-cli-rest-api does not know the method.")
    if _BROKEN_INSIDE.search(body):
        return SignalUnavailable("signal-cli could not send, and does not say why.")
    return SignalRejected("signal-cli-rest-api refused the request.")


def _untrusted() -> SignalError:
    return SignalUntrusted("The recipient's new key is not trusted yet.")
