"""What kind of document an answer is: by its own first bytes, then by what the server calls it."""

from enum import StrEnum
from typing import Final

from sandbox.errors import WorkError

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


class DocumentKind(StrEnum):
    """What can be read."""

    HTML = "html"
    PDF = "pdf"
    TEXT = "text"


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
    if declared in _UNSAID_TYPES:
        return (
            DocumentKind.HTML
            if start.lstrip().lower().startswith(_HTML_STARTS)
            else DocumentKind.TEXT
        )
    raise _unreadable("a file", declared)


def may_be_document(content_type: str) -> bool:
    """Tell by its type alone whether something is worth looking at: `kind_of` may read it."""
    declared = content_type.partition(";")[0].strip().lower()
    types = _HTML_TYPES | _TEXT_TYPES | _UNSAID_TYPES
    return declared.startswith("text/") or declared in types or _is_marked_up(declared)


def _is_marked_up(declared: str) -> bool:
    return declared.endswith(("+xml", "+json", "+yaml"))


def _unreadable(sort: str, name: str) -> WorkError:
    shown = f" ({name[:_MAX_SHOWN]})" if name else ""
    return WorkError(f"This is {sort}{shown}, which I cannot read.")
