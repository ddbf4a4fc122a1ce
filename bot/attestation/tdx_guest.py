"""One TD: its quote, the log of what it started, and the application that it says it runs.

The host chooses a TD's attributes, features and owner when it starts it, and the module that runs
it. Intel's signature vouches for what they are and not for their being harmless, so they are
compared with the only values that dstack starts a TD with.
Layout of ATTRIBUTES and XFAM: Intel TDX Module 1.5 ABI Reference Specification, chapter 3.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from bot.attestation.checks import (
    Check,
    Report,
    Verdict,
    failed,
    not_checked,
    proven,
    proven_if,
)
from bot.attestation.compose import compose_checks
from bot.attestation.errors import MalformedEvidence
from bot.attestation.event_log import BootClaims, log_checks, parse_event_log
from bot.attestation.quote import Collateral, TdQuote, parse_quote, quote_checks
from bot.attestation.trust import REAL, TDX_MODULES, Trust

CollateralFor = Callable[[TdQuote], Collateral | str]
"""Finds Intel's word on a quote's platform, or says why there is none."""

_AFTER_THE_QUOTE: Final = (
    "tcb",
    "attributes",
    "tdx_module",
    "rtmrs",
    "boot_events",
    "compose",
    "images",
)


@dataclass(frozen=True, slots=True)
class TdEvidence:
    """What a TD shows of itself.

    Attributes:
        quote: as the hardware made it.
        event_log: JSON text, or the list that it holds.
        app_compose: the exact text of app-compose.json.
    """

    quote: bytes
    event_log: str | list[Any] = field(repr=False)
    app_compose: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class TdFindings:
    """What its verification found. Beside the report nothing is proven unless it says so.

    Attributes:
        report: checks `debug`, `quote`, `tcb`, `attributes`, `tdx_module`, `rtmrs`, `boot_events`,
            `compose`, `images`.
        quote: None when unreadable.
        boot: what the boot events claim; None when they are not as they must be.
        compose_hash: of the running application, when all three places agree on it.
        expires_at: Unix seconds at which the collateral ends; None without collateral.
    """

    report: Report
    quote: TdQuote | None
    boot: BootClaims | None
    compose_hash: bytes | None
    expires_at: int | None


def verify_td(
    evidence: TdEvidence,
    collateral_for: CollateralFor,
    *,
    now: int,
    trust: Trust = REAL,
) -> TdFindings:
    """Verify all that a TD shows of itself at `now`, in Unix seconds.

    Bad evidence becomes failed checks.
    """
    try:
        quote = parse_quote(evidence.quote)
    except MalformedEvidence as error:
        return _unreadable(str(error))
    collateral = collateral_for(quote)
    checks = quote_checks(quote, collateral, now=now, trust=trust)
    log, boot = _log_checks(quote, evidence.event_log)
    compose = compose_checks(quote, boot, evidence.app_compose)
    return TdFindings(
        report=Report((*checks, *td_settings_checks(quote), *log, *compose)),
        quote=quote,
        boot=boot,
        compose_hash=boot.compose_hash if boot and compose[0].verdict is Verdict.PROVEN else None,
        expires_at=collateral.expires_at if isinstance(collateral, Collateral) else None,
    )


def _log_checks(
    quote: TdQuote, event_log: str | list[Any]
) -> tuple[tuple[Check, ...], BootClaims | None]:
    try:
        events = parse_event_log(event_log)
    except MalformedEvidence as error:
        unread = not_checked("boot_events", "the event log cannot be read", asked=True)
        return (failed("rtmrs", str(error)), unread), None
    return log_checks(quote, events)


def _unreadable(why: str) -> TdFindings:
    debug, *rest = (
        not_checked(name, "the quote cannot be read", asked=True)
        for name in ("debug", *_AFTER_THE_QUOTE)
    )
    return TdFindings(Report((debug, failed("quote", why), *rest)), None, None, None, None)


# How a TD was started


_SEPT_VE_DISABLE: Final = 28
_ATTRIBUTES: Final = 1 << _SEPT_VE_DISABLE
"""The host cannot raise exceptions inside by taking pages away. Every other attribute opens a door
or is one that this program does not know."""
_ATTRIBUTE_NAMES: Final = {
    27: "LASS",
    29: "MIGRATABLE",
    30: "PKS",
    31: "KL",
    62: "TPA",
    63: "PERFMON",
}
_DEBUG_BITS: Final = 0xFF
"""Those that have a check of their own, `debug`."""

_FEATURES: Final = 0x0006_1AE7
"""x87, SSE, AVX, AVX-512, protection keys, CET, AMX: state that belongs to the TD alone. Not among
them are traces and records of branches."""


def td_settings_checks(quote: TdQuote) -> tuple[Check, Check]:
    """Check how a TD was started: `attributes`, `tdx_module`."""
    unusual = list(_unusual(quote))
    attributes = proven_if(
        not unusual,
        "attributes",
        "the machine was started with nothing but what it needs",
        f"the machine was started in an unusual way: {', '.join(unusual)}",
    )
    return attributes, _module_check(quote)


def _unusual(quote: TdQuote) -> Iterator[str]:
    attributes = int.from_bytes(quote.td_attributes, "little") & ~_DEBUG_BITS
    if not attributes & _ATTRIBUTES:
        yield "without SEPT_VE_DISABLE"
    for bit in _bits(attributes & ~_ATTRIBUTES):
        yield f"with {_ATTRIBUTE_NAMES.get(bit, f'attribute {bit}')}"
    for bit in _bits(int.from_bytes(quote.xfam, "little") & ~_FEATURES):
        yield f"with processor feature {bit}"
    if any(quote.mr_owner):
        yield "for an owner (MROWNER)"
    if any(quote.mr_owner_config):
        yield "with an owner's configuration (MROWNERCONFIG)"


def _bits(value: int) -> Iterator[int]:
    return (bit for bit in range(64) if value >> bit & 1)


def _module_check(quote: TdQuote) -> Check:
    """Name the TDX module.

    Intel publishes new ones, so one that is unknown here is shown and no failure: that Intel has
    signed it and what Intel thinks of its version are `quote` and `tcb`.
    """
    version = TDX_MODULES.get(quote.mr_seam.hex())
    if version is None:
        why = "Intel's module is not a published one that this program knows"
        return not_checked("tdx_module", f"{why}: MRSEAM {quote.mr_seam.hex()}")
    return proven("tdx_module", f"Intel's TDX module {version}, whose MRSEAM Intel has published")
