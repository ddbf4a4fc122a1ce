"""What MCP servers wrote last to their standard error, for the operator who asks why one fails.

`check` shows it on the operator's terminal. The daemon keeps none of it: there it may hold what
people wrote.
"""

import re
from typing import Final

from tools.display import visible

MAX_BYTES: Final = 8_192
"""Kept of each server."""
MAX_CHARACTERS: Final = 300

_COLOURS: Final = re.compile(r"\x1b\[[\d;]*m")
_SAYS_NOTHING: Final = re.compile(
    r"[\W_]*|hint: .*|Node\.js v.*|\s+at .*|\s+'.*"
    r"|\s+(address|code|errno|path|port|requireStack|syscall|url): .*"
    r"|npm (error|ERR!) (404( Note.*| tarball.*)?|A complete log.*)"
)
"""Lines that uv, Node and npm write below the one that gives the reason."""


class LastWords:
    """The end of what each server wrote."""

    def __init__(self) -> None:
        self._ends: dict[str, bytes] = {}

    def hear(self, server: str, data: bytes) -> None:
        """Add what a server has written."""
        self._ends[server] = (self._ends.get(server, b"") + data)[-MAX_BYTES:]

    def of(self, server: str) -> str:
        """Return the last line of a server that says something, with nothing hidden in it."""
        text = _COLOURS.sub("", self._ends.get(server, b"").decode(errors="replace"))
        lines = (line for line in reversed(text.splitlines()) if not _SAYS_NOTHING.fullmatch(line))
        line = visible(next(lines, "").strip())
        return line if len(line) <= MAX_CHARACTERS else f"{line[: MAX_CHARACTERS - 1]}…"
