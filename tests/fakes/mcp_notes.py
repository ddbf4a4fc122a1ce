"""An MCP server over its standard streams: notes in a file, written and read.

    python -m tests.fakes.mcp_notes FILE

Written without the SDK, which takes a second to load; some stories start the server many times.
"""

import sys
from pathlib import Path
from typing import Any

from tests.fakes.mcp_rude import answer, serve

NOTES = Path(sys.argv[1])

TOOLS = [
    {
        "name": "write",
        "description": "Write a note. It is added to the end of the file.",
        "inputSchema": {
            "type": "object",
            "properties": {"text": {"type": "string"}},
            "required": ["text"],
        },
    },
    {
        "name": "read",
        "description": "Read all notes.",
        "inputSchema": {"type": "object", "properties": {}},
        "annotations": {"readOnlyHint": True},
    },
]


def write(text: str) -> str:
    with NOTES.open("a") as notes:
        notes.write(f"{text}\n")
    return "Written."


def read() -> str:
    return NOTES.read_text() if NOTES.exists() else "There are no notes."


def call(request: dict[str, Any]) -> None:
    params = request["params"]
    said = write(params["arguments"]["text"]) if params["name"] == "write" else read()
    answer(request, {"content": [{"type": "text", "text": said}]})


if __name__ == "__main__":
    serve(TOOLS, call)
