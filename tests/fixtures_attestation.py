"""Recorded attestation data, kept next to the project and never inside it."""

import json
from pathlib import Path
from typing import Final

import pytest

RECORDED: Final = Path(__file__).parents[2] / "shared" / "fixtures" / "attestation"
CLOCK: Final = 1782698817
"""2026-06-29T02:06:57Z, when most of it was valid."""


def recorded(path: str) -> Path:
    """Return a recorded file; skip the test if it is absent."""
    file = RECORDED / path
    if not file.exists():
        pytest.skip(f"no recorded attestation data here: {path}")
    return file


def recorded_quote(path: str) -> bytes:
    """Return a recorded quote, whether it was kept as bytes or as hex."""
    raw = recorded(path).read_bytes()
    return raw if raw[:1] in b"\x03\x04\x05" else bytes.fromhex(raw.decode().removeprefix("0x"))


def recorded_simulator_quote() -> bytes:
    return recorded("dstack/simulator/attestation.bin").read_bytes()[4:5010]


def recorded_getquote(name: str) -> tuple[bytes, str]:
    """Return the quote and the event log of a recorded answer of the guest agent."""
    answer = json.loads(recorded(f"dstack/{name}.json").read_text())
    return bytes.fromhex(answer["quote"]), answer["event_log"]
