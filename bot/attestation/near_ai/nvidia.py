"""Evidence of the GPUs: their own signatures, and the word of NVIDIA's attestation service (NRAS).

Each GPU answers an SPDM 1.1 request GET_MEASUREMENTS, which carries our nonce, with its
measurements. Its certificate chain leads to NVIDIA's Device Identity CA. So a GPU of NVIDIA with
confidential computing answered after our request. Checks: `gpu_chain`, `gpu_nonce`, `gpus`.

Only NVIDIA knows the measurements of good firmware and the revoked certificates. Its service
answers with JWTs (RFC 7519): one over all GPUs and one for each, signed with ES384 by a key of its
key set (RFC 7517), which is fetched over TLS. Certificates in that set are not looked at. Checks:
`gpu_tokens` (genuine, fresh, about these GPUs), `gpu_firmware` (the result).
"""

import hashlib
import hmac
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import Annotated, Any, Final, Literal

import jwt
from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from pydantic import BaseModel, BeforeValidator, Field, TypeAdapter, ValidationError

from bot.attestation.checks import Check, failed, not_checked, proven, proven_if
from bot.attestation.errors import MalformedEvidence
from bot.attestation.near_ai.report import Digest
from bot.attestation.strict_json import decode
from bot.attestation.trust import Trust

Architecture = Literal["HOPPER", "BLACKWELL"]
"""GPUs with confidential computing, as NVIDIA's service spells them."""

MAX_GPUS: Final = 32
MAX_CHAIN: Final = 8
_MAX_EVIDENCE_BYTES: Final = 64 * 1024

_REQUEST: Final = bytes.fromhex("11e001ff")  # SPDM 1.1, GET_MEASUREMENTS, signed, all of them
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
"""Errors of reading or using an odd certificate."""


# The GPUs


Devices = frozenset[bytes]
"""SHA-256 of the certificate chain of each GPU in a machine."""


@dataclass(frozen=True, slots=True)
class GpuFindings:
    """Result for the GPUs of one machine.

    Attributes:
        serials: of the GPUs' certificates, in order; NVIDIA's service names GPUs by them.
        own_keys: the public keys that belong to a single GPU, DER.
    """

    checks: tuple[Check, ...]
    serials: tuple[int, ...]
    devices: Devices
    own_keys: frozenset[bytes]


def gpu_question(payload: str, nonce: bytes) -> dict[str, Any] | None:
    """Return the question to NVIDIA's service about a machine's GPUs; None if they are unreadable.

    It is written from the parsed evidence, so that nothing else of a report reaches NVIDIA.

    Args:
        payload: `nvidia_payload` of the report.
    """
    try:
        evidence, gpus = _read(payload)
    except MalformedEvidence:
        return None
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
    """Check the GPUs' own evidence.

    Args:
        payload: `nvidia_payload` of the report.
        elsewhere: `own_keys` of the GPUs in other machines.
    """
    try:
        evidence, gpus = _read(payload)
    except MalformedEvidence as error:
        return GpuFindings((failed("gpus", str(error)),), (), frozenset(), frozenset())
    serials = tuple(gpu.chain[0].serial_number for gpu in gpus)
    keys = [key for gpu in gpus for key in gpu.own_keys]
    if len({*serials}) < len(serials) or len({*keys}) < len(keys):
        chains = failed("gpu_chain", "two of the GPUs are one and the same")
    elif not elsewhere.isdisjoint(keys):
        chains = failed("gpu_chain", "another machine shows the same GPUs")
    else:
        moment, root = datetime.fromtimestamp(now, UTC), trust.nvidia_root_sha256
        chains = proven_if(
            all(_chain_holds(gpu.chain, moment, root) for gpu in gpus),
            "gpu_chain",
            "the GPUs' keys are certified by NVIDIA's Device Identity CA",
            "a GPU's certificates do not lead to NVIDIA's Device Identity CA, or are not valid now",
        )
    stated = (evidence.nonce, *(one.nonce for one in evidence.evidence_list if one.nonce))
    nonces = proven_if(
        all(hmac.compare_digest(n, nonce) for n in (*stated, *(gpu.nonce for gpu in gpus))),
        "gpu_nonce",
        "the GPUs answered this request and no earlier one",
        "a GPU answered another request",
    )
    signed = proven_if(
        all(map(_signature_holds, gpus)),
        "gpus",
        f"{len(gpus)} NVIDIA GPUs signed their state",
        "the signature of a GPU does not hold",
    )
    devices = frozenset(gpu.fingerprint() for gpu in gpus)
    return GpuFindings((chains, nonces, signed), serials, devices, frozenset(keys))


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
    """A GPU, read but not verified.

    `own_keys` are those of its first two certificates; those above belong to whole series. The
    first is of the running firmware, the second of the device. So a GPU that was started with two
    firmwares has two keys of the first kind and one of the second.
    """

    chain: tuple[x509.Certificate, ...]
    key: ec.EllipticCurvePublicKey
    nonce: bytes
    signed: bytes
    signature: bytes
    own_keys: tuple[bytes, ...]

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
    return evidence, tuple(_read_gpu(one) for one in evidence.evidence_list)


def _read_gpu(evidence: _GpuEvidence) -> _Gpu:
    spdm = evidence.evidence
    if not spdm.startswith(_REQUEST) or not spdm.startswith(_RESPONSE, _RESPONSE_AT):
        raise MalformedEvidence("a GPU's evidence does not answer the SPDM request")
    if len(spdm) < _RESPONSE_AT + _SIGNATURE_BYTES:
        raise MalformedEvidence("a GPU's evidence is too short to be signed")
    try:
        # Some drivers fill the end of the chain with NUL bytes.
        chain = x509.load_pem_x509_certificates(evidence.certificate.rstrip(b"\0"))
        key = chain[0].public_key()
        own_keys = tuple(map(_public_key, chain[:2]))
    except _UNREADABLE:
        raise MalformedEvidence("a GPU's certificates cannot be read") from None
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP384R1):
        raise MalformedEvidence("a GPU's key is of another kind than NVIDIA's are")
    signed, signature = spdm[:-_SIGNATURE_BYTES], spdm[-_SIGNATURE_BYTES:]
    return _Gpu(tuple(chain), key, spdm[_NONCE], signed, signature, own_keys)


def _public_key(certificate: x509.Certificate) -> bytes:
    return certificate.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _base64(data: bytes) -> str:
    return b64encode(data).decode()


def _chain_holds(chain: tuple[x509.Certificate, ...], moment: datetime, root: bytes) -> bool:
    """Return whether the certificates lead to the root and are all valid at that moment."""
    if len(chain) > MAX_CHAIN:
        return False
    try:
        for certificate, issuer in pairwise(chain):
            certificate.verify_directly_issued_by(issuer)
            if not issuer.extensions.get_extension_for_class(x509.BasicConstraints).value.ca:
                return False
    except (*_UNREADABLE, InvalidSignature):
        return False
    ders = [certificate.public_bytes(Encoding.DER) for certificate in chain]
    return (
        hashlib.sha256(ders[-1]).digest() == root
        # No signature covers the count of unused bits in a signature, so it must be zero.
        and all(d.endswith(b"\0" + c.signature) for c, d in zip(chain, ders, strict=True))
        and all(c.not_valid_before_utc <= moment <= c.not_valid_after_utc for c in chain)
    )


def _signature_holds(gpu: _Gpu) -> bool:
    half = _SIGNATURE_BYTES // 2
    r, s = (int.from_bytes(part) for part in (gpu.signature[:half], gpu.signature[half:]))
    try:
        gpu.key.verify(encode_dss_signature(r, s), gpu.signed, ec.ECDSA(hashes.SHA384()))
    except InvalidSignature:
        return False
    return True


# NVIDIA's service

MAX_ANSWER_BYTES: Final = 1024 * 1024
"""For tokens and key set each. Recorded ones have 17 and 81 kB."""
LEEWAY_SECONDS: Final = 60
"""How far NVIDIA's clock may be ahead of ours. Expiry has no leeway."""
_ALGORITHM: Final = "ES384"


@dataclass(frozen=True, slots=True)
class NrasWord:
    """Result of asking NVIDIA about the GPUs of one machine.

    Attributes:
        tokens: JWTs about the GPUs, byte for byte.
        keys: the key set (JWKS) for their signatures, byte for byte.
        why: why there are no tokens; ends a sentence.
        refused: whether the service answered, but did not attest the GPUs.
    """

    tokens: bytes = b""
    keys: bytes = b""
    why: str = ""
    refused: bool = False


def verify_nras(
    word: NrasWord, *, nonce: bytes, serials: Iterable[int], now: int, trust: Trust
) -> tuple[tuple[Check, Check], int | None]:
    """Check NVIDIA's tokens to the last claim.

    Args:
        serials: of the GPUs' certificates in the report.

    Returns:
        The checks, and the Unix second at which the first token ends; None if not genuine.
    """
    try:
        overall, gpus = _genuine(word, trust.nras_url)
        for claims in (overall, *gpus):
            _require_expected(claims, nonce.hex(), now)
        if sorted(gpu.ueid or "" for gpu in gpus) != sorted(map(str, serials)):
            raise MalformedEvidence("they are about other GPUs than the report")  # noqa: TRY301
    except MalformedEvidence as error:
        tokens = failed("gpu_tokens", f"NVIDIA's tokens do not hold: {error}")
        unknown = "without valid tokens NVIDIA's word on the firmware is unknown"
        return (tokens, not_checked("gpu_firmware", unknown)), None
    tokens = proven("gpu_tokens", "NVIDIA's attestation service signed a result on these GPUs")
    firmware = proven_if(
        overall.result is True and all(gpu.is_good for gpu in gpus),
        "gpu_firmware",
        "NVIDIA's service found good firmware, secure boot and no debugging on every GPU",
        "NVIDIA's service does not vouch for the state of the GPUs",
    )
    return (tokens, firmware), min(claims.exp for claims in (overall, *gpus))


_Base64url = Annotated[str, Field(pattern="^[A-Za-z0-9_.-]*$")]  # also with the dots of a token


class _Key(BaseModel):
    kid: str
    kty: str
    crv: str = ""
    x: _Base64url = ""
    y: _Base64url = ""


class _KeySet(BaseModel):
    keys: Annotated[list[_Key], Field(max_length=1000)]


class _Claims(BaseModel, strict=True):
    """Claims of the overall token (the result and `submods`) or of a GPU's (the others)."""

    iat: int
    nbf: int
    exp: int
    eat_nonce: str
    result: Annotated[Any, Field(alias="x-nvidia-overall-att-result")] = None
    submods: Any = None
    ueid: str | None = None
    measres: Any = None
    dbgstat: Any = None
    secboot: Any = None
    error_details: Annotated[Any, Field(alias="x-nvidia-error-details")] = None

    @property
    def is_good(self) -> bool:
        """Whether NVIDIA found known firmware, secure boot and no debugging."""
        measured = self.measres == "success" and self.dbgstat == "disabled"
        return measured and self.secboot is True and self.error_details is None


_Tokens: Final = TypeAdapter(
    tuple[
        tuple[Literal["JWT"], _Base64url],
        Annotated[dict[str, _Base64url], Field(min_length=1, max_length=MAX_GPUS)],
    ]
)


def _genuine(word: NrasWord, issuer: str) -> tuple[_Claims, list[_Claims]]:
    """Return the claims of the overall token and of each GPU's, with good signatures."""
    if max(len(word.tokens), len(word.keys)) > MAX_ANSWER_BYTES:
        raise MalformedEvidence("there is too much of them")
    try:
        tokens = decode(word.tokens, "NVIDIA's answer")
        (_, overall_token), gpu_tokens = _Tokens.validate_python(tokens)
        key_set = _KeySet.model_validate(decode(word.keys, "NVIDIA's key set"))
    except (MalformedEvidence, ValidationError):
        raise MalformedEvidence("they cannot be read") from None
    keys = {key.kid: key for key in key_set.keys}
    try:
        overall, *gpus = (
            _Claims.model_validate(_claims(token, keys, issuer))
            for token in (overall_token, *gpu_tokens.values())
        )
    except ValidationError:
        raise MalformedEvidence("a claim is missing or of another kind") from None
    # Detached submodule digests, RFC 9711.
    if overall.submods != {
        name: ["DIGEST", ["SHA-256", hashlib.sha256(token.encode()).hexdigest()]]
        for name, token in gpu_tokens.items()
    }:
        raise MalformedEvidence("the tokens of the GPUs are not those that the overall token names")
    return overall, gpus


def _claims(token: str, keys: Mapping[str, _Key], issuer: str) -> dict[str, Any]:
    """Return the claims of a token after checking signature and issuer."""
    try:
        kid = jwt.get_unverified_header(token).get("kid")
        key = keys.get(kid) if isinstance(kid, str) else None
        if key is None or (key.kty, key.crv) != ("EC", "P-384"):
            raise MalformedEvidence("one is signed by a key that is not in NVIDIA's key set")
        signer = jwt.PyJWK({"kty": key.kty, "crv": key.crv, "x": key.x, "y": key.y}, _ALGORITHM)
        return jwt.decode(
            token,
            signer,
            algorithms=[_ALGORITHM],
            issuer=issuer,
            # `_require_expected` checks the times, because the library always uses its own clock.
            options={"verify_exp": False, "verify_nbf": False, "verify_iat": False},
        )
    except (jwt.InvalidIssuerError, jwt.MissingRequiredClaimError):
        raise MalformedEvidence("one is from another issuer") from None
    except jwt.PyJWTError:
        raise MalformedEvidence("the signature of one does not hold") from None


def _require_expected(claims: _Claims, nonce: str, now: int) -> None:
    if not hmac.compare_digest(claims.eat_nonce.encode(), nonce.encode()):
        raise MalformedEvidence("one answers another nonce than ours")
    if max(claims.iat, claims.nbf) > now + LEEWAY_SECONDS:
        raise MalformedEvidence("one is not valid yet")
    if claims.exp <= now:
        raise MalformedEvidence("one has expired")
