"""`signal-tee-bot attest model`: make pins from the current evidence of the model's endpoint.

The pins accept the machines of this evidence. So the command verifies everything it can, and
prints the rest for a comparison with other sources. Evidence that fails makes no pins.
"""

import asyncio
import os
import time
from argparse import Namespace
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from bot.attestation.errors import EvidenceUnavailable
from bot.attestation.event_log import KEY_SERVICE, BootClaims
from bot.attestation.http import open_http
from bot.attestation.near_ai.model import evidence_client
from bot.attestation.near_ai.pins import (
    KNOWN,
    ModelPins,
    Part,
    PinnedPart,
    pins_sha256,
)
from bot.attestation.near_ai.verification import FirmwareRule, ModelFindings, verify_model
from bot.attestation.quote import OsMeasurement, TdQuote
from bot.attestation.report import LEGEND, table
from bot.attestation.trust import REAL, Trust
from bot.config.loading import load_settings
from bot.config.settings import Settings
from bot.errors import SettingsError
from bot.observability import logs

REQUIRED: Final = FirmwareRule(required=True, vouched_until={})
IS_THERE: Final = "is there already; --force replaces it"
NEVER_SEEN: Final = "not seen before: compare it with what others have measured"
WRITTEN: Final = """\
{file} accepts these machines and no others. The bot's proofs name it by {sha256}.
Set ATTESTATION__MODEL_PINS={file}; in an enclave it is part of the release (docs/VERIFY.md).

A compose hash changes with every version of NEAR AI's programs, and then nothing is sent until you
have made new pins. To let the key service decide which versions may run, replace
{{"compose_hash": "…"}} by {{"app_id": "…"}}, the application's id."""


_Seen = tuple[Part, TdQuote, BootClaims]
"""A machine whose quote and log could be read."""


def run(arguments: Namespace) -> bool:
    """Make pins of the model's evidence, and return whether it holds."""
    logs.configure(level="error", log_format="console")  # the report names troubled services
    # Pins are not needed to make pins.
    settings = load_settings({"attestation": {"model_policy": "warn", "model_pins": None}})
    return asyncio.run(attest_model(settings, arguments.output, force=arguments.force))


async def attest_model(
    settings: Settings,
    output: Path,
    *,
    force: bool = False,
    trust: Trust = REAL,
    clock: Callable[[], float] = time.time,
) -> bool:
    """Print the evidence of the model's endpoint, and write it as pins.

    Returns:
        Whether the evidence holds and the file was written.
    """
    if not settings.model_has_to_prove:
        raise SettingsError("LLM__BASE_URL: must begin with https://, or no machine can be known")
    if os.path.lexists(output) and not force:  # noqa: ASYNC240
        raise SettingsError(f"{output}: {IS_THERE}")
    findings = await _findings(settings, trust, clock)
    machines = [
        (part, found.quote, found.boot)
        for part, found in findings.machines
        if found.boot is not None
    ]
    print("\n\n".join((table(findings.report), LEGEND, *map(_described, machines))))
    if not findings.report.passed:
        named = ", ".join(check.name for check in findings.report.failures)
        print(f"\nNo pins are made of this evidence: {named} did not hold.")
        return False
    if any(boot.key_provider != KEY_SERVICE for _, _, boot in machines):
        print("\nNo pins are made of this evidence: no key service vouches for a machine.")
        return False
    pins = _pins(machines, datetime.fromtimestamp(clock(), UTC).date().isoformat())
    _write(output, pins.model_dump_json(indent=2, exclude_none=True))
    words = WRITTEN.format(file=output, sha256=pins_sha256(pins.text()))
    print(f"\n{words}")
    return True


async def _findings(settings: Settings, trust: Trust, clock: Callable[[], float]) -> ModelFindings:
    async with open_http(tls=trust.tls) as http:
        try:
            gathered = await evidence_client(settings, http, trust, clock).gather()
        except EvidenceUnavailable as error:
            words = f"the endpoint in LLM__BASE_URL shows no evidence: {error}"
            raise EvidenceUnavailable(words) from None
    return verify_model(
        gathered.evidence,
        collateral=gathered.collateral_for,
        nras=gathered.nras,
        now=int(clock()),
        firmware=REQUIRED,
        trust=trust,
    )


def _described(machine: _Seen) -> str:
    """Return the measurements of a machine, with words for known ones."""
    part, quote, boot = machine
    measured = [
        ("MRTD", quote.mr_td.hex()),
        *((f"RTMR{number}", rtmr.hex()) for number, rtmr in enumerate(quote.rtmrs[:3])),
        ("compose hash", boot.compose_hash.hex()),
        ("app id", boot.app_id.hex()),
    ]
    if boot.os_image_hash is not None:
        measured.append(("image hash", boot.os_image_hash.hex()))
    measured.append((boot.key_provider, boot.key_provider_id))
    lines = (f"{name:<13} {value}\n  {KNOWN.get(value, NEVER_SEEN)}" for name, value in measured)
    return "\n".join((f"Machine of the {part}:", *lines))


def _pins(machines: Sequence[_Seen], day: str) -> ModelPins:
    return ModelPins(
        type="signal-bot-model-pins",
        v=1,
        gateway=_pinned(machines, "gateway", day) if machines[0][0] == "gateway" else None,
        model=_pinned(machines, "model", day),
        kms_ids=list(dict.fromkeys(boot.key_provider_id for _, _, boot in machines)),
    )


def _pinned(machines: Sequence[_Seen], part: Part, day: str) -> PinnedPart:
    seen = [(quote, boot) for of, quote, boot in machines if of == part]
    systems = dict.fromkeys(OsMeasurement.of(quote, f"{part}, seen on {day}") for quote, _ in seen)
    hashes = dict.fromkeys(boot.compose_hash.hex() for _, boot in seen)
    applications = [{"compose_hash": each} for each in hashes]
    return PinnedPart.model_validate({"systems": list(systems), "applications": applications})


def _write(output: Path, text: str) -> None:
    try:
        output.write_text(f"{text}\n", "utf-8")
    except OSError as error:
        raise SettingsError(f"{output}: {error.strerror}") from None
