"""The health endpoints over HTTP."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Final

import httpx2
import pytest
from structlog.testing import capture_logs

from bot.errors import BotError
from bot.observability.health import MAX_CONNECTIONS, Health, health_server
from bot.observability.health_client import ask
from bot.observability.metrics import measured

BOUND_SECONDS: Final = 5.0


async def fine() -> Health:
    return Health(ok=True, detail="Connected.")


async def down() -> Health:
    return Health(ok=False, detail="No connection.")


async def hanging() -> Health:
    await asyncio.Event().wait()
    return Health(ok=True, detail="")


async def broken() -> Health:
    raise ValueError("+4915100000000")


async def test_bot_without_trouble_is_ready() -> None:
    checks = {"signal": fine, "store": fine}
    async with (
        health_server(listen="127.0.0.1:0", checks=checks, metrics=measured) as port,
        httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client,
    ):
        answer = await client.get("/readyz")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("application/json")
    well = {"ok": True, "detail": "Connected."}
    assert answer.json() == {"ok": True, "checks": {"signal": well, "store": well}}


async def test_bot_with_a_part_down_is_alive_but_not_ready() -> None:
    checks = {"signal": down, "store": fine}
    async with (
        health_server(listen="127.0.0.1:0", checks=checks, metrics=measured) as port,
        httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client,
    ):
        ready, alive = await client.get("/readyz"), await client.get("/healthz")
    assert (ready.status_code, alive.status_code) == (503, 200)
    assert ready.json() == {
        "ok": False,
        "checks": {
            "signal": {"ok": False, "detail": "No connection."},
            "store": {"ok": True, "detail": "Connected."},
        },
    }


async def test_checks_run_at_once() -> None:
    everybody_is_here = asyncio.Barrier(2)

    async def meeting() -> Health:
        await everybody_is_here.wait()
        return Health(ok=True, detail="Met.")

    checks = {"signal": meeting, "llm": meeting}
    async with (
        health_server(listen="127.0.0.1:0", checks=checks, metrics=measured) as port,
        httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client,
    ):
        answer = await client.get("/readyz")
    assert answer.status_code == 200


async def test_a_check_that_hangs_or_breaks_is_not_ok_and_hides_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bot.observability.health.CHECK_SECONDS", 0.05)
    checks = {"llm": hanging, "tools": broken, "store": fine}
    with capture_logs() as logs:
        async with (
            health_server(listen="127.0.0.1:0", checks=checks, metrics=measured) as port,
            httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client,
        ):
            answer = await client.get("/readyz")
    found = {name: check["ok"] for name, check in answer.json()["checks"].items()}
    assert answer.status_code == 503
    assert found == {"llm": False, "tools": False, "store": True}
    assert answer.json()["checks"]["llm"]["detail"] == "No answer within 0.05 seconds."
    assert "+49" not in answer.text
    assert [(entry["event"], entry["part"]) for entry in logs] == [("health.check_failed", "tools")]


async def test_metrics_are_prometheus_text() -> None:
    async with (
        health_server(listen="127.0.0.1:0", checks={}, metrics=measured) as port,
        httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client,
    ):
        answer = await client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert "# TYPE signal_tee_bot_running_turns gauge" in answer.text


async def test_an_ipv6_address_is_written_in_brackets() -> None:
    async with (
        health_server(listen="[::1]:0", checks={}, metrics=measured) as port,
        httpx2.AsyncClient(base_url=f"http://[::1]:{port}") as client,
    ):
        assert (await client.get("/healthz")).text == "ok\n"


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
    async with health_server(listen=listen, checks={}, metrics=measured) as port:
        for path in ("/healthz", "/readyz", "/metrics", "/nothing"):
            answer = await asked(port, path, host)
            expected = 404 if path == "/nothing" and status == 200 else status
            assert answer.split()[1] == str(expected).encode()


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


async def asked(port: int, path: str, host: str | None) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        line = "" if host is None else f"Host: {host}\r\n"
        writer.write(f"GET {path} HTTP/1.1\r\n{line}Connection: close\r\n\r\n".encode())
        async with asyncio.timeout(BOUND_SECONDS):
            return await reader.read()
    finally:
        writer.close()


WAITING: Final = (
    b"",
    b"GET /readyz HTTP",
    b"POST /readyz HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\nhalf",
    b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    b"nonsense\r\n\r\n",
)
"""Requests of clients that then keep the server waiting."""


@pytest.mark.parametrize("sent", WAITING)
async def test_connections_that_wait_for_their_clients_block_no_others(sent: bytes) -> None:
    async with (
        health_server(listen="127.0.0.1:0", checks={"store": fine}, metrics=measured) as port,
        AsyncExitStack() as opened,
    ):
        for number in range(2 * MAX_CONNECTIONS + 1):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            opened.callback(writer.close)
            writer.write(sent)
            if number % MAX_CONNECTIONS == 0:
                answer = await asked(port, "/readyz", "127.0.0.1")
                assert answer.startswith(b"HTTP/1.1 200")


async def test_oldest_waiting_connection_closes_for_a_new_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bot.observability.health.MAX_CONNECTIONS", 2)
    async with (
        health_server(listen="127.0.0.1:0", checks={}, metrics=measured) as port,
        connection(port) as (oldest, _),
        connection(port) as (newer, writer),
        connection(port) as (_, _),
        asyncio.timeout(BOUND_SECONDS),
    ):
        assert await oldest.read() == b""
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert (await newer.read()).startswith(b"HTTP/1.1 200")


async def test_clients_that_leave_before_their_answer_take_no_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bot.observability.health.MAX_CONNECTIONS", 2)
    monkeypatch.setattr("bot.observability.health.HEAD_SECONDS", BOUND_SECONDS * 10)
    asked, proceed, answered = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def slow() -> Health:
        asked.set()
        await proceed.wait()
        answered.set()
        return await fine()

    async with (
        health_server(listen="127.0.0.1:0", checks={"store": slow}, metrics=measured) as port,
        asyncio.timeout(BOUND_SECONDS),
    ):
        _, leaves = await asyncio.open_connection("127.0.0.1", port)
        leaves.write(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await asked.wait()
        leaves.transport.abort()
        for _ in range(50):  # until the server has seen that, on loopback
            await asyncio.sleep(0)
        proceed.set()
        await answered.wait()
        oldest, *others = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
        assert await oldest[0].read() == b""
        for _, writer in (oldest, *others):
            writer.close()


async def test_connection_beyond_the_limit_closes_while_all_others_are_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bot.observability.health.MAX_CONNECTIONS", 1)
    started, go_on = asyncio.Event(), asyncio.Event()

    async def slow() -> Health:
        started.set()
        await go_on.wait()
        return Health(ok=True, detail="")

    async with health_server(
        listen="127.0.0.1:0",
        checks={"slow": slow},
        metrics=measured,
    ) as port:
        first = asyncio.create_task(asked(port, "/readyz", "localhost"))
        await started.wait()
        assert await asked(port, "/readyz", "localhost") == b""
        go_on.set()
        assert (await first).startswith(b"HTTP/1.1 200")
        assert (await asked(port, "/readyz", "localhost")).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("sent", [b"", b"G", b"GET / HTTP/1.1\r\nHost: a\r\n"])
async def test_unfinished_head_closes_the_connection(
    sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bot.observability.health.HEAD_SECONDS", 0.05)
    async with health_server(listen="127.0.0.1:0", checks={}, metrics=measured) as port:
        assert await exchange(port, sent) == b""


async def test_head_that_comes_byte_by_byte_has_no_more_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bot.observability.health.HEAD_SECONDS", 0.1)
    sent = 0
    async with (
        health_server(listen="127.0.0.1:0", checks={}, metrics=measured) as port,
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


async def test_client_that_does_not_read_is_disconnected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bot.observability.health.CONNECTION_SECONDS", 0.2)

    async def long() -> bytes:
        return bytes(64 * 2**20)

    async with (
        health_server(listen="127.0.0.1:0", checks={}, metrics=long) as port,
        connection(port) as (reader, writer),
        asyncio.timeout(BOUND_SECONDS),
    ):
        writer.write(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await reader.readexactly(1)
        await asyncio.sleep(0.3)  # a client that reads nothing
        with suppress(ConnectionResetError):
            assert len(await reader.read()) < 64 * 2**20


async def test_each_connection_serves_one_request() -> None:
    request = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    async with health_server(listen="127.0.0.1:0", checks={}, metrics=measured) as port:
        answers = await exchange(port, request * 3)
    assert answers.count(b"HTTP/1.1 200 OK") == 1
    assert b"Connection: close" in answers


@pytest.mark.parametrize(
    "sent",
    [
        b"nonsense\r\n\r\n",
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
            health_server(listen="127.0.0.1:0", checks={}, metrics=measured) as port,
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
        async with health_server(listen="127.0.0.1:0", checks={}, metrics=broken_metrics) as port:
            answer = await asked(port, "/metrics", "localhost")
    assert answer.startswith(b"HTTP/1.1 500")
    assert b"+49" not in answer
    assert [entry["event"] for entry in logs] == ["health.answer_failed"]


@pytest.mark.parametrize(("path", "status"), [("/healthz", b"405"), ("/other", b"404")])
async def test_other_methods_and_paths_are_refused(path: str, status: bytes) -> None:
    async with health_server(listen="127.0.0.1:0", checks={}, metrics=measured) as port:
        answer = await exchange(port, f"DELETE {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 " + status)


async def test_stopping_lets_a_running_request_end_and_closes_idle_connections() -> None:
    started, go_on = asyncio.Event(), asyncio.Event()

    async def slow() -> Health:
        started.set()
        await go_on.wait()
        return Health(ok=True, detail="")

    server = health_server(listen="127.0.0.1:0", checks={"slow": slow}, metrics=measured)
    port = await server.__aenter__()
    async with connection(port) as (idle, _), asyncio.timeout(BOUND_SECONDS):
        busy = asyncio.create_task(asked(port, "/readyz", "localhost"))
        await started.wait()
        stopping = asyncio.create_task(server.__aexit__(None, None, None))
        assert await idle.read() == b""
        assert not stopping.done()
        go_on.set()
        assert (await busy).startswith(b"HTTP/1.1 200")
        await stopping
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)


async def test_error_inside_the_context_leaves_it_unwrapped() -> None:
    with pytest.raises(LookupError, match="of the program"):
        async with health_server(listen="127.0.0.1:0", checks={}, metrics=measured):
            raise LookupError("of the program")


async def test_taken_address_is_an_error_that_names_the_setting() -> None:
    async with health_server(listen="127.0.0.1:0", checks={}, metrics=measured) as port:
        with pytest.raises(BotError, match="in use"):
            async with health_server(listen=f"127.0.0.1:{port}", checks={}, metrics=measured):
                pass


async def test_the_bot_is_asked_by_the_name_that_it_listens_on() -> None:
    async with health_server(listen="localhost:0", checks={}, metrics=measured) as port:
        assert await ask(f"localhost:{port}", "/healthz") == b"ok\n"
