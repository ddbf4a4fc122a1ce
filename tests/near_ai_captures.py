"""Recorded evidence of NEAR AI Cloud, from `../shared`; a test that needs it skips without it.

capture = recorded_capture(CLOUD)
capture.verify().report.passed
capture.verify(edited=lambda report: report.pop("tls_certificate"))
"""

import base64
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

from bot.attestation.near_ai.nvidia import NrasWord
from bot.attestation.near_ai.pins import ModelPins
from bot.attestation.near_ai.report import ModelEvidence
from bot.attestation.near_ai.verification import (
    NOT_REQUIRED,
    FirmwareRule,
    ModelFindings,
    verify_model,
)
from bot.attestation.quote import Collateral, TdQuote
from bot.attestation.trust import Trust

CLOUD: Final = "cloud-2026-06-29"
DIRECT: Final = "direct-2026-06-29"
OUT_OF_DATE: Final = "cloud-2026-04-24"
RECORDED_AT: Final = {CLOUD: 1782698817, DIRECT: 1782698817, OUT_OF_DATE: 1776996374}
FOLDER: Final = Path(__file__).parents[2] / "shared/fixtures/attestation/nearai"

OF_THEIR_TIME: Final = Trust(min_tcb_evaluation=17)
"""The real trust, except that it accepts TCB evaluations from the time of the older recordings."""

Json = dict[str, Any]


def unchanged(_: Json) -> None:
    """Edit nothing."""


@dataclass(frozen=True, slots=True)
class Capture:
    """A report with the documents that Intel and NVIDIA issued for it at the time."""

    evidence: ModelEvidence
    collateral: dict[bytes, Collateral]
    nras: NrasWord
    now: int

    @property
    def report(self) -> Json:
        report: Json = json.loads(self.evidence.report)
        return report

    def collateral_for(self, quote: TdQuote) -> Collateral | str:
        return self.collateral.get(quote.fmspc, "nothing was recorded about this platform")

    def verify(
        self,
        *,
        edited: Callable[[Json], object] = unchanged,
        nras: NrasWord | None = None,
        now: int | None = None,
        firmware: FirmwareRule = NOT_REQUIRED,
        pins: ModelPins | None = None,
        **evidence: Any,
    ) -> ModelFindings:
        """Verify it, with something in it replaced."""
        report = self.report
        edited(report)
        return verify_model(
            replace(self.evidence, **{"report": json.dumps(report).encode(), **evidence}),
            collateral=self.collateral_for,
            nras=[self.nras if nras is None else nras],
            now=self.now if now is None else now,
            firmware=firmware,
            pins=pins,
            trust=OF_THEIR_TIME,
        )


@cache
def _read(name: str) -> Capture:
    folder = FOLDER / name
    meta = json.loads((folder / "meta.json").read_bytes())
    peer = meta["peer_spki_der_base64"]
    evidence = ModelEvidence(
        report=(folder / "report.json").read_bytes(),
        nonce=bytes.fromhex(meta["nonce_hex"]),
        model=meta["model"],
        peer_key_sha256=hashlib.sha256(base64.b64decode(peer)).digest() if peer else None,
        fetched_at=RECORDED_AT[name],
    )
    collateral = [Collateral.parse(path.read_text()) for path in folder.glob("collateral_*.json")]
    return Capture(
        evidence=evidence,
        collateral={one.fmspc: one for one in collateral},
        nras=NrasWord(
            (folder / "nras_response.json").read_bytes(), (folder / "nras_jwks.json").read_bytes()
        ),
        now=RECORDED_AT[name],
    )


def recorded_capture(name: str) -> Capture:
    """Return a capture, or skip the test without recordings."""
    if not (FOLDER / name).is_dir():
        pytest.skip("the recorded evidence is not there")
    return _read(name)
