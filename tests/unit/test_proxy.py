"""Whatever a program sends to its proxy is asked for, or refused in a sentence."""

import asyncio
import socket
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from tests.integration.web_pages import only_one
from tools.web.proxy import Proxy, ProxyBounds

ANSWER_SECONDS = 5.0
BOUNDS = ProxyBounds(head_seconds=0.2, connect_seconds=0.2)


async def nowhere(name: str) -> Sequence[str]:
    raise socket.gaierror(socket.EAI_NONAME, "unknown")


async def said_to(requests: Sequence[bytes]) -> list[bytes]:
    """Send requests to one proxy, each on a connection of its own, and return its answers."""
    answers = []
    with socket.create_server(("127.0.0.1", 0)) as listening:
        proxy = Proxy(nowhere, permits=only_one, bounds=BOUNDS)
        serving = asyncio.create_task(proxy.serve(listening))
        async with asyncio.timeout(ANSWER_SECONDS * len(requests)):
            for request in requests:
                reader, writer = await asyncio.open_connection(*listening.getsockname())
                writer.write(request)
                writer.write_eof()
                answers.append(await reader.read())
                writer.close()
        assert not serving.done()
        serving.cancel()
        await asyncio.wait({serving})
    return answers


words = st.text(st.characters(max_codepoint=0x10FF), max_size=12)
hosts = st.sampled_from(
    ["a.test", "xn--", "xn--\x80", "127.1", "[::1", "[::1]", "a..b", "%41", "\xe4.test", "a@b", "-"]
)
targets = st.builds(
    "{}{}{}{}".format,
    st.sampled_from(["", "http://", "https://", "HTTP://", "//", "http:", "ftp://"]),
    hosts | words,
    st.sampled_from(["", ":", ":0", ":80", ":99999", ":-1", ":8x", ":\u0668\u0660"]),
    st.sampled_from(["", "/", "/a?b#c", "?", "#", "\\"]) | words,
)
lines = st.builds(
    "{} {} {}".format,
    st.sampled_from(["GET", "CONNECT", "POST", "", "get", "G ET"]),
    targets,
    st.sampled_from(["HTTP/1.1", "HTTP/1.0", "HTTP/9", ""]),
)
heads = st.builds(
    lambda line, fields: "\r\n".join((line, *fields, "", "")).encode("utf-8", "replace"),
    lines,
    st.lists(words | st.just("Host: b.test"), max_size=3),
)


@given(st.lists(heads | st.binary(max_size=60), min_size=1, max_size=8))
def test_anything_is_answered_and_the_proxy_goes_on(requests: list[bytes]) -> None:
    for request, answer in zip(requests, asyncio.run(said_to(requests)), strict=True):
        if b"\r\n\r\n" in request:
            assert answer[:13] in {b"HTTP/1.1 400 ", b"HTTP/1.1 403 ", b"HTTP/1.1 502 "}
        else:
            assert answer == b""


async def test_a_head_that_is_too_long_is_refused() -> None:
    [answer] = await said_to([b"GET http://a.test/ HTTP/1.1\r\nA: " + b"x" * BOUNDS.head_bytes])
    assert answer.startswith(b"HTTP/1.1 431 ")
