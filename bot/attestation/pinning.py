"""TLS connections that carry nothing to a peer whose key no evidence vouches for.

A certificate authority says who owns a name, evidence says which key ends inside a TEE. Both must
hold: the context that is pinned here goes on verifying certificates as before, and looks at the
key beside that, at the end of each handshake and before each write. So not even a request line
leaves for a key that is not attested, or is no longer.
"""

import asyncio
import ssl
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from bot.attestation.http import key_sha256

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

MAX_STRANGERS: Final = 64
STRANGER_SECONDS: Final = 3600.0


class KeyNotAttested(ssl.SSLCertVerificationError):
    """The peer's certificate is fine, but no evidence vouches for its key."""


class AttestedKeys:
    """The keys, as SHA-256 of their SubjectPublicKeyInfo, that evidence vouches for.

    Behind one name there may be several TEEs with a key each: keys add up until they expire.

    Args:
        enforcing: refuse every other key; else only remember it.
        clock: unix seconds.
    """

    def __init__(self, *, enforcing: bool, clock: Callable[[], float] = time.time) -> None:
        self._enforcing = enforcing
        self._clock = clock
        self._expiry: dict[bytes, float] = {}
        self._strangers: dict[bytes, float] = {}
        self.stranger_met: Final = asyncio.Event()
        """Set when a connection meets a key that is not attested; cleared by who acts on it."""

    def vouch(self, keys: Iterable[bytes], *, expires_at: float) -> None:
        """Count these keys as attested until then, in unix seconds."""
        now = self._clock()
        self._expiry = {key: until for key, until in self._expiry.items() if until > now}
        for key in keys:
            self._expiry[key] = max(expires_at, self._expiry.get(key, expires_at))
            self._strangers.pop(key, None)

    def distrust(self) -> None:
        """Count no key as attested any more: the evidence turned out to be wrong."""
        self._expiry.clear()

    def attested(self, key: bytes) -> bool:
        """Return whether unexpired evidence vouches for the key."""
        return self._expiry.get(key, 0.0) > self._clock()

    @property
    def strangers(self) -> frozenset[bytes]:
        """Keys that connections met within the last hour, and that nothing has vouched for since.

        Where the keys are not enforced, what was sent may have gone there.
        """
        oldest = self._clock() - STRANGER_SECONDS
        return frozenset(key for key, at in self._strangers.items() if at >= oldest)

    def meet(self, key: bytes) -> None:
        """Take note of a peer at the end of a handshake or before a write.

        Raises:
            KeyNotAttested: nothing may be sent to it.
        """
        if self.attested(key):
            return
        self._remember(key)
        self.stranger_met.set()
        if self._enforcing:
            raise KeyNotAttested("no evidence vouches for the server's key")

    def _remember(self, key: bytes) -> None:
        self._strangers.pop(key, None)
        self._strangers[key] = self._clock()
        if len(self._strangers) > MAX_STRANGERS:
            del self._strangers[next(iter(self._strangers))]


def pin(context: ssl.SSLContext, keys: AttestedKeys) -> ssl.SSLContext:
    """Make the context's connections meet the keys, and return it.

    It holds for connections over memory buffers, which all of asyncio's are; a context for
    blocking sockets is not what this is for.

    Args:
        context: a client's, for this purpose alone.
        keys: what is attested, at any time.
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
