"""The health endpoints over HTTP."""

import asyncio
from contextlib import AsyncExitStack
from typing import Final

import httpx
import pytest
from structlog.testing import capture_logs

from bot.observability.health import LIMITS, Health, health_server
from bot.observability.health_client import ask
from bot.observability.metrics import exposition

BOUND_SECONDS: Final = 5.0


async def measured() -> bytes:
    return exposition()


async def fine() -> Health:
    return Health(ok=True, detail="Connected.")


async def down() -> Health:
    return Health(ok=False, detail="No connection.")


async def hanging() -> Health:
    await asyncio.Event().wait()
    return Health(ok=True, detail="")


async def broken() -> Health:
    raise ValueError("+4915100000000")


async def test_a_bot_whose_parts_are_all_well_is_ready() -> None:
    checks = {"signal": fine, "store": fine}
    async with (
        health_server(listen="127.0.0.1:0", checks=checks, metrics=measured) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client,
    ):
        answer = await client.get("/readyz")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    well = {"ok": True, "detail": "Connected."}
    assert answer.json() == {"ok": True, "checks": {"signal": well, "store": well}}


async def test_one_part_that_is_down_makes_the_bot_not_ready_but_alive() -> None:
    checks = {"signal": down, "store": fine}
    async with (
        health_server(listen="127.0.0.1:0", checks=checks, metrics=measured) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client,
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
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client,
    ):
        answer = await client.get("/readyz")
    assert answer.status_code == 200


async def test_a_check_that_hangs_or_breaks_is_not_ok_and_hides_no_other() -> None:
    checks = {"llm": hanging, "tools": broken, "store": fine}
    with capture_logs() as logs:
        async with (
            health_server(
                listen="127.0.0.1:0", checks=checks, metrics=measured, check_seconds=0.05
            ) as port,
            httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client,
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
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client,
    ):
        answer = await client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert "# TYPE signal_tee_bot_running_turns gauge" in answer.text


async def test_an_ipv6_address_is_written_in_brackets() -> None:
    async with (
        health_server(listen="[::1]:0", checks={}, metrics=measured) as port,
        httpx.AsyncClient(base_url=f"http://[::1]:{port}") as client,
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
            assert answer.startswith(f"HTTP/1.1 {expected} ".encode())


async def asked(port: int, path: str, host: str | None) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        line = "" if host is None else f"Host: {host}\r\n"
        writer.write(f"GET {path} HTTP/1.1\r\n{line}Connection: close\r\n\r\n".encode())
        async with asyncio.timeout(BOUND_SECONDS):
            return await reader.read()
    finally:
        writer.close()


async def test_half_open_connections_keep_nobody_from_asking() -> None:
    async with (
        health_server(listen="127.0.0.1:0", checks={"store": fine}, metrics=measured) as port,
        AsyncExitStack() as opened,
    ):
        for number in range(2 * LIMITS.connections):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            opened.callback(writer.close)
            writer.write(b"GET /readyz HTTP/1.1\r\nHost: " if number % 2 else b"")
        answer = await asked(port, "/readyz", "127.0.0.1")
    assert answer.startswith(b"HTTP/1.1 200")


async def test_the_bot_is_asked_by_the_name_that_it_listens_on() -> None:
    async with health_server(listen="localhost:0", checks={}, metrics=measured) as port:
        assert await ask(f"localhost:{port}", "/healthz") == b"ok\n"
