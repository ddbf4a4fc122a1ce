"""Health over HTTP: `/healthz`, `/readyz` and `/metrics`.

Health is a mapping from a name to a check that is handed in: the server knows no component.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from functools import partial
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final

import structlog

from bot.observability.http_handlers import Request, Response, for_hosts, host_and_port, routes
from bot.observability.http_server import Limits, serve

CHECK_SECONDS: Final = 5.0

LIMITS: Final = Limits(connections=32, head_seconds=5.0, idle_seconds=60.0, write_seconds=5.0)
"""Whoever asks for health, however often, leaves descriptors for Signal and the model."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Health:
    """How a part is; `detail` is a plain sentence for operators, without anything about people."""

    ok: bool
    detail: str


Check = Callable[[], Awaitable[Health]]


@asynccontextmanager
async def health_server(
    *,
    listen: str,
    checks: Mapping[str, Check],
    metrics: Callable[[], Awaitable[bytes]],
    check_seconds: float = CHECK_SECONDS,
) -> AsyncIterator[int]:
    """Serve health and metrics while the context is open, and yield the port.

    Args:
        listen: `host:port`, an IPv6 address in brackets; port 0 takes a free one. Requests are
            answered that name this host, `localhost` or a loopback address, and any address where
            the server listens everywhere.
        checks: what `/readyz` asks, all at once.
        metrics: Prometheus's text format; answers within a bound of its own.
        check_seconds: a check that takes longer counts as not ok.

    Raises:
        OSError: the address cannot be listened on.
    """
    host, port = host_and_port(listen)

    async def alive(_: Request) -> Response:
        return Response(200, b"ok\n")

    async def ready(_: Request) -> Response:
        return await _readiness(checks, check_seconds)

    async def exposition(_: Request) -> Response:
        return Response(200, await metrics(), "text/plain; version=0.0.4; charset=utf-8")

    handler = routes(
        {("GET", "/healthz"): alive, ("GET", "/readyz"): ready, ("GET", "/metrics"): exposition}
    )
    guarded = for_hosts(partial(_is_ours, host.lower()), handler)
    async with serve(guarded, host=host, port=port, limits=LIMITS) as bound_port:
        yield bound_port


def _is_ours(listened: str, asked: str) -> bool:
    """Whether a request for a host is meant for whoever listens there."""
    if asked in {listened, "localhost"}:
        return True
    own, address = _address(listened), _address(asked)
    if address is None:
        return False
    return address == own or address.is_loopback or (own is not None and own.is_unspecified)


def _address(host: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


async def _readiness(checks: Mapping[str, Check], seconds: float) -> Response:
    async with asyncio.TaskGroup() as tasks:
        running = {
            name: tasks.create_task(_bounded(name, check, seconds))
            for name, check in checks.items()
        }
    found = {name: task.result() for name, task in running.items()}
    ok = all(health.ok for health in found.values())
    answer = {"ok": ok, "checks": {name: asdict(health) for name, health in found.items()}}
    return Response(200 if ok else 503, json.dumps(answer).encode(), "application/json")


async def _bounded(name: str, check: Check, seconds: float) -> Health:
    try:
        async with asyncio.timeout(seconds):
            return await check()
    except TimeoutError:
        return Health(ok=False, detail=f"No answer within {seconds:g} seconds.")
    except Exception:  # the boundary: one part's broken check must not hide the other parts
        log.exception("health.check_failed", part=name)
        return Health(ok=False, detail="The check itself failed; the log says where.")
