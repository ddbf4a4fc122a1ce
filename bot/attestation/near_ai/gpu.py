"""What the GPUs themselves signed, checked here and without NVIDIA's service.

Each GPU answers an SPDM 1.1 request GET_MEASUREMENTS, which carries our nonce, with its
measurements, signed by a key that its certificate chain leads from to NVIDIA's Device Identity CA.
So a GPU of NVIDIA's with confidential computing answered, and it did so after we had asked.
Whether its measurements are those of good firmware is known to NVIDIA alone; see `nras`.
Checks: `gpu_chain`, `gpu_nonce`, `gpus`.
"""

import hashlib
import hmac
from base64 import b64decode
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import Annotated, Final, Self

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.serialization import Encoding
from pydantic import BaseModel, BeforeValidator, Field, ValidationError

from bot.attestation.checks import Check, failed, proven
from bot.attestation.errors import MalformedEvidence
from bot.attestation.near_ai.wire import Digest
from bot.attestation.strict_json import decode
from bot.attestation.trust import Trust

MAX_GPUS: Final = 32
MAX_CHAIN: Final = 8
_MAX_EVIDENCE_BYTES: Final = 64 * 1024

_REQUEST: Final = bytes.fromhex("11e001ff")
"""SPDM 1.1, GET_MEASUREMENTS, signed, all of them."""
_RESPONSE: Final = bytes.fromhex("1160")
_NONCE: Final = slice(4, 36)
_RESPONSE_AT: Final = 37
_SIGNATURE_BYTES: Final = 96
_UNREADABLE: Final = (
    ValueError,
    TypeError,
    UnsupportedAlgorithm,
    x509.DuplicateExtension,
    x509.ExtensionNotFound,
    x509.InvalidVersion,
    x509.UnsupportedGeneralNameType,
)
"""What reading or using an odd certificate raises."""


@dataclass(frozen=True, slots=True)
class GpuFindings:
    """What came out.

    Attributes:
        checks: each with its verdict.
        serials: of the GPUs' certificates, in order; NVIDIA's service names GPUs by them.
    """

    checks: tuple[Check, ...]
    serials: tuple[int, ...]


def verify_gpus(payload: str, *, nonce: bytes, now: int, trust: Trust) -> GpuFindings:
    """Check the evidence that a report carries for NVIDIA.

    Args:
        payload: `nvidia_payload` of the report, as it stands there.
        nonce: ours.
        now: Unix seconds.
        trust: whose root ends the certificate chains.
    """
    try:
        evidence = _Payload.model_validate(decode(payload, "the evidence of the GPUs"))
        gpus = tuple(_Gpu.read(one) for one in evidence.evidence_list)
    except ValidationError:
        return _unreadable("the evidence of the GPUs is not of the expected shape")
    except MalformedEvidence as error:
        return _unreadable(str(error))
    moment = datetime.fromtimestamp(now, UTC)
    checks = (
        _chain_check(gpus, moment, trust),
        _nonce_check(evidence, gpus, nonce),
        _each(gpus, "gpus", _verify_signature, f"{len(gpus)} NVIDIA GPUs signed their state"),
    )
    return GpuFindings(checks, tuple(gpu.chain[0].serial_number for gpu in gpus))


class _Refused(Exception):
    """Something of a GPU does not hold; the message says what, as part of a sentence."""


def _bytes_of_base64(value: object) -> object:
    return b64decode(value, validate=True) if isinstance(value, str) else value


_Base64 = Annotated[bytes, BeforeValidator(_bytes_of_base64), Field(max_length=_MAX_EVIDENCE_BYTES)]


class _GpuEvidence(BaseModel):
    certificate: _Base64
    evidence: _Base64
    nonce: Digest | None = None


class _Payload(BaseModel):
    nonce: Digest
    evidence_list: Annotated[list[_GpuEvidence], Field(min_length=1, max_length=MAX_GPUS)]


@dataclass(frozen=True, slots=True)
class _Gpu:
    chain: tuple[x509.Certificate, ...]
    key: ec.EllipticCurvePublicKey
    nonce: bytes
    signed: bytes
    signature: bytes

    @classmethod
    def read(cls, evidence: _GpuEvidence) -> Self:
        spdm = evidence.evidence
        if not spdm.startswith(_REQUEST) or not spdm.startswith(_RESPONSE, _RESPONSE_AT):
            raise MalformedEvidence(
                "a GPU's evidence is no answer to the SPDM request for measurements"
            )
        if len(spdm) < _RESPONSE_AT + _SIGNATURE_BYTES:
            raise MalformedEvidence("a GPU's evidence is too short to be signed")
        try:
            # Some drivers fill the end of the chain with NUL bytes.
            chain = x509.load_pem_x509_certificates(evidence.certificate.rstrip(b"\0"))
            key = chain[0].public_key()
        except _UNREADABLE:
            raise MalformedEvidence("a GPU's certificates cannot be read") from None
        if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(
            key.curve, ec.SECP384R1
        ):
            raise MalformedEvidence("a GPU's key is of another kind than NVIDIA's are")
        return cls(
            chain=tuple(chain),
            key=key,
            nonce=spdm[_NONCE],
            signed=spdm[:-_SIGNATURE_BYTES],
            signature=spdm[-_SIGNATURE_BYTES:],
        )


def _chain_check(gpus: tuple[_Gpu, ...], moment: datetime, trust: Trust) -> Check:
    if len({gpu.chain[0].serial_number for gpu in gpus}) < len(gpus):
        return failed("gpu_chain", "two of the GPUs are one and the same")

    def verify(gpu: _Gpu) -> None:
        _verify_chain(gpu.chain, moment, trust.nvidia_root_sha256)

    return _each(
        gpus, "gpu_chain", verify, "the GPUs' keys are certified by NVIDIA's Device Identity CA"
    )


def _nonce_check(payload: _Payload, gpus: tuple[_Gpu, ...], nonce: bytes) -> Check:
    stated = (payload.nonce, *(one.nonce for one in payload.evidence_list if one.nonce))
    if all(hmac.compare_digest(value, nonce) for value in (*stated, *(g.nonce for g in gpus))):
        return proven("gpu_nonce", "the GPUs answered this request and no earlier one")
    return failed("gpu_nonce", "a GPU answered another request")


def _each(gpus: tuple[_Gpu, ...], name: str, verify: Callable[[_Gpu], None], words: str) -> Check:
    for number, gpu in enumerate(gpus):
        try:
            verify(gpu)
        except _Refused as refused:
            return failed(name, f"GPU {number}: {refused}")
    return proven(name, words)


def _verify_chain(chain: tuple[x509.Certificate, ...], moment: datetime, root: bytes) -> None:
    if len(chain) > MAX_CHAIN:
        raise _Refused("its certificate chain is longer than any of NVIDIA's")
    if hashlib.sha256(chain[-1].public_bytes(Encoding.DER)).digest() != root:
        raise _Refused("its certificate chain ends in another authority than NVIDIA's")
    if not all(_is_plainly_signed(certificate) for certificate in chain):
        raise _Refused("a certificate of its chain is not as NVIDIA writes them")
    if not all(c.not_valid_before_utc <= moment <= c.not_valid_after_utc for c in chain):
        raise _Refused("a certificate of its chain is not valid at this time")
    try:
        for certificate, issuer in pairwise(chain):
            if not issuer.extensions.get_extension_for_class(x509.BasicConstraints).value.ca:
                raise _Refused("a certificate of its chain is signed by one that may not")
            certificate.verify_directly_issued_by(issuer)
    except (*_UNREADABLE, InvalidSignature):
        raise _Refused("a certificate of its chain is not signed by the next") from None


def _is_plainly_signed(certificate: x509.Certificate) -> bool:
    """Whether its signature has no unused bits: how many there are is signed by nobody."""
    return certificate.public_bytes(Encoding.DER).endswith(b"\0" + certificate.signature)


def _verify_signature(gpu: _Gpu) -> None:
    half = _SIGNATURE_BYTES // 2
    r, s = (int.from_bytes(part) for part in (gpu.signature[:half], gpu.signature[half:]))
    try:
        gpu.key.verify(encode_dss_signature(r, s), gpu.signed, ec.ECDSA(hashes.SHA384()))
    except InvalidSignature:
        raise _Refused("its signature does not hold") from None


def _unreadable(why: str) -> GpuFindings:
    return GpuFindings((failed("gpus", why),), ())
