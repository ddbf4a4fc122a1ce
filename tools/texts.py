"""Bytes as text, for files of people and for documents; nothing here is loaded later."""

import codecs
import re
from collections.abc import Callable
from typing import Final

WESTERN: Final = "cp1252"
"""Windows-1252: Western European, and the most common encoding after UTF-8."""
_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_WORD: Final = re.compile(rb"[A-Za-z\x80-\xff]+")
_FOREIGN_WORD: Final = re.compile(rb"[\x80-\xff]{3,}")
_ASCII_LETTER: Final = re.compile(rb"[A-Za-z]")
_RARELY: Final = 20
_FEW: Final = 3
_LOOKED_AT_BYTES: Final = 65_536
for _name in ("utf-8", "utf-8-sig", "utf-16", "latin-1", WESTERN):
    codecs.lookup(_name)  # loaded before the walls stand


def decoded(
    data: bytes, *, is_whole: bool = True, guess: Callable[[bytes], str] = lambda _: WESTERN
) -> tuple[str, str]:
    """Return bytes as text, and their encoding: by their mark, UTF-8, Western, or by a guess.

    If they are not whole, they may end in the middle of a letter.
    """
    for mark, name in _MARKS:
        if data.startswith(mark):
            return data.decode(name, "replace"), name
    try:
        return data.decode(), "utf-8"
    except UnicodeDecodeError as error:
        if not is_whole and error.start >= len(data) - 3:
            return data[: error.start].decode(), "utf-8"
    name = WESTERN if is_western(data) else guess(data)
    try:
        return data.decode(name), name
    except (UnicodeDecodeError, LookupError):
        return data.decode("latin-1"), "latin-1"


def is_western(data: bytes) -> bool:
    """Return whether bytes that are no UTF-8 look like Western European text.

    There, accented letters stand alone among ASCII ones; words of other alphabets consist of bytes
    beyond ASCII.
    """
    begun = data[:_LOOKED_AT_BYTES]
    words, foreign = (sum(1 for _ in kind.finditer(begun)) for kind in (_WORD, _FOREIGN_WORD))
    return _RARELY * foreign <= words or (
        foreign < _FEW and _ASCII_LETTER.search(begun) is not None
    )
