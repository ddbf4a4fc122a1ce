"""Whose signatures of answers count: every key that unexpired evidence vouches for.

Behind one name there may be several machines with a key each, and an answer may have been signed
just before a machine was replaced; so keys add up until they expire, as TLS keys do.
"""

import time
from collections.abc import Callable, Iterator

from bot.attestation.near_ai.verification import ModelFindings, Signer


class AttestedSigners:
    """The signers, by what they sign for.

    Args:
        clock: Unix seconds.
    """

    def __init__(self, *, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._expiry: dict[tuple[str, Signer], float] = {}

    def vouch(self, findings: ModelFindings, *, expires_at: float) -> None:
        """Count the signers of a report that has passed until then, in Unix seconds."""
        now = self._clock()
        self._expiry = {signer: until for signer, until in self._expiry.items() if until > now}
        for kind, signer in _signers(findings):
            self._expiry[kind, signer] = max(expires_at, self._expiry.get((kind, signer), 0.0))

    def distrust(self) -> None:
        """Count nobody any more: the evidence turned out to be wrong."""
        self._expiry.clear()

    def signers(self, kind: str, algorithm: str) -> tuple[Signer, ...]:
        """Return who may sign now.

        Args:
            kind: `provider_tee` for the model's machine, `gateway` for the one before it.
            algorithm: `ed25519` or `ecdsa`.
        """
        now = self._clock()
        return tuple(
            signer
            for (signs_for, signer), until in self._expiry.items()
            if until > now and signs_for == kind and signer.algorithm == algorithm
        )


def _signers(findings: ModelFindings) -> Iterator[tuple[str, Signer]]:
    if findings.gateway is not None:
        yield "gateway", findings.gateway
    for signer in findings.models:
        yield "provider_tee", signer
