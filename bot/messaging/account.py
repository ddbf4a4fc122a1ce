"""The bot's own Signal account, as the Signal side knows it."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final
from uuid import UUID

from pydantic import AliasChoices, BaseModel, Field, TypeAdapter

from bot.errors import SignalRejected

PRIMARY_DEVICE: Final = 1
KEY_BYTES: Final = 33
CURVE25519: Final = 0x05
"""First byte of a serialized public key of that type."""


@dataclass(frozen=True, slots=True)
class OwnIdentity:
    """Who the bot is to Signal.

    Attributes:
        aci: the account's uuid, lower case.
        identity_key: the public identity key, 33 bytes (0x05 and the Curve25519 point).
        linked_devices: devices of the account beside the primary one; they share its key.
    """

    aci: str
    identity_key: bytes = field(repr=False)
    linked_devices: int


class TrustLevel(StrEnum):
    """What the Signal side thinks of a person's key, by signal-cli's names."""

    UNTRUSTED = "UNTRUSTED"
    UNVERIFIED = "TRUSTED_UNVERIFIED"
    VERIFIED = "TRUSTED_VERIFIED"


@dataclass(frozen=True, slots=True)
class PeerIdentity:
    """The newest key of a person.

    Attributes:
        aci: whose.
        trust: what the Signal side thinks of it.
        safety_number: 60 digits without spaces, as both phones show them in groups of five.
    """

    aci: str
    trust: TrustLevel
    safety_number: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Group:
    """A group, as the Signal side knows it.

    Attributes:
        members: ACIs and numbers of its members; one person may be in it under both.
        admins: ACIs and numbers of those who administer it.
        is_member: whether the bot is one of them.
        is_invited: the bot was invited and has not accepted.
        only_admins_write: only admins may write there (an announcement group).
        name: as its members call it; empty where it is not known.
    """

    members: frozenset[str]
    admins: frozenset[str]
    is_member: bool
    is_invited: bool
    only_admins_write: bool
    name: str = ""


@dataclass(frozen=True, slots=True)
class Profile:
    """What people see of the bot's account; None leaves what is there.

    Attributes:
        name: given name.
        about: the line below it.
        picture: an image file.
    """

    name: str | None = None
    about: str | None = None
    picture: bytes | None = field(default=None, repr=False)


class Identity(BaseModel):
    """An identity key as signal-cli or signal-cli-rest-api lists it; the bot's own is among them.

    `added` is in ms.
    """

    number: str | None = None
    uuid: str | None = None
    fingerprint: str | None = None
    safety_number: str | None = Field(
        None, validation_alias=AliasChoices("safetyNumber", "safety_number")
    )
    trust: str | None = Field(None, validation_alias=AliasChoices("trustLevel", "status"))
    added: int | None = Field(None, validation_alias=AliasChoices("addedTimestamp", "added"))


class Device(BaseModel):
    """A device of the bot's account."""

    id: int


IDENTITIES: Final = TypeAdapter(list[Identity])
DEVICES: Final = TypeAdapter(list[Device])
_SAFETY_NUMBER: Final = re.compile(r"[0-9]{60}", re.ASCII)


def own_rows(number: str, identities: Iterable[Identity]) -> list[Identity]:
    """Return what stands there about the account with a number, as far as it names an ACI."""
    return [row for row in identities if row.number == number and row.uuid]


def own_identity(
    number: str, identities: Iterable[Identity], devices: Iterable[Device]
) -> OwnIdentity:
    """Read the account's identity from what the Signal side lists.

    The list of devices does not say which of them asks. That it must hold the primary device
    makes a bot that is itself a linked one count at least one.

    Raises:
        SignalRejected: the lists do not tell one ACI, one key and the primary device.
    """
    known = {(row.uuid, row.fingerprint) for row in own_rows(number, identities)}
    if len(known) != 1:
        raise SignalRejected("The Signal side does not name one identity of the bot's account.")
    [(uuid, fingerprint)] = known
    ids = {device.id for device in devices}
    if PRIMARY_DEVICE not in ids:
        raise SignalRejected("The Signal side does not list the primary device of the account.")
    try:
        aci, key = str(UUID(uuid)), bytes.fromhex(fingerprint or "")
    except ValueError:
        raise SignalRejected("The Signal side's words about the account are unreadable.") from None
    if len(key) != KEY_BYTES or key[0] != CURVE25519:
        raise SignalRejected("The Signal side names no identity key of the bot's account.")
    return OwnIdentity(aci, key, linked_devices=len(ids - {PRIMARY_DEVICE}))


def peer_identity(person: str, identities: Iterable[Identity]) -> PeerIdentity | None:
    """Return the newest key of a person, by ACI, from what the Signal side lists.

    An unknown level of trust counts as no trust.
    """
    rows = [
        row
        for row in identities
        if row.uuid is not None and row.uuid.lower() == person and _digits(row.safety_number)
    ]
    if not rows:
        return None
    newest = max(rows, key=lambda row: row.added or 0)
    levels = {level.value: level for level in TrustLevel}
    trust = levels.get(newest.trust or "", TrustLevel.UNTRUSTED)
    return PeerIdentity(person, trust, _digits(newest.safety_number))


def _digits(safety_number: str | None) -> str:
    """The sixty digits of a safety number; empty where the input is not one."""
    digits = "".join((safety_number or "").split())
    return digits if _SAFETY_NUMBER.fullmatch(digits) else ""
