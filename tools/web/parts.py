"""Long texts in parts that fit a number of bytes."""

import re
from typing import Final

_BREAKS: Final = (
    re.compile(r"\n\s*\n"),
    re.compile(r"\n"),
    re.compile(r"[.!?…。]\s"),
    re.compile(r"\s"),
)


def part_of(text: str, offset: int, room_bytes: int) -> str:
    """Return what fits from an offset on, ending at a paragraph, line, sentence or word.

    Args:
        text: without lone surrogates.
        offset: where the part begins, in characters.
        room_bytes: of the part as UTF-8.
    """
    fitting = text[offset : offset + room_bytes].encode()[:room_bytes].decode(errors="ignore")
    if offset + len(fitting) >= len(text):
        return fitting
    latest_third = 2 * len(fitting) // 3
    for pattern in _BREAKS:
        if ends := [found.end() for found in pattern.finditer(fitting, latest_third)]:
            return fitting[: ends[-1]]
    return fitting
