"""All MCP servers of the settings, each kept by a task of its own."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from tools.mcp.connection import McpConnection
from tools.mcp.last_words import LastWords
from tools.registry import Registry
from tools.settings import McpServer


@asynccontextmanager
async def open_mcp_servers(
    servers: Sequence[McpServer], registry: Registry, last_words: LastWords | None = None
) -> AsyncIterator[None]:
    """Offer the tools of servers, which come and go on their own; nothing here waits for them.

    Args:
        servers: each with a name of its own.
        registry: told at once that they are expected, and later what became of each.
        last_words: keeps what they write to their standard error; discarded without it.
    """
    leaving: Exception | None = None
    for server in servers:
        registry.expect(server.name)
    async with asyncio.TaskGroup() as owners:
        connections = [McpConnection(server, registry, last_words) for server in servers]
        tasks = [owners.create_task(connection.keep()) for connection in connections]
        try:
            yield
        except Exception as error:  # no boundary: raised again outside of the group, unwrapped
            leaving = error
        finally:
            for connection, task in zip(connections, tasks, strict=True):
                connection.close()
                task.cancel()
    if leaving is not None:
        raise leaving
