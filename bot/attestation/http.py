"""HTTP client for evidence: bounded, without redirects, proxies or cookies."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import aiohttp
from yarl import URL

from bot.attestation.errors import AnswerTooLong, EvidenceUnavailable
from bot.attestation.pinning import key_sha256
from tools.http import new_session, new_tls_context, whole_body

MAX_CONNECTIONS: Final = 16
MAX_RETRY_AFTER_SECONDS: Final = 3600.0
MAX_HEADER_BYTES: Final = 64 * 1024
"""Intel's certificate chains come as headers."""


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """Answer of a service.

    Attributes:
        headers: by name, in any case.
        peer_key_sha256: SHA-256 of the SubjectPublicKeyInfo of the TLS peer on the answer's
            connection; None without TLS.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes
    peer_key_sha256: bytes | None

    @property
    def retry_after_seconds(self) -> float | None:
        """Pause that the service asks for (RFC 9110, 10.2.3), at most an hour; None for dates."""
        said = self.headers.get("retry-after", "").strip()
        if not (said.isascii() and said.isdecimal()):
            return None
        return min(float(said), MAX_RETRY_AFTER_SECONDS)


@dataclass(frozen=True, slots=True)
class HttpService:
    """Asks services, each request over a new connection. Made by `open_http`.

    The machine behind a name, and its TLS key, may change between two requests.
    """

    session: aiohttp.ClientSession

    async def ask(
        self,
        method: str,
        url: str,
        *,
        seconds: float,
        max_bytes: int,
        api_key: str | None = None,
        json: object = None,
    ) -> HttpAnswer:
        """Send one request and return its answer, of any status.

        Args:
            seconds: from the connection to the last byte.
        """
        headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
        try:
            async with (
                asyncio.timeout(seconds),
                self.session.request(
                    method,
                    URL(url, encoded=True),
                    headers=headers,
                    json=json,
                    allow_redirects=False,
                ) as response,
            ):
                too_long = AnswerTooLong("the answer is longer than this program reads")
                body = await whole_body(response, max_bytes, too_long)
                return HttpAnswer(response.status, response.headers, body, _peer_key(response))
        except TimeoutError:
            raise EvidenceUnavailable("no answer in time") from None
        except aiohttp.ClientConnectorError:
            raise EvidenceUnavailable("there is no connection to it") from None
        except (aiohttp.ClientError, OSError):
            # OSError: a TLS record was damaged on its way.
            raise EvidenceUnavailable("the connection broke") from None


@asynccontextmanager
async def open_http(
    *, tls: ssl.SSLContext | None = None, socket: Path | None = None
) -> AsyncIterator[HttpService]:
    """Provide HTTP inside the block.

    Args:
        tls: context with trusted certificates; None: the usual certificate authorities.
        socket: Unix socket for every request, for any host in its address.
    """
    connector: aiohttp.BaseConnector
    if socket is not None:
        connector = aiohttp.UnixConnector(str(socket), force_close=True)
    else:
        tls = tls if tls is not None else new_tls_context()
        connector = aiohttp.TCPConnector(ssl=tls, limit=MAX_CONNECTIONS, force_close=True)
    async with new_session(
        aiohttp.ClientTimeout(total=None),
        connector=connector,
        response_class=_Response,
        headers={"accept-encoding": "identity"},
        auto_decompress=False,
        max_line_size=MAX_HEADER_BYTES,
        max_field_size=MAX_HEADER_BYTES,
    ) as session:
        yield HttpService(session)


class _Response(aiohttp.ClientResponse):
    """Response with the certificate of its peer.

    After the body is read, the connection is back in the pool and lost to the response.
    """

    peer_certificate: bytes | None = None

    async def start(self, connection: Any) -> Self:
        """Read the head of the response."""
        tls = connection.transport.get_extra_info("ssl_object")
        self.peer_certificate = tls.getpeercert(binary_form=True) if tls is not None else None
        await super().start(connection)
        return self


def _peer_key(response: aiohttp.ClientResponse) -> bytes | None:
    certificate = getattr(response, "peer_certificate", None)
    if certificate is None:
        return None
    try:
        return key_sha256(certificate)
    except ValueError:
        raise EvidenceUnavailable("the server's certificate cannot be read") from None
