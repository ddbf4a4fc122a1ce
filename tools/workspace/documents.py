"""PDF and office documents of a workspace, as text."""

from typing import Final

from documents.client import Read
from documents.document import Document, DocumentSource
from documents.kinds import kind_of
from tools.errors import ToolError
from tools.workspace.workspaces import Workspace

_SUFFIXES: Final = (".docx", ".odp", ".ods", ".odt", ".pdf", ".pptx", ".xls", ".xlsm", ".xlsx")


def may_be_document(file_path: str) -> bool:
    """Tell by its name whether a file is a document that has to be turned into text."""
    return file_path.lower().endswith(_SUFFIXES)


async def document_in(workspace: Workspace, read: Read, file_path: str) -> Document:
    """Return a document of a workspace as text.

    Raises:
        WorkError: it is not there, too large, or cannot be read.
    """
    body = await workspace.fetch(file_path)
    return await read(DocumentSource(kind_of("", body), "", "", body))


def numbered(document: Document, offset: int, limit: int) -> str:
    """Return lines of a document with their numbers, from the one at `offset` on.

    Raises:
        ToolError: it has not so many.
    """
    lines = document.text.splitlines()
    if offset > len(lines):
        raise ToolError(f"The document has {len(lines):,} lines of text, and no more.")
    part = lines[offset - 1 : offset - 1 + limit]
    shown = [f"{number}\t{line}" for number, line in enumerate(part, offset)]
    left = len(lines) - (offset - 1 + len(part))
    if left:
        shown.append(f"[{left:,} more lines; go on at offset {offset + len(part)}.]")
    if document.note:
        shown.append(f"[{document.note}]")
    return "\n".join(shown)
