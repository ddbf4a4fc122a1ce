"""Recorded attestation data, which lies beside the project and never inside it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

RECORDED: Final = Path(__file__).parents[2] / "shared" / "fixtures" / "attestation"
CLOCK: Final = 1782698817
"""2026-06-29T02:06:57Z, when most of it was valid."""


class TdEvidence(NamedTuple):
    """Arguments of `verify_td` for one machine."""

    quote: bytes
    event_log: str | list[Any]
    app_compose: str


def recorded(path: str) -> Path:
    """Return a recorded file; the test is skipped where it is absent."""
    file = RECORDED / path
    if not file.exists():
        pytest.skip(f"no recorded attestation data here: {path}")
    return file


def recorded_quote(path: str) -> bytes:
    """Return a recorded quote, whether it was kept as bytes or as hex."""
    raw = recorded(path).read_bytes()
    return raw if raw[:1] in b"\x03\x04\x05" else bytes.fromhex(raw.decode().removeprefix("0x"))


def recorded_simulator_quote() -> bytes:
    """Return the quote inside the simulator's recorded attestation."""
    return recorded("dstack/simulator/attestation.bin").read_bytes()[4:5010]


def recorded_tds(capture: str) -> Iterator[tuple[str, TdEvidence]]:
    """Yield every TD of a recorded NEAR AI report with the place where it stands."""
    yield from _tds(json.loads(recorded(f"nearai/{capture}/report.json").read_text()), "report")


def recorded_getquote(name: str) -> TdEvidence:
    """Return a recorded answer of the guest agent; its application was not recorded."""
    answer = json.loads(recorded(f"dstack/{name}.json").read_text())
    return TdEvidence(bytes.fromhex(answer["quote"]), answer["event_log"], "")


def _tds(node: Any, place: str) -> Iterator[tuple[str, TdEvidence]]:
    if isinstance(node, list):
        for index, item in enumerate(node):
            yield from _tds(item, f"{place}[{index}]")
    if not isinstance(node, dict):
        return
    quote = node.get("intel_quote") or node.get("quote")
    if quote and "event_log" in node:
        app_compose = node.get("info", {}).get("tcb_info", {}).get("app_compose", "")
        yield place, TdEvidence(bytes.fromhex(quote), node["event_log"], app_compose)
    for key, value in node.items():
        yield from _tds(value, f"{place}.{key}")
