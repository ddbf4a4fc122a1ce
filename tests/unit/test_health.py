"""The health endpoints over HTTP."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from typing import Final

import pytest
from structlog.testing import capture_logs

from bot.observability.health import MAX_CONNECTIONS, Check, Health, health_server
from bot.observability.metrics import measured

BOUND_SECONDS: Final = 30.0
LONG_BYTES: Final = 64 * 2**20


async def fine() -> Health:
    return Health(ok=True, detail="Connected.")


async def hanging() -> Health:
    await asyncio.Event().wait()
    return await fine()


async def broken() -> Health:
    raise ValueError("+4915100000000")


def serving(
    checks: Mapping[str, Check] | None = None,
    *,
    listen: str = "127.0.0.1:0",
    metrics: Callable[[], Awaitable[bytes]] = measured,
) -> AbstractAsyncContextManager[int]:
    return health_server(listen=listen, checks=checks or {}, metrics=metrics)


@asynccontextmanager
async def connection(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.close()


async def exchange(port: int, sent: bytes) -> bytes:
    """Send bytes and return everything until the server closes."""
    async with connection(port) as (reader, writer), asyncio.timeout(BOUND_SECONDS):
        writer.write(sent)
        return await reader.read()


async def asked(port: int, path: str, host: str | None = "localhost", method: str = "GET") -> bytes:
    line = "" if host is None else f"Host: {host}\r\n"
    return await exchange(
        port, f"{method} {path} HTTP/1.1\r\n{line}Connection: close\r\n\r\n".encode()
    )


class Busy:
    """Check that waits until its test lets it finish."""

    def __init__(self) -> None:
        self.started, self.go_on = asyncio.Event(), asyncio.Event()

    async def check(self) -> Health:
        self.started.set()
        await self.go_on.wait()
        return await fine()


async def test_a_check_that_hangs_or_breaks_is_not_ok_and_hides_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bot.observability.health.CHECK_SECONDS", 0.05)
    everybody_is_here = asyncio.Barrier(2)

    async def meeting() -> Health:
        await everybody_is_here.wait()
        return await fine()

    checks = {"llm": hanging, "tools": broken, "store": meeting, "signal": meeting}
    with capture_logs() as logs:
        async with serving(checks) as port:
            answer = await asked(port, "/readyz")
            alive = await asked(port, "/healthz")
    assert answer.startswith(b"HTTP/1.1 503")
    assert b'"llm": {"ok": false, "detail": "No answer within 0.05 seconds."}' in answer
    assert b'"tools": {"ok": false' in answer
    assert answer.count(b'{"ok": true, "detail": "Connected."}') == 2
    assert alive.startswith(b"HTTP/1.1 200")
    assert b"+49" not in answer
    assert [(entry["event"], entry["part"]) for entry in logs] == [("health.check_failed", "tools")]


@pytest.mark.parametrize(
    ("listen", "host", "status"),
    [
        ("127.0.0.1:0", "127.0.0.1", 200),
        ("127.0.0.1:0", "127.0.0.1:8081", 200),
        ("127.0.0.1:0", "LocalHost:1", 200),
        ("127.0.0.1:0", "[::1]:8081", 200),
        ("localhost:0", "localhost", 200),
        ("0.0.0.0:0", "192.0.2.7:8081", 200),
        ("127.0.0.1:0", "192.0.2.7:8081", 421),
        ("127.0.0.1:0", "evil.example", 421),
        ("127.0.0.1:0", "127.0.0.1.evil.example", 421),
        ("127.0.0.1:0", "localhost.evil.example:8081", 421),
        ("127.0.0.1:0", "2130706433", 421),
        ("0.0.0.0:0", "evil.example:8081", 421),
        ("0.0.0.0:0", "bot", 421),
        ("127.0.0.1:0", "", 400),
        ("127.0.0.1:0", "127.0.0.1, evil.example", 400),
        ("127.0.0.1:0", "evil.example@127.0.0.1", 400),
        ("127.0.0.1:0", "127.0.0.1:x", 400),
        ("127.0.0.1:0", "[::1", 400),
        ("127.0.0.1:0", None, 400),
    ],
)
async def test_only_requests_for_the_bot_itself_are_answered(
    listen: str, host: str | None, status: int
) -> None:
    async with serving(listen=listen) as port:
        for path in ("/healthz", "/readyz", "/metrics", "/nothing"):
            answer = await asked(port, path, host)
            expected = 404 if path == "/nothing" and status == 200 else status
            assert answer.split()[1] == str(expected).encode()


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET /readyz HTTP",
        b"POST /readyz HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\nhalf",
        b"nonsense\r\n\r\n",
    ],
)
async def test_connections_that_wait_for_their_clients_block_no_others(sent: bytes) -> None:
    async with serving({"store": fine}) as port, AsyncExitStack() as opened:
        for number in range(2 * MAX_CONNECTIONS + 1):
            _, writer = await opened.enter_async_context(connection(port))
            writer.write(sent)
            if number % MAX_CONNECTIONS == 0:
                assert (await asked(port, "/readyz")).startswith(b"HTTP/1.1 200")


async def test_connection_beyond_the_limit_closes_while_all_others_are_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bot.observability.health.MAX_CONNECTIONS", 1)
    busy = Busy()
    async with serving({"busy": busy.check}) as port:
        first = asyncio.create_task(asked(port, "/readyz"))
        await busy.started.wait()
        assert await asked(port, "/readyz") == b""
        busy.go_on.set()
        assert (await first).startswith(b"HTTP/1.1 200")
        assert (await asked(port, "/readyz")).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("sent", [b"", b"G", b"GET / HTTP/1.1\r\nHost: a\r\n"])
async def test_unfinished_head_closes_the_connection(
    sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bot.observability.health.HEAD_SECONDS", 0.05)
    async with serving() as port:
        assert await exchange(port, sent) == b""


async def test_head_that_comes_byte_by_byte_has_no_more_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bot.observability.health.HEAD_SECONDS", 0.1)
    sent = 0
    async with (
        serving() as port,
        connection(port) as (reader, writer),
        asyncio.timeout(BOUND_SECONDS),
    ):
        ended = asyncio.create_task(reader.read())
        while not ended.done():
            writer.write(b"GET / HTTP/1.1\r\nX: "[sent : sent + 1] or b"x")
            sent += 1
            await asyncio.wait({ended}, timeout=0.01)
        with suppress(ConnectionResetError):  # a byte may still have been on its way
            assert ended.result() == b""
    assert sent > 1


async def test_client_that_does_not_read_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bot.observability.health.CONNECTION_SECONDS", 0.2)

    async def long() -> bytes:
        return bytes(LONG_BYTES)

    async with (
        serving(metrics=long) as port,
        connection(port) as (reader, writer),
        asyncio.timeout(BOUND_SECONDS),
    ):
        writer.write(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await reader.readexactly(1)
        await asyncio.sleep(0.3)  # a client that reads nothing
        with suppress(ConnectionResetError):
            assert len(await reader.read()) < LONG_BYTES


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\r\n\r\n",
        b"GET / HTTP/1.1\r\nno colon\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        b"GET / HTTP/1.1\r\nLong: " + b"x" * 20_000 + b"\r\n\r\n",
        b"x" * 100_000,
    ],
)
async def test_malformed_requests_are_refused_and_not_logged(sent: bytes) -> None:
    with capture_logs() as logs:
        async with (
            serving() as port,
            connection(port) as (reader, writer),
            asyncio.timeout(BOUND_SECONDS),
        ):
            writer.write(sent)
            assert (await reader.readline()).startswith(b"HTTP/1.0 400")
    assert logs == []


async def test_bug_in_a_handler_is_logged_without_its_text() -> None:
    async def broken_metrics() -> bytes:
        raise ValueError("+4915100000000")

    with capture_logs() as logs:
        async with serving(metrics=broken_metrics) as port:
            answer = await asked(port, "/metrics")
    assert answer.startswith(b"HTTP/1.1 500")
    assert b"+49" not in answer
    assert [entry["event"] for entry in logs] == ["health.answer_failed"]
