"""The event log: it matches the measurements, and the boot comes first and once."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.attestation.checks import Verdict
from bot.attestation.errors import MalformedEvidence
from bot.attestation.event_log import (
    MAX_EVENTS,
    MAX_LOG_CHARS,
    BootClaims,
    log_checks,
    parse_event_log,
    replay,
)
from bot.attestation.quote import TdQuote, parse_quote
from tests.fakes.dstack_agent import runtime_event as event
from tests.fakes.soft_tdx import SoftTdx

KMS: Final = json.dumps({"name": "kms", "id": "3059"}).encode()
APP_ID: Final = b"\1" * 20
COMPOSE_HASH: Final = b"\2" * 32
INSTANCE_ID: Final = b"\3" * 20
IMAGE_HASH: Final = b"\4" * 32

Log = list[dict[str, Any]]


def firmware(rtmr: int, what: bytes) -> dict[str, Any]:
    return {
        "imr": rtmr,
        "event_type": 4,
        "digest": hashlib.sha384(what).hexdigest(),
        "event": "",
        "event_payload": what.hex(),
    }


def event_2(name: str, payload: bytes = b"") -> dict[str, Any]:
    """Version 2, written out by hand: keys sorted, nothing between them."""
    preimage = f'{{"name":"{name}","payload":"{payload.hex()}","type":134217729}}'.encode()
    return event(name, payload) | {
        "digest": hashlib.sha384(preimage).hexdigest(),
        "version": 2,
        "preimage": preimage.hex(),
    }


FIRMWARE: Final[Log] = [firmware(0, b"a"), firmware(0, b"b"), firmware(1, b"c"), firmware(2, b"d")]


def booted(make: Callable[..., dict[str, Any]] = event) -> Log:
    return [
        *FIRMWARE,
        make("system-preparing"),
        make("app-id", APP_ID),
        make("compose-hash", COMPOSE_HASH),
        make("instance-id", INSTANCE_ID),
        make("boot-mr-done"),
        make("mr-kms", b"\5" * 32),
        make("os-image-hash", IMAGE_HASH),
        make("key-provider", KMS),
        make("storage-fs", b"zfs"),
        make("system-ready"),
    ]


CLAIMS: Final = BootClaims(APP_ID, COMPOSE_HASH, INSTANCE_ID, IMAGE_HASH, "kms", "3059")


def quote_with(rtmrs: tuple[bytes, ...]) -> TdQuote:
    return parse_quote(SoftTdx().quote(bytes(64), bytes(48), rtmrs))


QUOTE: Final = quote_with(replay(parse_event_log(booted())))


def verified(log: str | Log, quote: TdQuote = QUOTE) -> tuple[str, str, BootClaims | None]:
    (rtmrs, boot_events), claims = log_checks(quote, log)
    return rtmrs.verdict.value, boot_events.verdict.value, claims


def measured(log: Log) -> tuple[str, str, BootClaims | None]:
    """Verify a log that the hardware has measured just so."""
    return verified(log, replace(QUOTE, rtmrs=replay(parse_event_log(log))))


GOOD: Final = (Verdict.PROVEN, Verdict.PROVEN, CLAIMS)


# Replay


def test_registers_are_a_chain_of_sha384_from_zeros() -> None:
    first = hashlib.sha384(bytes(48) + hashlib.sha384(b"a").digest()).digest()
    second = hashlib.sha384(first + hashlib.sha384(b"b").digest()).digest()
    assert replay(parse_event_log(FIRMWARE))[0] == second
    assert replay(()) == (bytes(48),) * 4


@pytest.mark.parametrize("make", [event, event_2], ids=["version 1", "version 2"])
def test_a_log_in_either_version_is_proven_as_text_and_as_a_list(
    make: Callable[..., dict[str, Any]],
) -> None:
    log = booted(make)
    assert measured(log) == GOOD
    quote = replace(QUOTE, rtmrs=replay(parse_event_log(log)))
    assert verified(json.dumps(log), quote) == GOOD


def test_a_missing_digest_is_computed_from_name_and_payload() -> None:
    log = [entry | ({"digest": ""} if entry["imr"] == 3 else {}) for entry in booted()]
    assert verified(log) == GOOD


def test_registers_that_differ_are_named() -> None:
    (rtmrs, boot_events), claims = log_checks(replace(QUOTE, rtmrs=(bytes(48),) * 4), booted())
    assert rtmrs.verdict is Verdict.FAILED
    assert rtmrs.message.endswith("RTMR0, RTMR1, RTMR2, RTMR3 differ")
    assert (boot_events.verdict, boot_events.asked, claims) == (Verdict.NOT_CHECKED, True, None)


def test_firmware_events_of_one_register_have_an_order() -> None:
    first, second, *rest = booted()
    assert verified([second, first, *rest])[0] == Verdict.FAILED


# The boot


def without(name: str) -> Log:
    return [entry for entry in booted() if entry["event"] != name]


def inserted(before: str, *new: dict[str, Any]) -> Log:
    log = booted()
    at = next(index for index, entry in enumerate(log) if entry["event"] == before)
    return log[:at] + list(new) + log[at:]


def swapped(name: str) -> Log:
    log = booted()
    at = next(index for index, entry in enumerate(log) if entry["event"] == name)
    log[at], log[at + 1] = log[at + 1], log[at]
    return log


def with_payload(name: str, payload: bytes) -> Log:
    return [event(name, payload) if entry["event"] == name else entry for entry in booted()]


NAMES: Final = [entry["event"] for entry in booted() if entry["imr"] == 3]
REQUIRED: Final = [n for n in NAMES if n not in {"mr-kms", "os-image-hash", "storage-fs"}]

WRONG_PAYLOADS: Final = (
    ("app-id", b"\1" * 19),
    ("compose-hash", COMPOSE_HASH + b"\0"),
    ("compose-hash", b""),
    ("instance-id", b"\1"),
    ("os-image-hash", b"\1" * 20),
    ("key-provider", b"kms"),
    ("key-provider", b'{"name":"kms","name":"none","id":""}'),
    ("key-provider", b'{"name":"kms","id":"","also":"none"}'),
    ("key-provider", b'{"name":"kms","id":"abc"}'),
    ("key-provider", b'{"name":"tpm","id":""}'),  # which vouches for no image
)
WRONG_BOOTS: Final[dict[str, Log]] = {
    **{f"{name} is missing": without(name) for name in REQUIRED},
    **{f"{name} comes later": swapped(name) for name in NAMES[:-1]},
    **{f"{name} comes twice": inserted(name, event(name)) for name in NAMES},
    **{f"{name} comes again after the boot": [*booted(), event(name)] for name in NAMES},
    "an optional name after the boot": [*booted(), event("gpu-policy-hash", b"\1" * 32)],
    "two verdicts on one GPU": inserted(
        "instance-id", event("gpu-attestation", b"{}"), event("gpu-attestation", b"{}")
    ),
    "an unknown name during the boot": inserted("instance-id", event("hello")),
    "nothing was measured": FIRMWARE,
    "a boot inside a boot": [*booted()[:-1], *booted()[4:]],
    **{f"{name}: {payload!r}": with_payload(name, payload) for name, payload in WRONG_PAYLOADS},
}


@pytest.mark.parametrize("name", WRONG_BOOTS)
def test_a_boot_in_disorder_claims_nothing(name: str) -> None:
    assert measured(WRONG_BOOTS[name]) == (Verdict.PROVEN, Verdict.FAILED, None)


RIGHT_BOOTS: Final[dict[str, Log]] = {
    "an app's own events": [*booted(), event("hello", b"you"), event("hello", b"again")],
    "no instance id": with_payload("instance-id", b""),
    "no KMS": [
        entry
        for entry in with_payload("key-provider", b'{"name":"none","id":""}')
        if entry["event"] not in {"os-image-hash", "mr-kms", "storage-fs"}
    ],
    "a GPU and scripts": inserted(
        "instance-id",
        event("init-script-hash", b"\1" * 32),
        event("init-script-hash", b"\2" * 32),
        event("gpu-policy-hash", b"\3" * 32),
        event("gpu-attestation", b"{}"),
    ),
}


@pytest.mark.parametrize("name", RIGHT_BOOTS)
def test_optional_events_of_dstack_are_in_order(name: str) -> None:
    rtmrs, boot_events, claims = measured(RIGHT_BOOTS[name])
    assert (rtmrs, boot_events) == (Verdict.PROVEN, Verdict.PROVEN)
    assert claims is not None
    assert claims.compose_hash == COMPOSE_HASH


# Malformed


def changed(name: str, **values: Any) -> Log:
    return [entry | values if entry["event"] == name else entry for entry in booted()]


MALFORMED: Final[dict[str, str | Log]] = {
    "no JSON": "hello",
    "an object": "{}",
    "depth": "[" * 100_000,
    "too long a text": " " * (MAX_LOG_CHARS + 1),
    "too many events as text": json.dumps([event("x")] * (MAX_EVENTS + 1)),
    "a key twice": json.dumps(booted()).replace('"imr": 3', '"imr": 3, "imr": 3', 1),
    "a fifth register": changed("app-id", imr=4),
    "a register as text": changed("app-id", imr="3"),
    "capitals in hex": changed("app-id", event_payload="AB" * 20),
    "a line break after hex": changed("app-id", event_payload="0102\n"),
    "a short digest": changed("app-id", digest="00" * 47),
    "a long name": [*booted(), event("x" * 257)],
    "half a character": changed("system-ready", event="\ud800", digest=""),
    "a version that is true": changed("app-id", version=True),
    "a key of its own": changed("app-id", comment="hi"),
    "a key missing": [{k: v for k, v in e.items() if k != "event"} for e in booted()],
    "a firmware event without a digest": [FIRMWARE[0] | {"digest": ""}],
    "the firmware after the application": [*booted(), FIRMWARE[0]],
    "an opaque event among the application's": [*booted(), firmware(3, b"hidden")],
    "an application's event among the firmware's": changed("app-id", imr=2),
    "a payload that is not the digest's": changed("app-id", event_payload="ab" * 20),
    "a name that is not the digest's": changed("system-ready", event="ready"),
    "a digest that is not the payload's": changed("app-id", digest="ab" * 48),
    "a preimage that is not the event's": changed("app-id", preimage="ab"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_invalid_event_log_is_malformed(name: str) -> None:
    with pytest.raises(MalformedEvidence):
        parse_event_log(MALFORMED[name])


# No byte can be another one


TEXT: Final = json.dumps(booted(), separators=(",", ":"))
VERSION_2: Final = json.dumps([*FIRMWARE, *booted(event_2)[4:]], separators=(",", ":"))
UNREAD: Final = ("event_type", "event", "event_payload")


def outcome(text: str, quote: TdQuote) -> tuple[str, str, BootClaims | None] | None:
    try:
        return verified(text, quote)
    except MalformedEvidence:
        return None


@settings(max_examples=400, deadline=None)
@given(st.sampled_from([TEXT, VERSION_2]), st.data())
def test_no_character_of_a_log_can_be_changed(text: str, data: st.DataObject) -> None:
    """Exempt the firmware's descriptions next to its digests: nothing checks or reads them."""
    quote = replace(QUOTE, rtmrs=replay(parse_event_log(text)))
    at = data.draw(st.integers(0, len(text) - 1))
    character = data.draw(st.characters(codec="utf-8").filter(lambda c: c != text[at]))
    edited = text[:at] + character + text[at + 1 :]
    if outcome(edited, quote) == GOOD:
        assert readable(json.loads(edited)) == readable(json.loads(text))


def readable(log: Log) -> Log:
    return [
        {k: v for k, v in entry.items() if entry["imr"] == 3 or k not in UNREAD} for entry in log
    ]
