"""What is gathered before anything is verified: the endpoint's report and NVIDIA's word on it."""

import hashlib
from dataclasses import dataclass
from typing import Annotated, Final

from pydantic import BaseModel, Field, ValidationError

from bot.attestation.canonical import canonical_json
from bot.attestation.errors import MalformedEvidence
from bot.attestation.strict_json import Text

NONCE_BYTES: Final = 32
MAX_REPORT_BYTES: Final = 4 * 1024 * 1024
"""A recorded report of one model with eight GPUs is 350 kB long."""
MAX_MODEL_NAME: Final = 256


@dataclass(frozen=True, slots=True)
class ModelEvidence:
    """A report of the model's endpoint, and what it was asked with.

    Attributes:
        report: the endpoint's JSON, byte for byte.
        nonce: the 32 random bytes that were sent with the request.
        model: the name that was asked for.
        peer_key_sha256: SHA-256 of the SubjectPublicKeyInfo of the TLS peer on the connection
            that the report came over; None where there was no TLS.
        fetched_at: when, in Unix seconds.
    """

    report: bytes
    nonce: bytes
    model: str
    peer_key_sha256: bytes | None
    fetched_at: int

    def to_plain(self) -> dict[str, str | int | None]:
        """Return it as JSON writes it: the report as text, bytes in hex."""
        return {
            "report": self.report.decode(),
            "nonce": self.nonce.hex(),
            "model": self.model,
            "peer_key_sha256": self.peer_key_sha256.hex() if self.peer_key_sha256 else None,
            "fetched_at": self.fetched_at,
        }

    def sha256(self) -> str:
        """Return the hash by which a statement names it, hex."""
        return hashlib.sha256(canonical_json(self.to_plain()).encode()).hexdigest()

    @classmethod
    def from_plain(cls, value: object) -> "ModelEvidence":
        """Read what `to_plain` wrote.

        Raises:
            MalformedEvidence: it is something else.
        """
        try:
            plain = _Plain.model_validate(value, strict=True)
        except ValidationError:
            raise MalformedEvidence("the model's evidence is incomplete or too long") from None
        return cls(
            report=plain.report.encode(),
            nonce=bytes.fromhex(plain.nonce),
            model=plain.model,
            peer_key_sha256=bytes.fromhex(plain.peer_key_sha256) if plain.peer_key_sha256 else None,
            fetched_at=plain.fetched_at,
        )


@dataclass(frozen=True, slots=True)
class NrasAnswer:
    """NVIDIA's tokens about the GPUs and the key set (JWKS) that signs them, byte for byte."""

    tokens: bytes
    keys: bytes


@dataclass(frozen=True, slots=True)
class NrasRefusal:
    """NVIDIA's attestation service answered, but did not attest the GPUs; `why` ends a sentence."""

    why: str


@dataclass(frozen=True, slots=True)
class NrasSilence:
    """NVIDIA's attestation service said nothing, so nothing new is known; `why` ends a sentence."""

    why: str


NrasWord = NrasAnswer | NrasRefusal | NrasSilence
"""What came of asking NVIDIA about the GPUs of one machine."""


_Hex32 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class _Plain(BaseModel, extra="forbid"):
    report: Annotated[Text, Field(max_length=MAX_REPORT_BYTES)]
    nonce: _Hex32
    model: Annotated[Text, Field(max_length=MAX_MODEL_NAME)]
    peer_key_sha256: _Hex32 | None
    fetched_at: Annotated[int, Field(ge=0)]
