"""Which addresses and URLs a tool may ask for."""

import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from ipaddress import ip_address

import pytest

from tests.fakes.web_server import answer, web_server
from tools.base import ToolError
from tools.web.client import FetchBounds, WebClient
from tools.web.connection import MAX_ADDRESSES_TRIED
from tools.web.guard import (
    AddressRefused,
    checked,
    is_own,
    is_public,
    may_be_asked,
    origin_of,
)

PUBLIC = [
    "1.1.1.1",
    "8.8.8.8",
    "9.255.255.255",
    "11.0.0.0",
    "100.63.255.255",
    "100.128.0.0",
    "126.255.255.255",
    "128.0.0.0",
    "168.63.129.15",
    "169.253.255.255",
    "172.15.255.255",
    "172.32.0.0",
    "192.0.1.0",
    "192.167.255.255",
    "198.17.255.255",
    "198.20.0.0",
    "223.255.255.255",
    "2001:200::",
    "2001:4860:4860::8888",
    "2003::1",
    "2606:4700:4700::1111",
    "2a00::1",
    "3ffe:ffff::",
    "64:ff9b::8.8.8.8",
]
PRIVATE = [
    "0.0.0.0",
    "0.1.2.3",
    "10.0.0.1",
    "10.255.255.255",
    "100.64.0.1",
    "100.100.100.200",  # Alibaba's metadata
    "100.127.255.255",
    "127.0.0.1",
    "127.255.255.255",
    "168.63.129.16",  # Azure's
    "169.254.169.254",  # everybody's
    "169.254.170.2",
    "172.16.0.1",
    "172.31.255.255",
    "192.0.0.1",
    "192.0.0.192",  # Oracle's
    "192.0.2.1",
    "192.31.196.1",
    "192.52.193.1",
    "192.88.99.1",
    "192.168.0.1",
    "192.175.48.1",
    "198.18.0.1",
    "198.19.255.255",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "239.255.255.255",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::127.0.0.1",  # IPv4-compatible
    "::8.8.8.8",
    "::ffff:127.0.0.1",  # IPv4-mapped
    "::ffff:8.8.8.8",
    "64:ff9b::127.0.0.1",  # NAT64
    "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::8.8.8.8",
    "100::1",
    "2001::1",  # Teredo
    "2001:2::1",
    "2001:10::1",
    "2001:1ff:ffff::",
    "2001:db8::1",
    "2002:7f00:1::",  # 6to4
    "2002:808:808::",
    "2620:4f:8000::1",
    "3fff::1",
    "4000::1",
    "5f00::1",
    "fc00::1",
    "fd00:ec2::254",  # Amazon's, over IPv6
    "fe80::1",
    "fe80::1%eth0",
    "fec0::1",
    "2a00::1%eth0",
    "ff02::1",
]


@pytest.mark.parametrize(
    ("address", "public"),
    [*((one, True) for one in PUBLIC), *((one, False) for one in PRIVATE)],
)
def test_only_hosts_of_the_internet_may_be_asked(address: str, public: bool) -> None:
    assert is_public(ip_address(address)) is public


@pytest.mark.parametrize(
    ("address", "own"),
    [
        *((one, True) for one in ("127.0.0.1", "127.255.255.254", "0.0.0.0")),
        *((one, False) for one in ("1.1.1.1", "192.0.2.1", "2606:4700::1111", "2a00::1%eth0")),
    ],
)
def test_addresses_of_this_machine_are_recognized(address: str, own: bool) -> None:
    assert is_own(ip_address(address)) is own
    assert not (own and may_be_asked(ip_address(address)))


@pytest.mark.parametrize(
    ("url", "plain"),
    [
        ("https://example.com", "https://example.com"),
        ("HTTPS://EXAMPLE.com:443/a", "https://example.com/a"),
        ("http://example.com./a?b=c#d", "http://example.com/a?b=c"),
        ("http://bücher.example/ü", "http://xn--bcher-kva.example/%C3%BC"),
        ("http://127。0。0。1/", "http://127.0.0.1/"),
        ("http://[2606:4700::1111]:8080/", "http://[2606:4700::1111]:8080/"),
        ("http://[::FFFF:7f00:1]/", "http://[::ffff:7f00:1]/"),
        ("http://under_score.example/", "http://under_score.example/"),
        ("http://3com.com/", "http://3com.com/"),
    ],
)
def test_a_url_has_one_plain_notation(url: str, plain: str) -> None:
    assert str(checked(url)) == plain


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("example.com/page", "must begin with http"),
        ("//example.com/page", "must begin with http"),
        ("ftp://example.com/", "must begin with http"),
        ("file:///etc/passwd", "must begin with http"),
        ("gopher://example.com/", "must begin with http"),
        ("javascript:alert(1)", "must begin with http"),
        ("data:text/html,hello", "must begin with http"),
        ("unix:///run/docker.sock", "must begin with http"),
        ("http://", "no valid host"),
        ("http:///path", "no valid host"),
        ("http:example.com", "no valid host"),
        ("http://.example.com/", "no valid host"),
        ("http://example.com../", "no valid host"),
        ("http://%31%32%37.0.0.1/", "no valid host"),
        ("http://exa%00mple.com/", "no valid host"),
        (f"http://{'a.' * 130}example/", "no valid host"),
        ("http://user:secret@example.com/", "user name or password"),
        ("http://example.com@127.0.0.1/", "user name or password"),
        ("http://example.com:80@127.0.0.1/", "user name or password"),
        ("http://example.com:0/", "port that does not exist"),
        ("http://example.com:65536/", "port that does not exist"),
        ("http://example.com:-1/", "port that does not exist"),
        ("http://example.com:http/", "not a valid web address"),
        ("http://[::1/", "not a valid web address"),
        ("http://[::1%25eth0]/", "no valid host"),
        ("http://2130706433/", "no plain IP address"),
        ("http://0x7f000001/", "no plain IP address"),
        ("http://0x7f.1/", "no plain IP address"),
        ("http://127.1/", "no plain IP address"),
        ("http://127.0.1/", "no plain IP address"),
        ("http://0177.0.0.1/", "not a valid web address"),
        ("http://017700000001/", "no plain IP address"),
        ("http://127.0.0.0x1/", "no plain IP address"),
        ("http://1.2.3.4.5/", "no plain IP address"),
        ("http://\uff11\uff12\uff17.\uff10.\uff10.\uff11/", "not a valid web address"),
        ("http://ⓛⓞⓒⓐⓛⓗⓞⓢⓣ/", "not a valid web address"),
        ("http://\u00ad127.0.0.1/", "spaces, backslashes or control"),
        ("http://example.com\\@127.0.0.1/", "spaces, backslashes or control"),
        ("http://example.com/a b", "spaces, backslashes or control"),
        ("http://example.com/a\r\nHost: x", "spaces, backslashes or control"),
        ("http://example.com/\x00", "spaces, backslashes or control"),
        ("http://example.com/\u202e", "spaces, backslashes or control"),
        ("http://example.com/" + "a" * 2_048, "longer than 2,048"),
    ],
)
def test_a_url_that_can_be_misread_is_refused_with_a_reason(url: str, sentence: str) -> None:
    with pytest.raises(AddressRefused, match=sentence):
        checked(url)


def test_an_origin_names_its_port_always() -> None:
    assert origin_of(checked("https://Example.com./a")) == ("https", "example.com", 443)
    assert origin_of(checked("http://example.com:8080")) == ("http", "example.com", 8080)


class Names:
    """A name server with one prepared answer."""

    def __init__(self, answer: Sequence[str] | OSError) -> None:
        self._answer = answer

    async def look_up(self, name: str) -> Sequence[str]:
        if isinstance(self._answer, OSError):
            raise self._answer
        return self._answer


def client(names: Names) -> WebClient:
    """Return a client to which two loopback addresses are the public internet."""
    return WebClient(
        permits=lambda address: str(address) in {"127.0.0.1", "127.0.0.9"},
        lookup=names.look_up,
        bounds=FetchBounds(connect=2.0, silence=2.0, total=4.0),
    )


@contextmanager
def deaf(host: str, port: int) -> Iterator[None]:
    """Listen with a full queue, so that the kernel drops further connections."""
    with ExitStack() as sockets:
        listener = sockets.enter_context(socket.socket())
        listener.bind((host, port))
        listener.listen(0)
        for _ in range(3):
            waiting = sockets.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex((host, port))
        yield


@pytest.mark.parametrize(
    "answers",
    [
        ["127.0.0.2"],
        ["127.0.0.1", "127.0.0.2"],
        ["127.0.0.2", "127.0.0.1"],
        ["127.0.0.1", "::1"],
        ["127.0.0.1", "fe80::1%lo"],
        ["127.0.0.1", "not an address"],
        ["127.0.0.1"] * (MAX_ADDRESSES_TRIED + 1) + ["127.0.0.2"],
    ],
)
async def test_a_name_with_one_refused_address_is_refused(answers: list[str]) -> None:
    async with web_server({}) as server:
        with pytest.raises(AddressRefused, match=r"web\.test is not on the public internet"):
            await client(Names(answers)).request(server.url("/", host="web.test"))
        assert server.connections == 0


@pytest.mark.parametrize("is_deaf", [False, True])
async def test_next_address_is_tried_after_one_that_refuses_or_does_not_answer(
    is_deaf: bool,
) -> None:
    names = Names(["127.0.0.9", "127.0.0.1"])
    async with web_server({"/": answer(b"here")}) as server:  # listens on 127.0.0.1 only
        with deaf("127.0.0.9", server.port) if is_deaf else nullcontext():
            assert (await client(names).request(server.url("/", host="web.test"))).body == b"here"


async def test_only_the_first_few_addresses_are_tried() -> None:
    names = Names(["127.0.0.9"] * MAX_ADDRESSES_TRIED + ["127.0.0.1"])
    async with web_server({}) as server:  # listens on 127.0.0.1 only
        with pytest.raises(ToolError, match="No connection to"):
            await client(names).request(server.url("/", host="web.test"))
        assert server.connections == 0


@pytest.mark.parametrize("answers", [OSError("unknown"), []])
async def test_name_without_addresses_is_unknown(answers: Sequence[str] | OSError) -> None:
    with pytest.raises(ToolError, match="There is no server named"):
        await client(Names(answers)).request("http://web.test/")
