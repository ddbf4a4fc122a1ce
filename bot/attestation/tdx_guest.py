"""One TD: its quote, the log of everything it started, and the application that it runs.

The host chooses the attributes, features, owner and module of a TD. Intel's signature vouches for
these values, but not that they are harmless. So they are compared with the only values that dstack
starts a TD with.
Layout of ATTRIBUTES and XFAM: Intel TDX Module 1.5 ABI Reference Specification, chapter 3.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from bot.attestation.app_compose import compose_checks
from bot.attestation.checks import Check, Report, Verdict, failed, not_checked, proven, proven_if
from bot.attestation.errors import MalformedEvidence
from bot.attestation.event_log import BootClaims, log_checks, parse_event_log
from bot.attestation.quote import Collateral, TdQuote, parse_quote, quote_checks
from bot.attestation.trust import REAL, TDX_MODULES, Trust

CollateralFor = Callable[[TdQuote], Collateral | str]
"""Returns the collateral of a quote's platform, or the reason why there is none."""


@dataclass(frozen=True, slots=True)
class TdEvidence:
    """Evidence of one TD.

    Attributes:
        event_log: JSON text, or the list in it.
        app_compose: the exact text of app-compose.json.
    """

    quote: bytes
    event_log: str | list[Any] = field(repr=False)
    app_compose: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class TdFindings:
    """Result of a verification; only the report tells what is proven.

    Attributes:
        report: checks `debug`, `quote`, `tcb`, `attributes`, `tdx_module`, `rtmrs`, `boot_events`,
            `compose`, `images`.
        quote: None if unreadable.
        boot: None if the boot events are not in order.
        expires_at: Unix seconds at which the collateral ends; None without collateral.
    """

    report: Report
    quote: TdQuote | None
    boot: BootClaims | None
    expires_at: int | None

    @property
    def compose_hash(self) -> bytes | None:
        """Hash of the running application; None unless `compose` is proven."""
        is_proven = self.report["compose"].verdict is Verdict.PROVEN
        return self.boot.compose_hash if self.boot and is_proven else None


def verify_td(
    evidence: TdEvidence, collateral_for: CollateralFor, *, now: int, trust: Trust = REAL
) -> TdFindings:
    """Verify the evidence of a TD at `now`, in Unix seconds; bad evidence is a failed check."""
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
        expires_at=collateral.expires_at if isinstance(collateral, Collateral) else None,
    )


def _log_checks(
    quote: TdQuote, event_log: str | list[Any]
) -> tuple[tuple[Check, Check], BootClaims | None]:
    try:
        events = parse_event_log(event_log)
    except MalformedEvidence as error:
        unread = not_checked("boot_events", "the event log cannot be read", asked=True)
        return (failed("rtmrs", str(error)), unread), None
    return log_checks(quote, events)


def _unreadable(why: str) -> TdFindings:
    after = ("tcb", "attributes", "tdx_module", "rtmrs", "boot_events", "compose", "images")
    debug, *rest = (
        not_checked(name, "the quote cannot be read", asked=True) for name in ("debug", *after)
    )
    return TdFindings(Report((debug, failed("quote", why), *rest)), None, None, None)


_ATTRIBUTES: Final = 1 << 28
"""SEPT_VE_DISABLE: the host cannot raise exceptions inside by taking pages away. Every other
attribute opens a door or is unknown to this program."""
_ATTRIBUTE_NAMES: Final = {
    27: "LASS", 29: "MIGRATABLE", 30: "PKS", 31: "KL", 62: "TPA", 63: "PERFMON"
}  # fmt: skip
_DEBUG_BITS: Final = 0xFF  # these have the check `debug`
_FEATURES: Final = 0x0006_1AE7
"""x87, SSE, AVX, AVX-512, protection keys, CET, AMX: state that belongs to the TD alone. Traces
and records of branches are left out."""


def td_settings_checks(quote: TdQuote) -> tuple[Check, Check]:
    """Check the host's choices for a TD: `attributes`, `tdx_module`."""
    unusual = ", ".join(_unusual(quote))
    attributes = proven_if(
        not unusual,
        "attributes",
        "the machine was started with nothing but what it needs",
        f"the machine was started in an unusual way: {unusual}",
    )
    version = TDX_MODULES.get(quote.mr_seam.hex())
    if version is not None:
        known = f"Intel's TDX module {version}, whose MRSEAM Intel has published"
        return attributes, proven("tdx_module", known)
    # Intel publishes new modules, so an unknown one is no failure: `quote` shows that Intel signed
    # it, and `tcb` what Intel thinks of its version.
    why = "Intel's module is not a published one that this program knows"
    return attributes, not_checked("tdx_module", f"{why}: MRSEAM {quote.mr_seam.hex()}")


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
