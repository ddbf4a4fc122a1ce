"""What a handler of the small HTTP server gets and gives, and how it is chosen."""

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final

_HOST: Final = re.compile(r"(?P<host>\[[^\[\]\s]+\]|[^\[\]:@/,\s]+)(?::[0-9]{1,5})?")


@dataclass(frozen=True, slots=True)
class Request:
    """A whole request; `path` is without the query, header names are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Response:
    """An answer; a body that is an iterator is streamed, piece by piece."""

    status: int
    body: bytes | AsyncIterator[bytes] = b""
    content_type: str = "text/plain; charset=utf-8"
    headers: Mapping[str, str] = field(default_factory=dict)


Handler = Callable[[Request], Awaitable[Response]]
"""Answers one request. How long it may take is its own business."""


def host_and_port(listen: str) -> tuple[str, int]:
    """Return what `host:port` says; an IPv6 address is in brackets there."""
    host, _, port = listen.rpartition(":")
    return host.strip("[]"), int(port)


def routes(handlers: Mapping[tuple[str, str], Handler]) -> Handler:
    """Return a handler that chooses by method and path, and answers 404 or 405 for the rest."""
    paths = {path for _, path in handlers}

    async def route(request: Request) -> Response:
        handler = handlers.get((request.method, request.path))
        if handler is not None:
            return await handler(request)
        if request.path not in paths:
            return plain(404)
        allowed = ", ".join(method for method, path in handlers if path == request.path)
        return plain(405, headers={"Allow": allowed})

    return route


def for_hosts(is_ours: Callable[[str], bool], handler: Handler) -> Handler:
    """Return a handler that only answers requests for hosts of this server (`Host`).

    A browser that a stranger's page has led here by a name of the stranger's sends that name (DNS
    rebinding). It is answered 421, and 400 where there is no such header or it makes no sense.

    Args:
        is_ours: told a name or an address in lower case, without port and brackets.
        handler: answers the others.
    """

    async def guarded(request: Request) -> Response:
        found = _HOST.fullmatch(request.headers.get("host", ""))
        if found is None:
            return plain(400)
        if not is_ours(found["host"].strip("[]").lower()):
            return plain(421)
        return await handler(request)

    return guarded


def plain(status: int, headers: Mapping[str, str] | None = None) -> Response:
    """Return an answer that only says its status in words."""
    return Response(status, phrase(status), headers=headers or {})


def phrase(status: int) -> bytes:
    """Return a status in words, as a line."""
    return f"{HTTPStatus(status).phrase}\n".encode()
