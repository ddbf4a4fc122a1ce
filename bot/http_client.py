"""What every outgoing connection of the bot has in common; each caller adds its own bounds.

On aiohttp and not on httpx's own pool. That one walks over all of its connections at every request
and asks the kernel about each idle one, and it parses HTTP in Python: measured on one core 2.0 ms
of CPU a request with 32 connections and 4.1 ms with 1,000, where aiohttp takes 0.1 to 0.2 ms. Its
connections also stay open behind a request that is cancelled during its TLS handshake (80 of 300
tries): a shutdown, or a bound of time, does just that.
"""

import ssl
from typing import Any

import aiohttp
import httpx


def new_tls_context() -> ssl.SSLContext:
    """Return a context that believes the usual authorities, whatever the environment names."""
    context = httpx.create_ssl_context(trust_env=False)
    # Python writes the keys of sessions where SSLKEYLOGFILE says; None, which typeshed does not
    # know, ends that.
    context.keylog_filename = None  # type: ignore[assignment]
    return context


def new_session(timeout: aiohttp.ClientTimeout, **settings: Any) -> aiohttp.ClientSession:
    """Return a session without cookies and without proxies; its owner closes it.

    Args:
        timeout: of its requests; aiohttp's own defaults are never used.
        settings: what else aiohttp's session takes.
    """
    return aiohttp.ClientSession(
        timeout=timeout, cookie_jar=aiohttp.DummyCookieJar(), trust_env=False, **settings
    )


async def whole_body(
    response: aiohttp.ClientResponse, max_bytes: int, too_long: Exception
) -> bytes:
    """Return the body.

    Raises:
        Exception: `too_long`, as soon as it has more than `max_bytes`.
    """
    body = bytearray()
    async for piece in response.content.iter_any():
        body += piece
        if len(body) > max_bytes:
            raise too_long
    return bytes(body)
