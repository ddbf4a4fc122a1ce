"""Signal accounts as signal-cli lists them: keys, devices, groups, profiles."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from hmac import compare_digest
from typing import Annotated, Final
from uuid import UUID

from pydantic import AliasChoices, AliasPath, BaseModel, BeforeValidator, Field, TypeAdapter

from bot.signal.errors import SignalRejected

PRIMARY_DEVICE: Final = 1
KEY_BYTES: Final = 33
CURVE25519: Final = 0x05
"""First byte of a serialized public key of that type."""


@dataclass(frozen=True, slots=True)
class OwnIdentity:
    """The bot's own account.

    Attributes:
        aci: the account's uuid, lower case.
        identity_key: the public identity key, 33 bytes (0x05 and the Curve25519 point).
        linked_devices: devices of the account besides the primary one; they share its key.
    """

    aci: str
    identity_key: bytes = field(repr=False)
    linked_devices: int


class TrustLevel(StrEnum):
    """The Signal side's trust in a person's key, by signal-cli's names."""

    UNTRUSTED = "UNTRUSTED"
    UNVERIFIED = "TRUSTED_UNVERIFIED"
    VERIFIED = "TRUSTED_VERIFIED"


@dataclass(frozen=True, slots=True)
class PeerIdentity:
    """The newest key of a person; its safety number has no spaces."""

    aci: str
    trust: TrustLevel
    safety_number: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Group:
    """A group, as the Signal side knows it.

    Attributes:
        members: ACIs and numbers of its members; a person may be listed by both.
        admins: ACIs and numbers of its admins.
        is_member: the bot is one of the members.
        is_invited: the bot was invited and has not accepted.
        only_admins_write: only admins may write there (an announcement group).
        name: empty if unknown.
    """

    members: frozenset[str]
    admins: frozenset[str]
    is_member: bool
    is_invited: bool
    only_admins_write: bool
    name: str = ""


@dataclass(frozen=True, slots=True)
class Profile:
    """Public profile of the bot's account; None keeps the current value.

    `about` is the line below the given name, `picture` an image file.
    """

    name: str | None = None
    about: str | None = None
    picture: bytes | None = field(default=None, repr=False)


def names_of(people: object) -> object:
    """Return ACIs and numbers of listed people: strings, or objects with `uuid` and `number`."""
    if not isinstance(people, list):
        return people
    names = set[object]()
    for one in people:
        names |= {one.get("uuid"), one.get("number")} if isinstance(one, dict) else {one}
    return {name.lower() if isinstance(name, str) else name for name in names} - {None, ""}


_People = Annotated[frozenset[str], BeforeValidator(names_of)]
PEOPLE: Final = TypeAdapter(_People)


class GroupRow(BaseModel):
    """A group as either Signal side lists it."""

    id: str | None = None
    name: str | None = None
    is_member: bool = Field(False, validation_alias=AliasChoices("isMember", "member"))
    members: _People = frozenset()
    admins: _People = frozenset()
    invited: _People = Field(
        frozenset(), validation_alias=AliasChoices("pendingMembers", "pending_invites")
    )
    writers: str | None = Field(
        None,
        validation_alias=AliasChoices(
            "permissionSendMessage", AliasPath("permissions", "send_messages")
        ),
    )

    def to_group(self, own_names: frozenset[str]) -> Group:
        """Return the group as seen by the account with these names."""
        return Group(
            members=self.members,
            admins=self.admins,
            is_member=self.is_member,
            is_invited=not self.invited.isdisjoint(own_names),
            only_admins_write=self.writers in {"ONLY_ADMINS", "only-admins"},
            name=self.name or "",
        )


class Identity(BaseModel):
    """An identity key as either Signal side lists it; the bot's own is among them.

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


def own_aci(number: str, identities: Iterable[Identity]) -> str | None:
    """Return the ACI of the account with a number."""
    return next((row.uuid.lower() for row in own_rows(number, identities) if row.uuid), None)


def own_rows(number: str, identities: Iterable[Identity]) -> list[Identity]:
    """Return the rows about the account with a number that name an ACI."""
    return [row for row in identities if row.number == number and row.uuid]


def own_identity(
    number: str, identities: Iterable[Identity], devices: Iterable[Device]
) -> OwnIdentity:
    """Return the account's identity from the lists of the Signal side.

    The list of devices does not say which one the bot is. It must contain the primary device. So
    if the bot is a linked device, it counts at least one linked device: itself.

    Raises:
        SignalRejected: the lists do not name one ACI, one key and the primary device.
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
    """Return the newest listed key of a person, by ACI; an unknown level counts as untrusted."""
    rows = [
        row
        for row in identities
        if row.uuid is not None
        and row.uuid.lower() == person
        and is_safety_number(row.safety_number or "")
    ]
    if not rows:
        return None
    newest = max(rows, key=lambda row: row.added or 0)
    levels = {level.value: level for level in TrustLevel}
    trust = levels.get(newest.trust or "", TrustLevel.UNTRUSTED)
    return PeerIdentity(person, trust, "".join((newest.safety_number or "").split()))


# Signal's safety number: sixty digits, thirty from each account, the same in all of its chats.
# Version 2, as libsignal makes it (NumericFingerprintGenerator, 5200 iterations, stable id = ACI).
HALF_DIGITS: Final = 30
SAFETY_NUMBER_DIGITS: Final = 2 * HALF_DIGITS

_ITERATIONS: Final = 5200
_VERSION: Final = bytes(2)
_GROUP_DIGITS: Final = 5


def half(aci: str, identity_key: bytes) -> str:
    """Return the thirty digits of an account, by its ACI and public identity key (33 bytes)."""
    digest = _VERSION + identity_key + UUID(aci).bytes
    for _ in range(_ITERATIONS):
        digest = hashlib.sha512(digest + identity_key).digest()
    groups = (digest[at : at + 5] for at in range(0, HALF_DIGITS, 5))
    return "".join(f"{int.from_bytes(group, 'big') % 10**_GROUP_DIGITS:05}" for group in groups)


def spaced(digits: str) -> str:
    """Return digits in groups of five, as Signal shows them."""
    return " ".join(digits[at : at + _GROUP_DIGITS] for at in range(0, len(digits), _GROUP_DIGITS))


def is_safety_number(text: str) -> bool:
    """Whether a text is sixty digits, with or without white space between them."""
    digits = _without_space(text)
    return len(digits) == SAFETY_NUMBER_DIGITS and digits.isascii() and digits.isdigit()


def contains_half(safety_number: str, half: str) -> bool:
    """Whether thirty digits are the first or the last half of a safety number."""
    if not is_safety_number(safety_number):
        return False
    digits = _without_space(safety_number)
    first, last = digits[:HALF_DIGITS], digits[HALF_DIGITS:]
    return compare_digest(first, half) or compare_digest(last, half)


def _without_space(text: str) -> str:
    return "".join(text.split())
