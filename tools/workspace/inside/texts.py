"""Text of a file as bytes, and cells of Jupyter notebooks as text.

Source: https://nbformat.readthedocs.io/en/latest/format_description.html
"""

import codecs
import json
import secrets
from typing import Any, Final

from tools.sandbox.errors import WorkError

BINARY_BYTES: Final = 8_192
"""A null byte among the first ones shows that a file holds other data than text."""
NOTEBOOK: Final = ".ipynb"
_IDS_SINCE: Final = (4, 5)
_ID_BYTES: Final = 4
_NO_NOTEBOOK: Final = "This is no notebook of the format 4."


def is_text(data: bytes) -> bool:
    """Return whether a file that begins with these bytes is text."""
    return data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or b"\0" not in data


def encoded(text: str, encoding: str) -> bytes:
    """Return a text as bytes of an encoding; WorkError if it has no letter for one."""
    try:
        return text.encode(encoding)
    except UnicodeEncodeError:
        raise WorkError(
            f"The file is written in {encoding}, which lacks a letter of the new text."
        ) from None


def notebook_as_text(notebook: str) -> str:
    """Return the cells of a notebook with their numbers, without their outputs; or WorkError."""
    parts = []
    for number, cell in enumerate(_parsed(notebook)["cells"]):
        source = cell.get("source", "")
        text = "".join(map(str, source)) if isinstance(source, list) else str(source)
        parts.append(f"[cell {number}, {cell.get('cell_type', '?')}]\n{text}")
    return "\n\n".join(parts) or "[The notebook has no cells.]"


def edited_notebook(notebook: str, number: int, mode: str, source: str, kind: str) -> str:
    """Return a notebook with one cell changed; see `edit_notebook`."""
    document = _parsed(notebook)
    cells = document["cells"]
    last = len(cells) if mode == "insert" else len(cells) - 1
    if not 0 <= number <= last:
        raise WorkError(f"There is no cell {number}: the notebook has {len(cells)}, from 0 on.")
    before = cells.pop(number) if mode != "insert" else {}
    if mode != "delete":
        cell = {"cell_type": kind, "metadata": before.get("metadata", {})}
        if (document.get("nbformat"), document.get("nbformat_minor", 0)) >= _IDS_SINCE:
            cell["id"] = before.get("id") or secrets.token_hex(_ID_BYTES)
        if kind == "code":  # outputs of an earlier source would be wrong
            cell |= {"execution_count": None, "outputs": []}
        cells.insert(number, {**cell, "source": source.splitlines(keepends=True)})
    return json.dumps(document, ensure_ascii=False, indent=1) + "\n"


def _parsed(notebook: str) -> dict[str, Any]:
    try:
        document: dict[str, Any] = json.loads(notebook)
        cells, version = document["cells"], (document["nbformat"], document["nbformat_minor"])
        is_fit = isinstance(cells, list) and all(isinstance(cell, dict) for cell in cells)
    except (ValueError, RecursionError, TypeError, LookupError):
        raise WorkError(_NO_NOTEBOOK) from None
    if not is_fit or version[0] != _IDS_SINCE[0] or not isinstance(version[1], int):
        raise WorkError(_NO_NOTEBOOK)
    return document
