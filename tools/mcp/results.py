"""What a server answers to a call, as the text that the model reads."""

import json
from collections.abc import Iterable, Iterator
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

TEXT_LIMIT_CHARACTERS: Final = 262_144
"""Of one result, before the executor trims it to its own limit."""
_MOST_NAME_CHARACTERS: Final = 500


def text_of(result: CallToolResult) -> str:
    """Return a result as one text of bounded length; what is no text is named."""
    texts = [block.text for block in result.content if isinstance(block, TextContent)]
    structured = result.structured_content
    parts = [_block(block) for block in result.content]
    if structured is not None and not _is_said(structured, texts):
        parts.append(json.dumps(structured, ensure_ascii=False, separators=(",", ":")))
    return "\n".join(_within_limit(parts))


def _block(block: object) -> str:
    match block:
        case TextContent():
            return block.text
        case ImageContent() | AudioContent():
            return _unshown(block.type, block.mime_type, block.data)
        case ResourceLink():
            return f"[resource {_short(block.name)}: {_short(block.uri)}]"
        case EmbeddedResource(resource=BlobResourceContents() as resource):
            name = f"resource {_short(resource.uri)}"
            return _unshown(name, resource.mime_type or "unknown type", resource.blob)
        case EmbeddedResource(resource=TextResourceContents() as resource):
            return f"[resource {_short(resource.uri)}]\n{resource.text}"
        case _:
            return "[something that cannot be shown here]"


def _unshown(name: str, mime_type: str, base64: str) -> str:
    kilobytes = -(-len(base64) * 3 // 4 // 1000)
    return f"[{name}, {_short(mime_type)}, {kilobytes} kB: cannot be shown here]"


def _short(text: str) -> str:
    return " ".join(text.split())[:_MOST_NAME_CHARACTERS]


def _is_said(structured: Any, texts: list[str]) -> bool:
    """Whether the texts already say what the structured content says, as servers should do.

    The SDKs' servers put what is no object under a name of its own (`result`, `content`), and each
    item of a list in a text of its own.
    """
    ways = [structured]
    if isinstance(structured, dict) and len(structured) == 1:
        ways += structured.values()
    said = [_read(text) for text in texts]
    return any(way in said or way in texts or way in (said, texts) for way in ways)


def _read(text: str) -> Any:
    if len(text) > TEXT_LIMIT_CHARACTERS:  # it is cut anyway
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _within_limit(parts: Iterable[str]) -> Iterator[str]:
    left = TEXT_LIMIT_CHARACTERS
    for part in parts:
        yield part[:left]
        left -= len(part)
        if left <= 0:
            yield "[the rest of the result is left out]"
            return
