"""Tool names as Gemini takes them; every other API takes them as they are.

All names are `[a-zA-Z0-9_-]{1,64}` (`tools.base.Tool`). Gemini's must begin with a letter or an
underscore, and those of an MCP server called `1password` do not. No name begins with an underscore
and a digit or hyphen by itself, so one underscore more can be taken away again.
"""

import re
from typing import Final

_REFUSED_BEGINNING: Final = re.compile(r"(?=[0-9-])")
_ADDED_BEGINNING: Final = re.compile(r"_(?=[0-9-])")


def gemini_name(name: str) -> str:
    """Return a tool's name for Gemini, 65 characters at most."""
    return f"_{name}" if _REFUSED_BEGINNING.match(name) else name


def from_gemini_name(name: str) -> str:
    """Return the tool's own name."""
    return name[1:] if _ADDED_BEGINNING.match(name) else name
