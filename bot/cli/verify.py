"""`signal-tee-bot verify`: check a bundle on a laptop, with no trust in the bot.

Everything in the files is hostile until checked. With collateral files nothing is fetched;
without them Intel's collateral comes from a PCCS and NVIDIA is asked about the model's GPUs.
"""

import asyncio
import json
import shutil
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from bot.attestation.bundle import MAX_BUNDLE_BYTES, MAX_CHALLENGE_BYTES, Bundle
from bot.attestation.collateral import CollateralSource
from bot.attestation.errors import EvidenceUnavailable, MalformedEvidence
from bot.attestation.http import open_http
from bot.attestation.near_ai.client import look_up
from bot.attestation.near_ai.nvidia import NrasWord
from bot.attestation.quote import MAX_COLLATERAL_CHARS, Collateral, TdQuote, parse_quote
from bot.attestation.release import MAX_RELEASE_BYTES, Release
from bot.attestation.report import LEGEND, conclusion, how_to_compare, table
from bot.attestation.strict_json import decode
from bot.attestation.tdx_guest import CollateralFor
from bot.attestation.trust import REAL, Trust
from bot.attestation.verification import Asked, BundleReport, verify_bundle
from bot.cli.console import wrapped_on
from bot.errors import SettingsError
from bot.observability import logs
from bot.signal.account import is_safety_number
from tools.settings import http_url


def run(arguments: Namespace) -> bool:
    """Check a proof, and return whether everything asked for holds."""
    logs.configure(level="error", log_format="console")  # the report names troubled services
    return asyncio.run(verify(arguments))


async def verify(
    request: Namespace, *, trust: Trust = REAL, clock: Callable[[], float] = time.time
) -> bool:
    """Print the proofs of a bundle; return whether everything asked for holds.

    Args:
        request: the arguments of `signal-tee-bot verify`.
    """
    _require_sense(request)
    bundle = Bundle.parse(_content(request.bundle, MAX_BUNDLE_BYTES))
    report = await report_on(bundle, request, trust=trust, clock=clock)
    print(_as_json(report) if request.json else _as_text(report, request))
    return report.passed


async def report_on(
    bundle: Bundle,
    request: Namespace,
    *,
    trust: Trust = REAL,
    clock: Callable[[], float] = time.time,
) -> BundleReport:
    """Check a bundle for what a request asks, with its collateral or that of its services."""
    release = (
        Release.parse(_content(request.release, MAX_RELEASE_BYTES)) if request.release else None
    )
    nras: Sequence[NrasWord] = ()
    if request.collateral:
        collateral = _from_files(request.collateral)
    else:
        found, nras = await _from_services(bundle, request.pccs, trust, clock)
        if request.keep_collateral:
            _keep(request.keep_collateral, found.values())

        def collateral(quote: TdQuote) -> Collateral | str:
            return found.get(quote.raw, "the collateral service took too long")

    return verify_bundle(
        bundle,
        Asked(request.challenge, safety_number=request.safety_number, release=release),
        collateral=collateral,
        now=int(clock()),
        nras=nras,
        trust=trust,
    )


def _require_sense(request: Namespace) -> None:
    problems = []
    try:
        length = len(request.challenge.encode())
    except UnicodeEncodeError:
        length = 0
    if not 0 < length <= MAX_CHALLENGE_BYTES:
        limit = f"1 to {MAX_CHALLENGE_BYTES} bytes"
        problems.append(f"--challenge: {limit} of UTF-8, exactly as sent to the bot")
    try:
        http_url(request.pccs)
    except ValueError:
        problems.append("--pccs: an address as in https://pccs.example.org")
    if request.safety_number is not None and not is_safety_number(request.safety_number):
        problems.append("--safety-number: 60 digits, as Signal shows them; spaces do not matter")
    if problems:
        raise SettingsError(*problems)


def _content(file: Path, limit: int) -> bytes:
    """Read a file to just above its limit, so that its parser sees when there is too much."""
    try:
        with file.open("rb") as opened:
            return opened.read(limit + 1)
    except OSError as error:
        raise SettingsError(f"{file}: {error.strerror}") from None


def _from_files(files: Iterable[Path]) -> CollateralFor:
    by_platform = {known.fmspc: known for known in map(_collateral, files)}

    def find(quote: TdQuote) -> Collateral | str:
        why = f"no collateral file is about this platform (FMSPC {quote.fmspc.hex().upper()})"
        return by_platform.get(quote.fmspc, why)

    return find


def _collateral(file: Path) -> Collateral:
    content = _content(file, MAX_COLLATERAL_CHARS)
    decode(content, str(file))
    try:
        return Collateral.parse(content.decode())
    except MalformedEvidence as error:
        raise MalformedEvidence(f"{file}: {error}") from None


async def _from_services(
    bundle: Bundle, pccs_url: str, trust: Trust, clock: Callable[[], float]
) -> tuple[dict[bytes, Collateral | str], Sequence[NrasWord]]:
    """Ask about the quotes in a bundle; return collateral by quote, and NVIDIA's word."""
    async with open_http(tls=trust.tls) as http:
        source = CollateralSource(http, pccs_url.rstrip("/"), clock=clock)
        found = {bundle.quote: await _own_collateral(source, bundle.quote)}
        if bundle.model is None:
            return found, ()
        try:
            model = await look_up(bundle.model, http, source, nras_url=trust.nras_url)
        except EvidenceUnavailable:
            return found, ()  # no report, so nothing to ask about
        return {**model.collateral, **found}, model.nras


def _keep(folder: Path, found: Iterable[Collateral | str]) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for one in found:
            if isinstance(one, Collateral):
                (folder / f"{one.fmspc.hex()}.json").write_text(one.text)
    except OSError as error:
        raise SettingsError(f"--keep-collateral: {error.filename}: {error.strerror}") from None


async def _own_collateral(source: CollateralSource, quote: bytes) -> Collateral | str:
    try:
        return await source.get(parse_quote(quote))
    except EvidenceUnavailable as error:
        return f"Intel's collateral could not be fetched: {error}"
    except MalformedEvidence as error:
        return str(error)


def _as_text(report: BundleReport, request: Namespace) -> str:
    terminal = sys.stdout.isatty()
    width = shutil.get_terminal_size().columns if terminal else None
    result = wrapped_on(sys.stdout, conclusion(report))
    parts = [table(report, width=width, colours=terminal), LEGEND, result]
    half = report.facts.get("safety_number_half")
    if report.passed and request.safety_number is None and half is not None:
        parts.append(how_to_compare(half))
    return "\n\n".join(parts)


def _as_json(report: BundleReport) -> str:
    return json.dumps(
        {
            "passed": report.passed,
            "conclusion": conclusion(report),
            "checks": [
                {"name": check.name, "verdict": check.verdict, "words": check.message}
                for check in report
            ],
            "facts": report.facts,
        },
        indent=2,
    )
