"""Answers that were cut off at the limit of tokens, and how the rest is joined to them."""

import re
from typing import Final

GO_ON: Final = (
    "Your answer was cut off. Go on exactly where it ends, even in the middle of a sentence."
    " Repeat nothing of it, and say nothing about this."
)
MAX_OVERLAP_CHARACTERS: Final = 2_000
MIN_OVERLAP_CHARACTERS: Final = 6
"""Shorter ones are taken for chance."""

MAX_BROKEN_WORD_CHARACTERS: Final = 40
BEGINNING_CHARACTERS: Final = 60
"""A rest that begins as the answer did, for so long, is the answer anew."""

_FENCE: Final = re.compile(r"^[ \t]*(?:```|~~~)", re.MULTILINE)
_FENCE_AGAIN: Final = re.compile(r"\A\s*(?:```|~~~)[ \t]*\w[^\n`]*\n")
"""A fence without a language closes the block."""


def to_last_word(text: str) -> str:
    """Return a text without the word that it ends in, which may be half of one.

    What is left ends in white space, so a rest can be joined to it without a guess. A text without
    spaces, as in Chinese, is left as it is.
    """
    whole = text.rstrip()
    if whole != text:
        return text
    last_space = max(text.rfind(" "), text.rfind("\n"))
    if last_space < 0 or len(text) - last_space > MAX_BROKEN_WORD_CHARACTERS:
        return text
    return text[: last_space + 1]


def joined(begun: str, rest: str) -> str:
    """Return an answer and its rest as one, without what the rest repeats.

    Args:
        begun: ends in white space, see `to_last_word`, or in the middle of a text without spaces.
        rest: as the model wrote it.
    """
    beginning = begun.strip()[:BEGINNING_CHARACTERS]
    if len(beginning) == BEGINNING_CHARACTERS and rest.lstrip().startswith(beginning):
        return max(begun, rest.lstrip(), key=len)
    if len(_FENCE.findall(begun)) % 2:
        rest = _FENCE_AGAIN.sub("", rest, count=1)
    if not begun or (begun[-1].isspace() and not begun.endswith("\n")):
        rest = rest.lstrip()
    return begun + rest[_overlap(begun, rest) :]


def _overlap(begun: str, rest: str) -> int:
    """Return how many characters at the start of a rest stand at the end of the answer already."""
    ending = begun.rstrip()[-MAX_OVERLAP_CHARACTERS:]
    beginning = rest[:MAX_OVERLAP_CHARACTERS]
    # The longest border of both, by the failure function of Knuth, Morris and Pratt (1977).
    both = f"{beginning}\0{ending}"
    borders = [0] * len(both)
    for position in range(1, len(both)):
        length = borders[position - 1]
        while length and both[position] != both[length]:
            length = borders[length - 1]
        borders[position] = length + (both[position] == both[length])
    found = borders[-1]
    last_line = ending.rpartition("\n")[2].strip()
    is_unfinished_line = found == len(last_line) and not begun.endswith("\n")
    if found < MIN_OVERLAP_CHARACTERS and not is_unfinished_line:
        return 0
    after = rest[found:]
    has_gap = begun.endswith((" ", "\n"))
    return found + (len(after) - len(after.lstrip()) if has_gap else 0)
