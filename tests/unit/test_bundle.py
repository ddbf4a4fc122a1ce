"""A bundle comes from a stranger: malformed ones are refused in a plain sentence."""

import json
from dataclasses import replace
from typing import Any

import pytest

from bot.attestation.bundle import MAX_BUNDLE_BYTES, Bundle
from bot.attestation.errors import MalformedEvidence
from bot.attestation.near_ai.report import ModelEvidence

MODEL = ModelEvidence(
    report=b'{"gateway_attestation": {}}',
    nonce=bytes(range(32)),
    model="qwen",
    peer_key_sha256=bytes(32),
    fetched_at=1782698817,
)
BUNDLE = Bundle(
    type="signal-bot-bundle",
    v=2,
    statement='{"v":1}',
    policy='{"retention_days":30}',
    quote=b"\x04\x00\x02",
    event_log="[]",
    app_compose='{"name": "bot: тест"}',
    vm_config="{}",
    model=MODEL,
    model_pins=None,
)
WIRE: dict[str, Any] = json.loads(BUNDLE.to_json())


def encoded(wire: object) -> bytes:
    return json.dumps(wire).encode()


@pytest.mark.parametrize("model", [MODEL, replace(MODEL, peer_key_sha256=None), None])
def test_written_bundle_is_read_again(model: ModelEvidence | None) -> None:
    bundle = replace(BUNDLE, model=model)
    assert Bundle.parse(bundle.to_json()) == bundle


@pytest.mark.parametrize("name", sorted(WIRE))
def test_a_file_that_lacks_a_field_is_refused(name: str) -> None:
    with pytest.raises(MalformedEvidence, match=f"`{name}`|all of it"):
        Bundle.parse(encoded({key: WIRE[key] for key in WIRE if key != name}))


@pytest.mark.parametrize("name", sorted(WIRE))
@pytest.mark.parametrize("value", [7, True, [], {}, "not hex \ud800"])
def test_a_field_of_another_kind_is_refused(name: str, value: object) -> None:
    with pytest.raises(MalformedEvidence, match=r"bundle|evidence"):
        Bundle.parse(encoded(WIRE | {name: value}))


@pytest.mark.parametrize("quote", ["", "0", "0G", "AB", "04 00", "0x04"])
def test_a_quote_that_is_not_strictly_hex_is_refused(quote: str) -> None:
    with pytest.raises(MalformedEvidence, match="quote"):
        Bundle.parse(encoded(WIRE | {"quote": quote}))


@pytest.mark.parametrize(
    "file",
    [
        b"",
        b"\xff\xfe",
        b"{",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        encoded(WIRE)[:-1] + b',"v":2}',
        encoded(WIRE | {"extra": 1}),
        encoded(WIRE) + b"{}",
        encoded(WIRE | {"v": 1}),
        encoded(WIRE | {"v": 3}),
        encoded(WIRE | {"v": True}),
        encoded(WIRE) + b" " * MAX_BUNDLE_BYTES,
        encoded(WIRE | {"model": WIRE["model"] | {"extra": 1}}),
        encoded(WIRE | {"model": WIRE["model"] | {"nonce": "00"}}),
        encoded(WIRE | {"model": WIRE["model"] | {"peer_key_sha256": "AB" * 32}}),
        encoded(WIRE | {"model": WIRE["model"] | {"fetched_at": -1}}),
        BUNDLE.to_json().replace(b'"model":"qwen"', b'"model":"qwen","model":"other"'),
    ],
)
def test_invalid_bundle_is_refused(file: bytes) -> None:
    with pytest.raises(MalformedEvidence, match="bundle"):
        Bundle.parse(file)
