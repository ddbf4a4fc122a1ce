"""The small HTTP server, seen from a client's side of the socket."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Final

import httpx
import pytest
from structlog.testing import capture_logs

from bot.observability.http_handlers import Request, Response, routes
from bot.observability.http_server import Limits, serve

BOUND_SECONDS = 5.0


async def echo(request: Request) -> Response:
    return Response(200, request.body, "application/octet-stream", {"X-Path": request.path})


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


async def test_a_request_reaches_the_handler_and_its_answer_the_client() -> None:
    async with serve(echo, host="127.0.0.1", port=0) as port, httpx.AsyncClient() as client:
        answer = await client.post(f"http://127.0.0.1:{port}/some/where?q=1", content=b"hello")
    assert (answer.status_code, answer.content) == (200, b"hello")
    assert answer.headers["x-path"] == "/some/where"
    assert answer.headers["content-type"] == "application/octet-stream"


async def test_a_connection_is_kept_for_the_next_request_also_when_they_come_at_once() -> None:
    pair = (
        b"POST /a HTTP/1.1\r\nContent-Length: 3\r\n\r\none"
        b"POST /b HTTP/1.1\r\nContent-Length: 3\r\nConnection: close\r\n\r\ntwo"
    )
    async with serve(echo, host="127.0.0.1", port=0) as port:
        answers = await exchange(port, pair)
    assert answers.count(b"HTTP/1.1 200 OK") == 2
    assert answers.index(b"one") < answers.index(b"two")


async def test_a_stream_arrives_piece_by_piece_and_the_connection_goes_on() -> None:
    seen = asyncio.Event()

    async def pieces() -> AsyncIterator[bytes]:
        yield b"first "
        await seen.wait()
        yield b""
        yield b"second"

    async def stream(_: Request) -> Response:
        return Response(200, pieces(), "text/event-stream")

    async with serve(stream, host="127.0.0.1", port=0) as port, httpx.AsyncClient() as client:
        for _ in range(2):
            seen.clear()
            async with client.stream("GET", f"http://127.0.0.1:{port}/") as answer:
                body = answer.aiter_raw()
                assert await anext(body) == b"first "
                seen.set()
                assert [piece async for piece in body] == [b"second"]


async def test_an_old_client_gets_a_stream_that_ends_with_the_connection() -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"first "
        yield b"second"

    async def stream(_: Request) -> Response:
        return Response(200, pieces())

    async with serve(stream, host="127.0.0.1", port=0) as port:
        answer = await exchange(port, b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
    assert answer.endswith(b"\r\n\r\nfirst second")
    assert b"chunked" not in answer


async def test_a_head_request_is_answered_without_a_body() -> None:
    async with serve(routes({}), host="127.0.0.1", port=0) as port:
        answer = await exchange(port, b"HEAD / HTTP/1.1\r\nConnection: close\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 404 Not Found\r\n")
    assert answer.endswith(b"\r\n\r\n")


async def test_a_client_that_asks_first_is_told_to_go_on() -> None:
    head = b"POST / HTTP/1.1\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n"
    async with (
        serve(echo, host="127.0.0.1", port=0) as port,
        connection(port) as (reader, writer),
        asyncio.timeout(BOUND_SECONDS),
    ):
        writer.write(head)
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"ok")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
        assert await reader.readexactly(2) == b"ok"


async def test_unknown_paths_and_methods_are_told_apart() -> None:
    handler = routes({("GET", "/thing"): echo, ("PUT", "/thing"): echo})
    async with serve(handler, host="127.0.0.1", port=0) as port, httpx.AsyncClient() as client:
        found = await client.get(f"http://127.0.0.1:{port}/thing")
        missing = await client.get(f"http://127.0.0.1:{port}/other")
        refused = await client.delete(f"http://127.0.0.1:{port}/thing")
    assert [found.status_code, missing.status_code, refused.status_code] == [200, 404, 405]
    assert refused.headers["allow"] == "GET, PUT"


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"nonsense\r\n\r\n", b"400"),
        (b"GET / HTTP/3.0\r\n\r\n", b"400"),
        (b"\x16\x03\x01\x02\x00\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nName : spaced\r\n\r\n", b"400"),
        (b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", b"400"),
        (b"POST / HTTP/1.1\r\nContent-Length: \xb2\r\n\r\n", b"400"),
        (b"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", b"400"),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", b"411"),
        (b"POST / HTTP/1.1\r\nContent-Length: 1048577\r\n\r\n", b"413"),
        (b"POST / HTTP/1.1\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n", b"413"),
        (b"GET / HTTP/1.1\r\nLong: " + b"x" * 20_000 + b"\r\n\r\n", b"431"),
        (b"x" * 100_000, b"431"),
    ],
)
async def test_a_request_that_breaks_a_rule_is_refused(request_bytes: bytes, status: bytes) -> None:
    async with (
        serve(echo, host="127.0.0.1", port=0) as port,
        connection(port) as (reader, writer),
        asyncio.timeout(BOUND_SECONDS),
    ):
        writer.write(request_bytes)
        writer.write_eof()
        answer = await reader.read()
    assert answer.startswith(b"HTTP/1.1 " + status)
    assert answer.count(b"HTTP/1.1") == 1


async def test_a_client_that_goes_on_sending_too_much_still_reads_the_answer() -> None:
    async with serve(echo, host="127.0.0.1", port=0) as port, httpx.AsyncClient() as client:
        answer = await client.post(f"http://127.0.0.1:{port}/", content=bytes(4 * 1024 * 1024))
        again = await client.post(f"http://127.0.0.1:{port}/", content=bytes(1024 * 1024))
    assert answer.status_code == 413
    assert (again.status_code, len(again.content)) == (200, 1024 * 1024)


async def test_a_bug_in_a_handler_is_logged_and_answered_and_the_server_goes_on() -> None:
    async def broken(request: Request) -> Response:
        raise ValueError(request.path)

    with capture_logs() as logs:
        async with serve(broken, host="127.0.0.1", port=0) as port, httpx.AsyncClient() as client:
            answers = [await client.get(f"http://127.0.0.1:{port}/secret") for _ in range(2)]
    assert [answer.status_code for answer in answers] == [500, 500]
    assert "secret" not in answers[0].text
    assert [entry["event"] for entry in logs] == ["http.handler_failed"] * 2


async def test_a_bug_in_a_stream_cuts_it_so_that_the_client_knows() -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"first"
        raise FileNotFoundError

    async def stream(_: Request) -> Response:
        return Response(200, pieces())

    with capture_logs() as logs:
        async with serve(stream, host="127.0.0.1", port=0) as port, httpx.AsyncClient() as client:
            with pytest.raises(httpx.RemoteProtocolError):
                await client.get(f"http://127.0.0.1:{port}/")
    assert [entry["event"] for entry in logs] == ["http.stream_failed"]


@pytest.mark.parametrize("sent", [b"", b"G", b"GET / HTTP/1.1\r\nHost: a\r\n"])
async def test_a_client_that_ends_no_head_is_let_go(sent: bytes) -> None:
    limits = Limits(head_seconds=0.05)
    async with serve(echo, host="127.0.0.1", port=0, limits=limits) as port:
        assert await exchange(port, sent) == b""


async def test_a_head_that_comes_byte_by_byte_has_no_longer_than_any_other() -> None:
    limits = Limits(head_seconds=0.1)
    sent = 0
    async with (
        serve(echo, host="127.0.0.1", port=0, limits=limits) as port,
        connection(port) as (reader, writer),
        asyncio.timeout(BOUND_SECONDS),
    ):
        ended = asyncio.create_task(reader.read())
        while not ended.done():
            writer.write(b"GET"[sent : sent + 1] or b"x")
            sent += 1
            await asyncio.wait({ended}, timeout=0.01)
        with suppress(ConnectionResetError):  # where a byte was still on its way
            assert ended.result() == b""
    assert sent > 1


async def test_a_client_that_is_silent_after_an_answer_or_in_a_body_is_let_go() -> None:
    limits = Limits(idle_seconds=0.05)
    async with serve(echo, host="127.0.0.1", port=0, limits=limits) as port:
        answer = await exchange(port, b"GET / HTTP/1.1\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 200")
        assert await exchange(port, b"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\nhalf") == b""


async def test_a_later_request_has_as_long_for_its_head_as_the_first() -> None:
    limits = Limits(head_seconds=0.05)
    async with (
        serve(echo, host="127.0.0.1", port=0, limits=limits) as port,
        connection(port) as (reader, writer),
        asyncio.timeout(BOUND_SECONDS),
    ):
        writer.write(b"GET / HTTP/1.1\r\n\r\nG")
        assert (await reader.read()).startswith(b"HTTP/1.1 200")


async def test_a_client_that_does_not_read_is_let_go() -> None:
    ended = asyncio.Event()

    async def endless() -> AsyncIterator[bytes]:
        try:
            while True:
                yield bytes(1024 * 1024)
        finally:
            ended.set()

    async def stream(_: Request) -> Response:
        return Response(200, endless())

    limits = Limits(write_seconds=0.05)
    async with (
        serve(stream, host="127.0.0.1", port=0, limits=limits) as port,
        connection(port) as (_, writer),
        asyncio.timeout(BOUND_SECONDS),
    ):
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        await ended.wait()


WAITING: Final = (
    b"",
    b"GET / HTTP",
    b"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\nhalf",
    b"GET / HTTP/1.1\r\n\r\n",
    b"GET /long HTTP/1.1\r\n\r\n" * 9,
    b"nonsense\r\n\r\n",
)
"""What clients send that then keep the server waiting, the last but one by not reading."""


@pytest.mark.parametrize("sent", WAITING)
async def test_connections_that_wait_for_their_clients_keep_nobody_out(sent: bytes) -> None:
    async def answer(request: Request) -> Response:
        return Response(200, bytes(4 * 1024 * 1024) if request.path == "/long" else b"")

    limits = Limits(connections=4)
    async with (
        serve(answer, host="127.0.0.1", port=0, limits=limits) as port,
        AsyncExitStack() as opened,
        asyncio.timeout(BOUND_SECONDS),
    ):
        for number in range(5 * limits.connections):
            _, writer = await opened.enter_async_context(connection(port))
            writer.write(sent)
            if number % limits.connections == 0:
                asked = await exchange(port, b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n")
                assert asked.startswith(b"HTTP/1.1 200")


async def test_of_connections_that_wait_the_one_that_does_longest_gives_way() -> None:
    async with (
        serve(echo, host="127.0.0.1", port=0, limits=Limits(connections=2)) as port,
        connection(port) as (oldest, _),
        connection(port) as (newer, writer),
        connection(port) as (_, _),
        asyncio.timeout(BOUND_SECONDS),
    ):
        assert await oldest.read() == b""
        writer.write(b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n")
        assert (await newer.read()).startswith(b"HTTP/1.1 200")


async def test_one_connection_too_many_is_sent_away_while_all_others_are_being_answered() -> None:
    started, go_on = asyncio.Event(), asyncio.Event()

    async def slow(_: Request) -> Response:
        started.set()
        await go_on.wait()
        return Response(200)

    request = b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n"
    async with (
        serve(slow, host="127.0.0.1", port=0, limits=Limits(connections=1)) as port,
        connection(port) as (reader, writer),
        asyncio.timeout(BOUND_SECONDS),
    ):
        writer.write(request)
        await started.wait()
        assert (await exchange(port, request)).startswith(b"HTTP/1.1 503")
        go_on.set()
        assert (await reader.read()).startswith(b"HTTP/1.1 200")
        assert (await exchange(port, request)).startswith(b"HTTP/1.1 200")


async def test_stopping_lets_a_running_request_end_and_closes_idle_connections() -> None:
    started, go_on = asyncio.Event(), asyncio.Event()

    async def slow(_: Request) -> Response:
        started.set()
        await go_on.wait()
        return Response(200, b"done")

    server = serve(slow, host="127.0.0.1", port=0)
    port = await server.__aenter__()
    async with connection(port) as (idle, _), connection(port) as (busy, writer):
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        await started.wait()
        async with asyncio.timeout(BOUND_SECONDS), asyncio.TaskGroup() as tasks:
            stopping = tasks.create_task(server.__aexit__(None, None, None))
            assert await idle.read() == b""
            assert not stopping.done()
            go_on.set()
            answer = await busy.read()
    assert b"Connection: close" in answer
    assert answer.endswith(b"done")
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)


async def test_stopping_does_not_wait_for_a_request_that_hangs() -> None:
    started, cancelled = asyncio.Event(), asyncio.Event()

    async def hanging(_: Request) -> Response:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return Response(200)

    limits = Limits(grace_seconds=0.05)
    server = serve(hanging, host="127.0.0.1", port=0, limits=limits)
    port = await server.__aenter__()
    async with connection(port) as (reader, writer), asyncio.timeout(BOUND_SECONDS):
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        await started.wait()
        await server.__aexit__(None, None, None)
        assert await reader.read() == b""
    assert cancelled.is_set()


async def test_an_error_of_the_program_leaves_the_server_as_itself() -> None:
    with pytest.raises(LookupError, match="of the program"):
        async with serve(echo, host="127.0.0.1", port=0):
            raise LookupError("of the program")


async def test_a_taken_address_is_an_os_error() -> None:
    async with serve(echo, host="127.0.0.1", port=0) as port:
        with pytest.raises(OSError, match="in use"):
            async with serve(echo, host="127.0.0.1", port=port):
                pass
