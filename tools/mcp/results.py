"""Conversion of a server's result to text for the model and files for the person."""

import base64
import binascii
import json
import re
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, Final

from mcp.types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

from tools.base import MAX_FILE_BYTES, MAX_FILES, ToolFile, ToolOutput

MAX_TEXT_CHARACTERS: Final = 262_144
"""In one result, before the executor trims it further."""
_MAX_NAME_CHARACTERS: Final = 500
UNKNOWN_BLOCK: Final = "[something that cannot be shown here]"
_NO_TYPE: Final = "unknown type"
_SUBTYPE: Final = re.compile(r"[a-z]+/([a-z0-9]{1,8})")


def output_of(result: CallToolResult, *, most_files: int = MAX_FILES) -> ToolOutput:
    """Return a result as text and files; both are bounded, and further files are only named."""
    files: list[ToolFile] = []
    texts = [block.text for block in result.content if isinstance(block, TextContent)]
    structured = result.structured_content
    parts = [_block(block, files, most_files) for block in result.content]
    if structured is not None and not _is_said(structured, texts):
        parts.append(json.dumps(structured, ensure_ascii=False, separators=(",", ":")))
    return ToolOutput("\n".join(_within_limit(parts)), tuple(files))


def _block(block: object, files: list[ToolFile], most_files: int) -> str:
    given = partial(_given, files, most_files=most_files)
    match block:
        case TextContent():
            return block.text
        case ImageContent() | AudioContent():
            return given(block.type, block.type, block.mime_type, block.data)
        case ResourceLink():
            return f"[resource {_short(block.name)}: {_short(block.uri)}]"
        case EmbeddedResource(resource=BlobResourceContents() as resource):
            name = f"resource {_short(resource.uri)}"
            return given(name, "file", resource.mime_type or _NO_TYPE, resource.blob)
        case EmbeddedResource(resource=TextResourceContents() as resource):
            return f"[resource {_short(resource.uri)}]\n{resource.text}"
        case _:
            return UNKNOWN_BLOCK


def _given(
    files: list[ToolFile], name: str, title: str, mime_type: str, encoded: str, *, most_files: int
) -> str:
    """Add a file to `files` if it is small enough, and return a line about it for the model."""
    kilobytes = -(-len(encoded) * 3 // 4 // 1000)
    fate = "cannot be shown here"
    data = _decoded(encoded) if len(files) < most_files else b""
    if data:
        file_name = f"{title}-{len(files) + 1}.{_suffix(mime_type)}"
        files.append(ToolFile(file_name, mime_type, data))
        fate = "given to the person"
    return f"[{name}, {_short(mime_type)}, {kilobytes} kB: {fate}]"


def _decoded(encoded: str) -> bytes:
    """Return the bytes; empty if the text is no Base64, or too long."""
    if len(encoded) > -(-MAX_FILE_BYTES // 3) * 4:
        return b""
    try:
        data = base64.b64decode(encoded, validate=True)
    except binascii.Error:
        return b""
    return data if len(data) <= MAX_FILE_BYTES else b""


def _suffix(mime_type: str) -> str:
    """Return the extension for most types: `png` for `image/png`."""
    found = _SUBTYPE.fullmatch(mime_type)
    return found[1] if found else "bin"


def _short(text: str) -> str:
    return " ".join(text.split())[:_MAX_NAME_CHARACTERS]


def _is_said(structured: Any, texts: list[str]) -> bool:
    """Return whether the texts already contain the structured content, as they should.

    Servers of the SDKs wrap anything but objects under one name (`result`, `content`), and send
    each item of a list as a text of its own.
    """
    ways = [structured]
    if isinstance(structured, dict) and len(structured) == 1:
        ways += structured.values()
    said = [_read(text) for text in texts]
    return any(way in said or way in texts or way in (said, texts) for way in ways)


def _read(text: str) -> Any:
    if len(text) > MAX_TEXT_CHARACTERS:  # it is cut anyway
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _within_limit(parts: Iterable[str]) -> Iterator[str]:
    left = MAX_TEXT_CHARACTERS
    for part in parts:
        yield part[:left]
        left -= len(part)
        if left <= 0:
            yield "[the rest of the result is left out]"
            return
