"""Bytes of a file as text and back, in the same encoding and with the same line ends."""

import codecs
from dataclasses import dataclass
from typing import Final

from sandbox.errors import WorkError

BINARY_BYTES: Final = 8_192
"""Where a null byte tells that a file is no text."""
_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_LAST_RESORT: Final = "cp1252"
for _name in ("utf-8", "utf-8-sig", "utf-16-le", "utf-16-be", "latin-1", _LAST_RESORT):
    codecs.lookup(_name)  # loaded before the walls stand


@dataclass(frozen=True, slots=True)
class Text:
    """What a file says.

    Attributes:
        text: without the mark of its encoding.
        encoding: as Python calls it.
    """

    text: str
    encoding: str

    def with_text(self, text: str) -> bytes:
        """Return other words as bytes of this file; WorkError where it has no letter for one."""
        mark = next((mark for mark, name in _MARKS if name == self.encoding), b"")
        if self.encoding == "utf-8-sig":
            mark = b""  # the encoding writes it by itself
        try:
            return mark + text.encode(self.encoding)
        except UnicodeEncodeError:
            raise WorkError(
                f"The file is written in {self.encoding}, which lacks a letter of the new text."
            ) from None


def is_text(data: bytes) -> bool:
    """Whether a file that begins with these bytes is text."""
    return data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or b"\0" not in data


def decoded(data: bytes, *, is_whole: bool = True) -> Text:
    """Return bytes as text: by their mark, as UTF-8, or as Western European.

    Args:
        data: of a file.
        is_whole: they are all of it; else they may end in the middle of a letter.
    """
    for mark, name in _MARKS:
        if data.startswith(mark):
            return Text(data[len(mark) :].decode(name.removesuffix("-sig"), "replace"), name)
    try:
        return Text(data.decode(), "utf-8")
    except UnicodeDecodeError as error:
        if not is_whole and error.start >= len(data) - 3:
            return Text(data[: error.start].decode(), "utf-8")
    try:
        return Text(data.decode(_LAST_RESORT), _LAST_RESORT)
    except UnicodeDecodeError:
        return Text(data.decode("latin-1"), "latin-1")
