"""A TD: its quote, the log of everything it started, and the application that it runs.

The host chooses the attributes, features, owner and module of a TD. Intel's signature vouches for
these values, but not that they are harmless. So they are compared with the only values that dstack
starts a TD with.
Layout of ATTRIBUTES and XFAM: Intel TDX Module 1.5 ABI Reference Specification, chapter 3.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from bot.attestation.app_compose import compose_checks
from bot.attestation.checks import Check, Report, Verdict, proven_if
from bot.attestation.event_log import BootClaims, log_checks
from bot.attestation.quote import Collateral, TdQuote, parse_quote, quote_checks
from bot.attestation.trust import REAL, Trust

CollateralFor = Callable[[TdQuote], Collateral | str]
"""Returns the collateral of a quote's platform, or the reason why there is none."""


@dataclass(frozen=True, slots=True)
class TdFindings:
    """Result of a verification; only the report tells what is proven.

    Attributes:
        report: checks `debug`, `quote`, `tcb`, `attributes`, `rtmrs`, `boot_events`,
            `compose`, `images`.
        boot: None if the boot events are not in order.
        expires_at: Unix seconds at which the collateral ends; None without collateral.
    """

    report: Report
    quote: TdQuote
    boot: BootClaims | None
    expires_at: int | None

    @property
    def compose_hash(self) -> bytes | None:
        """Hash of the running application; None unless `compose` is proven."""
        is_proven = self.report["compose"].verdict is Verdict.PROVEN
        return self.boot.compose_hash if self.boot and is_proven else None


def verify_td(
    raw_quote: bytes,
    event_log: str | list[Any],
    app_compose: str,
    collateral_for: CollateralFor,
    *,
    now: int,
    trust: Trust = REAL,
) -> TdFindings:
    """Verify the evidence of a TD at `now`, in Unix seconds; bad evidence is a failed check.

    Args:
        event_log: JSON text, or the list in it.
        app_compose: the exact text of app-compose.json.

    Raises:
        MalformedEvidence: the quote cannot be read.
    """
    quote = parse_quote(raw_quote)
    collateral = collateral_for(quote)
    log, boot = log_checks(quote, event_log)
    checks = (
        *quote_checks(quote, collateral, now=now, trust=trust),
        attributes_check(quote),
        *log,
        *compose_checks(quote, boot, app_compose),
    )
    expires_at = collateral.expires_at if isinstance(collateral, Collateral) else None
    return TdFindings(Report(checks), quote, boot, expires_at)


_ATTRIBUTES: Final = 1 << 28
"""SEPT_VE_DISABLE: the host cannot raise exceptions inside by taking pages away. Every other
attribute opens a door or is unknown to this program."""
_DEBUG_BITS: Final = 0xFF  # these have the check `debug`
_FEATURES: Final = 0x0006_1AE7
"""x87, SSE, AVX, AVX-512, protection keys, CET, AMX: state that belongs to the TD alone. Traces
and records of branches are left out."""


def attributes_check(quote: TdQuote) -> Check:
    """Check the host's choices for a TD: `attributes`."""
    set_bits = int.from_bytes(quote.td_attributes, "little") & ~_DEBUG_BITS
    features = int.from_bytes(quote.xfam, "little")
    return proven_if(
        set_bits == _ATTRIBUTES
        and not features & ~_FEATURES
        and not any(quote.mr_owner + quote.mr_owner_config),
        "attributes",
        "the machine was started with nothing but what it needs",
        "the machine was started in an unusual way: attributes"
        f" {quote.td_attributes.hex()}, features {quote.xfam.hex()}, or for an owner",
    )
