"""What signal-cli answers over JSON-RPC, parsed, and its refusals as the errors of this program.

No error takes over signal-cli's own words: they may name a person.
"""

import base64
import binascii
from typing import Final, TypeVar

from pydantic import BaseModel, ConfigDict, NonNegativeFloat, TypeAdapter, ValidationError
from pydantic.alias_generators import to_camel

from bot.errors import (
    SignalError,
    SignalLacks,
    SignalRateLimited,
    SignalRejected,
    SignalTimeout,
    SignalUnavailable,
    SignalUntrusted,
)
from bot.messaging.account import Group
from bot.messaging.events import Account
from bot.messaging.json_rpc import INTERNAL_ERROR, METHOD_NOT_FOUND
from bot.messaging.messenger import FileTooBig

USER_ERROR: Final = -1
IO_ERROR: Final = -3
UNTRUSTED: Final = -4
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


class GroupRow(_Answer):
    """What is asked about a group."""

    id: str
    name: str | None = None
    is_member: bool = False
    members: list[Address] = []
    admins: list[Address] = []
    pending_members: list[Address] = []
    permission_send_message: str | None = None


class File(_Answer):
    """The bytes of a file that came with a message, in base64."""

    data: str


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
GROUPS: Final = TypeAdapter(list[GroupRow])
FILE: Final = TypeAdapter(File)
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


def group_of(row: GroupRow, bot: Account) -> Group:
    """Return what a group is to the bot."""
    return Group(
        members=names_of(row.members),
        admins=names_of(row.admins),
        is_member=row.is_member,
        is_invited=not names_of(row.pending_members).isdisjoint(bot.names),
        only_admins_write=row.permission_send_message == "ONLY_ADMINS",
        name=row.name or "",
    )


def names_of(people: list[Address]) -> frozenset[str]:
    """Return ACIs and numbers, each person by both where both are known."""
    acis = {one.uuid.lower() for one in people if one.uuid}
    return frozenset(acis | {one.number for one in people if one.number})


def bytes_of(file: File, *, max_bytes: int) -> bytes:
    """Decode a file.

    Raises:
        FileTooBig: it has more than `max_bytes`, which is seen before anything is decoded.
        SignalTimeout: it is no base64.
    """
    if len(file.data) > 4 * (max_bytes // 3 + 1):
        raise FileTooBig("The file is too big.")
    try:
        data = base64.b64decode(file.data, validate=True)
    except binascii.Error:
        raise SignalTimeout("signal-cli gave a file that cannot be read.") from None
    if len(data) > max_bytes:
        raise FileTooBig("The file is too big.")
    return data


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
    if code == UNTRUSTED or "IDENTITY_FAILURE" in fates:
        return SignalUntrusted("The recipient's new key is not trusted yet.")
    if code == METHOD_NOT_FOUND:
        return SignalLacks("This signal-cli does not know the method.")
    return SignalRejected(f"signal-cli refused the request (error {code}).")
