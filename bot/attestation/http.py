"""HTTP to the services that evidence comes from: bounded, without redirects, proxies or cookies."""

import asyncio
import hashlib
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http.cookiejar import CookieJar, DefaultCookiePolicy
from pathlib import Path
from typing import Any, Final

import httpx
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from bot.attestation.errors import EvidenceUnavailable

IDLE_CONNECTIONS: Final = 2
SILENCE_SECONDS: Final = 60.0
"""Beside the bound that each request has of its own."""


@dataclass(frozen=True, slots=True)
class Answer:
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


class HttpService:
    """Asks services over connections of its own. Made by `open_http`."""

    def __init__(self, client: httpx.AsyncClient, unpooled: httpx.AsyncClient) -> None:
        self._client = client
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
    ) -> Answer:
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
        client = self._unpooled if own_connection else self._client
        try:
            async with (
                asyncio.timeout(seconds),
                client.stream(method, url, headers=headers, json=json) as response,
            ):
                body = await _bounded(response, max_bytes)
                return Answer(response.status_code, response.headers, body, _peer_key(response))
        except (TimeoutError, httpx.TimeoutException):
            raise EvidenceUnavailable("no answer in time") from None
        except httpx.ConnectError:
            raise EvidenceUnavailable("there is no connection to it") from None
        except (httpx.HTTPError, OSError):
            # OSError: a TLS record that was damaged on its way, which httpx passes on as it is.
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
    context = tls if tls is not None else new_tls_context()
    async with (
        _client(context, socket, IDLE_CONNECTIONS) as client,
        _client(context, socket, 0) as unpooled,
    ):
        yield HttpService(client, unpooled)


def _client(context: ssl.SSLContext, socket: Path | None, idle: int) -> httpx.AsyncClient:
    transport = httpx.AsyncHTTPTransport(
        verify=context,
        trust_env=False,
        limits=httpx.Limits(max_keepalive_connections=idle),
        uds=str(socket) if socket is not None else None,
    )
    return httpx.AsyncClient(
        transport=transport,
        headers={"accept-encoding": "identity"},
        # httpx keeps cookies, and has no switch for it: a jar that takes them from nobody.
        cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())),
        timeout=SILENCE_SECONDS,
        trust_env=False,
    )


def new_tls_context() -> ssl.SSLContext:
    """Return a context that believes the usual authorities, whatever the environment names."""
    context = httpx.create_ssl_context(trust_env=False)
    # Python writes the keys of sessions where SSLKEYLOGFILE says; None, which typeshed does not
    # know, ends that.
    context.keylog_filename = None  # type: ignore[assignment]
    return context


def key_sha256(certificate: bytes) -> bytes:
    """Return SHA-256 of the SubjectPublicKeyInfo of a DER certificate."""
    key = x509.load_der_x509_certificate(certificate).public_key()
    return hashlib.sha256(
        key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    ).digest()


async def _bounded(response: httpx.Response, max_bytes: int) -> bytes:
    body = bytearray()
    async for piece in response.aiter_raw():
        body += piece
        if len(body) > max_bytes:
            raise EvidenceUnavailable("the answer is longer than this program reads")
    return bytes(body)


def _peer_key(response: httpx.Response) -> bytes | None:
    stream: Any = response.extensions["network_stream"]
    tls: ssl.SSLObject | None = stream.get_extra_info("ssl_object")
    certificate = tls.getpeercert(binary_form=True) if tls is not None else None
    if certificate is None:
        return None
    try:
        return key_sha256(certificate)
    except ValueError:
        raise EvidenceUnavailable("the server's certificate cannot be read") from None
