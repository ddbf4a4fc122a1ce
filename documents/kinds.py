"""What kind of document an answer is: by its own first bytes, then by what the server calls it."""

from enum import StrEnum
from typing import Final

from sandbox.errors import WorkError


class DocumentKind(StrEnum):
    """What can be read."""

    HTML = "html"
    PDF = "pdf"
    SHEETS = "sheets"
    TEXT = "text"
    WORDS = "words"
    """A text or a presentation of an office program."""


_MAX_SHOWN: Final = 60
_SNIFFED_BYTES: Final = 1_024

_SIGNATURES: Final = (
    (b"\x89PNG\r\n", "an image", "image/png"),
    (b"\xff\xd8\xff", "an image", "image/jpeg"),
    (b"GIF8", "an image", "image/gif"),
    (b"PK\x03\x04", "an archive or office document", "application/zip"),
    (b"\x1f\x8b", "a compressed file", "application/gzip"),
    (b"\x7fELF", "a program", "application/x-executable"),
    (b"ID3", "a sound", "audio/mpeg"),
    (b"OggS", "a sound", "audio/ogg"),
    (b"\xd0\xcf\x11\xe0", "an office document", "application/x-ole-storage"),
)
_ZIP: Final = b"PK\x03\x04"
_OLE: Final = b"\xd0\xcf\x11\xe0"
_OLD_WORKBOOK: Final = "Workbook".encode("utf-16-le")
_OFFICE_PARTS: Final = {
    b"application/vnd.oasis.opendocument.spreadsheet": DocumentKind.SHEETS,
    b"application/vnd.oasis.opendocument.": DocumentKind.WORDS,
    b"word/document.xml": DocumentKind.WORDS,
    b"ppt/presentation.xml": DocumentKind.WORDS,
    b"xl/workbook.": DocumentKind.SHEETS,
}
_OFFICE_TYPES: Final = frozenset(
    {
        "application/msexcel",
        "application/vnd.ms-excel",
        "application/vnd.oasis.opendocument.presentation",
        "application/vnd.oasis.opendocument.spreadsheet",
        "application/vnd.oasis.opendocument.text",
        "application/vnd.openxmlformats-officedocument.presentationml.presentation",
        "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
        "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    }
)
_TEXT_TYPES: Final = frozenset(
    {
        "application/ecmascript",
        "application/javascript",
        "application/json",
        "application/sql",
        "application/toml",
        "application/x-httpd-php",
        "application/x-javascript",
        "application/x-ndjson",
        "application/x-sh",
        "application/xml",
        "application/yaml",
    }
)
_HTML_TYPES: Final = frozenset({"text/html", "application/xhtml+xml"})
_UNSAID_TYPES: Final = frozenset(
    {"", "application/octet-stream", "application/pdf", "binary/octet-stream", "unknown/unknown"}
)
_HTML_STARTS: Final = (b"<!doctype html", b"<html", b"<head", b"<body", b"<title")
_BYTE_ORDER_MARKS: Final = (b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")
_SORTS: Final = {
    "image": "an image",
    "audio": "a sound",
    "video": "a video",
    "font": "a font",
}


def kind_of(content_type: str, body: bytes) -> DocumentKind:
    """Tell what an answer is; a wrong or missing type is put right.

    Args:
        content_type: the header, with or without parameters.
        body: the first kilobyte is looked at.

    Raises:
        WorkError: it is something that cannot be read; the text names it.
    """
    declared = content_type.partition(";")[0].strip().lower()
    start = body[:_SNIFFED_BYTES]
    if b"%PDF-" in start:
        return DocumentKind.PDF
    if (kind := _office_kind(body)) is not None:
        return kind
    for signature, sort, name in _SIGNATURES:
        if start.startswith(signature):
            raise _unreadable(sort, name)
    if declared.partition("/")[0] in _SORTS and declared != "image/svg+xml":
        raise _unreadable(_SORTS[declared.partition("/")[0]], declared)
    if b"\0" in start and not start.startswith(_BYTE_ORDER_MARKS) and "utf-16" not in content_type:
        raise _unreadable("binary data", declared)
    if declared in _HTML_TYPES:
        return DocumentKind.HTML
    if declared.startswith("text/") or declared in _TEXT_TYPES or _is_marked_up(declared):
        return DocumentKind.TEXT
    if declared in _UNSAID_TYPES | _OFFICE_TYPES:  # Windows calls CSV a workbook
        return (
            DocumentKind.HTML
            if start.lstrip().lower().startswith(_HTML_STARTS)
            else DocumentKind.TEXT
        )
    raise _unreadable("a file", declared)


def _office_kind(body: bytes) -> DocumentKind | None:
    """Tell an office document by the names of its parts, which stand in it as they are."""
    if body.startswith(_OLE):
        return DocumentKind.SHEETS if _OLD_WORKBOOK in body else None
    if not body.startswith(_ZIP):
        return None
    parts = _OFFICE_PARTS.items()
    return next((kind for part, kind in parts if part in body), None)


def may_be_document(content_type: str) -> bool:
    """Tell by its type alone whether something is worth looking at: `kind_of` may read it."""
    declared = content_type.partition(";")[0].strip().lower()
    types = _HTML_TYPES | _TEXT_TYPES | _UNSAID_TYPES | _OFFICE_TYPES
    return declared.startswith("text/") or declared in types or _is_marked_up(declared)


def _is_marked_up(declared: str) -> bool:
    return declared.endswith(("+xml", "+json", "+yaml"))


def _unreadable(sort: str, name: str) -> WorkError:
    shown = f" ({name[:_MAX_SHOWN]})" if name else ""
    return WorkError(f"This is {sort}{shown}, which I cannot read.")
