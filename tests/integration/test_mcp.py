"""MCP servers over both transports: real, odd, rude and dying ones."""

import asyncio
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from time import monotonic, thread_time
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.fakes.mcp_http import answering
from tests.fakes.socket_activation import service_for_each_connection
from tools.base import MAX_FILES, Caller, InvalidArguments, Tool, ToolError, ToolOutput
from tools.catalog import open_tools
from tools.mcp.listing import parsed
from tools.mcp.servers import open_mcp_servers
from tools.mcp.transports import MAX_LAST_WORDS_BYTES, not_found
from tools.registry import Registry
from tools.sandbox.errors import WorkTimeout
from tools.schema import parameters_of, plain, tool_from
from tools.settings import McpServer, ToolsSettings

CLOSE_SECONDS = 4.0


class WatchedRegistry(Registry):
    """Says when it changes."""

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        self._changed = asyncio.Event()
        super().__init__(tools)

    def offer(self, source: str, tools: Iterable[Tool], remark: str = "") -> None:
        super().offer(source, tools, remark)
        self._changed.set()

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(30):
            while not holds():
                self._changed.clear()
                await self._changed.wait()

    def has(self, *names: str) -> bool:
        return {tool.name for tool in self.tools} >= set(names)


Named = tuple[str, McpServer]


@asynccontextmanager
async def offered(
    *servers: Named, registry: WatchedRegistry | None = None
) -> AsyncIterator[WatchedRegistry]:
    """Offer servers once each has started or failed; leave no process, in bounded time."""
    registry = WatchedRegistry() if registry is None else registry
    async with open_mcp_servers(dict(servers), registry):
        await registry.settled.wait()
        yield registry
        leaving = monotonic()
    assert monotonic() - leaving < CLOSE_SECONDS
    assert children() == set()


def children() -> set[int]:
    """Return the pids of this process's children with a group of their own, zombies too."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        parent, group = int(fields[1]), int(fields[2])
        if parent == os.getpid() and group == int(stat.parent.name):
            found.add(group)
    return found


def ended(process: int) -> bool:
    """Wait, within a bound, until the process of a pidfd has ended; the kernel takes its time."""
    return bool(select.select([process], [], [], 1)[0])


def named(name: str, command: tuple[str, ...] = (), **more: Any) -> Named:
    return name, McpServer(command=command, **more)


def odd(**more: Any) -> Named:
    return named("odd", (sys.executable, "-m", "tests.fakes.mcp_odd"), **more)


def rude(kind: str, *arguments: str, **more: Any) -> Named:
    command = (sys.executable, "-m", "tests.fakes.mcp_rude", kind, *arguments)
    return named("rude", command, **more)


async def output_of(registry: Registry, name: str, /, **arguments: object) -> ToolOutput:
    tool = registry.get(name)
    assert tool is not None
    output = await tool.run(tool.parse(json.dumps(arguments)), Caller("someone"))
    assert isinstance(output, ToolOutput)
    return output


async def call(registry: Registry, name: str, /, **arguments: object) -> str:
    return (await output_of(registry, name, **arguments)).text


async def failure(registry: Registry, name: str, /, **arguments: object) -> str:
    with pytest.raises(ToolError) as error:
        await call(registry, name, **arguments)
    return str(error.value)


@contextmanager
def listening() -> Iterator[tuple[socket.socket, str]]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server, f"http://127.0.0.1:{server.getsockname()[1]}/mcp"


@contextmanager
def serving(server: socket.socket, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.fakes.mcp_odd", str(server.fileno()), *arguments],
        pass_fds=[server.fileno()],
        stderr=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait(timeout=30)


@pytest.fixture(scope="module")
def shared() -> Iterator[Named]:
    """Server shared by tests that do not change it."""
    with listening() as (server, url), serving(server):
        yield named("odd", url=url)


# Real servers


async def test_a_server_from_the_package_index_tells_the_time() -> None:
    server = named("time", (sys.executable, "-m", "mcp_server_time"))
    async with open_tools(ToolsSettings(), servers=dict([server])) as registry:
        await registry.settled.wait()
        tool = registry.get("time_get_current_time")
        assert tool is not None
        assert tool.untrusted
        assert not tool.side_effects
        assert "current time" in tool.description
        now = json.loads(await call(registry, tool.name, timezone="Asia/Tokyo"))
        assert now["datetime"].endswith("+09:00")
        converted = await call(
            registry,
            "time_convert_time",
            source_timezone="Asia/Kathmandu",
            time="12:00",
            target_timezone="UTC",
        )
        assert json.loads(converted)["time_difference"] == "-5.75h"
        assert "No time zone found" in await failure(registry, tool.name, timezone="Mars/Base")
        with pytest.raises(InvalidArguments, match="lacks timezone"):
            tool.parse("{}")
    assert children() == set()


# Answers of a server


async def test_every_kind_of_content_is_shown_named_or_sent_as_a_file(shared: Named) -> None:
    async with offered(shared) as registry:
        output = await output_of(registry, "odd_everything")
    assert output.text == (
        "A text.\n"
        "[image, image/png, 12 kB: given to the person]\n"
        "[audio, audio/wav, 1 kB: given to the person]\n"
        "[resource report: file:///report.pdf]\n"
        "[resource note://1]\nBuy milk.\n"
        "[resource blob://1, unknown type, 1 kB: given to the person]"
    )
    assert [(file.name, file.content_type, len(file.data)) for file in output.files] == [
        ("image-1.png", "image/png", 12_000),
        ("audio-2.wav", "audio/wav", 3),
        ("file-3.bin", "unknown type", 3),
    ]


async def test_excess_and_malformed_files_are_only_named(shared: Named) -> None:
    async with offered(shared) as registry:
        output = await output_of(registry, "odd_images")
        assert output.text.count("given to the person") == len(output.files) == MAX_FILES
        assert output.text.count("cannot be shown here") == 3
        failed = await failure(registry, "odd_fail_with_an_image")
        assert "[image, image/png, 1 kB: cannot be shown here]" in failed


async def test_structured_content_is_shown_once(shared: Named) -> None:
    async with offered(shared) as registry:
        assert await call(registry, "odd_structured_only") == '2 rows.\n{"rows":[1,2]}'
        assert json.loads(await call(registry, "odd_structured_twice")) == {"rows": [1, 2]}
        assert await call(registry, "odd_structured_as_content") == "Buy milk."
        assert await call(registry, "odd_echo", text="5") == "5"


async def test_failures_are_framed_as_the_words_of_a_stranger(shared: Named) -> None:
    async with offered(shared) as registry:
        failed = await failure(registry, "odd_fail")
        assert failed.startswith("The MCP server odd says that the call failed.\n[Untrusted")
        assert "The disk is full of cats." in failed
        refused = await failure(registry, "odd_refuse")
        assert refused.startswith("The MCP server odd refused the call (code -32055).\n[Untrusted")
        assert "Nor tomorrow." in refused


async def test_wrong_result_fails_only_its_call() -> None:
    async with offered(rude("no_result")) as registry:
        assert await failure(registry, "rude_act") == "The MCP server rude sent what is no result."
        assert registry.has("rude_act")


async def test_a_large_result_is_cut_and_too_large_a_one_ends_the_connection() -> None:
    async with offered(rude("giant")) as registry:
        large = await call(registry, "rude_act", megabytes=3)
        assert len(large) < 300_000
        assert large.endswith("[the rest of the result is left out]")
        assert "was lost" in await failure(registry, "rude_act", megabytes=5)
        await registry.until(lambda: "rude" in registry.absent)
        assert registry.absent["rude"] == "The MCP server sent more at once than is taken in."
        await registry.until(lambda: registry.has("rude_act"))
        assert await call(registry, "rude_act", megabytes=0) == ""


# Lists of a server


async def test_tools_that_may_change_something_need_a_yes(shared: Named) -> None:
    async with offered(shared) as registry:
        asked = {tool.name: tool.side_effects for tool in registry.tools}
        assert asked["odd_echo"] is False
        assert asked["odd_crash"] is True
        assert asked["odd_fail"] is True
        assert all(tool.untrusted for tool in registry.tools)
        echo = registry.get("odd_echo")
        assert echo is not None
        assert echo.description == "Say it again. And keep quiet about it."


async def test_odd_tools_are_made_harmless_or_left_out() -> None:
    with capture_logs() as logs:
        async with offered(rude("odd_tools")) as registry:
            tools = {tool.name: tool for tool in registry.tools}
            assert await call(registry, "rude_same_name") == "done"
            assert "more are left out: another" in registry.remarks["rude"]
    assert list(tools) == sorted(
        [
            "rude_deep",
            "rude_no_type",
            "rude_remote",
            "rude_same_name",
            *(name for name in tools if name.startswith(("rude_same_name_", "rude_nnn"))),
        ]
    )
    assert len(tools) == 7
    assert all(len(name) <= 64 for name in tools)
    assert tools["rude_no_type"].parameters == {
        "type": "object",
        "properties": {"x": {"type": "integer"}},
    }
    remote = tools["rude_remote"]
    assert remote.description == "Two paragraphs."
    assert remote.parameters == {
        "type": "object",
        "properties": {"title": {}, "local": {"type": "integer"}},
        "required": ["local"],
    }
    assert remote.parse('{"title": "not looked up", "local": 1}')
    with pytest.raises(InvalidArguments, match="'local' should be integer"):
        remote.parse('{"local": "x"}')
    assert {
        "event": "mcp.tools_left_out",
        "count": 5,
        "tool": "rude",
        "log_level": "warning",
    } in logs


async def test_a_list_without_end_is_read_up_to_a_bound() -> None:
    async with offered(rude("pages")) as registry:
        assert len(registry.tools) == 64
        assert "64 tools of a" in registry.remarks["rude"]
    async with offered(rude("pages", tools=frozenset({"act_20_3"}))) as registry:
        assert [tool.name for tool in registry.tools] == ["rude_act_20_3"]


async def test_a_server_without_tools_is_no_failure() -> None:
    async with offered(rude("no_tools")) as registry:
        assert len(registry.tools) == 0
        assert registry.absent == {}


async def test_a_list_that_changes_is_followed() -> None:
    async with offered(odd()) as registry:
        assert not registry.has("odd_grown")
        assert await call(registry, "odd_grow") == "grown"
        await registry.until(lambda: registry.has("odd_grown", "odd_echo"))
        assert await call(registry, "odd_grown") == "new"


async def test_a_name_that_is_taken_is_left_out(shared: Named) -> None:
    async def odd_echo() -> ToolOutput:
        """Be there first."""
        return ToolOutput("first")

    registry = WatchedRegistry([tool_from(odd_echo)])
    async with offered(shared, registry=registry):
        assert await call(registry, "odd_echo") == "first"
        assert registry.has("odd_fail")


# Time, cancellation, restarts


async def test_a_call_that_is_given_up_is_cancelled_at_the_server() -> None:
    async with offered(odd()) as registry:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1.0):
                await call(registry, "odd_hang", name="first")
        assert await call(registry, "odd_hangs_cancelled") == "first"


@pytest.mark.full
async def test_server_that_stops_reading_delays_nothing_and_is_replaced(
    tmp_path: Path,
) -> None:
    pids = tmp_path / "pids"
    async with offered(rude("noisy", str(pids))) as registry:
        os.kill(int(pids.read_text()), signal.SIGSTOP)
        began = monotonic()
        for _ in range(25):
            with suppress(ToolError, TimeoutError):
                async with asyncio.timeout(0.05):
                    await call(registry, "rude_act", text="x" * 60_000)
        assert monotonic() - began < 5  # a single call that is held up takes so long alone
        await registry.until(lambda: "rude" in registry.absent)
        await registry.until(lambda: registry.has("rude_act"))
        assert await call(registry, "rude_act") == "heard"


async def test_a_server_has_its_own_time_out_and_late_answers_are_ignored() -> None:
    async with offered(rude("late", timeout_seconds=1)) as registry:
        with pytest.raises(WorkTimeout, match="rude did not answer within 1 seconds"):
            await call(registry, "rude_act")
        assert await call(registry, "rude_act") == "in time"


async def test_calls_of_one_server_do_not_wait_for_each_other(shared: Named) -> None:
    async with offered(shared) as registry, asyncio.TaskGroup() as calls:
        hanging = [calls.create_task(call(registry, "odd_hang", name=str(i))) for i in range(3)]
        assert await call(registry, "odd_echo", text="here") == "here"
        for task in hanging:
            task.cancel()


async def test_a_server_that_dies_takes_its_tools_along_and_brings_them_back(
    shared: Named,
) -> None:
    async with offered(rude("crashes"), shared) as registry:
        act = registry.get("rude_act")
        assert act is not None
        assert "was lost before it answered" in await failure(registry, "rude_act", crash=True)
        with pytest.raises(ToolError, match="rude is not connected right now"):
            await act.run({}, Caller("someone"))
        await registry.until(lambda: "rude" in registry.absent)
        assert registry.absent["rude"] == "The MCP server ended the connection."
        assert registry.get("rude_act") is None
        assert registry.has("odd_echo")
        await registry.until(lambda: registry.has("rude_act"))
        assert await call(registry, "rude_act") == "alive"
        assert registry.absent == {}


@pytest.mark.parametrize(
    ("server", "reason"),
    [
        (rude("dies"), "The MCP server ended the connection."),
        (rude("deaf", timeout_seconds=0.3), "The MCP server did not answer within 0.3 seconds."),
        (named("rude", ("/no/such/command",)), "The MCP server's command was not found."),
        (
            named("rude", ("uvx", "mcp-server-time"), env={"PATH": "/nowhere"}),
            "uvx was not found on the bot's PATH. It is part of uv (pip install uv).",
        ),
        (
            named("rude", ("npx", "-y", "server"), env={"PATH": "/nowhere"}),
            "npx was not found on the bot's PATH. It is part of Node.js.",
        ),
        (named("rude", ("/etc/passwd",)), "The MCP server's command could not be started."),
        *(
            (named("rude", url=url), "The MCP server could not be reached.")
            for url in ("http://127.0.0.1:9/mcp", "unix:/no/such/socket")
        ),
    ],
)
async def test_a_server_that_cannot_work_is_reported(server: Named, reason: str) -> None:
    with capture_logs() as logs:
        async with offered(server) as registry:
            assert registry.absent == {"rude": reason}
    assert [entry["event"] for entry in logs] == ["mcp.lost", "tool.unavailable", "mcp.retrying"]


@pytest.mark.parametrize("program", ["uvx", "./server"])
def test_in_the_image_check_advises_a_container_for_an_mcp_server(
    program: str, tmp_path: Path
) -> None:
    sentence = str(not_found(program, root=tmp_path))
    assert "nothing can be installed in this image" in sentence
    assert "container of its own and name its URL" in sentence


async def test_a_program_beside_the_bots_own_needs_no_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    async with offered(named("time", ("mcp-server-time",))) as registry:
        assert registry.has("time_get_current_time")


async def test_the_operator_chooses_tools_by_either_of_their_names(shared: Named) -> None:
    async with offered(
        named("odd", url=shared[1].url, tools=frozenset({"echo", "odd_fail"}))
    ) as registry:
        assert [tool.name for tool in registry.tools] == ["odd_echo", "odd_fail"]
        assert registry.remarks == {}


async def test_a_chosen_tool_that_is_not_there_is_named_with_those_that_are() -> None:
    with capture_logs() as logs:
        async with offered(rude("noisy", tools=frozenset({"act", "akt"}))) as registry:
            assert registry.has("rude_act")
            assert registry.remarks == {
                "rude": "It has no tool akt; it has act. See MCP__SERVERS__RUDE__TOOLS."
            }
    [left_out] = [entry for entry in logs if entry["event"] == "mcp.tools_left_out"]
    assert (left_out["log_level"], left_out["count"]) == ("warning", 1)


async def test_last_words_of_a_server_are_kept() -> None:
    registry = WatchedRegistry()
    registry.last_words = last_words = {"rude": bytearray(b"x" * MAX_LAST_WORDS_BYTES)}
    async with open_mcp_servers(dict([rude("dies")]), registry):
        await registry.settled.wait()
        assert last_words["rude"].endswith(b"I have no idea why.\n")
        assert len(last_words["rude"]) == MAX_LAST_WORDS_BYTES
    assert children() == set()


async def test_an_outage_of_a_server_is_logged_once_for_all_attempts() -> None:
    def levels(event: str) -> list[str]:
        return [entry["log_level"] for entry in logs if entry["event"] == event]

    with capture_logs() as logs:
        async with offered(named("rude", url="http://127.0.0.1:9/mcp")) as registry:
            await registry.until(lambda: len(levels("mcp.lost")) == 3)
    assert levels("mcp.lost") == ["warning", "debug", "debug"]
    assert levels("mcp.retrying")[:2] == ["info", "debug"]
    assert levels("tool.unavailable") == ["warning"]


async def test_a_server_that_knows_only_the_protocol_of_2026_is_reached() -> None:
    async with offered(rude("modern_only")) as registry:
        await registry.until(lambda: registry.has("rude_act"))
        assert await call(registry, "rude_act") == "modern"


# Rude servers


async def test_lines_without_a_message_are_skipped() -> None:
    async with offered(rude("noisy")) as registry:
        assert await call(registry, "rude_act") == "heard"


async def test_a_line_without_end_ends_the_connection() -> None:
    async with offered(rude("endless_line")) as registry:
        assert "was lost" in await failure(registry, "rude_act")
        await registry.until(lambda: "rude" in registry.absent)


async def test_a_flood_is_held_up_and_the_daemon_stays_free() -> None:
    async with offered(rude("flood")) as registry:
        assert await call(registry, "rude_act") == "survived"
        busy = _processor_seconds()
        longest = await _longest_stall(seconds=1.0)
        assert longest < 0.5
        assert _processor_seconds() - busy < 0.7


async def test_list_with_large_schemas_does_not_block_the_loop() -> None:
    registry = WatchedRegistry()
    async with asyncio.TaskGroup() as tasks:
        watching = tasks.create_task(_longest_stall(seconds=2.0))
        async with offered(rude("large_schemas"), registry=registry):
            assert len(registry.tools) == 64
            longest = await watching
    assert longest < 0.5


async def test_answer_of_a_million_parts_fails_its_call_and_does_not_block_the_loop() -> None:
    async with offered(rude("many_parts")) as registry, asyncio.TaskGroup() as tasks:
        watching = tasks.create_task(_longest_stall(seconds=2.0))
        assert "more parts than are read" in await failure(registry, "rude_act")
        assert registry.has("rude_act")
        assert await watching < 0.5


async def test_a_server_that_asks_without_reading_is_cut_off() -> None:
    async with offered(rude("asks_without_reading")) as registry:
        await registry.until(lambda: "rude" in registry.absent)
        assert registry.absent["rude"] == "The MCP server asks and does not read the answers."


async def test_a_server_may_ask_the_client_for_nothing() -> None:
    async with offered(rude("asks")) as registry:
        assert await call(registry, "rude_act") == "-32600 -32600 -32600"


@pytest.mark.parametrize("kind", ["stubborn", "leaves_a_child"])
async def test_nothing_is_left_of_a_server_that_does_not_want_to_end(
    kind: str, tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    async with offered(rude(kind, str(pids))) as registry:
        assert await call(registry, "rude_act") == "done"
        running = [os.pidfd_open(int(pid)) for pid in pids.read_text().split()]
        assert len(running) == 2
        assert not any(select.select(running, [], [], 0))
    assert all(map(ended, running))
    for process in running:
        os.close(process)


async def test_a_server_gets_no_secret_of_the_daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLM__API_KEY", "secret")
    async with offered(rude("environment", env={"TOKEN": "its own"})) as registry:
        names = (await call(registry, "rude_act")).split()
    assert "TOKEN" in names
    assert "PATH" in names
    assert "LLM__API_KEY" not in names


async def test_no_text_of_a_server_reaches_log_or_terminal(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with capture_logs() as logs:
        async with offered(odd()) as registry:
            await call(registry, "odd_echo", text="my darling")
            await failure(registry, "odd_fail")
            await failure(registry, "odd_crash")
            await registry.until(lambda: "odd" in registry.absent)
    written = capfd.readouterr()
    assert "darling" not in repr(logs) + written.out + written.err
    assert "cats" not in repr(logs) + written.out + written.err


async def test_an_error_while_servers_run_is_raised_unchanged() -> None:
    with pytest.raises(KeyError, match="mine"):
        async with offered(rude("noisy")):
            raise KeyError("mine")
    assert children() == set()


async def test_closing_while_connecting_and_while_calling_is_quick() -> None:
    for server in (rude("deaf"), rude("noisy")):
        async with open_mcp_servers(dict([server]), WatchedRegistry()):
            await asyncio.sleep(0)  # the owner starts
        assert children() == set()
    async with asyncio.TaskGroup() as calls:
        async with offered(rude("late")) as registry:
            waiting = calls.create_task(failure(registry, "rude_act"))
            await asyncio.sleep(0)  # the call is made
    assert "was lost before it answered" in waiting.result()


def test_mcp_sdk_is_loaded_only_for_servers_and_may_be_missing() -> None:
    program = """
import asyncio, sys
from tools.catalog import open_tools
from tools.settings import McpServer, ToolsSettings
async def main():
    async with open_tools(ToolsSettings()):
        print("mcp" in sys.modules, "jsonschema" in sys.modules)
    sys.modules["mcp"] = None
    servers = {"x": McpServer(command=("true",))}
    async with open_tools(ToolsSettings(), servers=servers) as registry:
        await registry.settled.wait()
        print(registry.get("calculate").name, registry.absent["x"])
asyncio.run(main())
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True
    )
    lines = done.stdout.splitlines()
    assert "False False" in lines
    assert lines[-1] == "calculate The package mcp is missing: pip install 'signal-tee-bot[mcp]'."


# Streamable HTTP


@pytest.mark.parametrize("arguments", [(), ("json",)])
async def test_a_server_is_used_over_http(arguments: tuple[str, ...]) -> None:
    with listening() as (server, url), serving(server, *arguments):
        async with offered(named("odd", url=url)) as registry:
            assert await call(registry, "odd_echo", text="hello") == "hello"
            assert "full of cats" in await failure(registry, "odd_fail")
            assert len(await call(registry, "odd_giant", megabytes=3)) < 300_000
            too_large = await failure(registry, "odd_giant", megabytes=5)
            assert "refused the call" in too_large
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(1.0):
                    await call(registry, "odd_hang", name="first")
            assert await call(registry, "odd_hangs_cancelled") == "first"
            assert await call(registry, "odd_echo", text="still there") == "still there"
            await call(registry, "odd_grow")
            await registry.until(lambda: registry.has("odd_grown"))


@pytest.mark.full
async def test_a_lost_session_is_replaced() -> None:
    with ExitStack() as stack:
        server, url = stack.enter_context(listening())
        first = stack.enter_context(serving(server))
        async with offered(named("odd", url=url)) as registry:
            assert await call(registry, "odd_echo", text="one") == "one"
            first.kill()
            first.wait(timeout=30)
            stack.enter_context(serving(server))
            await failure(registry, "odd_echo", text="two")
            await registry.until(lambda: "odd" in registry.absent)
            await registry.until(lambda: registry.has("odd_echo"))
            assert await call(registry, "odd_echo", text="three") == "three"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (
            b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n",
            "The MCP server does not accept the credentials (HTTP 401).",
        ),
        (
            b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
            "What answers does not speak MCP. Is its address, or its command, right?",
        ),
        (
            b"HTTP/1.1 307 Temporary Redirect\r\nLocation: /other\r\nContent-Length: 0\r\n\r\n",
            "The MCP server's URL redirects, which is not followed.",
        ),
        (
            b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 0\r\n\r\n",
            "The connection to the MCP server was lost (DecodingError).",
        ),
        (
            b"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n",
            "The MCP server refused the connection (code -32603).",
        ),
        (b"", "The connection to the MCP server was lost (RemoteProtocolError)."),
    ],
)
async def test_an_http_server_that_speaks_no_mcp_is_reported(answer: bytes, reason: str) -> None:
    async with answering(answer) as (url, requests):
        server = named("rude", url=url, token="key")
        async with offered(server) as registry:
            assert registry.absent == {"rude": reason}
    assert len(requests) == 1
    assert b"authorization: bearer key" in requests[0].lower()
    assert b"accept-encoding: identity" in requests[0].lower()


# Arguments of a model


SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "minLength": 2},
        "days": {"type": "integer", "minimum": 1, "maximum": 7},
        "unit": {"enum": ["metric", "imperial"]},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["city"],
    "additionalProperties": False,
}


def checked(schema: dict[str, Any], arguments: str) -> dict[str, Any]:
    return parsed(parameters_of(plain(schema) or {}), arguments)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ("{}", "lacks city"),
        ('{"city": 5}', "'city' should be string"),
        ('{"city": "Graz", "days": true}', "'days' should be integer"),
        ('{"city": "Graz", "unit": "miles"}', "'unit' should be one of metric, imperial"),
        ('{"city": "Graz", "tags": "a"}', "'tags' should be array"),
        ('{"city": "Graz", "town": 1}', "may only have city, days, unit, tags"),
    ],
)
def test_wrong_arguments_are_answered_with_the_expected_ones(arguments: str, problem: str) -> None:
    with pytest.raises(InvalidArguments) as error:
        checked(SCHEMA, arguments)
    assert str(error.value) == problem


def test_a_number_as_text_and_null_for_a_default_are_read_as_they_were_meant() -> None:
    arguments = checked(SCHEMA, '{"city": "Graz", "days": "3", "unit": null}')
    assert arguments == {"city": "Graz", "days": 3}


def test_null_stays_where_a_server_may_take_it() -> None:
    schema = {"type": "object", "properties": {"any": {}, "text": {"type": ["string", "null"]}}}
    assert checked(schema, '{"any": null, "text": null}') == {"any": None, "text": None}
    with pytest.raises(InvalidArguments, match="may only have city"):
        checked(SCHEMA, '{"city": "Graz", "town": null}')


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"x": {"pattern": "^(a+)+$"}}},
        {"patternProperties": {"^(a+)+$": {}}, "additionalProperties": False},
        {"$ref": "#"},
        {"$ref": "#/$defs/missing"},
        {"$ref": "http://127.0.0.1:9/schema"},
        {"$ref": "#/$defs/0", "$defs": {
            str(n): {"allOf": [{"$ref": f"#/$defs/{n + 1}"}] * 10} for n in range(30)
        } | {"30": {}}},
        {"properties": {"x": {"type": "no such type"}}},
        {"properties": {"x": {"uniqueItems": True}}},
    ],
)  # fmt: skip
def test_no_schema_holds_the_daemon_up(schema: dict[str, object]) -> None:
    began = thread_time()
    arguments = {"x": "a" * 5_000 + "!"}
    assert checked({"type": "object", **schema}, json.dumps(arguments)) == arguments
    assert thread_time() - began < 1.5


def test_arguments_that_miss_every_field_are_refused_quickly() -> None:
    names = [f"{number:x}" for number in range(3_000)]
    began = thread_time()
    with pytest.raises(InvalidArguments, match="lacks 0; lacks 1; lacks 2"):
        checked({"type": "object", "required": names}, "{}")
    assert thread_time() - began < 0.5


def _processor_seconds() -> float:
    used = os.times()
    return used.user + used.system


async def _longest_stall(*, seconds: float) -> float:
    """Return the most processor time that passed before the loop came around again.

    Processor time instead of the clock, and no garbage collection, because other programs and
    garbage of earlier tests must not count.
    """
    gc.disable()
    try:
        longest, used, end = 0.0, thread_time(), monotonic() + seconds
        while monotonic() < end:
            await asyncio.sleep(0.005)
            longest, used = max(longest, thread_time() - used), thread_time()
        return longest
    finally:
        gc.enable()


# A service of its own, behind a Unix socket


async def test_a_socket_activated_server_is_reached_and_ends_with_the_connection(
    tmp_path: Path,
) -> None:
    path = tmp_path / "odd"
    command = (sys.executable, "-m", "tests.fakes.mcp_odd")
    async with service_for_each_connection(path, *command) as processes:
        async with offered(named("odd", url=f"unix:{path}")) as registry:
            assert await call(registry, "odd_echo", text="hello") == "hello"
            assert "was lost before it answered" in await failure(registry, "odd_crash")
            await registry.until(lambda: len(processes) == 2 and registry.has("odd_echo"))
            assert await call(registry, "odd_echo", text="again") == "again"
        async with asyncio.timeout(CLOSE_SECONDS):
            assert await processes[-1].wait() == 0
