"""A statement has exactly one encoding, and the quote holds its hash under its own prefix."""

import hashlib
import json
from typing import Any

import pytest

from bot.attestation.bundle import (
    MAX_STATEMENT_BYTES,
    Statement,
    challenge_hash,
    report_data,
    statement_hash,
)
from bot.attestation.errors import MalformedEvidence
from tests.fakes.soft_bundle import STATEMENT

TEXT = STATEMENT.text()
WIRE: dict[str, Any] = json.loads(TEXT)
SEAL: dict[str, Any] = WIRE["model"]


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
        Statement.parse(canonical(WIRE | {name: value}))


@pytest.mark.parametrize("name", sorted(WIRE))
def test_a_statement_that_lacks_a_field_is_refused(name: str) -> None:
    with pytest.raises(MalformedEvidence, match=name):
        Statement.parse(canonical({key: WIRE[key] for key in WIRE if key != name}))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "[" * 3000,
        "1" * 4000,
        TEXT + "\n",
        json.dumps(WIRE, sort_keys=True),
        json.dumps(dict(reversed(WIRE.items())), separators=(",", ":")),
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
        Statement.parse(canonical(WIRE | {"meet me at nine": "or ten", "aci": "or eleven"}))
    assert str(caught.value) == "the statement is not of the expected shape: `aci`"
