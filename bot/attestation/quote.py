"""TDX quotes: their layout, Intel's collateral, and the verification of both.

`dcap_qvl` verifies the signatures. We add checks of our own: the debug bit, so that a report can
name it; the signer of the TDX module; and every byte that dcap_qvl does not look at (lengths,
paddings, the armour of the certificates, the root of the chain). So no byte of an accepted quote
can be changed, except that each ECDSA signature has two forms (see `low_s`).

Layout of a version 4 quote: Intel TDX DCAP Quoting Library API, appendix 3.
"""

import hashlib
import re
import ssl
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal

from cryptography import x509
from pydantic import AwareDatetime, BaseModel, Field, StringConstraints

from bot.attestation.checks import Check, failed, not_checked, proven, proven_if
from bot.attestation.errors import MalformedEvidence
from bot.attestation.strict_json import StrictModel
from bot.attestation.trust import INTEL_SGX_ROOT_CA_SHA256, Trust

ACCEPTED_TCB: Final = frozenset({"UpToDate", "SWHardeningNeeded"})
"""SWHardeningNeeded only asks software to harden itself. Every other status means that the
platform runs with known weaknesses in firmware or configuration."""

MAX_QUOTE_BYTES: Final = 16 * 1024
MAX_COLLATERAL_CHARS: Final = 1024 * 1024
MAX_REASON_CHARS: Final = 160

_SIGNED_BYTES: Final = 48 + 584  # header, TD report
_CERTIFICATION_AT: Final = _SIGNED_BYTES + 4 + 64 + 64  # after length, signature and public key
_QE_AUTH_AT: Final = _CERTIFICATION_AT + 6 + 384 + 64  # after the enclave's report and signature
_ECDSA_P256: Final = 2
_TDX: Final = 0x81
_QE_REPORT_CERTIFICATION: Final = 6
_PCK_CHAIN: Final = 5
_CHAIN_LENGTH: Final = 3  # machine, intermediate CA, root
_P256_ORDER: Final = 0xFFFFFFFF_00000000_FFFFFFFF_FFFFFFFF_BCE6FAAD_A7179E84_F3B9CAC2_FC632551
_SIGNATURES_AT: Final = (636, 636 + 64 + 64 + 6 + 384)
"""Start of the quote's signature and of the quoting enclave's; each is r, then s."""
_PEM_FOOTER: Final = b"-----END CERTIFICATE-----\n"


@dataclass(frozen=True, slots=True)
class TdQuote:
    """TDX quote of version 4, read but not verified.

    Attributes:
        fmspc: kind of platform, six bytes, from its certificate.
        ca: which of Intel's CAs certified the platform: `platform` or `processor`.
        mr_signer_seam: signer of the TDX module; zero is Intel.
        td_attributes, xfam: features that the host started the TD with, eight bytes each.
        mr_td: measurement of the virtual firmware.
        mr_config_id, mr_owner, mr_owner_config: 48 bytes each, chosen by the host.
        rtmrs: RTMR0 to RTMR3, measurements of everything that ran since.
        report_data: 64 bytes chosen by the code inside.
        pck_chain: DER certificates of the machine, its CA and the root.
    """

    raw: bytes
    fmspc: bytes
    ca: str
    mr_signer_seam: bytes
    td_attributes: bytes
    xfam: bytes
    mr_td: bytes
    mr_config_id: bytes
    mr_owner: bytes
    mr_owner_config: bytes
    rtmrs: tuple[bytes, bytes, bytes, bytes]
    report_data: bytes
    pck_chain: tuple[bytes, ...]


def parse_quote(raw: bytes) -> TdQuote:
    """Read a TDX quote of version 4."""
    if len(raw) > MAX_QUOTE_BYTES:
        raise MalformedEvidence("the quote is longer than quotes are")
    pck_chain = _pck_chain(raw)
    try:
        with _one_kind_of_failure():
            outer = _dcap_qvl().parse_quote(raw)
            fmspc, ca = bytes.fromhex(outer.fmspc()), outer.ca()
    except ValueError:
        raise MalformedEvidence("the certificate in the quote names no platform") from None
    return TdQuote(
        raw=raw,
        fmspc=fmspc,
        ca=ca,
        mr_signer_seam=raw[112:160],
        td_attributes=raw[168:176],
        xfam=raw[176:184],
        mr_td=raw[184:232],
        mr_config_id=raw[232:280],
        mr_owner=raw[280:328],
        mr_owner_config=raw[328:376],
        rtmrs=(raw[376:424], raw[424:472], raw[472:520], raw[520:568]),
        report_data=raw[568:632],
        pck_chain=pck_chain,
    )


def low_s(raw: bytes) -> bytes:
    """Return a quote with its two ECDSA signatures in their lower form.

    If (r, s) is valid, so is (r, n - s), and anyone can compute it. The quoting enclave makes both
    forms, so `quote_checks` accepts both. The bot hands out the lower one, and `verify_bundle`
    refuses the other.
    """
    lowered = bytearray(raw)
    for at in _SIGNATURES_AT:
        s = int.from_bytes(lowered[at + 32 : at + 64], "big")
        if _P256_ORDER // 2 < s < _P256_ORDER and len(raw) >= at + 64:
            lowered[at + 32 : at + 64] = (_P256_ORDER - s).to_bytes(32, "big")
    return bytes(lowered)


Label = Annotated[str, StringConstraints(pattern="^[ -~]{1,200}$")]
_Measurement = Annotated[str, StringConstraints(pattern="^[0-9a-f]{96}$")]


class OsMeasurement(StrictModel):
    """Measurements of one image of the operating system on one shape of machine."""

    label: Label
    mrtd: _Measurement
    rtmr0: _Measurement
    rtmr1: _Measurement
    rtmr2: _Measurement

    @classmethod
    def of(cls, quote: TdQuote, label: str) -> "OsMeasurement":
        """Return the measurements in a quote."""
        rtmr0, rtmr1, rtmr2 = (rtmr.hex() for rtmr in quote.rtmrs[:3])
        return cls(label=label, mrtd=quote.mr_td.hex(), rtmr0=rtmr0, rtmr1=rtmr1, rtmr2=rtmr2)

    def matches(self, quote: TdQuote) -> bool:
        """Return whether a quote comes from this system on this shape of machine."""
        return self.of(quote, self.label) == self


# Intel's collateral


@dataclass(frozen=True, slots=True)
class Collateral:
    """Intel's documents about one kind of platform, read but not verified.

    Attributes:
        text: JSON with the fields of `dcap_qvl.QuoteCollateralV3`.
        evaluations: TCB evaluation data numbers, of the TCB info and of the QE identity.
        issued_at: Unix seconds at which Intel signed the TCB info.
        expires_at: Unix seconds; the earliest next update of the four documents.
    """

    text: str
    fmspc: bytes
    evaluations: tuple[int, int]
    issued_at: int
    expires_at: int

    @classmethod
    def parse(cls, text: str) -> "Collateral":
        """Read collateral."""
        if len(text) > MAX_COLLATERAL_CHARS:
            raise MalformedEvidence("the collateral is longer than collateral is")
        try:
            with _one_kind_of_failure():
                parts = _dcap_qvl().QuoteCollateralV3.from_json(text)
            tcb_info = _TcbInfo.model_validate_json(parts.tcb_info)
            qe_identity = _QeIdentity.model_validate_json(parts.qe_identity)
            next_updates = (
                int(tcb_info.next_update.timestamp()),
                int(qe_identity.next_update.timestamp()),
                _crl_next_update(parts.pck_crl),
                _crl_next_update(parts.root_ca_crl),
            )
        except (ValueError, RecursionError):
            raise MalformedEvidence("this is not collateral of a TDX platform") from None
        return cls(
            text,
            fmspc=bytes.fromhex(tcb_info.fmspc),
            evaluations=(tcb_info.evaluation, qe_identity.evaluation),
            issued_at=int(tcb_info.issue_date.timestamp()),
            expires_at=min(next_updates),
        )


class _Evaluated(BaseModel, strict=True):
    evaluation: Annotated[int, Field(alias="tcbEvaluationDataNumber", ge=0, lt=2**31)]
    next_update: Annotated[AwareDatetime, Field(alias="nextUpdate")]


class _TcbInfo(_Evaluated):
    id: Literal["TDX"]
    issue_date: Annotated[AwareDatetime, Field(alias="issueDate")]
    fmspc: Annotated[str, Field(pattern="^[0-9A-Fa-f]{12}$")]


class _QeIdentity(_Evaluated):
    id: Literal["TD_QE"]


def _crl_next_update(crl: bytes) -> int:
    try:
        next_update = x509.load_der_x509_crl(crl).next_update_utc
    except x509.InvalidVersion:  # not a ValueError
        next_update = None
    if next_update is None:
        raise ValueError("a revocation list without an end")
    return int(next_update.timestamp())


# Checks


def quote_checks(
    quote: TdQuote, collateral: Collateral | str, *, now: int, trust: Trust
) -> tuple[Check, Check, Check]:
    """Check a quote up to Intel's root: `debug`, `quote`, `tcb`.

    Args:
        collateral: for the quote's platform, or the reason why it is missing.
        now: Unix seconds at which everything must be valid.
    """
    # Bit 0 lets the host read and change the TD's memory, and every other bit of the first byte
    # also makes the TD untrusted (Intel TDX module ABI, ATTRIBUTES.TUD).
    debug = proven_if(
        quote.td_attributes[0] == 0,
        "debug",
        "the machine's memory is closed to its host",
        "this is a debug machine: its host can read and change everything inside",
    )
    if (refusal := _own_refusal(quote, collateral, now, trust)) is not None:
        return debug, failed("quote", refusal), _tcb_unknown()
    if isinstance(collateral, str):
        return debug, not_checked("quote", collateral, asked=True), _tcb_unknown()
    try:
        status, advisories = _dcap_verdict(quote.raw, collateral.text, now, trust.intel_root)
    except ValueError as error:
        return debug, *_refused(str(error))
    verified = proven("quote", "Intel's signatures vouch for this quote and all it measures")
    return debug, verified, _tcb_check(status, advisories, collateral, trust)


def _own_refusal(
    quote: TdQuote, collateral: Collateral | str, now: int, trust: Trust
) -> str | None:
    own_root = trust.intel_root
    root = hashlib.sha256(own_root).digest() if own_root is not None else INTEL_SGX_ROOT_CA_SHA256
    if any(quote.mr_signer_seam):
        return "the TDX module of this machine is not Intel's"
    if hashlib.sha256(quote.pck_chain[-1]).digest() != root:
        return "the quote's certificates do not lead to Intel's root"
    if isinstance(collateral, str):
        return None
    if collateral.fmspc != quote.fmspc:
        return "the collateral is about another kind of platform than the quote's"
    if now >= collateral.expires_at:
        return f"the collateral expired on {_date(collateral.expires_at)}"
    return None


def _tcb_check(status: str, advisories: list[str], collateral: Collateral, trust: Trust) -> Check:
    number, of_enclave = collateral.evaluations
    listed = f" ({', '.join(advisories)})" if advisories else ""
    evaluation = f"TCB evaluation {number} of {_date(collateral.issued_at)}"
    state = f"{status}{listed}, {evaluation}"
    if status not in ACCEPTED_TCB:
        return failed("tcb", f"Intel calls the state of this platform {state}")
    if number != of_enclave:
        message = f"the collateral mixes two of Intel's TCB evaluations, {number} and {of_enclave}"
        return failed("tcb", message)
    oldest = trust.min_tcb_evaluation
    return proven_if(
        number >= oldest,
        "tcb",
        f"firmware and processor are as Intel wants them: {state}",
        f"the collateral is of {evaluation}, but {oldest} or later counts",
    )


def _tcb_unknown() -> Check:
    return not_checked("tcb", "only a verified quote tells the state of its platform", asked=True)


def _dcap_verdict(
    raw: bytes, collateral: str, now: int, root: bytes | None
) -> tuple[str, list[str]]:
    """Return status and advisories; raise ValueError if dcap_qvl refuses the quote."""
    dcap_qvl = _dcap_qvl()
    with _one_kind_of_failure():
        parts = dcap_qvl.QuoteCollateralV3.from_json(collateral)
        if root is None:
            report = dcap_qvl.verify(raw, parts, now)
        else:
            report = dcap_qvl.verify_with_root_ca(raw, parts, root, now)
        return report.status, sorted(report.advisory_ids)


def _refused(reason: str) -> tuple[Check, Check]:
    if "TCB status is invalid: Revoked" in reason:
        stopped = not_checked("quote", "verification stops at a revoked platform", asked=True)
        return stopped, failed("tcb", "Intel has revoked this platform")
    if "Debug mode is enabled" in reason:
        stopped = not_checked("quote", "verification stops at a debug machine", asked=True)
        return stopped, _tcb_unknown()
    return failed("quote", f"Intel's verifier refuses it: {_readable(reason)}"), _tcb_unknown()


def _readable(reason: str) -> str:
    """Return the verifier's reason up to its first quotation, which may be a stranger's words."""
    plain = " ".join(reason.removeprefix("Verification failed: ").split())
    own_words = re.split("[\"`']", plain)[0].strip()
    return "".join(c for c in own_words if c.isascii() and c.isprintable())[:MAX_REASON_CHARS]


def _dcap_qvl() -> Any:
    import dcap_qvl  # noqa: PLC0415 - nine megabytes; a bot without a TEE does not need it

    return dcap_qvl


@contextmanager
def _one_kind_of_failure() -> Iterator[None]:
    """Turn a panic of the Rust library, which is not an Exception, into a ValueError."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise ValueError("the verifier gave up on it") from None


def _date(moment: int) -> str:
    return datetime.fromtimestamp(moment, UTC).date().isoformat()


# The layout, to its last byte


def _pck_chain(raw: bytes) -> tuple[bytes, ...]:
    """Return the certificates at the end of a quote; check that its lengths and kinds fit."""
    if raw[:8] != struct.pack("<HHI", 4, _ECDSA_P256, _TDX):
        raise MalformedEvidence("this is not a TDX quote of version 4")
    try:
        (signed,) = struct.unpack_from("<I", raw, _SIGNED_BYTES)
        certified = struct.unpack_from("<HI", raw, _CERTIFICATION_AT)
        (authenticated,) = struct.unpack_from("<H", raw, _QE_AUTH_AT)
        chain_at = _QE_AUTH_AT + 2 + authenticated
        chain = struct.unpack_from("<HI", raw, chain_at)
    except struct.error:
        raise MalformedEvidence("the quote is cut off") from None
    end = _SIGNED_BYTES + 4 + signed
    kinds_and_sizes = (
        (_QE_REPORT_CERTIFICATION, end - _CERTIFICATION_AT - 6),
        (_PCK_CHAIN, end - chain_at - 6),
    )
    if (certified, chain) != kinds_and_sizes or len(raw) < end or any(raw[end:]):
        raise MalformedEvidence("lengths in the quote do not fit together")
    blocks = raw[chain_at + 6 : end].rstrip(b"\0").split(_PEM_FOOTER)
    if blocks[-1] or len(blocks) != _CHAIN_LENGTH + 1:
        raise MalformedEvidence("the quote's certificate chain is not as Intel writes it")
    return tuple(_der(block + _PEM_FOOTER) for block in blocks[:-1])


def _der(pem: bytes) -> bytes:
    try:
        der = ssl.PEM_cert_to_DER_cert(pem.decode("ascii"))
    except ValueError:
        der = b""
    if ssl.DER_cert_to_PEM_cert(der).encode() != pem:
        raise MalformedEvidence("a certificate in the quote is not as Intel writes it")
    return der
