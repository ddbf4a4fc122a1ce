"""Documents: their kinds, recognised by first bytes and declared types, and their text."""

import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Final, Literal, NoReturn, Self

from tools.sandbox.errors import WorkError

MAX_CHARACTERS: Final = 1_000_000
MAX_LINE_CHARACTERS: Final = 400
"""Bound of a title and of a note."""


DocumentKind = Literal["html", "pdf", "sheets", "text", "words"]
"""Kinds that can be read; words: a text or a presentation of an office program."""


@dataclass(frozen=True, slots=True)
class Document:
    """A document as text, at most MAX_CHARACTERS long.

    Attributes:
        title: on one line; may be empty.
        text: paragraphs.
        note: a sentence about missing parts, or empty.
    """

    title: str
    text: str
    note: str = ""

    def as_text(self) -> str:
        """Return the title and the note, cut to a line each, and below them the text."""
        lines = (line.replace("\n", " ")[:MAX_LINE_CHARACTERS] for line in (self.title, self.note))
        return "\n".join((*lines, self.text))

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Parse the text of `as_text`, and cut long parts; ValueError if it has another form."""
        title, note, words = text.split("\n", 2)
        return cls(title[:MAX_LINE_CHARACTERS], words[:MAX_CHARACTERS], note[:MAX_LINE_CHARACTERS])


_MAX_SHOWN: Final = 60
_SNIFFED_BYTES: Final = 1_024
_ZIP: Final = b"PK\x03\x04"
_OLE: Final = b"\xd0\xcf\x11\xe0"
_OLD_WORKBOOK: Final = "Workbook".encode("utf-16-le")
_OFFICE_PARTS: Final[Mapping[bytes, DocumentKind]] = {
    b"application/vnd.oasis.opendocument.spreadsheet": "sheets",
    b"application/vnd.oasis.opendocument.": "words",
    b"word/document.xml": "words",
    b"ppt/presentation.xml": "words",
    b"xl/workbook.": "sheets",
}
_OFFICE_TYPES: Final = (
    "application/msexcel",
    "application/vnd.ms-excel",
    "application/vnd.oasis.opendocument.",
    "application/vnd.openxmlformats-officedocument.",
)
_TEXT_TYPES: Final = frozenset(
    f"application/{name}"
    for name in (
        *("ecmascript", "javascript", "json", "sql", "toml", "x-httpd-php", "x-javascript"),
        *("x-ndjson", "x-sh", "xml", "yaml"),
    )
)
_HTML_TYPES: Final = frozenset({"text/html", "application/xhtml+xml"})
_UNSAID_TYPES: Final = frozenset(
    {"", "application/octet-stream", "application/pdf", "binary/octet-stream", "unknown/unknown"}
)
_HTML_STARTS: Final = (b"<!doctype html", b"<html", b"<head", b"<body", b"<title")
_BYTE_ORDER_MARKS: Final = (b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")
_SORTS: Final = {"image": "an image", "audio": "a sound", "video": "a video", "font": "a font"}


def kind_of(content_type: str, body: bytes) -> DocumentKind:
    """Return the kind of a document, even if its declared type is wrong or missing.

    WorkError names the kind of an unreadable document.
    """
    declared = _declared(content_type)
    start = body[:_SNIFFED_BYTES]
    if b"%PDF-" in start:
        return "pdf"
    if (kind := _office_kind(body)) is not None:
        return kind
    if (sort := _SORTS.get(declared.partition("/")[0], "")) and declared != "image/svg+xml":
        raise _unreadable(sort, declared)
    if b"\0" in start and not start.startswith(_BYTE_ORDER_MARKS) and "utf-16" not in content_type:
        raise _unreadable("binary data", declared)
    if declared in _HTML_TYPES:
        return "html"
    if _is_text(declared):
        return "text"
    if declared in _UNSAID_TYPES or declared.startswith(_OFFICE_TYPES):  # Windows: CSV is Excel
        is_html = start.lstrip().lower().startswith(_HTML_STARTS)
        return "html" if is_html else "text"
    raise _unreadable("a file", declared)


def may_be_document(content_type: str) -> bool:
    """Tell by the declared type alone whether `kind_of` may accept a file."""
    declared = _declared(content_type)
    is_known = declared in _HTML_TYPES | _UNSAID_TYPES or declared.startswith(_OFFICE_TYPES)
    return is_known or _is_text(declared)


def _office_kind(body: bytes) -> DocumentKind | None:
    """Recognise an office document by the names of its parts, which are not compressed."""
    if body.startswith(_OLE):
        return "sheets" if _OLD_WORKBOOK in body else None
    if not body.startswith(_ZIP):
        return None
    return next((kind for part, kind in _OFFICE_PARTS.items() if part in body), None)


def _declared(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


def _is_text(declared: str) -> bool:
    is_marked_up = declared.endswith(("+xml", "+json", "+yaml"))
    return declared.startswith("text/") or declared in _TEXT_TYPES or is_marked_up


def _unreadable(sort: str, name: str) -> WorkError:
    shown = f" ({name[:_MAX_SHOWN]})" if name else ""
    return WorkError(f"This is {sort}{shown}, which I cannot read.")


class TimeIsUp(BaseException):
    """End of the allowed time. Not an Exception, because libraries catch those and go on."""


@contextmanager
def time_bound(seconds: float) -> Iterator[None]:
    """Interrupt the block by TimeIsUp; only for a process with nothing else to do.

    A document may be made to keep a library busy.
    """
    before = signal.signal(signal.SIGALRM, _interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _interrupt(_: int, __: FrameType | None) -> NoReturn:
    raise TimeIsUp
