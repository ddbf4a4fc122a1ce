"""TLS connections that carry nothing to a peer without an attested key.

A certificate authority vouches for the owner of a name; evidence shows that a key is in a TEE. Both
must hold. A pinned context verifies certificates as before, and also looks at the key, at the end
of each handshake and before each write. So not even a request line reaches an unattested key.
"""

import asyncio
import hashlib
import ssl
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_Key = TypeVar("_Key")

MAX_STRANGERS: Final = 64
STRANGER_SECONDS: Final = 3600.0


class KeyNotAttested(ssl.SSLCertVerificationError):
    """The peer's certificate is valid, but no evidence vouches for its key."""


@dataclass(slots=True, kw_only=True)
class AttestedKeys:
    """TLS keys that evidence vouches for, as SHA-256 of their SubjectPublicKeyInfo.

    One name may stand for several TEEs with a key each: keys add up until they expire.

    Attributes:
        enforcing: refuse every other key, instead of only remembering it.
        stranger_met: set when a connection meets an unattested key; the reader clears it.
    """

    enforcing: bool
    clock: Callable[[], float] = time.time
    stranger_met: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _expiry: dict[bytes, float] = field(default_factory=dict, init=False)
    _strangers: dict[bytes, float] = field(default_factory=dict, init=False)

    def vouch(self, keys: Iterable[bytes], *, expires_at: float) -> None:
        """Count these keys as attested until `expires_at`, in Unix seconds."""
        keys = tuple(keys)
        self._expiry = prolonged(self._expiry, keys, expires_at, self.clock())
        for key in keys:
            self._strangers.pop(key, None)

    def distrust(self) -> None:
        """Count no key as attested, because the evidence turned out to be wrong."""
        self._expiry.clear()

    def attested(self, key: bytes) -> bool:
        """Return whether unexpired evidence vouches for the key."""
        return self._expiry.get(key, 0.0) > self.clock()

    @property
    def strangers(self) -> frozenset[bytes]:
        """Keys that connections met within the last hour, and that are still unattested.

        If keys are not enforced, messages may have gone to them.
        """
        oldest = self.clock() - STRANGER_SECONDS
        return frozenset(key for key, at in self._strangers.items() if at >= oldest)

    def meet(self, key: bytes) -> None:
        """Record a peer at the end of a handshake or before a write.

        Raises:
            KeyNotAttested: nothing may be sent to it.
        """
        if self.attested(key):
            return
        self._strangers.pop(key, None)
        self._strangers[key] = self.clock()
        if len(self._strangers) > MAX_STRANGERS:
            del self._strangers[next(iter(self._strangers))]
        self.stranger_met.set()
        if self.enforcing:
            raise KeyNotAttested("no evidence vouches for the server's key")


def pin(context: ssl.SSLContext, keys: AttestedKeys) -> ssl.SSLContext:
    """Make the connections of a client's context meet the keys, and return the context.

    Works for connections over memory buffers, as asyncio uses them, and not for blocking sockets.
    """

    class PinnedConnection(ssl.SSLObject):
        _peer: bytes

        def do_handshake(self) -> None:
            super().do_handshake()
            certificate = self.getpeercert(binary_form=True)
            if certificate is None:
                raise KeyNotAttested("the server showed no certificate")
            try:
                self._peer = key_sha256(certificate)
            except ValueError:
                raise KeyNotAttested("the server's certificate cannot be read") from None
            keys.meet(self._peer)

        def write(self, data: "ReadableBuffer") -> int:
            keys.meet(self._peer)
            return super().write(data)

    context.sslobject_class = PinnedConnection
    return context


def prolonged(
    known: Mapping[_Key, float], keys: Iterable[_Key], expires_at: float, now: float
) -> dict[_Key, float]:
    """Return the unexpired and the new keys with their expiry; of two times, the later counts."""
    kept = {key: until for key, until in known.items() if until > now}
    return kept | {key: max(expires_at, kept.get(key, expires_at)) for key in keys}


def key_sha256(certificate: bytes) -> bytes:
    """Return SHA-256 of the SubjectPublicKeyInfo of a DER certificate."""
    key = x509.load_der_x509_certificate(certificate).public_key()
    info = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(info).digest()
