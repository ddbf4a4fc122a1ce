"""What NVIDIA's remote attestation service (NRAS) said: one token over all, one for each GPU.

The service compares the GPUs' measurements with NVIDIA's reference values and asks whether their
certificates were revoked. Its tokens are JWTs (RFC 7519) signed with ES384 by a key of its key set
(RFC 7517), which was fetched from it over TLS; certificates inside that set are not looked at.
Checks: `gpu_tokens` (they are NVIDIA's, fresh, about these GPUs), `gpu_firmware` (what they say).
"""

import hashlib
import hmac
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

import jwt
from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from bot.attestation.checks import Check, failed, not_checked, proven, proven_if
from bot.attestation.errors import MalformedEvidence
from bot.attestation.near_ai.evidence import NrasAnswer
from bot.attestation.strict_json import decode
from bot.attestation.trust import Trust

MAX_ANSWER_BYTES: Final = 1024 * 1024
"""Of the tokens, and of the key set. Recorded ones have 17 and 81 kB."""
LEEWAY_SECONDS: Final = 60
"""By how much NVIDIA's clock may be ahead of ours. A token that is over is over."""
_MAX_TOKENS: Final = 32
_MAX_KEYS: Final = 1000
_ALGORITHM: Final = "ES384"


@dataclass(frozen=True, slots=True)
class NrasFindings:
    """The checks, and the Unix second at which the first token ends; None if not genuine."""

    checks: tuple[Check, ...]
    expires_at: int | None


def verify_nras(
    answer: NrasAnswer, *, nonce: bytes, serials: Iterable[int], now: int, trust: Trust
) -> NrasFindings:
    """Check NVIDIA's tokens to the last claim; `now` in Unix seconds.

    `serials` are those of the GPUs' certificates in the report.
    """
    try:
        overall, gpus = _genuine(answer, _Expected(trust.nras_url, nonce.hex(), now))
        _require_same_gpus(gpus, serials)
    except _Refused as refused:
        message = f"NVIDIA's tokens do not hold: {refused}"
        unknown = "what NVIDIA says about the firmware is unknown without valid tokens"
        return NrasFindings(
            (failed("gpu_tokens", message), not_checked("gpu_firmware", unknown)), None
        )
    tokens = proven("gpu_tokens", "NVIDIA's attestation service signed a result on these GPUs")
    expires_at = min(claims.exp for claims in (overall, *gpus.values()))
    return NrasFindings((tokens, _firmware_check(overall, gpus)), expires_at)


class _Refused(Exception):
    """The tokens do not hold; the message says why, as part of a sentence."""


@dataclass(frozen=True, slots=True)
class _Expected:
    issuer: str
    nonce: str
    now: int


_Base64url = Annotated[str, Field(pattern="^[A-Za-z0-9_.-]*$")]
"""Also with the dots of a token."""


class _Key(BaseModel):
    kid: str
    kty: str
    crv: str = ""
    x: _Base64url = ""
    y: _Base64url = ""


class _KeySet(BaseModel):
    keys: Annotated[list[_Key], Field(max_length=_MAX_KEYS)]


class _Claims(BaseModel, strict=True):
    iss: str
    iat: int
    nbf: int
    exp: int
    eat_nonce: str


class _Overall(_Claims):
    result: Annotated[Any, Field(alias="x-nvidia-overall-att-result")] = None
    submods: dict[str, Any]


class _Gpu(_Claims):
    ueid: str | None = None
    measres: Any = None
    dbgstat: Any = None
    secboot: Any = None
    error_details: Annotated[Any, Field(alias="x-nvidia-error-details")] = None


_Tokens: Final = TypeAdapter(
    tuple[
        tuple[Literal["JWT"], _Base64url],
        Annotated[dict[str, _Base64url], Field(min_length=1, max_length=_MAX_TOKENS)],
    ]
)


def _genuine(answer: NrasAnswer, expected: _Expected) -> tuple[_Overall, dict[str, _Gpu]]:
    if max(len(answer.tokens), len(answer.keys)) > MAX_ANSWER_BYTES:
        raise _Refused("there is too much of them")
    try:
        tokens = decode(answer.tokens, "NVIDIA's answer")
        (_, overall_token), gpu_tokens = _Tokens.validate_python(tokens)
        keys = _KeySet.model_validate(decode(answer.keys, "NVIDIA's key set"))
    except (MalformedEvidence, ValidationError):
        raise _Refused("they cannot be read") from None
    try:
        by_id = {key.kid: key for key in keys.keys}
        overall = _Overall.model_validate(_claims(overall_token, by_id, expected))
        gpus = {
            name: _Gpu.model_validate(_claims(token, by_id, expected))
            for name, token in gpu_tokens.items()
        }
    except ValidationError:
        raise _Refused("a claim is missing or of another kind") from None
    for claims in (overall, *gpus.values()):
        _require_expected(claims, expected)
    if overall.submods != {name: _digest(token) for name, token in gpu_tokens.items()}:
        raise _Refused("the tokens of the GPUs are not those that the overall token names")
    return overall, gpus


def _claims(token: str, keys: Mapping[str, _Key], expected: _Expected) -> dict[str, Any]:
    """Return what a token says after its signature and its issuer were checked."""
    try:
        kid = jwt.get_unverified_header(token).get("kid")
        key = keys.get(kid) if isinstance(kid, str) else None
        if key is None or (key.kty, key.crv) != ("EC", "P-384"):
            raise _Refused("one is signed by a key that is not in NVIDIA's key set")
        signer = jwt.PyJWK({"kty": key.kty, "crv": key.crv, "x": key.x, "y": key.y}, _ALGORITHM)
        return jwt.decode(
            token,
            signer,
            algorithms=[_ALGORITHM],
            issuer=expected.issuer,
            # The times are checked below: the library knows no other clock than its own.
            options={"verify_exp": False, "verify_nbf": False, "verify_iat": False},
        )
    except (jwt.InvalidIssuerError, jwt.MissingRequiredClaimError):
        raise _Refused("one is from another issuer") from None
    except jwt.PyJWTError:
        raise _Refused("the signature of one does not hold") from None


def _require_expected(claims: _Claims, expected: _Expected) -> None:
    if not hmac.compare_digest(claims.eat_nonce.encode(), expected.nonce.encode()):
        raise _Refused("one answers another nonce than ours")
    if max(claims.iat, claims.nbf) > expected.now + LEEWAY_SECONDS:
        raise _Refused("one is not valid yet")
    if claims.exp <= expected.now:
        raise _Refused("one has expired")


def _require_same_gpus(gpus: Mapping[str, _Gpu], serials: Iterable[int]) -> None:
    if sorted(gpu.ueid or "" for gpu in gpus.values()) != sorted(str(serial) for serial in serials):
        raise _Refused("they are about other GPUs than the report")


def _firmware_check(overall: _Overall, gpus: Mapping[str, _Gpu]) -> Check:
    return proven_if(
        overall.result is True and all(_is_good(gpu) for gpu in gpus.values()),
        "gpu_firmware",
        "NVIDIA's service found good firmware, secure boot and no debugging on every GPU",
        "NVIDIA's service does not vouch for the state of the GPUs",
    )


def _is_good(gpu: _Gpu) -> bool:
    return (
        gpu.measres == "success"
        and gpu.dbgstat == "disabled"
        and gpu.secboot is True
        and gpu.error_details is None
    )


def _digest(token: str) -> list[object]:
    """Return how the overall token names another (RFC 9711, detached submodule digest)."""
    return ["DIGEST", ["SHA-256", hashlib.sha256(token.encode()).hexdigest()]]
