"""Bytes to text, whatever they are and whatever they claim to be. Runs inside the sandbox."""

import codecs
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from trafilatura.utils import detect_encoding

_META_BYTES: Final = 1_024  # how far browsers look for <meta charset>
_DETECTED_BYTES: Final = 65_536
_IN_HEADER: Final = re.compile(r"charset\s*=\s*[\"']?([^\s\"';]+)", re.IGNORECASE)
_IN_MARKUP: Final = re.compile(rb"(?:charset|encoding)\s*=\s*[\"']?([\w.:-]+)", re.IGNORECASE)
_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
# What browsers take names for, where Python means less by them (WHATWG, Encoding, 4.2).
_WIDER: Final = {
    "ascii": "cp1252",
    "iso8859-1": "cp1252",
    "iso8859-9": "cp1254",
    "iso8859-11": "cp874",
    "tis-620": "cp874",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
    "big5": "big5hkscs",
}
_NOT_OF_THE_WEB: Final = frozenset(
    {"idna", "punycode", "unicode-escape", "raw-unicode-escape", "undefined", "utf-7"}
)
_LAST_RESORT: Final = "cp1252"  # has a letter for nearly every byte


def decoded(body: bytes, content_type: str) -> str:
    """Return bytes as text: by their mark, their header, their markup, as UTF-8, or by a guess."""
    claimed = list(_claimed(body, content_type))
    for name in [*claimed, "utf-8"]:
        with suppress(UnicodeError):
            return body.decode(name)
    guessed = [name for name in map(_known, detect_encoding(body[:_DETECTED_BYTES])) if name]
    texts = (body.decode(name, "replace") for name in [*claimed, *guessed, _LAST_RESORT])
    return min(texts, key=lambda text: text.count("\ufffd") * 100 > len(text))


def _claimed(body: bytes, content_type: str) -> Iterator[str]:
    for mark, name in _MARKS:
        if body.startswith(mark):
            yield name
    if (header := _IN_HEADER.search(content_type)) and (name := _known(header[1])):
        yield name
    if markup := _IN_MARKUP.search(body[:_META_BYTES]):
        name = _known(markup[1].decode("ascii"))
        if name and not name.startswith("utf-16"):  # or the markup could not have been read
            yield name


def _known(label: str) -> str:
    """Return the codec that a label means, or an empty text."""
    try:
        name = codecs.lookup(label).name
        "".encode(name)  # some codecs are not for text
    except (LookupError, ValueError, OSError):
        return ""  # OSError: it is not loaded, and nothing can be any more
    return "" if name in _NOT_OF_THE_WEB else _WIDER.get(name, name)
