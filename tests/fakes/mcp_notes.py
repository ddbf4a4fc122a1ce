"""A real MCP server over its standard streams: notes in a file, written and read.

python -m tests.fakes.mcp_notes FILE
"""

import sys
from pathlib import Path

from mcp.server.mcpserver import MCPServer
from mcp_types import ToolAnnotations

NOTES = Path(sys.argv[1])
server = MCPServer("notes")


@server.tool()
def write(text: str) -> str:
    """Write a note. It is added to the end of the file."""
    with NOTES.open("a") as notes:
        notes.write(f"{text}\n")
    return "Written."


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def read() -> str:
    """Read all notes."""
    return NOTES.read_text() if NOTES.exists() else "There are no notes."


if __name__ == "__main__":
    server.run()
