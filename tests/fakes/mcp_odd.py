"""An MCP server with the odd cases, made with the SDK.

python -m tests.fakes.mcp_odd          over its standard streams
python -m tests.fakes.mcp_odd FD       over streamable HTTP on an open socket, in event streams
python -m tests.fakes.mcp_odd FD json  the same, in JSON
"""

import asyncio
import os
import socket
import sys
from typing import Any

import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.shared.exceptions import MCPError
from mcp.types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
    ToolAnnotations,
)

READ_ONLY = ToolAnnotations(read_only_hint=True)
server = MCPServer("odd", log_level="ERROR")
cancelled: list[str] = []


@server.tool(annotations=READ_ONLY)
def echo(text: str) -> str:
    """Say it again.

    And keep quiet about it.
    """
    sys.stderr.write(f"{text}\n")
    return text


@server.tool(annotations=ToolAnnotations(destructive_hint=True))
def crash() -> str:
    """End the process in the middle of a call."""
    os._exit(3)


@server.tool()
async def hang(name: str) -> str:
    """Never answer."""
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        cancelled.append(name)
        raise
    return ""


@server.tool()
def hangs_cancelled() -> str:
    """Name the calls of `hang` that were cancelled."""
    return " ".join(cancelled) or "none"


@server.tool()
def fail() -> str:
    """Fail in words."""
    raise ToolError("The disk is full of cats.")


@server.tool()
def refuse() -> str:
    """Fail in the protocol."""
    raise MCPError(-32055, "Not today.\nNor tomorrow.")


@server.tool()
def giant(megabytes: int) -> CallToolResult:
    """Answer with a lot of text."""
    return CallToolResult(content=[TextContent(text="x" * megabytes * 1_000_000)])


@server.tool()
def everything() -> CallToolResult:
    """Answer with one of each kind."""
    return CallToolResult(
        content=[
            TextContent(text="A text."),
            ImageContent(data="A" * 16_000, mime_type="image/png"),
            AudioContent(data="AAAA", mime_type="audio/wav"),
            ResourceLink(name="report", uri="file:///report.pdf"),
            EmbeddedResource(
                resource=TextResourceContents(uri="note://1", text="Buy milk.", mime_type=None)
            ),
            EmbeddedResource(resource=BlobResourceContents(uri="blob://1", blob="AAAA")),
        ],
    )


@server.tool()
def images() -> CallToolResult:
    """Answer with too many images; the first one is not an image."""
    broken = ImageContent(data="What is Base64?", mime_type="image/png")
    return CallToolResult(content=[broken, *[ImageContent(data="AAAA", mime_type="image/png")] * 6])


@server.tool()
def fail_with_an_image() -> CallToolResult:
    """Fail, and show how."""
    shown = ImageContent(data="AAAA", mime_type="image/png")
    return CallToolResult(content=[shown], is_error=True)


@server.tool()
def structured_only() -> CallToolResult:
    """Answer with structured content and a text that says less."""
    return CallToolResult(
        content=[TextContent(text="2 rows.")], structured_content={"rows": [1, 2]}
    )


@server.tool()
def structured_twice() -> dict[str, Any]:
    """Answer with structured content and its equivalent text."""
    return {"rows": [1, 2]}


@server.tool()
def structured_as_content() -> CallToolResult:
    """Answer with a text and the same text as structured content, as servers from npm do."""
    return CallToolResult(
        content=[TextContent(text="Buy milk.")], structured_content={"content": "Buy milk."}
    )


@server.tool()
async def grow(ctx: Context) -> str:
    """Get one more tool and say so."""

    def grown() -> str:
        """Be new."""
        return "new"

    server.add_tool(grown)
    await ctx.request_context.session.send_tool_list_changed()
    return "grown"


def over_http(listening: int, *, as_json: bool) -> None:
    """Serve on a socket that is already open, so that clients need not wait for it."""
    app = server.streamable_http_app(json_response=as_json)
    config = uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=1)
    uvicorn.Server(config).run(sockets=[socket.socket(fileno=listening)])


if __name__ == "__main__":
    if len(sys.argv) > 1:
        over_http(int(sys.argv[1]), as_json=sys.argv[2:] == ["json"])
    else:
        server.run()
