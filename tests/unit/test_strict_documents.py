"""Documents of strangers are read strictly: bundles, statements, pins and their JSON."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import pytest

from bot.attestation.bundle import (
    MAX_BUNDLE_BYTES,
    MAX_STATEMENT_BYTES,
    Bundle,
    Statement,
    challenge_hash,
    report_data,
    statement_hash,
)
from bot.attestation.errors import MalformedEvidence
from bot.attestation.near_ai.pins import MAX_PINS_BYTES, ModelPins, pins_sha256
from bot.attestation.near_ai.report import ModelEvidence
from bot.attestation.strict_json import decode
from tests.fakes.soft_bundle import STATEMENT
from tests.fakes.some_pins import SOME_PINS, SOME_PINS_TEXT

Json = dict[str, Any]

# JSON


@pytest.mark.parametrize(
    "text",
    [
        '{"a": NaN}',
        "[Infinity]",
        "-Infinity",
        '{"a": {"b": 1, "b": 1}}',
        '{"a": 1, "\\u0061": 2}',
        "[" * 100_000,
        b'"\xff"',
        b"\xef\xbb\xbf{}",
    ],
    ids=["no number", "infinite", "below all", "twice", "twice, escaped", "deep", "bytes", "BOM"],
)
def test_ambiguous_json_is_malformed(text: str | bytes) -> None:
    with pytest.raises(MalformedEvidence, match="the file is not readable"):
        decode(text, "the file")


def test_a_key_may_stand_in_two_objects() -> None:
    assert decode(b'[{"a": 1}, {"a": {"a": 2}}]', "the file") == [{"a": 1}, {"a": {"a": 2}}]


# Bundles


MODEL: Final = ModelEvidence(
    report=b'{"gateway_attestation": {}}',
    nonce=bytes(range(32)),
    model="qwen",
    peer_key_sha256=bytes(32),
    fetched_at=1782698817,
)
BUNDLE: Final = Bundle(
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
BUNDLE_FIELDS: Final[Json] = json.loads(BUNDLE.to_json())


def encoded(wire: object) -> bytes:
    return json.dumps(wire).encode()


@pytest.mark.parametrize("model", [MODEL, replace(MODEL, peer_key_sha256=None), None])
def test_written_bundle_is_read_again(model: ModelEvidence | None) -> None:
    bundle = replace(BUNDLE, model=model)
    assert Bundle.parse(bundle.to_json()) == bundle


@pytest.mark.parametrize("name", sorted(BUNDLE_FIELDS))
def test_a_file_that_lacks_a_field_is_refused(name: str) -> None:
    with pytest.raises(MalformedEvidence, match=f"`{name}`|all of it"):
        Bundle.parse(encoded({key: BUNDLE_FIELDS[key] for key in BUNDLE_FIELDS if key != name}))


@pytest.mark.parametrize("name", sorted(BUNDLE_FIELDS))
@pytest.mark.parametrize("value", [7, True, [], {}, "not hex \ud800"])
def test_a_field_of_another_kind_is_refused(name: str, value: object) -> None:
    with pytest.raises(MalformedEvidence, match=r"bundle|evidence"):
        Bundle.parse(encoded(BUNDLE_FIELDS | {name: value}))


@pytest.mark.parametrize("quote", ["", "0", "0G", "AB", "04 00", "0x04"])
def test_a_quote_that_is_not_strictly_hex_is_refused(quote: str) -> None:
    with pytest.raises(MalformedEvidence, match="quote"):
        Bundle.parse(encoded(BUNDLE_FIELDS | {"quote": quote}))


@pytest.mark.parametrize(
    "file",
    [
        encoded(BUNDLE_FIELDS)[:-1] + b',"v":2}',
        encoded(BUNDLE_FIELDS | {"extra": 1}),
        encoded(BUNDLE_FIELDS | {"v": 1}),
        encoded(BUNDLE_FIELDS | {"v": 3}),
        encoded(BUNDLE_FIELDS | {"v": True}),
        encoded(BUNDLE_FIELDS) + b" " * MAX_BUNDLE_BYTES,
        encoded(BUNDLE_FIELDS | {"model": BUNDLE_FIELDS["model"] | {"extra": 1}}),
        encoded(BUNDLE_FIELDS | {"model": BUNDLE_FIELDS["model"] | {"nonce": "00"}}),
        encoded(BUNDLE_FIELDS | {"model": BUNDLE_FIELDS["model"] | {"peer_key_sha256": "AB" * 32}}),
        encoded(BUNDLE_FIELDS | {"model": BUNDLE_FIELDS["model"] | {"fetched_at": -1}}),
        BUNDLE.to_json().replace(b'"model":"qwen"', b'"model":"qwen","model":"other"'),
    ],
)
def test_invalid_bundle_is_refused(file: bytes) -> None:
    with pytest.raises(MalformedEvidence, match="bundle"):
        Bundle.parse(file)


# Statements


TEXT: Final = STATEMENT.text()
FIELDS: Final[Json] = json.loads(TEXT)
SEAL: Final[Json] = FIELDS["model"]


def canonical(wire: object) -> str:
    return json.dumps(wire, sort_keys=True, separators=(",", ":"))


def test_a_statement_is_one_line_of_canonical_json_and_is_read_again() -> None:
    assert Statement.parse(TEXT) == STATEMENT
    assert (
        '{"aci":"9d0652a3-dcc3-4d11-975f-74d61598733f",'
        '"code":{"commit":"0123abcd","version":"0.3.0"},'
        '"identity_key":"0506863bc66d02b40d27b8d49ca7c09e9239236f9d7d25d6fcca5ce13c7064d868",'
        '"issued_at":"2026-06-29T02:06:57Z","key_origin":"generated-in-tee","linked_devices":0,'
        '"model":{"age_seconds":null,"evidence_sha256":null,"pins_sha256":null,"policy":"warn"},'
        f'"policy_sha256":"{STATEMENT.policy_sha256}","type":"signal-bot-identity","v":2}}'
    ) == TEXT


def test_the_quote_holds_both_hashes_each_under_its_own_name() -> None:
    assert report_data(TEXT, "blue horse") == (
        hashlib.sha256(b"signal-bot/report-data/v1\x00" + TEXT.encode()).digest()
        + hashlib.sha256(b"signal-bot/nonce/v1\x00blue horse").digest()
    )


def test_a_statement_cannot_be_sent_in_as_a_challenge() -> None:
    assert challenge_hash(TEXT) != statement_hash(TEXT)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("aci", "9D0652A3-DCC3-4D11-975F-74D61598733F"),
        ("identity_key", "06" + "00" * 32),
        ("identity_key", "05" + "AB" * 32),
        ("issued_at", "2026-06-29T02:06:57"),
        ("issued_at", "2026-02-30T02:06:57Z"),
        ("key_origin", "trust me"),
        ("linked_devices", -1),
        ("linked_devices", True),
        ("policy_sha256", "ab" * 31),
        ("type", "signal-bot-something"),
        ("v", 1),
        ("v", True),
        ("code", {"commit": "0123abcd"}),
        ("code", {"commit": "\x1b[2J", "version": "0.3.0"}),
        ("code", "0.3.0"),
        ("model", SEAL | {"policy": "never"}),
        *(("model", SEAL | {"age_seconds": age}) for age in (-1, 2**31, True, 1.0, "1")),
        ("model", {name: SEAL[name] for name in SEAL if name != "age_seconds"}),
    ],
)
def test_statement_with_an_invalid_field_is_refused(name: str, value: object) -> None:
    with pytest.raises(MalformedEvidence, match="statement"):
        Statement.parse(canonical(FIELDS | {name: value}))


@pytest.mark.parametrize("name", sorted(FIELDS))
def test_a_statement_that_lacks_a_field_is_refused(name: str) -> None:
    with pytest.raises(MalformedEvidence, match=name):
        Statement.parse(canonical({key: FIELDS[key] for key in FIELDS if key != name}))


@pytest.mark.parametrize(
    "text",
    [
        "1" * 4000,
        TEXT + "\n",
        json.dumps(FIELDS, sort_keys=True),
        json.dumps(dict(reversed(FIELDS.items())), separators=(",", ":")),
        TEXT.replace("0.3.0", "\\u0030.3.0"),
        TEXT.replace('"v":2', '"v":2,"v":2'),
        TEXT.replace('"v":2', '"v":2,"w":1'),
        TEXT.replace('"linked_devices":0', '"linked_devices":NaN'),
        TEXT.replace('"linked_devices":0', '"linked_devices":-0'),
        TEXT.ljust(MAX_STATEMENT_BYTES + 1),
    ],
)
def test_a_statement_written_in_another_way_is_refused(text: str) -> None:
    with pytest.raises(MalformedEvidence, match="statement"):
        Statement.parse(text)


def test_error_does_not_repeat_a_strangers_words() -> None:
    with pytest.raises(MalformedEvidence) as caught:
        Statement.parse(canonical(FIELDS | {"meet me at nine": "or ten", "aci": "or eleven"}))
    assert str(caught.value) == "the statement is not of the expected shape: `aci`"


# Pins


def changed(change: Callable[[Json], object]) -> str:
    pins = json.loads(SOME_PINS_TEXT)
    change(pins)
    return json.dumps(pins)


def test_hash_of_pins_does_not_depend_on_their_layout() -> None:
    spread_out = json.dumps(SOME_PINS, indent=4, sort_keys=True)
    one, other = ModelPins.parse(SOME_PINS_TEXT), ModelPins.parse(spread_out.encode())
    assert pins_sha256(one.text()) == pins_sha256(other.text())
    assert ModelPins.parse(one.text()) == one


def test_pins_for_a_models_own_endpoint_name_no_gateway() -> None:
    assert ModelPins.parse(changed(lambda p: p.pop("gateway"))).gateway is None


WRONG_PINS: Final[dict[str, str]] = {
    "too much": " " * (MAX_PINS_BYTES + 1),
    "a newer version": changed(lambda p: p.update(v=2)),
    "a version that is true": changed(lambda p: p.update(v=True)),
    "another kind": changed(lambda p: p.update(type="signal-bot-release")),
    "a word more": changed(lambda p: p.update(accept="all")),
    "a key twice": SOME_PINS_TEXT.replace('"v"', '"v": 1, "v"', 1),
    "no model": changed(lambda p: p.pop("model")),
    "no systems": changed(lambda p: p["model"].update(systems=[])),
    "no applications": changed(lambda p: p["model"].update(applications=[])),
    "no key service": changed(lambda p: p.update(kms_ids=[])),
    "an empty key service": changed(lambda p: p.update(kms_ids=[""])),
    "an application without a name": changed(lambda p: p["model"].update(applications=[{}])),
    "an application with two names": changed(
        lambda p: p["model"].update(applications=[{"compose_hash": "ab" * 32, "app_id": "cd" * 20}])
    ),
    "a hash in capitals": changed(
        lambda p: p["model"].update(applications=[{"compose_hash": "AB" * 32}])
    ),
    "a hash with a line break": changed(
        lambda p: p["model"].update(applications=[{"compose_hash": "ab" * 32 + "\n"}])
    ),
    "a pattern": changed(lambda p: p["model"].update(applications=[{"app_id": ".*"}])),
    "digits of another script": changed(
        lambda p: p["model"]["systems"][0].update(mrtd="\u0660" * 96)
    ),
    "a measurement too short": changed(lambda p: p["model"]["systems"][0].update(mrtd="00")),
    "a measurement that is missing": changed(lambda p: p["model"]["systems"][0].pop("rtmr2")),
    "a label that draws": changed(lambda p: p["model"]["systems"][0].update(label="\x1b[2J")),
    "half a character": SOME_PINS_TEXT.replace("the model's", "\\ud800"),
}


@pytest.mark.parametrize("name", WRONG_PINS)
def test_invalid_pins_are_refused(name: str) -> None:
    with pytest.raises(MalformedEvidence):
        ModelPins.parse(WRONG_PINS[name])
