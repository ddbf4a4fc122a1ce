"""Programs in a jail that are given a network: what they reach through it, and what they do not.

The internet is played by 127.0.0.1; other loopback addresses play private ones.
"""

import asyncio
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from time import monotonic

import pytest

from sandbox.jail.jail import Jail, Kind
from sandbox.jail.program import THE_SCRIPT, Bounds, Ended, Program
from tests.fakes.accepting import close_listener
from tests.fakes.certificates import Authority
from tests.fakes.web_server import answer, endless, redirect, silent, web_server
from tests.integration.test_jail import NO_BUBBLEWRAP
from tests.integration.test_spawned import until
from tests.integration.web_pages import everywhere, only_one
from tools.commands.machine import this_machine
from tools.web.guard import IPAddress
from tools.web.lookup import Lookup
from tools.web.proxy import Proxy, ProxyBounds

pytestmark = NO_BUBBLEWRAP

PRIVATE = "not on the public internet"
ASK = """
import socket, sys, urllib.request

def ask(request, wait=5):
    with socket.create_connection(("127.0.0.1", 3128), 5) as proxy:
        proxy.settimeout(wait)
        said = b""
        try:
            proxy.sendall(request)
            while data := proxy.recv(65536):
                said += data
        except OSError:
            pass
        return said
"""


def proxy_to(
    *ports: int,
    lookup: Lookup = everywhere,
    permits: Callable[[IPAddress], bool] = only_one,
    bounds: ProxyBounds | None = None,
) -> Proxy:
    return Proxy(lookup, permits=permits, ports=frozenset(ports), bounds=bounds)


async def run(
    folder: Path, proxy: Proxy | None, script: str, kind: Kind = Kind.BUBBLEWRAP, seconds: float = 9
) -> Ended:
    """Run a Python program that reaches a proxy."""
    network = proxy.serve if proxy is not None else None
    program = Program(("python3", "-I", THE_SCRIPT), folder, ASK + script, network=network)
    return await Jail(this_machine(), [kind]).run(program, Bounds(seconds=seconds))


async def test_a_page_is_asked_for_by_name_and_the_site_sees_no_proxy(tmp_path: Path) -> None:
    async with web_server({"/page": answer(b"hello")}) as site:
        proxy = proxy_to(site.port)
        url = f"http://web.test:{site.port}/page?a=b#c"
        ended = await run(tmp_path, proxy, f"print(urllib.request.urlopen('{url}').read())")
        [asked] = site.asked
    assert (ended.output, ended.errors) == ("b'hello'\n", "")
    assert (asked.method, asked.target) == ("GET", "/page?a=b")
    assert asked.headers["host"] == f"web.test:{site.port}"
    assert not any("proxy" in name for name in asked.headers)
    assert proxy.refusals == ()


async def test_what_is_sent_arrives_whole_in_both_directions(tmp_path: Path) -> None:
    async with web_server({"/": answer(b"y" * 900_000)}) as site:
        script = f"""
sent = b"x" * 700_000
print(len(urllib.request.urlopen("http://web.test:{site.port}/", sent).read()))
"""
        ended = await run(tmp_path, proxy_to(site.port), script)
        [asked] = site.asked
    assert (ended.output, ended.errors) == ("900000\n", "")
    assert (asked.method, len(asked.body)) == ("POST", 700_000)


async def test_tls_is_between_the_program_and_the_site(tmp_path: Path) -> None:
    authority = Authority()
    (tmp_path / "authority.pem").write_text(authority.certificate_pem)
    tls = authority.issue().context()
    async with web_server({"/page": answer(b"hello")}, tls=tls) as site:
        script = f"""
import ssl
believed = ssl.create_default_context(cafile="authority.pem")
with socket.create_connection(("127.0.0.1", 3128)) as proxy:
    proxy.sendall(b"CONNECT 127.0.0.1:{site.port} HTTP/1.1\\r\\n\\r\\n")
    print(proxy.recv(100).split()[1])
    with believed.wrap_socket(proxy, server_hostname="127.0.0.1") as secure:
        secure.sendall(b"GET /page HTTP/1.1\\r\\n\\r\\n")
        print(secure.makefile("rb").read()[-5:])
"""
        ended = await run(tmp_path, proxy_to(site.port), script)
    assert (ended.output, ended.errors) == ("b'200'\nb'hello'\n", "")


REFUSED_HOSTS = {
    **dict.fromkeys(
        [
            *("127.0.0.2", "0.0.0.0", "10.0.0.1", "172.16.0.1", "192.168.1.1", "100.64.0.1"),
            *("169.254.169.254", "100.100.100.200", "168.63.129.16", "255.255.255.255"),
            *("224.0.0.1", "[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:2]"),
            *("[64:ff9b::7f00:1]", "[2002:7f00:1::]", "[fe80::1]", "[fd00:ec2::254]"),
            *("[ff02::1]", "private.test", "both.test", "mapped.test", "127。0。0。2"),
        ],
        PRIVATE,
    ),
    **dict.fromkeys(["2130706433", "0x7f000001", "017700000001", "127.1"], "no plain IP address"),
    "[fe80::1%25lo]": "no valid host name",
    "somebody@web.test": "user name or password",
    "web.test\\@127.0.0.2": "backslashes",
    "nobody.test": "no server named",
    ".": "no valid host name",
}
ADDRESSES = {
    "private.test": ["10.0.0.1"],
    "both.test": ["127.0.0.1", "127.0.0.2"],
    "mapped.test": ["::ffff:127.0.0.1"],
    "web.test": ["127.0.0.1"],
}


async def by_name(name: str) -> Sequence[str]:
    if name not in ADDRESSES:
        raise socket.gaierror(socket.EAI_NONAME, "unknown")
    return ADDRESSES[name]


@pytest.mark.parametrize("method", ["GET", "CONNECT"])
async def test_only_public_addresses_are_connected_to(tmp_path: Path, method: str) -> None:
    async with web_server({}, host="127.0.0.2") as private, web_server({}) as public:
        targets = [
            f"{host.encode('idna').decode() if not host.isascii() else host}:{private.port}"
            for host in REFUSED_HOSTS
        ]
        if method == "GET":
            targets = [f"http://{target}/" for target in targets]
        script = f"""
for target in {targets!r}:
    print(" ".join(ask(f"{method} {{target}} HTTP/1.1\\r\\n\\r\\n".encode()).decode().split()))
"""
        proxy = proxy_to(private.port, public.port, lookup=by_name)
        ended = await run(tmp_path, proxy, script)
        assert private.connections == public.connections == 0
    said = ended.output.splitlines()
    assert len(said) == len(REFUSED_HOSTS), ended
    for (host, sentence), answered in zip(REFUSED_HOSTS.items(), said, strict=True):
        assert sentence in answered, host
        assert answered.startswith(("HTTP/1.1 403", "HTTP/1.1 502")), host
    assert PRIVATE in proxy.refusals[0]
    assert len(proxy.refusals) == 5


async def test_only_ports_of_the_web_are_connected_to(tmp_path: Path) -> None:
    async with web_server({}) as site:
        proxy = Proxy(everywhere, permits=only_one)
        script = f"""
for port in (22, 25, 3306, 8081, {site.port}):
    print(ask(b"CONNECT web.test:%d HTTP/1.1\\r\\n\\r\\n" % port).split()[1])
    print(ask(b"GET http://web.test:%d/ HTTP/1.1\\r\\n\\r\\n" % port).split()[1])
"""
        ended = await run(tmp_path, proxy, script)
        assert site.connections == 0
    assert ended.output == "b'403'\n" * 10
    assert "only the ports 80 and 443 may be asked" in proxy.refusals[0]


async def test_the_machine_s_own_address_is_refused_even_where_it_looks_public(
    tmp_path: Path,
) -> None:
    """Loopback plays the public address of the machine, behind which the bot's health port is."""
    async with web_server({"/healthz": answer(b"ok")}) as health:
        proxy = Proxy(everywhere, ports=frozenset({health.port}))
        script = f"print(ask(b'GET http://127.0.0.1:{health.port}/healthz HTTP/1.1\\r\\n\\r\\n'))"
        assert "403" in (await run(tmp_path, proxy, script)).output
        assert health.connections == 0


async def test_a_redirect_is_checked_as_any_other_address(tmp_path: Path) -> None:
    async with web_server({}, host="127.0.0.2") as private:
        to_private = {
            "/": redirect(private.url("/secret")),
            "/name": redirect("http://private.test/"),
        }
        async with web_server(to_private) as site:
            script = f"""
for path in ("", "name"):
    try:
        urllib.request.urlopen("http://web.test:{site.port}/" + path)
    except urllib.error.HTTPError as error:
        print(error.code, error.read().decode())
"""
            proxy = proxy_to(site.port, private.port, 80, lookup=by_name)
            ended = await run(tmp_path, proxy, script)
        assert private.connections == 0
    assert ended.output.count("403") == 2
    assert ended.output.count(PRIVATE) == 2


async def test_a_name_is_looked_up_once_and_what_was_checked_is_connected_to(
    tmp_path: Path,
) -> None:
    looked_up: list[str] = []

    async def rebinding(name: str) -> Sequence[str]:
        looked_up.append(name)
        return ["127.0.0.1" if len(looked_up) == 1 else "127.0.0.2"]

    async with web_server({"/": answer(b"hello")}) as site:
        script = f"""
for _ in range(2):
    print(ask(b"GET http://web.test:{site.port}/ HTTP/1.1\\r\\n\\r\\n").split()[1])
"""
        ended = await run(tmp_path, proxy_to(site.port, lookup=rebinding), script)
        assert len(site.asked) == 1
    assert (ended.output, len(looked_up)) == ("b'200'\nb'403'\n", 2)


WITHOUT_THE_PROXY = """
for family, kind, address in [
    (socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", PORT)),
    (socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.2", PORT)),
    (socket.AF_INET6, socket.SOCK_STREAM, ("::1", PORT)),
    (socket.AF_INET, socket.SOCK_STREAM, ("192.0.2.1", 80)),
    (socket.AF_INET, socket.SOCK_DGRAM, ("192.0.2.1", 53)),
    (socket.AF_INET, socket.SOCK_RAW, ("192.0.2.1", 0)),
    (socket.AF_UNIX, socket.SOCK_STREAM, chr(0) + "bot"),
]:
    try:
        with socket.socket(family, kind) as made:
            made.settimeout(2)
            made.connect(address)
            made.send(b"x")
            print("sent", family, kind, address)
    except OSError:
        pass
"""


async def test_there_is_no_other_way_out(tmp_path: Path) -> None:
    async with web_server({}) as site:
        script = WITHOUT_THE_PROXY.replace("PORT", str(site.port))
        ended = await run(tmp_path, proxy_to(site.port), script)
        assert site.connections == 0
    assert (ended.output, ended.errors) == ("", "")


IMPROPER = [
    b"",
    b"\r\n\r\n",
    b"GET / HTTP/1.1",
    b"GET  http://web.test/ HTTP/1.1",
    b"GET http://web.test/ HTTP/2.0",
    b"get http://web.test/ HTTP/1.1",
    b"GET http://web.test/ HTTP/1.1\r\nno field",
    b"GET http://web.test/ HTTP/1.1\r\n folded: x",
    b"GET http://web.test/ HTTP/1.1\r\nA: b\nHost: private.test",
    b"GET http://web.test/ HTTP/1.1\r\nA: b\0c",
    b"GET http://web.test/\xff HTTP/1.1",
    b"CONNECT web.test HTTP/1.1\r\nA",
    b"CONNECT web.test:80/x HTTP/1.1",
    b"CONNECT web.test:80?x HTTP/1.1",
    b"CONNECT http://web.test:80 HTTP/1.1",
    b"\x05\x01\x00",
    b"\x16\x03\x01\x02\x00\x01\x00",
    bytes(range(256)),
]


async def test_what_is_no_proper_request_is_said_to_be_none(tmp_path: Path) -> None:
    script = f"""
for request in {IMPROPER!r}:
    print(ask(request + b"\\r\\n\\r\\n").split()[1:2])
"""
    async with web_server({}) as site:
        bounds = ProxyBounds(head_seconds=0.5)
        ended = await run(tmp_path, proxy_to(80, site.port, bounds=bounds), script)
        assert site.connections == 0
    assert len(ended.output.splitlines()) == len(IMPROPER)
    assert set(ended.output.split()) <= {"[b'400']", "[b'403']", "[]"}, ended.output


async def test_a_head_is_bounded_in_bytes_and_time(tmp_path: Path) -> None:
    proxy = proxy_to(80, bounds=ProxyBounds(head_seconds=0.3))
    script = """
import time
print(ask(b"GET http://web.test/ HTTP/1.1\\r\\nA: " + b"x" * 40_000).split()[1:2])
with socket.create_connection(("127.0.0.1", 3128)) as slow:
    begun = time.monotonic()
    try:
        while time.monotonic() < begun + 5:
            slow.send(b"x")
            time.sleep(0.01)
    except OSError:
        pass
    print(time.monotonic() - begun < 3)
"""
    ended = await run(tmp_path, proxy, script)
    assert ended.output.splitlines()[1] == "True", ended
    assert proxy.refusals == ("A request's head is too long.", "A request took too long.")


async def test_a_command_gets_and_sends_only_so_much(tmp_path: Path) -> None:
    head = b"HTTP/1.1 200 OK\r\n\r\n"
    async with web_server({"/": endless(head, b"x" * 65_536)}) as site:
        proxy = proxy_to(site.port, bounds=ProxyBounds(size=2 * 2**20))
        request = f"b'GET http://web.test:{site.port}/ HTTP/1.1\\r\\n\\r\\n'"
        ended = await run(tmp_path, proxy, f"print(len(ask({request})), len(ask({request})))")
        await site.hung_up()
    first, second = map(int, ended.output.split())
    assert 2**20 < first <= 2 * 2**20
    assert second <= 2**16
    assert proxy.refusals == ("A command may send and get 2 MB.",)


async def test_connections_are_bounded_at_once_and_in_all(tmp_path: Path) -> None:
    async with web_server({"/": answer(b"hello"), "/never": silent()}) as site:
        bounds = ProxyBounds(at_once=3, connections=40)
        proxy = proxy_to(site.port, bounds=bounds)
        script = f"""
import threading
for _ in range(20):
    held = socket.create_connection(("127.0.0.1", 3128), 5)
    held.sendall(b"GET http://web.test:{site.port}/never HTTP/1.1\\r\\n\\r\\n")
    threading.Timer(0.3, held.close).start()
    del held
made = 0
for _ in range(3_000):
    try:
        made += b"hello" in ask(b"GET http://web.test:{site.port}/ HTTP/1.1\\r\\n\\r\\n", 2)
    except OSError:
        break
print(made)
"""
        most = 0

        async def count() -> None:
            nonlocal most
            while True:
                most = max(most, len(site.open))
                await asyncio.sleep(0)

        counting = asyncio.create_task(count())
        ended = await run(tmp_path, proxy, script)
        counting.cancel()
        await asyncio.wait({counting})
    assert 0 < int(ended.output) <= 40, ended
    assert most <= 3
    assert proxy.refusals == ("A command may open 40 connections.",)


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_the_network_ends_with_the_command(tmp_path: Path) -> None:
    ports: list[socket.socket] = []
    async with web_server({"/": silent(b"HTTP/1.1 200 OK\r\n\r\n")}) as site:
        proxy = proxy_to(site.port)

        async def network(port: socket.socket) -> None:
            ports.append(port)
            await proxy.serve(port)

        script = ASK + f"ask(b'GET http://web.test:{site.port}/ HTTP/1.1\\r\\n\\r\\n', 60)"
        program = Program(("python3", "-I", THE_SCRIPT), tmp_path, script, network=network)
        before = open_files()
        running = asyncio.create_task(Jail(this_machine()).run(program, Bounds(seconds=60)))
        await until(lambda: site.connections == 1)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await site.hung_up()
        assert [port.fileno() for port in ports] == [-1]
        await until(lambda: open_files() <= before)


async def test_also_of_one_that_was_ended_for_its_time(tmp_path: Path) -> None:
    async with web_server({"/": silent(b"HTTP/1.1 200 OK\r\n\r\n")}) as site:
        script = f"ask(b'GET http://web.test:{site.port}/ HTTP/1.1\\r\\n\\r\\n', 60)"
        begun = monotonic()
        await run(tmp_path, proxy_to(site.port), script, seconds=1)
        assert monotonic() - begun < 4
        await site.hung_up()


async def test_no_command_reaches_the_network_of_another(tmp_path: Path) -> None:
    reach = "socket.create_connection(('127.0.0.1', 3128), 2); print('reached')"
    async with web_server({"/": silent()}) as site:
        script = f"ask(b'GET http://web.test:{site.port}/ HTTP/1.1\\r\\n\\r\\n', 60)"
        running = asyncio.create_task(run(tmp_path, proxy_to(site.port), script))
        await until(lambda: site.connections == 1)
        without = await run(tmp_path, None, reach)
        with_its_own = await run(tmp_path, proxy_to(), reach)
        running.cancel()
        await asyncio.wait({running})
    assert "ConnectionRefusedError" in without.errors
    assert (without.output, with_its_own.output) == ("", "reached\n")


VARIABLES = "import os; print([name for name in os.environ if 'proxy' in name.lower()])"


async def test_where_there_are_no_namespaces_there_is_no_network(tmp_path: Path) -> None:
    script = f"{VARIABLES}\nsocket.socket()"
    ended = await run(tmp_path, proxy_to(80), script, kind=Kind.LANDLOCK)
    assert ended.output == "[]\n"
    assert "PermissionError" in ended.errors


async def test_nothing_of_the_bot_is_left_open_for_the_program(tmp_path: Path) -> None:
    script = "import os; print(sorted(map(int, os.listdir('/proc/self/fd')))[3:-1])"
    ended = await run(tmp_path, proxy_to(80), script)
    # The program's own script is open; the last one is the folder that is listed.
    assert ended.output == "[]\n", ended


async def test_a_site_that_takes_no_connection_is_said_to(tmp_path: Path) -> None:
    listener = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    await close_listener(listener)
    proxy = proxy_to(port)
    ended = await run(
        tmp_path, proxy, f"print(ask(b'CONNECT web.test:{port} HTTP/1.1\\r\\n\\r\\n'))"
    )
    assert "502 Bad Gateway" in ended.output
    assert proxy.refusals == ("No connection to web.test could be made.",)
