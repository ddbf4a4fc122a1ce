"""MCP servers that misbehave, written by hand, because no SDK would do any of this.

    python -m tests.fakes.mcp_rude KIND [PIDS]

The pids of the process and its children are appended to the file PIDS.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

TOOL = {"name": "act", "inputSchema": {"type": "object"}}


def write(message: object) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def answer(request: dict[str, Any], result: object) -> None:
    write({"jsonrpc": "2.0", "id": request["id"], "result": result})


def shake_hands(request: dict[str, Any], capabilities: object) -> None:
    answer(
        request,
        {
            "protocolVersion": "2025-06-18",
            "capabilities": capabilities,
            "serverInfo": {"name": "rude", "version": "1"},
        },
    )


def requests() -> Iterator[dict[str, Any]]:
    """Shake hands, then yield what is asked."""
    for line in sys.stdin:
        request = json.loads(line)
        if request["method"] == "initialize":
            shake_hands(request, {"tools": {"listChanged": True}})
        elif "id" in request:
            yield request


def serve(tools: list[Any], on_call: Callable[[dict[str, Any]], None]) -> None:
    for request in requests():
        if request["method"] == "tools/list":
            answer(request, {"tools": tools})
        else:
            on_call(request)


def say(text: str) -> Callable[[dict[str, Any]], None]:
    return lambda request: answer(request, {"content": [{"type": "text", "text": text}]})


def deaf() -> None:
    """Read and never answer."""
    for _ in sys.stdin:
        pass


def stubborn() -> None:
    """Leave a child process; ignore the end of the input and requests to end."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    child = subprocess.Popen(
        [sys.executable, "-c", "import signal, time; signal.pause()"], stdin=subprocess.DEVNULL
    )
    note(child.pid)
    serve([TOOL], say("done"))
    while True:
        time.sleep(60)


def leaves_a_child() -> None:
    """End politely, but not the child."""
    child = subprocess.Popen(["sleep", "1000"], stdin=subprocess.DEVNULL)
    note(child.pid)
    serve([TOOL], say("done"))


def noisy() -> None:
    """Write lines that are no messages to the standard output."""
    sys.stdout.buffer.write(b"Listening on stdio...\n\xff\xfe\x00 no text\n\n")
    write([1, 2])
    write({"jsonrpc": "2.0", "id": 999, "result": {"tools": "none"}})
    serve([TOOL], say("heard"))


def endless_line() -> None:
    """Answer a call with a line that never ends."""

    def on_call(_: dict[str, Any]) -> None:
        while True:
            sys.stdout.write("x" * 65_536)

    serve([TOOL], on_call)


def flood() -> None:
    """Answer a call after some notifications, and go on with them."""

    def on_call(request: dict[str, Any]) -> None:
        for number in range(400):
            write_notification(number)
        say("survived")(request)
        while True:
            write_notification(0)

    serve([TOOL], on_call)


def write_notification(number: int) -> None:
    write(
        {
            "jsonrpc": "2.0",
            "method": "notifications/message",
            "params": {"level": "info", "data": str(number)},
        }
    )


def asks_without_reading() -> None:
    """Send requests for ever after the list was asked for, and read no answer."""
    for request in requests():
        answer(request, {"tools": [TOOL]})
        if request["method"] == "tools/list":
            for number in range(10_000_000):
                write({"jsonrpc": "2.0", "id": f"{number}{'x' * 9_000}", "method": "ping"})


def asks() -> None:
    """Ask the client for abilities that it lacks; answer a call with the client's replies."""
    for request in requests():
        if request["method"] == "tools/list":
            answer(request, {"tools": [TOOL]})
            continue
        codes = []
        for method, params in (
            ("sampling/createMessage", {"messages": [], "maxTokens": 5}),
            ("roots/list", {}),
            (
                "elicitation/create",
                {"message": "?", "requestedSchema": {"type": "object", "properties": {}}},
            ),
        ):
            write({"jsonrpc": "2.0", "id": method, "method": method, "params": params})
            codes.append(json.loads(sys.stdin.readline())["error"]["code"])
        say(" ".join(map(str, codes)))(request)


def odd_tools() -> None:
    """List tools of every odd kind."""
    serve(
        [
            {"name": "no type", "inputSchema": {"properties": {"x": {"type": "integer"}}}},
            {"name": "no_schema"},
            {"name": "no_object", "inputSchema": {"type": "array"}},
            "no tool at all",
            {"name": "same.name", "inputSchema": {"type": "object"}},
            {"name": "same/name", "inputSchema": {"type": "object"}},
            {"name": "same_name", "inputSchema": {"type": "object"}},
            {"name": "same_name", "inputSchema": {"type": "object"}},
            {"name": "n" * 200, "inputSchema": {"type": "object"}},
            {
                "name": "large",
                "inputSchema": {"type": "object", "description": "d" * 20_000},
            },
            {"name": "deep", "inputSchema": nested(60)},
            {
                "name": "remote",
                "description": "  Two\n\n  paragraphs.\u0007  ",
                "inputSchema": {
                    "$schema": "http://json-schema.org/draft-07/schema#",
                    "$id": "http://127.0.0.1:9/schema",
                    "type": "object",
                    "properties": {
                        "title": {"title": "Title", "$ref": "http://127.0.0.1:9/evil"},
                        "local": {"$ref": "#/$defs/local"},
                    },
                    "anyOf": [{"required": ["local"]}],
                    "$defs": {"local": {"type": "integer"}},
                },
            },
        ],
        say("done"),
    )


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"x": schema}}
    return schema


def pages() -> None:
    """List tools on pages without end."""
    for number, request in enumerate(requests()):
        tools = [{**TOOL, "name": f"act_{number}_{i}"} for i in range(10)]
        answer(request, {"tools": tools, "nextCursor": str(number)})


def no_tools() -> None:
    """List no tools at all."""
    for line in sys.stdin:
        request = json.loads(line)
        if request["method"] == "initialize":
            shake_hands(request, {})


def late() -> None:
    """Answer the first call only when there is a second."""
    first: list[dict[str, Any]] = []

    def on_call(request: dict[str, Any]) -> None:
        if not first:
            first.append(request)
            return
        say("late")(first[0])
        say("in time")(request)

    serve([TOOL], on_call)


def crashes() -> None:
    """End in the middle of a call, unless it says not to."""

    def on_call(request: dict[str, Any]) -> None:
        if request["params"]["arguments"].get("crash"):
            sys.exit(3)
        say("alive")(request)

    serve([TOOL], on_call)


def giant() -> None:
    """Answer with as many megabytes as were asked for."""

    def on_call(request: dict[str, Any]) -> None:
        say("x" * request["params"]["arguments"]["megabytes"] * 1_000_000)(request)

    serve([TOOL], on_call)


def many_parts() -> None:
    """Answer with a million parts, each of which is wrong."""

    def on_call(request: dict[str, Any]) -> None:
        answer(request, {"content": [1] * 1_000_000})

    serve([TOOL], on_call)


def large_schemas() -> None:
    """List tools with hundreds of arguments each."""
    properties = {f"p{number}": {"type": "string"} for number in range(100)}
    schema = {"type": "object", "properties": properties}
    tools = [{"name": f"act_{number}", "inputSchema": schema} for number in range(64)]
    serve(tools, say("done"))


def environment() -> None:
    """Name the variables of the environment."""
    serve([TOOL], say(" ".join(os.environ)))


def dies() -> None:
    """End before anything was said."""
    sys.exit("I have no idea why.")


def no_result() -> None:
    """Answer a call with a malformed result."""
    serve([TOOL], lambda request: answer(request, {"content": "text"}))


def unknown_blocks() -> None:
    """Answer a call with words beside parts that no protocol knows."""
    content: list[object] = [
        {"type": "text", "text": "The words."},
        {"type": "hologram", "data": "AAAA"},
        {"type": "markdown", "text": "More words."},
        {"type": "image", "data": "AAAA"},
        {"type": "text", "text": "Marked.", "annotations": {"audience": "all"}},
        {"type": "resource_link", "uri": "file:///a.pdf"},
        "plain words",
        7,
        {},
    ]
    result = {"content": content, "structuredContent": [1], "isError": None}
    serve([TOOL], lambda request: answer(request, result))


def modern_only() -> None:
    """Know no handshake, as servers of the protocol of 2026 may."""
    for line in sys.stdin:
        request = json.loads(line)
        match request["method"]:
            case "server/discover":
                answer(
                    request,
                    {
                        "resultType": "complete",
                        "supportedVersions": ["2026-07-28"],
                        "capabilities": {"tools": {}},
                        "ttlMs": 0,
                        "cacheScope": "public",
                    },
                )
            case "tools/list":
                page = {"tools": [TOOL], "resultType": "complete", "ttlMs": 0}
                answer(request, {**page, "cacheScope": "public"})
            case "tools/call":
                content = [{"type": "text", "text": "modern"}]
                answer(request, {"content": content, "resultType": "complete"})
            case _ if "id" in request:
                error = {"code": -32601, "message": "Method not found"}
                write({"jsonrpc": "2.0", "id": request["id"], "error": error})


def note(pid: int) -> None:
    if len(sys.argv) > 2:
        with Path(sys.argv[2]).open("a") as pids:
            pids.write(f"{pid}\n")


if __name__ == "__main__":
    note(os.getpid())
    globals()[sys.argv[1]]()
