"""The reference server from npm, which has one of everything, over both transports."""

import asyncio
import json
import os
import shutil
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest

from tools.base import Caller, ToolError, ToolOutput
from tools.mcp.servers import open_mcp_servers
from tools.registry import Registry
from tools.settings import McpServer

PACKAGE: Final = "@modelcontextprotocol/server-everything"
VERSION: Final = "2026.8.31"
INSTALL_SECONDS: Final = 300.0

pytestmark = pytest.mark.full


async def installed(prefix: Path) -> tuple[str, str]:
    """Install the server; return the command that runs it, without its transport."""
    node, npm = shutil.which("node"), shutil.which("npm")
    assert node is not None, "This test runs a server from npm: node is needed."
    assert npm is not None, "This test runs a server from npm: npm is needed."
    process = await asyncio.create_subprocess_exec(
        npm,
        *("install", "--no-save", "--ignore-scripts", "--no-audit", "--no-fund"),
        *("--prefix", str(prefix), f"{PACKAGE}@{VERSION}"),
        stdout=asyncio.subprocess.DEVNULL,
    )
    async with asyncio.timeout(INSTALL_SECONDS):
        assert await process.wait() == 0, f"npm could not install {PACKAGE}."
    return node, str(prefix / "node_modules" / PACKAGE / "dist" / "index.js")


@asynccontextmanager
async def serving(node: str, program: str) -> AsyncIterator[str]:
    """Run the server over HTTP and yield its URL."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = await asyncio.create_subprocess_exec(
        node,
        program,
        "streamableHttp",
        env={**os.environ, "PORT": str(port)},
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    try:
        async with asyncio.timeout(30):
            while b"listening" not in await process.stderr.readline():
                assert process.returncode is None, "The server ended."
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        await process.communicate()


async def call(registry: Registry, name: str, /, **arguments: object) -> str:
    tool = registry.get(name)
    assert tool is not None, [tool.name for tool in registry.tools]
    output = await tool.run(tool.parse(json.dumps(arguments)), Caller("someone"))
    assert isinstance(output, ToolOutput)
    return output.text


async def use(server: McpServer) -> None:
    registry = Registry()
    async with open_mcp_servers({"npm": server}, registry):
        async with asyncio.timeout(30):
            await registry.settled.wait()
        assert registry.absent == {}
        assert await call(registry, "npm_echo", message="hello") == "Echo: hello"
        assert "is 42" in await call(registry, "npm_get-sum", a=40, b=2)
        assert "[image, image/png," in await call(registry, "npm_get-tiny-image")
        weather = await call(registry, "npm_get-structured-content", location="Chicago")
        assert set(json.loads(weather)) == {"temperature", "conditions", "humidity"}
        assert (await call(registry, "npm_get-resource-links", count=2)).count("[resource ") == 2
        slow = registry.get("npm_trigger-long-running-operation")
        assert slow is not None
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await slow.run({"duration": 5, "steps": 50}, Caller("someone"))
        assert await call(registry, "npm_echo", message="again") == "Echo: again"
        wrong = registry.get("npm_get-sum")
        assert wrong is not None
        with pytest.raises(ToolError, match="MCP server npm"):
            await wrong.run({"a": "forty", "b": 2}, Caller("someone"))


async def test_the_reference_server_is_used_over_both_transports(tmp_path: Path) -> None:
    node, program = await installed(tmp_path)
    await use(McpServer(command=(node, program, "stdio")))
    async with serving(node, program) as url:
        await use(McpServer(url=url))
