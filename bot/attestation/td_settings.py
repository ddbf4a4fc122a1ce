"""How a TD was started, and by which TDX module: what a quote says beside its measurements.

The host chooses a TD's attributes, features and owner when it starts it, and the module that runs
it. Intel's signature vouches for what they are and not for their being harmless, so they are
compared with the only values that dstack starts a TD with.

Layout of ATTRIBUTES and XFAM: Intel TDX Module 1.5 ABI Reference Specification, chapter 3.
"""

from collections.abc import Iterator
from typing import Final

from bot.attestation.checks import Check, not_checked, proven, proven_if
from bot.attestation.quote import TdQuote
from bot.attestation.trust import TDX_MODULES

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
