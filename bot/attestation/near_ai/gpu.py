"""What the GPUs themselves signed, checked here and without NVIDIA's service.

Each GPU answers an SPDM 1.1 request GET_MEASUREMENTS, which carries our nonce, with its
measurements, signed by a key that its certificate chain leads from to NVIDIA's Device Identity CA.
So a GPU of NVIDIA's with confidential computing answered, and it did so after we had asked.
Whether its measurements are those of good firmware is known to NVIDIA alone; see `nras`.
What NVIDIA is asked is written here anew, from what was read: nothing else of a report reaches it.
Checks: `gpu_chain`, `gpu_nonce`, `gpus`.
"""

import hashlib
import hmac
from base64 import b64decode, b64encode
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import Annotated, Any, Final, Literal, Self

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from pydantic import BaseModel, BeforeValidator, Field, ValidationError

from bot.attestation.checks import Check, failed, proven
from bot.attestation.errors import MalformedEvidence
from bot.attestation.near_ai.wire import Digest
from bot.attestation.strict_json import decode
from bot.attestation.trust import Trust

Architecture = Literal["HOPPER", "BLACKWELL"]
"""Of the GPUs with confidential computing, as NVIDIA's service spells them."""

MAX_GPUS: Final = 32
MAX_CHAIN: Final = 8
_OWN_CERTIFICATES: Final = 2
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
class Devices:
    """Which GPUs a machine has, as their certificates tell them apart.

    Attributes:
        architecture: of all of them.
        chains: SHA-256 of the DER certificates of each GPU.
    """

    architecture: Architecture
    chains: frozenset[bytes]


@dataclass(frozen=True, slots=True)
class GpuFindings:
    """What came out.

    Attributes:
        checks: each with its verdict.
        serials: of the GPUs' certificates, in order; NVIDIA's service names GPUs by them.
        devices: which GPUs these are; None when unreadable.
        own_keys: the public keys that each GPU has for itself, DER.
    """

    checks: tuple[Check, ...]
    serials: tuple[int, ...]
    devices: Devices | None
    own_keys: frozenset[bytes]


def gpu_question(payload: str, nonce: bytes) -> dict[str, Any]:
    """Return what NVIDIA's service is asked about a machine's GPUs, to be sent as JSON.

    Args:
        payload: `nvidia_payload` of the report, as it stands there.
        nonce: ours.

    Raises:
        MalformedEvidence: the payload cannot be read.
    """
    evidence, gpus = _read(payload)
    listed = [
        {
            "arch": evidence.arch,
            "certificate": _base64(b"".join(c.public_bytes(Encoding.PEM) for c in gpu.chain)),
            "evidence": _base64(gpu.signed + gpu.signature),
        }
        for gpu in gpus
    ]
    return {"arch": evidence.arch, "evidence_list": listed, "nonce": nonce.hex()}


def verify_gpus(
    payload: str,
    *,
    nonce: bytes,
    now: int,
    trust: Trust,
    elsewhere: frozenset[bytes] = frozenset(),
) -> GpuFindings:
    """Check the evidence that a report carries for NVIDIA.

    Args:
        payload: `nvidia_payload` of the report, as it stands there.
        nonce: ours.
        now: Unix seconds.
        trust: whose root ends the certificate chains.
        elsewhere: `own_keys` of the GPUs that other machines have.
    """
    try:
        evidence, gpus = _read(payload)
    except MalformedEvidence as error:
        return GpuFindings((failed("gpus", str(error)),), (), None, frozenset())
    moment = datetime.fromtimestamp(now, UTC)
    checks = (
        _chain_check(gpus, moment, trust, elsewhere),
        _nonce_check(evidence, gpus, nonce),
        _each(gpus, "gpus", _verify_signature, f"{len(gpus)} NVIDIA GPUs signed their state"),
    )
    return GpuFindings(
        checks,
        serials=tuple(gpu.chain[0].serial_number for gpu in gpus),
        devices=Devices(evidence.arch, frozenset(gpu.fingerprint() for gpu in gpus)),
        own_keys=frozenset(key for gpu in gpus for key in gpu.own_keys),
    )


class _Refused(Exception):
    """Something of a GPU does not hold; the message says what, as part of a sentence."""


def _bytes_of_base64(value: object) -> object:
    return b64decode(value, validate=True) if isinstance(value, str) else value


_Base64 = Annotated[bytes, BeforeValidator(_bytes_of_base64), Field(max_length=_MAX_EVIDENCE_BYTES)]


class _GpuEvidence(BaseModel):
    arch: Architecture | None = None
    certificate: _Base64
    evidence: _Base64
    nonce: Digest | None = None


class _Payload(BaseModel):
    arch: Architecture
    nonce: Digest
    evidence_list: Annotated[list[_GpuEvidence], Field(min_length=1, max_length=MAX_GPUS)]


@dataclass(frozen=True, slots=True)
class _Gpu:
    """One GPU, read but not verified.

    `own_keys` are those of its first two certificates, for those above are of whole series. The
    first is of the firmware that runs, the second of the device: one GPU that was started with
    two firmwares shows two of the first kind.
    """

    chain: tuple[x509.Certificate, ...]
    key: ec.EllipticCurvePublicKey
    nonce: bytes
    signed: bytes
    signature: bytes
    own_keys: tuple[bytes, ...]

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
            own_keys = tuple(map(_public_key, chain[:_OWN_CERTIFICATES]))
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
            own_keys=own_keys,
        )

    def fingerprint(self) -> bytes:
        """Return SHA-256 of the whole chain."""
        return hashlib.sha256(b"".join(c.public_bytes(Encoding.DER) for c in self.chain)).digest()


def _read(payload: str) -> tuple[_Payload, tuple[_Gpu, ...]]:
    try:
        evidence = _Payload.model_validate(decode(payload, "the evidence of the GPUs"))
    except ValidationError:
        raise MalformedEvidence("the evidence of the GPUs is not of the expected shape") from None
    if any(one.arch not in (None, evidence.arch) for one in evidence.evidence_list):
        raise MalformedEvidence("the GPUs of one machine are said to be of several kinds")
    return evidence, tuple(_Gpu.read(one) for one in evidence.evidence_list)


def _public_key(certificate: x509.Certificate) -> bytes:
    return certificate.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _base64(data: bytes) -> str:
    return b64encode(data).decode()


def _chain_check(
    gpus: tuple[_Gpu, ...], moment: datetime, trust: Trust, elsewhere: frozenset[bytes]
) -> Check:
    if _are_repeated(gpus):
        return failed("gpu_chain", "two of the GPUs are one and the same")
    if any(key in elsewhere for gpu in gpus for key in gpu.own_keys):
        return failed("gpu_chain", "another machine shows the same GPUs")

    def verify(gpu: _Gpu) -> None:
        _verify_chain(gpu.chain, moment, trust.nvidia_root_sha256)

    return _each(
        gpus, "gpu_chain", verify, "the GPUs' keys are certified by NVIDIA's Device Identity CA"
    )


def _are_repeated(gpus: tuple[_Gpu, ...]) -> bool:
    serials = [gpu.chain[0].serial_number for gpu in gpus]
    keys = [key for gpu in gpus for key in gpu.own_keys]
    return len({*serials}) < len(serials) or len({*keys}) < len(keys)


def _nonce_check(payload: _Payload, gpus: tuple[_Gpu, ...], nonce: bytes) -> Check:
    stated = (payload.nonce, *(one.nonce for one in payload.evidence_list if one.nonce))
    if all(hmac.compare_digest(value, nonce) for value in (*stated, *(g.nonce for g in gpus))):
        return proven("gpu_nonce", "the GPUs answered this request and no earlier one")
    return failed("gpu_nonce", "a GPU answered another request")


def _each(gpus: tuple[_Gpu, ...], name: str, verify: Callable[[_Gpu], None], message: str) -> Check:
    for number, gpu in enumerate(gpus):
        try:
            verify(gpu)
        except _Refused as refused:
            return failed(name, f"GPU {number}: {refused}")
    return proven(name, message)


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
