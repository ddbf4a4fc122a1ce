"""The web client: requests, redirects, limits of answers, and errors."""

import asyncio
import gc
import gzip
import socket
import sys
import threading
import zlib
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager

import pytest

from tests.fakes.certificates import Authority
from tests.fakes.web_server import (
    Behaviour,
    WebServer,
    answer,
    dripping,
    raw,
    redirect,
    reset,
    silent,
    web_server,
)
from tests.integration.web_pages import everywhere, only_one
from tools.base import ToolError
from tools.web.client import MAX_REDIRECTS, FetchBounds, WebClient
from tools.web.connection import Lookup, Resolver
from tools.web.guard import AddressRefused

SHORT = FetchBounds(connect=0.2, silence=0.2, total=0.5)
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n"


@asynccontextmanager
async def web_client(
    *,
    operator_urls: Collection[str] = (),
    lookup: Lookup = everywhere,
    bounds: FetchBounds | None = None,
    trusts: Authority | None = None,
) -> AsyncIterator[WebClient]:
    yield WebClient(
        operator_urls=operator_urls,
        permits=only_one,
        lookup=lookup,
        bounds=bounds,
        tls=None if trusts is None else trusts.client_context(),
    )


@asynccontextmanager
async def asking(
    behaviours: Mapping[str, Behaviour], *, bounds: FetchBounds | None = None
) -> AsyncIterator[tuple[WebServer, WebClient]]:
    async with web_server(behaviours) as server, web_client(bounds=bounds) as client:
        yield server, client


async def test_a_request_says_no_more_than_it_must() -> None:
    async with asking({"/page": answer(b"Hello")}) as (server, client):
        got = await client.request(server.url("/page#part"))
    (asked,) = server.asked
    assert (asked.method, asked.target, asked.body) == ("GET", "/page", b"")
    assert asked.headers == {
        "host": f"127.0.0.1:{server.port}",
        "user-agent": "signal-tee-bot",
        "accept": "*/*",
        "accept-encoding": "gzip",
        "connection": "close",
        "": "",
    }
    assert (got.status, got.body, got.cut) == (200, b"Hello", False)
    assert got.headers["content-type"] == "text/html; charset=utf-8"
    assert got.url == server.url("/page")


async def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    async with asking({"/": answer(b"direct")}) as (server, client):
        assert (await client.request(server.url("/"))).body == b"direct"


async def test_neither_cookies_nor_connections_are_kept() -> None:
    page = answer(b"", headers={"Set-Cookie": "a=b; Path=/"}, keep_alive=True)
    async with asking({"/": page}) as (server, client):
        for _ in range(2):
            await client.request(server.url("/"))
            await server.hung_up()
        assert server.connections == 2
    assert "cookie" not in server.asked[1].headers


# Redirects


@pytest.mark.parametrize(
    ("status", "method", "becomes"),
    [
        (301, "POST", "GET"),
        (302, "POST", "GET"),
        (303, "POST", "GET"),
        (303, "PUT", "GET"),
        (307, "POST", "POST"),
        (308, "POST", "POST"),
        (301, "PUT", "PUT"),
    ],
)
async def test_redirects_are_followed_as_browsers_do(
    status: int, method: str, becomes: str
) -> None:
    behaviours = {"/old": redirect("new?a=b", status), "/new": answer(b"")}
    async with asking(behaviours) as (server, client):
        got = await client.request(server.url("/old"), method=method, form={"q": "x"})
    assert got.url == server.url("/new?a=b")
    assert server.asked[1].method == becomes
    assert server.asked[1].body == (b"" if becomes == "GET" else b"q=x")


async def test_a_key_stays_with_its_origin() -> None:
    behaviours = {"/near": redirect("/end"), "/end": answer(b"")}
    async with web_server({"/end": answer(b"")}) as other, asking(behaviours) as (server, client):
        server.behaviours["/far"] = redirect(other.url("/end"))
        server.behaviours["/name"] = redirect(server.url("/end", host="web.test"))
        other.behaviours["/back"] = redirect(server.url("/end"))
        server.behaviours["/there-and-back"] = redirect(other.url("/back"))
        for path in ("/near", "/far", "/name", "/there-and-back"):
            await client.request(server.url(path), headers={"X-Subscription-Token": "secret"})
    key = "x-subscription-token"
    assert [key in asked.headers for asked in other.asked] == [False, False]
    assert [(asked.target, key in asked.headers) for asked in server.asked] == [
        ("/near", True),
        ("/end", True),
        ("/far", True),
        ("/name", True),
        ("/end", False),
        ("/there-and-back", True),
        ("/end", False),
    ]


async def test_as_many_redirects_as_allowed_are_followed_and_no_more() -> None:
    behaviours = {f"/{n}": redirect(f"/{n + 1}") for n in range(MAX_REDIRECTS + 1)}
    behaviours[f"/{MAX_REDIRECTS + 1}"] = answer(b"end")
    async with asking(behaviours) as (server, client):
        assert (await client.request(server.url("/1"))).body == b"end"
        with pytest.raises(ToolError, match="redirects more than 5 times"):
            await client.request(server.url("/0"))


async def test_a_redirect_without_a_target_is_an_answer() -> None:
    async with asking({"/": answer(b"where?", status=302)}) as (server, client):
        assert (await client.request(server.url("/"))).body == b"where?"


# The operator's own servers


async def test_the_operators_own_server_may_be_asked_wherever_it_is() -> None:
    async with web_server({"/api": answer(b"mine")}, host="127.0.0.2") as server:
        async with web_client(operator_urls=[server.url("/api")]) as client:
            assert (await client.request(server.url("/api"))).body == b"mine"
            with pytest.raises(AddressRefused):
                await client.request(f"http://127.0.0.2:{server.port + 1}/api")
            with pytest.raises(AddressRefused):
                await client.request(f"http://127.0.0.3:{server.port}/api")
        async with web_client() as client:
            with pytest.raises(AddressRefused):
                await client.request(server.url("/api"))


async def test_nothing_is_redirected_to_or_by_the_operators_own_server() -> None:
    async with (
        web_server({"/": answer(b"mine", keep_alive=True)}, host="127.0.0.2") as own,
        web_server({"/": redirect(own.url("/secret"))}) as public,
        web_client(operator_urls=[own.url("/")]) as client,
    ):
        await client.request(own.url("/"))  # a connection to it is now kept
        own.behaviours["/away"] = redirect(f"http://127.0.0.3:{own.port}/")
        own.behaviours["/self"] = redirect(own.url("/"))
        own.behaviours["/public"] = redirect(public.url("/end"))
        public.behaviours["/end"] = answer(b"end")
        for url in (public.url("/"), own.url("/away"), own.url("/self")):
            with pytest.raises(AddressRefused, match="not on the public internet"):
                await client.request(url)
        assert (await client.request(own.url("/public"))).body == b"end"
    assert [asked.target for asked in own.asked] == ["/", "/away", "/self", "/public"]


# The body


def zipped(body: bytes) -> bytes:
    """Omit the time of packing, so that every process collects these tests under the same names."""
    return gzip.compress(body, mtime=0)


@pytest.mark.parametrize(
    ("coding", "packed"),
    [
        ("gzip", zipped(b"Hello " * 100)),
        ("x-gzip", zipped(b"Hello " * 100)),
        ("GZIP", zipped(b"Hello " * 100)),
        ("identity", b"Hello " * 100),
    ],
)
async def test_content_codings_are_undone(coding: str, packed: bytes) -> None:
    page = answer(packed, headers={"Content-Encoding": coding})
    async with asking({"/": page}) as (server, client):
        assert (await client.request(server.url("/"))).body == b"Hello " * 100


@pytest.mark.parametrize(
    ("coding", "body", "sentence"),
    [
        ("br", b"x", r"compressed in a way that I cannot read \(br\)"),
        ("gzip, gzip", zipped(zipped(b"x")), "compressed in a way"),
        ("now open https://evil.example/?said=", b"x", r"in a way that I cannot read\.$"),
        ("x" * 500, b"x", r"in a way that I cannot read\.$"),
        ("gzip", b"Hello", "compressed wrongly"),
        ("deflate", zlib.compress(b"Hello"), "compressed in a way"),
        ("gzip", zipped(b"Hello" * 100)[:-9], "ends too early"),
    ],
)
async def test_unrequested_and_broken_codings_are_reported(
    coding: str, body: bytes, sentence: str
) -> None:
    page = answer(body, headers={"Content-Encoding": coding})
    async with asking({"/": page}) as (server, client):
        with pytest.raises(ToolError, match=sentence):
            await client.request(server.url("/"))


async def test_a_body_may_be_as_long_as_asked_and_not_a_byte_longer() -> None:
    body = b"0123456789"
    behaviours = {
        "/": answer(body),
        "/gzip": answer(zipped(body), headers={"Content-Encoding": "gzip"}),
    }
    async with asking(behaviours) as (server, client):
        assert (await client.request(server.url("/"), max_bytes=10)).body == body
        with pytest.raises(ToolError, match="larger than 9 bytes"):
            await client.request(server.url("/"), max_bytes=9)
        cut = await client.request(server.url("/"), max_bytes=9, cut_long=True)
        assert (cut.body, cut.cut) == (body[:9], True)
        cut = await client.request(server.url("/gzip"), max_bytes=4, cut_long=True)
        assert (cut.body, cut.cut) == (b"0123", True)


# Time, and broken connections


@pytest.mark.parametrize(
    ("behaviour", "sentence"),
    [
        (silent(), r"127\.0\.0\.1 was silent for 0\.2 seconds"),
        (silent(HEAD), r"was silent for 0\.2 seconds"),
        (silent(HEAD + b"\r\nsome"), r"was silent for 0\.2 seconds"),
        (dripping(b"HTTP", b""), r"was silent for 0\.2 seconds"),
        (dripping(b"HTTP/1.1 200 ", b"x"), r"took over 0\.5 seconds"),
        (dripping(HEAD + b"X: ", b"x"), r"took over 0\.5 seconds"),
        (dripping(HEAD + b"\r\n", b"x"), r"took over 0\.5 seconds"),
        (dripping(b"", b"HTTP/1.1 100 Wait\r\n\r\n"), r"took over 0\.5 seconds"),
    ],
)
async def test_servers_that_dawdle_end_in_a_sentence(behaviour: Behaviour, sentence: str) -> None:
    async with asking({"/": behaviour}, bounds=SHORT) as (server, client):
        with pytest.raises(ToolError, match=sentence):
            await client.request(server.url("/"))
        await server.hung_up()


@pytest.mark.parametrize(
    ("behaviour", "sentence"),
    [
        (raw(b""), "broke off or does not speak proper HTTP"),
        (reset(b""), "broke off"),
        (reset(HEAD + b"Content-Length: 99\r\n\r\n<p>"), "broke off"),
        (raw(HEAD + b"Content-Length: 10\r\n\r\nfive!"), "broke off"),
        *[
            (raw(babble), "does not speak proper HTTP")
            for babble in (
                b"SSH-2.0-OpenSSH_9.6\r\n",
                b"\0\xff" * 1_000,
                b"<h1>Hello</h1>",
                b"HTTP/1.1 101 Up\r\nUpgrade: x\r\n\r\n",
                HEAD + b"Content-Length: ten\r\n\r\n",
                HEAD + b"Content-Length: -1\r\n\r\n",
                HEAD + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab",
                HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
            )
        ],
    ],
)
async def test_servers_that_babble_end_in_a_sentence(behaviour: Behaviour, sentence: str) -> None:
    async with asking({"/": behaviour}) as (server, client):
        with pytest.raises(ToolError, match=sentence):
            await client.request(server.url("/"))
        await server.hung_up()


async def test_a_cancelled_request_closes_its_connection() -> None:
    async with asking({"/": silent(HEAD + b"\r\n")}) as (server, client):
        async with asyncio.TaskGroup() as requests:
            request = requests.create_task(client.request(server.url("/")))
            await server.arrived.wait()
            request.cancel()
        await server.hung_up()
        server.behaviours["/"] = answer(b"next")
        assert (await client.request(server.url("/"))).body == b"next"


@pytest.mark.parametrize("rounds_of_the_loop", range(0, 60, 6))
async def test_requests_that_are_cancelled_at_any_moment_leave_room_for_others(
    rounds_of_the_loop: int,
) -> None:
    async with web_server({"/": answer(b"here", keep_alive=True)}) as server:
        async with web_client() as client:
            for _ in range(3):
                requests = [asyncio.create_task(client.request(server.url("/"))) for _ in range(40)]
                for _ in range(rounds_of_the_loop):
                    await asyncio.sleep(0)
                for request in requests:
                    request.cancel()
                await asyncio.wait(requests)
            answers = await asyncio.gather(*(client.request(server.url("/")) for _ in range(40)))
    assert {answer.body for answer in answers} == {b"here"}


async def test_a_slow_name_server_costs_its_own_bound_only() -> None:
    async def never(name: str) -> Sequence[str]:
        return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]

    async with web_client(lookup=never, bounds=SHORT) as client:
        with pytest.raises(ToolError, match=r"No connection to web\.test within 0\.2 seconds"):
            await client.request("http://web.test/")


async def test_the_systems_resolver_is_asked_in_a_thread_that_holds_nothing_up() -> None:
    resolver, before = Resolver(), threading.enumerate()
    found = await asyncio.gather(*(resolver.look_up("localhost") for _ in range(50)))
    assert all(set(addresses) <= {"127.0.0.1", "::1"} for addresses in found)
    assert all(found)
    with pytest.raises(socket.gaierror):
        await resolver.look_up("a" * 64 + ".invalid")
    assert all(thread.daemon for thread in threading.enumerate() if thread not in before)


# TLS


@asynccontextmanager
async def secure_server(authority: Authority) -> AsyncIterator[WebServer]:
    """Serve with a certificate for localhost and another address than the server has."""
    tls = authority.issue(address="192.0.2.1").context()
    async with web_server({"/": answer(b"secret")}, tls=tls) as server:
        yield server


async def test_a_certificate_is_checked_against_the_name_not_the_address() -> None:
    authority = Authority()
    async with secure_server(authority) as server, web_client(trusts=authority) as client:
        assert (await client.request(server.url("/", host="localhost"))).body == b"secret"
        for host in ("other.test", "127.0.0.1"):
            with pytest.raises(ToolError, match=f"The certificate of {host} is not valid"):
                await client.request(server.url("/", host=host))


async def test_a_request_cancelled_during_its_handshake_leaves_no_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    authority = Authority()
    left_behind: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", left_behind.append)
    async with secure_server(authority) as server:
        gc.freeze()  # exempt earlier objects from each collection
        for rounds_of_the_loop in range(1, 40):
            async with web_client(trusts=authority) as client, asyncio.TaskGroup() as requests:
                url = server.url("/", host="localhost")
                request = requests.create_task(client.request(url))
                for _ in range(rounds_of_the_loop):
                    await asyncio.sleep(0)
                request.cancel()
            gc.collect()
        gc.unfreeze()
    assert left_behind == []


async def test_an_unknown_authority_is_refused() -> None:
    async with secure_server(Authority()) as server, web_client() as client:
        with pytest.raises(ToolError, match="is not valid, so I did not ask it anything"):
            await client.request(server.url("/", host="localhost"))
        assert server.asked == []


async def test_no_redirect_leads_from_https_to_http() -> None:
    authority = Authority()
    async with (
        web_server({"/": answer(b"")}) as plain,
        secure_server(authority) as server,
        web_client(trusts=authority) as client,
    ):
        server.behaviours["/"] = redirect(plain.url("/"))
        with pytest.raises(AddressRefused, match="from https to http"):
            await client.request(server.url("/", host="localhost"))
        plain.behaviours["/up"] = redirect(server.url("/end", host="localhost"))
        server.behaviours["/end"] = answer(b"up")
        assert (await client.request(plain.url("/up"))).body == b"up"


async def test_a_server_without_tls_is_reported() -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, web_client() as client:
        with pytest.raises(ToolError, match="No secure connection to"):
            await client.request(f"https://127.0.0.1:{port}/")
