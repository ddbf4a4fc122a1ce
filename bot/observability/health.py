"""Health over HTTP: `/healthz`, `/readyz` and `/metrics`.

Health is a mapping from a name to a check that is handed in: the server knows no component. Each
connection serves one request and lives for a few seconds, so clients that are slow, silent or
many cannot take the descriptors that Signal and the model need.
"""

import asyncio
import logging
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from functools import partial
from ipaddress import ip_address
from typing import Final, cast

import structlog
from aiohttp import web

from bot.errors import BotError
from bot.observability.health_client import host_and_port
from conversation_store.connections import StoreError
from conversation_store.store import ConversationStore

BACKLOG: Final = 1024
MAX_CONNECTIONS: Final = 32
HEAD_SECONDS: Final = 5.0
"""From opening a connection to the end of the request's head."""
CONNECTION_SECONDS: Final = 20.0
"""From opening a connection to the last byte of its answer."""
CHECK_SECONDS: Final = 5.0
"""A check that takes longer counts as not ok."""
PING_SECONDS: Final = 3.0
"""For a write of the store."""
GRACE_SECONDS: Final = 1.0
"""For running requests to end when the server stops."""
_METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_HOST: Final = re.compile(r"(?P<host>\[[^\[\]\s]+\]|[^\[\]:@/,\s]+)(?::[0-9]{1,5})?")

# aiohttp logs every malformed request of a stranger with a traceback.
_silent: Final = logging.getLogger("aiohttp.health")
_silent.setLevel(logging.CRITICAL + 1)

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Health:
    """State of a part; `detail` is a sentence for operators, without anything about people."""

    ok: bool
    detail: str


Check = Callable[[], Awaitable[Health]]


@asynccontextmanager
async def health_server(
    *,
    listen: str,
    checks: Mapping[str, Check],
    metrics: Callable[[], Awaitable[bytes]],
) -> AsyncIterator[int]:
    """Serve health and metrics while the context is open, and yield the port.

    Args:
        listen: `host:port`, an IPv6 address in brackets; port 0 takes a free one. The server
            answers requests that name this host, `localhost` or a loopback address, or any
            address if it listens everywhere.
        checks: asked by `/readyz`, all at once.
        metrics: Prometheus's text format; must have a bound of its own.

    Raises:
        BotError: the address cannot be listened on.
    """
    host, port = host_and_port(listen)

    async def alive() -> web.Response:
        return web.Response(text="ok\n")

    async def exposition() -> web.Response:
        return web.Response(body=await metrics(), headers={"content-type": _METRICS_TYPE})

    readiness = partial(_readiness, checks)
    server = _Server(
        host.lower(), {"/healthz": alive, "/readyz": readiness, "/metrics": exposition}
    )
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family)
    except OSError as error:
        reason = (error.strerror or type(error).__name__).partition(" (")[0]  # Python's addition
        raise BotError(f"HEALTH__LISTEN: {listen} cannot be listened on: {reason}") from error
    # asyncio accepts `backlog` connections at once; if no descriptor is left, it logs as often.
    listening = await asyncio.get_running_loop().create_server(server, sock=listener, backlog=1)
    listener.listen(BACKLOG)
    try:
        yield listener.getsockname()[1]
    finally:
        listening.close()
        await server.shutdown(GRACE_SECONDS)


class _Server(web.Server):
    """Answers requests for its own host on bounded connections.

    Attributes:
        waiting: connections that wait for their clients, the oldest first.
    """

    def __init__(
        self, host: str, answers: Mapping[str, Callable[[], Awaitable[web.Response]]]
    ) -> None:
        super().__init__(self._handle)
        self.waiting: dict[_Connection, None] = {}
        self._host = host
        self._answers = answers

    def __call__(self) -> web.RequestHandler:
        return _Connection(self)

    async def _handle(self, request: web.BaseRequest) -> web.Response:
        connection = cast("_Connection", request.protocol)
        connection.head_timer.cancel()
        self.waiting.pop(connection, None)
        try:
            response = await self._answer(request)
        except Exception:  # the boundary: one request's bug is that request's answer
            log.exception("health.answer_failed")
            response = web.Response(status=500)
        if connection.transport is not None:  # the client may have gone in the meantime
            self.waiting[connection] = None
        response.headers["server"] = "signal-tee-bot"  # instead of aiohttp's version
        response.force_close()
        return response

    async def _answer(self, request: web.BaseRequest) -> web.Response:
        # A stranger's page may send a browser here under a name of its own (DNS rebinding).
        host = _HOST.fullmatch(request.headers.get("host", ""))
        if host is None:
            return web.Response(status=400)
        if not self._is_ours(host["host"].strip("[]").lower()):
            return web.Response(status=421)
        answer = self._answers.get(request.path)
        if answer is None:
            return web.Response(status=404)
        if request.method != "GET":
            return web.Response(status=405, headers={"allow": "GET"})
        return await answer()

    def _is_ours(self, host: str) -> bool:
        if host in {self._host, "localhost"}:
            return True
        try:
            return ip_address(host).is_loopback or ip_address(self._host).is_unspecified
        except ValueError:
            return False


class _Connection(web.RequestHandler):
    """Closes in time; beyond the limit, the oldest waiting connection closes."""

    __slots__ = ("_server", "_timer", "head_timer")

    def __init__(self, server: _Server) -> None:
        loop = asyncio.get_running_loop()
        super().__init__(server, loop=loop, access_log=_silent, logger=_silent)
        self._server = server
        self._timer = loop.call_later(CONNECTION_SECONDS, self.abort)
        self.head_timer = loop.call_later(HEAD_SECONDS, self.abort)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        waiting = self._server.waiting
        waiting[self] = None
        if len(self._server.connections) > MAX_CONNECTIONS:
            oldest = next(iter(waiting))
            del waiting[oldest]
            oldest.abort()

    def abort(self) -> None:
        """Close without waiting for the client to read its answer."""
        transport = self.transport
        self.force_close()
        if transport is not None:
            transport.abort()

    def connection_lost(self, exc: BaseException | None) -> None:
        self.head_timer.cancel()
        self._timer.cancel()
        self._server.waiting.pop(self, None)
        super().connection_lost(exc)


async def _readiness(checks: Mapping[str, Check]) -> web.Response:
    async with asyncio.TaskGroup() as tasks:
        running = {name: tasks.create_task(_bounded(name, check)) for name, check in checks.items()}
    found = {name: task.result() for name, task in running.items()}
    ok = all(health.ok for health in found.values())
    answer = {"ok": ok, "checks": {name: asdict(health) for name, health in found.items()}}
    return web.json_response(answer, status=200 if ok else 503)


async def _bounded(name: str, check: Check) -> Health:
    try:
        async with asyncio.timeout(CHECK_SECONDS):
            return await check()
    except TimeoutError:
        return Health(ok=False, detail=f"No answer within {CHECK_SECONDS:g} seconds.")
    except Exception:  # the boundary: one part's broken check must not hide the other parts
        log.exception("health.check_failed", part=name)
        return Health(ok=False, detail="The check itself failed; the log says where.")


async def store_health(store: ConversationStore) -> Health:
    """Return whether the store takes writes."""
    # A refused write waits in the store's queue, so no ping is added to it.
    if store.refusal is None:
        try:
            async with asyncio.timeout(PING_SECONDS):
                await store.upkeep.ping()
        except StoreError as error:
            return Health(ok=False, detail=str(error))
        except TimeoutError:
            if store.refusal is None:
                return Health(ok=False, detail=f"No write within {PING_SECONDS:g} seconds.")
    if store.refusal is not None:
        message = f"Nothing can be stored: {store.refusal}. No message is taken until it can."
        return Health(ok=False, detail=message)
    return Health(ok=True, detail="Stores messages.")
