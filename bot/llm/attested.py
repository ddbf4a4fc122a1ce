"""What the client asks for where the endpoint has to prove who reads along.

The client knows no attestation; `bot.attestation` implements what stands here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol


class Admission(Protocol):
    """Decides before every attempt whether anything may be sent to the endpoint."""

    async def admit(self) -> bool:
        """Return, within a bound, when it may: whether the endpoint has proven what it can.

        Raises:
            LlmNotAttested: it may not; carries the sentence for the person.
        """
        ...


class Sealing(Protocol):
    """Keys of one request and its answer."""

    @property
    def headers(self) -> Mapping[str, str]:
        """What the request must say so that the model can read it and seal its answer."""
        ...

    def seal(self, text: str) -> str:
        """Encrypt one field of the request; an empty one stays empty."""
        ...

    def open(self, text: str) -> str:
        """Decrypt one field of the answer; an empty one stays empty.

        Raises:
            ValueError: it is not encrypted to this request.
        """
        ...


class Encryption(Protocol):
    """End-to-end encryption to the model."""

    async def begin(self) -> Sealing:
        """Return fresh keys for one request.

        Raises:
            LlmNotAttested: there is no key that a verified report vouches for.
        """
        ...


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request and its answer, byte for byte, as their hashes.

    Attributes:
        completion_id: what the endpoint calls it (`chatcmpl-...`).
        request_sha256: hex, of the body as it was sent.
        response_sha256: hex, of the body as it came, to its last byte.
    """

    completion_id: str
    request_sha256: str
    response_sha256: str
