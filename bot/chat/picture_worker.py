"""Draw a table. Runs inside the sandbox: `python -I -m bot.chat.picture_worker`.

A request is a table in Markdown, the reply a PNG as Base64. A table that a phone shows well as
text, or that cannot be drawn well, is a WorkError.
"""

import base64
import unicodedata
from collections.abc import Sequence
from importlib import resources
from io import BytesIO
from itertools import groupby
from typing import Final

from PIL import Image, ImageDraw, ImageFont

from bot.signal.formatting import wide_table
from tools.sandbox.child import serve
from tools.sandbox.errors import WorkError

MAX_COLUMNS: Final = 16
MAX_ROWS: Final = 60
MAX_LINES: Final = 12
"""Lines of one cell."""
MAX_HEIGHT: Final = 5_000
"""Pixels."""
MAX_BYTES: Final = 2**20

SIZE: Final = 24
LINE: Final = 32
MARGIN: Final = 12
CELL_WIDTH: Final = 300
"""Pixels; longer text is broken into lines."""

_BLACK, _GREY, _SHADE, _WHITE = 0, 170, 235, 255
_SIMILAR: Final = str.maketrans({"✅": "✔", "❌": "✘", "⭐": "★", "\ufe0f": None})
"""Emoji that are frequent in tables and have a sign of the same meaning in the font."""
_LETTER: Final = "REGIONAL INDICATOR SYMBOL LETTER "
_BASIC: Final = ImageFont.Layout.BASIC
_FONT: Final = ImageFont.truetype(
    BytesIO(resources.files("bot.chat").joinpath("font/DejaVuSans.ttf").read_bytes()),
    SIZE,
    layout_engine=_BASIC,
)
"""In memory, because no file can be opened inside."""
_MISSING: Final = bytes(_FONT.getmask("\uffff"))
_PEN: Final = ImageDraw.Draw(Image.new("L", (1, 1)))


def drawn(markdown: str) -> bytes:
    """Return a PNG of the one table in a text; WorkError if it needs no picture, or cannot be."""
    rows = wide_table(markdown)
    if not rows:
        raise WorkError("There is no table too wide for a phone.")
    if len(rows[0]) > MAX_COLUMNS or len(rows) > MAX_ROWS:
        raise WorkError("The table is too large.")
    texts = [
        [unicodedata.normalize("NFC", _without_emoji(cell.translate(_SIMILAR))) for cell in row]
        for row in rows
    ]
    if not all(map(_has_glyph, {character for row in texts for cell in row for character in cell})):
        raise WorkError("The font lacks characters of the table.")
    cells = [[_broken(cell) for cell in row] for row in texts]
    if any(len(lines) > MAX_LINES for row in cells for lines in row):
        raise WorkError("A cell is too long.")
    widths = [
        max((_width(line) for lines in column for line in lines), default=0) + 2 * MARGIN
        for column in zip(*cells, strict=True)
    ]
    heights = [max(1, *map(len, row)) * LINE + MARGIN for row in cells]
    if sum(heights) > MAX_HEIGHT:
        raise WorkError("The table is too high.")
    return _saved(cells, widths, heights)


def _saved(
    cells: Sequence[Sequence[Sequence[str]]], widths: Sequence[int], heights: Sequence[int]
) -> bytes:
    image = Image.new("L", (sum(widths) + 1, sum(heights) + 1), _WHITE)
    pen = ImageDraw.Draw(image)
    pen.rectangle((0, 0, image.width, heights[0]), fill=_SHADE)
    top = 0
    for row, height in zip(cells, heights, strict=True):
        left = 0
        for lines, width in zip(row, widths, strict=True):
            pen.rectangle((left, top, left + width, top + height), outline=_GREY)
            for number, line in enumerate(lines):
                place = (left + MARGIN, top + MARGIN // 2 + number * LINE)
                pen.text(place, line, _BLACK, _FONT)
            left += width
        top += height
    file = BytesIO()
    image.save(file, "PNG", optimize=True)
    if file.tell() > MAX_BYTES:
        raise WorkError("The picture is too large.")
    return file.getvalue()


def _without_emoji(cell: str) -> str:
    """Return a cell without emoji that the font lacks; one of only such emoji is put into words."""
    lacking = [one for one in cell if _is_emoji(one) and not _has_glyph(one)]
    kept = " ".join("".join(one for one in cell if one not in lacking).split())
    if not lacking or any(map(str.isalnum, kept)):
        return kept
    runs = ((_in_words(emoji), len([*run])) for emoji, run in groupby(lacking))
    named = [f"{count} \u00d7 {name}" if count > 1 else name for name, count in runs if name]
    return " ".join([kept, *named]).strip()


def _is_emoji(character: str) -> bool:
    return unicodedata.category(character) in {"So", "Sk"} or character == "\N{ZERO WIDTH JOINER}"


def _in_words(emoji: str) -> str:
    """Return what an emoji shows: its name, for a letter of a flag the letter, else nothing."""
    name = unicodedata.name(emoji, "")
    if name.startswith(_LETTER):
        return name.removeprefix(_LETTER)
    return "" if name.startswith(("EMOJI MODIFIER", "ZERO WIDTH")) else name.lower()


def _has_glyph(character: str) -> bool:
    """Whether the font shows a character by itself, from left to right."""
    if character == " ":
        return True
    category, direction = unicodedata.category(character), unicodedata.bidirectional(character)
    if category[0] in "CM" or direction in {"R", "AL"}:
        return False
    return bytes(_FONT.getmask(character)) != _MISSING


def _broken(text: str) -> list[str]:
    """Return a text in lines that fit into a cell."""
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".lstrip()
        if _width(longer) <= CELL_WIDTH:
            lines[-1] = longer
            continue
        lines += [""] if lines[-1] else []
        for character in word:
            if _width(lines[-1] + character) > CELL_WIDTH:
                lines.append("")
            lines[-1] += character
    return lines


def _width(text: str) -> int:
    return int(_PEN.textlength(text, _FONT)) + 1


def answer(request: str) -> str:
    """Return the picture of a table as Base64; raises WorkError."""
    return base64.b64encode(drawn(request)).decode("ascii")


if __name__ == "__main__":
    drawn("| a | b | c | d | é |\n|-|-|-|-|-|\n| 1 | 2 | 3 | 4 | 5 |")  # loads everything now
    serve(answer)
