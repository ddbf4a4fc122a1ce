"""What signal-cli answers over JSON-RPC, parsed, and its refusals as the errors of this program.

No error takes over signal-cli's own words: they may name a person.
"""

from typing import Final, TypeVar

from pydantic import BaseModel, ConfigDict, NonNegativeFloat, TypeAdapter, ValidationError
from pydantic.alias_generators import to_camel

from bot.errors import (
    SignalError,
    SignalRateLimited,
    SignalRejected,
    SignalTimeout,
    SignalUnavailable,
)
from bot.messaging.json_rpc import INTERNAL_ERROR

USER_ERROR: Final = -1
IO_ERROR: Final = -3
RATE_LIMITED: Final = -5


class _Answer(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel)


class Version(_Answer):
    """Of signal-cli."""

    version: str


class Address(_Answer):
    """How an account, an identity or a member is named; either may be missing."""

    number: str | None = None
    uuid: str | None = None


class Group(_Answer):
    """What is asked about a group."""

    id: str
    admins: list[Address]


class Recipient(_Answer):
    """What became of one recipient of a message."""

    type: str
    retry_after_seconds: NonNegativeFloat | None = None


class SendResult(_Answer):
    """What became of a message."""

    timestamp: int
    results: list[Recipient] = []


class _FailureData(_Answer):
    response: SendResult


T = TypeVar("T")

VERSION: Final = TypeAdapter(Version)
ADDRESSES: Final = TypeAdapter(list[Address])
GROUPS: Final = TypeAdapter(list[Group])
SUBSCRIPTION: Final = TypeAdapter(int)
_SEND_RESULT: Final = TypeAdapter(SendResult)
_FAILURE_DATA: Final = TypeAdapter(_FailureData)


def read(answer: TypeAdapter[T], value: object) -> T:
    """Parse an answer.

    Raises:
        SignalTimeout: it cannot be read, so what was done is as unknown as without an answer.
    """
    try:
        return answer.validate_python(value)
    except ValidationError:
        raise SignalTimeout("signal-cli gave an answer that cannot be read.") from None


def timestamp_of(value: object) -> int:
    """Return the timestamp of a send that reached somebody, or had nobody to reach.

    Raises:
        SignalError: it reached nobody, or the answer cannot be read.
    """
    sent = read(_SEND_RESULT, value)
    if sent.results and all(recipient.type != "SUCCESS" for recipient in sent.results):
        raise _refusal(USER_ERROR, sent.results)
    return sent.timestamp


def signal_error(code: int, data: object) -> SignalError:
    """Translate an error of signal-cli: its code and the fates of the recipients in its data."""
    return _refusal(code, _results_of(data))


def _results_of(data: object) -> list[Recipient]:
    """What became of each recipient, where an error tells."""
    try:
        return _FAILURE_DATA.validate_python(data).response.results
    except ValidationError:
        return []


def _refusal(code: int, results: list[Recipient]) -> SignalError:
    fates = {recipient.type for recipient in results}
    if code == RATE_LIMITED or "RATE_LIMIT_FAILURE" in fates:
        waits = (recipient.retry_after_seconds or 0.0 for recipient in results)
        return SignalRateLimited(
            "Signal asks to wait before anything else is sent.",
            retry_after_seconds=max(waits, default=0.0) or None,
        )
    if code in {IO_ERROR, INTERNAL_ERROR} or "NETWORK_FAILURE" in fates:
        return SignalUnavailable(f"signal-cli could not reach Signal (error {code}).")
    return SignalRejected(f"signal-cli refused the request (error {code}).")
