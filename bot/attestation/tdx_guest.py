"""One TD: its quote, the log of what it started, and the application that it says it runs."""

from dataclasses import dataclass, field
from typing import Any, Final

from bot.attestation.checks import Check, Report, Verdict, failed, not_checked
from bot.attestation.compose import compose_checks
from bot.attestation.errors import MalformedEvidence
from bot.attestation.event_log import BootClaims, log_checks, parse_event_log
from bot.attestation.quote import Collateral, TdQuote, parse_quote, quote_checks
from bot.attestation.td_settings import td_settings_checks
from bot.attestation.trust import REAL, Trust

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
    """

    report: Report
    quote: TdQuote | None
    boot: BootClaims | None
    compose_hash: bytes | None


def verify_td(
    evidence: TdEvidence,
    collateral: Collateral | None,
    *,
    now: int,
    trust: Trust = REAL,
    why_none: str = "",
) -> TdFindings:
    """Verify all that a TD shows of itself; bad evidence becomes failed checks.

    Args:
        evidence: what to verify.
        collateral: Intel's word on its platform; None when there is none.
        now: unix seconds at which everything must be valid.
        trust: whose root.
        why_none: the sentence that says why there is no collateral.
    """
    try:
        quote = parse_quote(evidence.quote)
    except MalformedEvidence as error:
        return _unreadable(str(error))
    checks = quote_checks(quote, collateral, now=now, trust=trust, why_none=why_none)
    log, boot = _log_checks(quote, evidence.event_log)
    compose = compose_checks(quote, boot, evidence.app_compose)
    return TdFindings(
        report=Report((*checks, *td_settings_checks(quote), *log, *compose)),
        quote=quote,
        boot=boot,
        compose_hash=boot.compose_hash if boot and compose[0].verdict is Verdict.PROVEN else None,
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
    return TdFindings(Report((debug, failed("quote", why), *rest)), None, None, None)
