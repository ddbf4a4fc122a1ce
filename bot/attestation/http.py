"""HTTP to the services that evidence comes from: bounded, without redirects, proxies or cookies."""

import asyncio
import hashlib
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import aiohttp
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from yarl import URL

from bot.attestation.errors import AnswerTooLong, EvidenceUnavailable
from bot.http_client import new_session, new_tls_context, whole_body

MAX_CONNECTIONS: Final = 16
MAX_RETRY_AFTER_SECONDS: Final = 3600.0
MAX_HEADER_BYTES: Final = 64 * 1024
"""Intel's certificate chains come as headers."""


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """What a service answered.

    Attributes:
        status: of HTTP.
        headers: by name, in any case.
        body: all of it.
        peer_key_sha256: SHA-256 of the SubjectPublicKeyInfo of the TLS peer on the connection
            that this answer came over; None without TLS.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes
    peer_key_sha256: bytes | None

    @property
    def retry_after_seconds(self) -> float | None:
        """How long the service asks to be left alone (RFC 9110, 10.2.3), an hour at most.

        None where it says nothing, or says it as a date, which none of them does.
        """
        said = self.headers.get("retry-after", "").strip()
        if not (said.isascii() and said.isdecimal()):
            return None
        return min(float(said), MAX_RETRY_AFTER_SECONDS)


class HttpService:
    """Asks services over connections of its own. Made by `open_http`."""

    def __init__(self, pooled: aiohttp.ClientSession, unpooled: aiohttp.ClientSession) -> None:
        self._pooled = pooled
        self._unpooled = unpooled

    async def ask(
        self,
        method: str,
        url: str,
        *,
        seconds: float,
        max_bytes: int,
        headers: Mapping[str, str] | None = None,
        json: object = None,
        own_connection: bool = False,
    ) -> HttpAnswer:
        """Send one request and return its answer, whatever the status.

        Args:
            method: of HTTP.
            url: where.
            seconds: for everything, from the connection to the last byte.
            max_bytes: more is refused.
            headers: beside the usual ones.
            json: the request's body, if any.
            own_connection: do not use one that another request has left open. Which machine, with
                which TLS key, answers behind a name may have changed since.

        Raises:
            EvidenceUnavailable: no connection, no answer in time, or too much of it.
        """
        session = self._unpooled if own_connection else self._pooled
        try:
            async with (
                asyncio.timeout(seconds),
                session.request(
                    method,
                    URL(url, encoded=True),
                    headers=headers,
                    json=json,
                    allow_redirects=False,
                ) as response,
            ):
                body = await whole_body(
                    response,
                    max_bytes,
                    AnswerTooLong("the answer is longer than this program reads"),
                )
                return HttpAnswer(response.status, response.headers, body, _peer_key(response))
        except TimeoutError:
            raise EvidenceUnavailable("no answer in time") from None
        except aiohttp.ClientConnectorError:
            raise EvidenceUnavailable("there is no connection to it") from None
        except (aiohttp.ClientError, OSError):
            # OSError: a TLS record that was damaged on its way.
            raise EvidenceUnavailable("the connection broke") from None


@asynccontextmanager
async def open_http(
    *, tls: ssl.SSLContext | None = None, socket: Path | None = None
) -> AsyncIterator[HttpService]:
    """Provide HTTP inside the block.

    Args:
        tls: whose certificates are believed; None: the usual certificate authorities.
        socket: a Unix socket that every request goes to, whatever host its address names.
    """
    async with (
        _session(tls, socket, keep_open=True) as pooled,
        _session(tls, socket, keep_open=False) as unpooled,
    ):
        yield HttpService(pooled, unpooled)


def _session(
    tls: ssl.SSLContext | None, socket: Path | None, *, keep_open: bool
) -> aiohttp.ClientSession:
    connector: aiohttp.BaseConnector
    if socket is not None:
        connector = aiohttp.UnixConnector(str(socket), force_close=not keep_open)
    else:
        connector = aiohttp.TCPConnector(
            ssl=tls if tls is not None else new_tls_context(),
            limit=MAX_CONNECTIONS,
            force_close=not keep_open,
        )
    return new_session(
        aiohttp.ClientTimeout(total=None),
        connector=connector,
        response_class=_Response,
        headers={"accept-encoding": "identity"},
        auto_decompress=False,
        max_line_size=MAX_HEADER_BYTES,
        max_field_size=MAX_HEADER_BYTES,
    )


class _Response(aiohttp.ClientResponse):
    """A response that remembers whom its connection goes to.

    Once its body is read, the connection is back in the pool and the response knows it no more.
    """

    peer_certificate: bytes | None = None

    async def start(self, connection: Any) -> Self:
        """Read the head of the response."""
        tls = connection.transport.get_extra_info("ssl_object")
        self.peer_certificate = tls.getpeercert(binary_form=True) if tls is not None else None
        await super().start(connection)
        return self


def key_sha256(certificate: bytes) -> bytes:
    """Return SHA-256 of the SubjectPublicKeyInfo of a DER certificate."""
    key = x509.load_der_x509_certificate(certificate).public_key()
    return hashlib.sha256(
        key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    ).digest()


def _peer_key(response: aiohttp.ClientResponse) -> bytes | None:
    certificate = getattr(response, "peer_certificate", None)
    if certificate is None:
        return None
    try:
        return key_sha256(certificate)
    except ValueError:
        raise EvidenceUnavailable("the server's certificate cannot be read") from None
