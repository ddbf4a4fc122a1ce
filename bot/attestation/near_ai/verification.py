"""Whether a report proves which machines answer for a model, and whose keys they hold."""

from dataclasses import dataclass
from typing import Literal

from bot.attestation.checks import Report


@dataclass(frozen=True, slots=True)
class Signer:
    """A key that a verified machine signs answers with.

    Attributes:
        algorithm: of the signatures.
        address: what the quote vouches for: 20 bytes (ecdsa, as Ethereum derives them) or the
            32 bytes of the public key (ed25519).
        public_key: 64 bytes x and y (ecdsa) or 32 bytes (ed25519); None where the report names an
            ecdsa address alone, as the gateway's does.
    """

    algorithm: Literal["ed25519", "ecdsa"]
    address: bytes
    public_key: bytes | None


@dataclass(frozen=True, slots=True)
class ModelFindings:
    """What came out. Without a report that passed there are no keys in it.

    Attributes:
        report: the checks, in order.
        gateway: who signs in the gateway; None for a direct endpoint.
        models: who signs for the model, one for each of its machines.
        tls_keys: SHA-256 of the SubjectPublicKeyInfo of the TLS key that the verified machine at
            the other end of the connection holds.
        expires_at: Unix seconds at which the first piece of evidence is no longer valid.
    """

    report: Report
    gateway: Signer | None
    models: tuple[Signer, ...]
    tls_keys: frozenset[bytes]
    expires_at: int | None
