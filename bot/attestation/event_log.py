"""The log of what a TD started, replayed against the registers in its quote.

Format and digests: dstack, `cc-eventlog`. A runtime event's digest is computed here from its name
and payload, never taken from the log: SHA-384 of `type ":" name ":" payload` (version 1) or of
the canonical JSON of the three (version 2).

What stays unchecked: type, name and payload of firmware events (RTMR0 to RTMR2). The firmware
hashes other bytes than it logs, so nothing could be checked, and nothing here reads them. Nor is
it measured how events of different firmware registers follow each other.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

from pydantic import Field, TypeAdapter, ValidationError

from bot.attestation.canonical import canonical_json
from bot.attestation.checks import Check, failed, not_checked, proven, proven_if
from bot.attestation.errors import MalformedEvidence
from bot.attestation.quote import TdQuote
from bot.attestation.strict_json import StrictModel, decode, read

RUNTIME_EVENT: Final = 0x08000001
RUNTIME_RTMR: Final = 3
KEY_SERVICE: Final = "kms"
"""The key provider that keys survive with."""
MAX_LOG_CHARS: Final = 1024 * 1024
MAX_EVENTS: Final = 512
MAX_NAME_CHARS: Final = 256
MAX_PAYLOAD_CHARS: Final = 128 * 1024

_EXTEND_BYTES: Final = 48
_APP_ID_BYTES: Final = 20
_HASH_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class Event:
    """One extension of a register.

    Attributes:
        rtmr: which register, 0 to 3.
        kind: event type; RUNTIME_EVENT in RTMR3, of the firmware's elsewhere.
        digest: what the register was extended with.
        name: of a runtime event; empty for the firmware's.
        payload: of a runtime event; empty for the firmware's.
    """

    rtmr: int
    kind: int
    digest: bytes
    name: str
    payload: bytes


@dataclass(frozen=True, slots=True)
class BootClaims:
    """What the measured guest noted while it booted, before any application ran.

    Attributes:
        app_id: 20 bytes; stays the same across upgrades.
        compose_hash: SHA-256 of app-compose.json.
        instance_id: of this machine; empty where the application asked for none.
        os_image_hash: what a KMS told the guest about its image; None without one.
        key_provider: where keys come from: `kms`, `local-sgx`, `tpm`, `none`.
        key_provider_id: its public key or measurement, hex.
    """

    app_id: bytes
    compose_hash: bytes
    instance_id: bytes
    os_image_hash: bytes | None
    key_provider: str
    key_provider_id: str


def parse_event_log(value: str | list[Any]) -> tuple[Event, ...]:
    """Read an event log, as JSON text or as the list that it holds.

    Raises:
        MalformedEvidence: it is not an event log, it is too long, a runtime event's recorded digest
            is not that of its name and payload, or a firmware event comes after one.
    """
    if len(value) > (MAX_LOG_CHARS if isinstance(value, str) else MAX_EVENTS):
        raise MalformedEvidence("the event log is longer than event logs are")
    try:
        entries = _LOG.validate_python(
            decode(value, "the event log") if isinstance(value, str) else value
        )
    except ValidationError:
        raise MalformedEvidence("the event log is not written as dstack writes it") from None
    events = tuple(_event(entry) for entry in entries)
    runtime = [event.rtmr == RUNTIME_RTMR for event in events]
    if runtime != sorted(runtime):
        raise MalformedEvidence("the firmware speaks after the application")
    return events


def replay(events: Iterable[Event]) -> tuple[bytes, bytes, bytes, bytes]:
    """Return what RTMR0 to RTMR3 hold after these events."""
    registers = [bytes(_EXTEND_BYTES)] * 4
    for event in events:
        registers[event.rtmr] = hashlib.sha384(registers[event.rtmr] + event.digest).digest()
    return registers[0], registers[1], registers[2], registers[3]


def log_checks(
    quote: TdQuote, events: Sequence[Event]
) -> tuple[tuple[Check, Check], BootClaims | None]:
    """Check a log against its quote: `rtmrs`, `boot_events`; and return what it claims.

    There are no claims unless both checks hold.
    """
    wrong = [
        f"RTMR{index}"
        for index, (replayed, quoted) in enumerate(zip(replay(events), quote.rtmrs, strict=True))
        if replayed != quoted
    ]
    rtmrs = proven_if(
        not wrong,
        "rtmrs",
        "the event log is the one that the hardware measured",
        f"the event log is not what the hardware measured: {', '.join(wrong)} differ",
    )
    if wrong:
        return (rtmrs, not_checked("boot_events", "its log is not the real one", asked=True)), None
    try:
        claims = _boot_claims(events)
    except MalformedEvidence as error:
        return (rtmrs, failed("boot_events", str(error))), None
    return (rtmrs, proven("boot_events", "the machine booted in dstack's order, once")), claims


# The boot's order


@dataclass(frozen=True, slots=True)
class _Step:
    name: str
    at_least: int = 1
    at_most: int = 1


_BOOT: Final = (
    _Step("system-preparing"),
    _Step("app-id"),
    _Step("compose-hash"),
    _Step("init-script-hash", at_least=0, at_most=MAX_EVENTS),
    _Step("gpu-policy-hash", at_least=0),
    _Step("gpu-attestation", at_least=0),
    _Step("instance-id"),
    _Step("boot-mr-done"),
    _Step("mr-kms", at_least=0),
    _Step("os-image-hash", at_least=0),
    _Step("key-provider"),
    _Step("storage-fs", at_least=0),
    _Step("system-ready"),
)
_BOOT_NAMES: Final = frozenset(step.name for step in _BOOT)


def _boot_claims(events: Iterable[Event]) -> BootClaims:
    runtime = [event for event in events if event.rtmr == RUNTIME_RTMR]
    boot, later = _split_boot(runtime)
    if any(event.name in _BOOT_NAMES for event in later):
        raise MalformedEvidence("a boot event was written again after the boot")
    said = {event.name: event.payload for event in boot}
    key_provider = _key_provider(said["key-provider"])
    if "os-image-hash" in said and key_provider.name != KEY_SERVICE:
        raise MalformedEvidence("an image hash was noted without a KMS that could know it")
    return BootClaims(
        app_id=_sized(said["app-id"], _APP_ID_BYTES),
        compose_hash=_sized(said["compose-hash"], _HASH_BYTES),
        instance_id=_sized(said["instance-id"], _APP_ID_BYTES, 0),
        os_image_hash=(
            _sized(said["os-image-hash"], _HASH_BYTES) if "os-image-hash" in said else None
        ),
        key_provider=key_provider.name,
        key_provider_id=key_provider.id,
    )


def _split_boot(runtime: Sequence[Event]) -> tuple[Sequence[Event], Sequence[Event]]:
    """Split at the end of the boot; anything missing, repeated, unknown or moved is malformed."""
    at = 0
    for step in _BOOT:
        count = 0
        while count < step.at_most and at < len(runtime) and runtime[at].name == step.name:
            at, count = at + 1, count + 1
        if count < step.at_least:
            raise MalformedEvidence(f"{step.name} is not where the boot has it")
    return runtime[:at], runtime[at:]


def _sized(payload: bytes, *sizes: int) -> bytes:
    if len(payload) not in sizes:
        raise MalformedEvidence("a boot event has a payload of the wrong size")
    return payload


class _KeyProvider(StrictModel):
    name: Annotated[str, Field(pattern=r"^[a-z0-9-]{1,32}$")]
    id: Annotated[str, Field(pattern=r"^([0-9a-f]{2}){0,2048}$")]


def _key_provider(payload: bytes) -> _KeyProvider:
    return read(_KeyProvider, payload, "the key provider's event")


# One entry


class _Entry(StrictModel):
    imr: Annotated[int, Field(ge=0, le=3)]
    event_type: Annotated[int, Field(ge=0, lt=2**32)]
    digest: Annotated[str, Field(pattern=r"^([0-9a-f]{96})?$")]
    event: Annotated[str, Field(max_length=MAX_NAME_CHARS)]
    event_payload: Annotated[str, Field(max_length=MAX_PAYLOAD_CHARS, pattern=r"^([0-9a-f]{2})*$")]
    version: Annotated[int, Field(ge=1, le=2)] = 1
    preimage: Annotated[str, Field(max_length=3 * MAX_PAYLOAD_CHARS)] | None = None


_LOG: Final = TypeAdapter(Annotated[list[_Entry], Field(max_length=MAX_EVENTS)])


def _event(entry: _Entry) -> Event:
    if (entry.imr == RUNTIME_RTMR) != (entry.event_type == RUNTIME_EVENT):
        raise MalformedEvidence("an event stands in the register of others")
    recorded = bytes.fromhex(entry.digest)
    if entry.imr != RUNTIME_RTMR:
        if not recorded:
            raise MalformedEvidence("a firmware event has no digest")
        return Event(entry.imr, entry.event_type, recorded, "", b"")
    payload = bytes.fromhex(entry.event_payload)
    preimage = _preimage(entry, payload)
    digest = hashlib.sha384(preimage).digest()
    if recorded not in (b"", digest) or entry.preimage not in (None, preimage.hex()):
        raise MalformedEvidence("a runtime event is not the one that its digest stands for")
    return Event(entry.imr, entry.event_type, digest, entry.event, payload)


def _preimage(entry: _Entry, payload: bytes) -> bytes:
    if entry.version == 2:
        said = {"name": entry.event, "payload": entry.event_payload, "type": RUNTIME_EVENT}
        return canonical_json(said).encode()
    name = entry.event.encode()
    return RUNTIME_EVENT.to_bytes(4, "little") + b":" + name + b":" + payload
