"""The log of everything that a TD started, replayed against the registers in its quote.

Format and digests: dstack, `cc-eventlog`. The digest of a runtime event is computed here from its
name and payload, and never taken from the log: SHA-384 of `type ":" name ":" payload` (version 1)
or of the canonical JSON of the three (version 2).

Not checked: type, name and payload of firmware events (RTMR0 to RTMR2). The firmware hashes other
bytes than it logs, so a check is impossible, and nothing here reads them. The order of events in
different firmware registers is not measured either.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, Final

from pydantic import Field, TypeAdapter, ValidationError

from bot.attestation.checks import Check, failed, not_checked, proven
from bot.attestation.errors import MalformedEvidence
from bot.attestation.quote import TdQuote
from bot.attestation.strict_json import StrictModel, canonical_json, decode, read

RUNTIME_EVENT: Final = 0x08000001
RUNTIME_RTMR: Final = 3
KEY_SERVICE: Final = "kms"
"""The only key provider whose keys survive a restart or an upgrade."""
MAX_LOG_CHARS: Final = 1024 * 1024
MAX_EVENTS: Final = 512
MAX_NAME_CHARS: Final = 256
MAX_PAYLOAD_CHARS: Final = 128 * 1024

_EXTEND_BYTES: Final = 48
_APP_ID_BYTES: Final = 20
_HASH_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class Event:
    """An extension of a register; name and payload are empty for firmware events."""

    rtmr: int
    digest: bytes
    name: str
    payload: bytes


@dataclass(frozen=True, slots=True)
class BootClaims:
    """Notes of the measured guest from its boot, before any application ran.

    Attributes:
        app_id: 20 bytes; stays the same across upgrades.
        compose_hash: SHA-256 of app-compose.json.
        instance_id: of this machine; empty if the application asked for none.
        os_image_hash: as a KMS told the guest; None without a KMS.
        key_provider: source of the keys: `kms`, `local-sgx`, `tpm`, `none`.
        key_provider_id: its public key or measurement, hex.
    """

    app_id: bytes
    compose_hash: bytes
    instance_id: bytes
    os_image_hash: bytes | None
    key_provider: str
    key_provider_id: str


def parse_event_log(value: str | list[Any]) -> tuple[Event, ...]:
    """Read an event log, given as JSON text or as the list in it.

    Raises:
        MalformedEvidence: it is too long or has another shape, the digest of a runtime event does
            not fit its name and payload, or a firmware event follows a runtime event.
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
    """Return RTMR0 to RTMR3 after these events."""
    registers = [bytes(_EXTEND_BYTES)] * 4
    for event in events:
        registers[event.rtmr] = hashlib.sha384(registers[event.rtmr] + event.digest).digest()
    return registers[0], registers[1], registers[2], registers[3]


def log_checks(
    quote: TdQuote, event_log: str | list[Any]
) -> tuple[tuple[Check, Check], BootClaims | None]:
    """Check a log against its quote: `rtmrs`, `boot_events`. Return claims if both hold."""
    try:
        events = _measured_events(quote, event_log)
    except MalformedEvidence as error:
        unknown = not_checked("boot_events", "its log is not the real one", asked=True)
        return (failed("rtmrs", str(error)), unknown), None
    rtmrs = proven("rtmrs", "the event log is the one that the hardware measured")
    try:
        claims = _boot_claims(events)
    except MalformedEvidence as error:
        return (rtmrs, failed("boot_events", str(error))), None
    return (rtmrs, proven("boot_events", "the machine booted in dstack's order, once")), claims


def _measured_events(quote: TdQuote, event_log: str | list[Any]) -> tuple[Event, ...]:
    events = parse_event_log(event_log)
    registers = enumerate(zip(replay(events), quote.rtmrs, strict=True))
    wrong = [f"RTMR{index}" for index, (replayed, quoted) in registers if replayed != quoted]
    if wrong:
        differ = f"{', '.join(wrong)} differ"
        raise MalformedEvidence(f"the event log is not what the hardware measured: {differ}")
    return events


_BOOT: Final = (
    ("system-preparing", 1, 1),
    ("app-id", 1, 1),
    ("compose-hash", 1, 1),
    ("init-script-hash", 0, MAX_EVENTS),
    ("gpu-policy-hash", 0, 1),
    ("gpu-attestation", 0, 1),
    ("instance-id", 1, 1),
    ("boot-mr-done", 1, 1),
    ("mr-kms", 0, 1),
    ("os-image-hash", 0, 1),
    ("key-provider", 1, 1),
    ("storage-fs", 0, 1),
    ("system-ready", 1, 1),
)
"""Boot events in order: name, least and greatest count."""


def _boot_claims(events: Iterable[Event]) -> BootClaims:
    runtime = [event for event in events if event.rtmr == RUNTIME_RTMR]
    at = 0
    for name, at_least, at_most in _BOOT:
        count = 0
        while count < at_most and at < len(runtime) and runtime[at].name == name:
            at, count = at + 1, count + 1
        if count < at_least:
            raise MalformedEvidence(f"{name} is not where the boot has it")
    names = {name for name, _, _ in _BOOT}
    if any(event.name in names for event in runtime[at:]):
        raise MalformedEvidence("a boot event was written again after the boot")
    payloads = {event.name: event.payload for event in runtime[:at]}
    provider = read(_KeyProvider, payloads["key-provider"], "the key provider's event")
    image = payloads.get("os-image-hash")
    if image is not None and provider.name != KEY_SERVICE:
        raise MalformedEvidence("an image hash was noted without a KMS that could know it")
    return BootClaims(
        app_id=_sized(payloads["app-id"], _APP_ID_BYTES),
        compose_hash=_sized(payloads["compose-hash"], _HASH_BYTES),
        instance_id=_sized(payloads["instance-id"], _APP_ID_BYTES, 0),
        os_image_hash=None if image is None else _sized(image, _HASH_BYTES),
        key_provider=provider.name,
        key_provider_id=provider.id,
    )


def _sized(payload: bytes, *sizes: int) -> bytes:
    if len(payload) not in sizes:
        raise MalformedEvidence("a boot event has a payload of the wrong size")
    return payload


class _KeyProvider(StrictModel):
    name: Annotated[str, Field(pattern=r"^[a-z0-9-]{1,32}$")]
    id: Annotated[str, Field(pattern=r"^([0-9a-f]{2}){0,2048}$")]


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
        return Event(entry.imr, recorded, "", b"")
    payload = bytes.fromhex(entry.event_payload)
    if entry.version == 2:
        fields = {"name": entry.event, "payload": entry.event_payload, "type": RUNTIME_EVENT}
        preimage = canonical_json(fields).encode()
    else:
        kind = RUNTIME_EVENT.to_bytes(4, "little")
        preimage = b":".join((kind, entry.event.encode(), payload))
    digest = hashlib.sha384(preimage).digest()
    if recorded not in (b"", digest) or entry.preimage not in (None, preimage.hex()):
        raise MalformedEvidence("the digest of a runtime event does not fit the event")
    return Event(entry.imr, digest, entry.event, payload)
