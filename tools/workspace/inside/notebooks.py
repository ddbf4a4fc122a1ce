"""Cells of a Jupyter notebook: read as text, and changed one at a time.

What is not changed stays as it is, with what other programs have put there.

Source: https://nbformat.readthedocs.io/en/latest/format_description.html
"""

import json
import secrets
from typing import Any, Final

from sandbox.errors import WorkError

SUFFIX: Final = ".ipynb"
MODES: Final = ("replace", "insert", "delete")
KINDS: Final = ("code", "markdown", "raw")
_IDS_SINCE: Final = (4, 5)
_ID_BYTES: Final = 4
_NO_NOTEBOOK: Final = "This is no notebook of the format 4."


def as_text(notebook: str) -> str:
    """Return the cells with their numbers, without what they have printed.

    Raises:
        WorkError: it is no notebook.
    """
    cells = _cells(_parsed(notebook))
    parts = [
        f"[cell {number}, {cell.get('cell_type', '?')}]\n{_source(cell)}"
        for number, cell in enumerate(cells)
    ]
    return "\n\n".join(parts) or "[The notebook has no cells.]"


def edited(notebook: str, cell: int, mode: str, source: str, kind: str) -> str:
    """Return a notebook with one cell changed.

    Args:
        notebook: as its file has it.
        cell: number of the cell, from 0; of a new one: where it will be.
        mode: one of MODES.
        source: what the cell says from now on.
        kind: one of KINDS.

    Raises:
        WorkError: it is no notebook, or there is no such cell.
    """
    document = _parsed(notebook)
    cells = _cells(document)
    last = len(cells) if mode == "insert" else len(cells) - 1
    if not 0 <= cell <= last:
        raise WorkError(f"There is no cell {cell}: the notebook has {len(cells)}, from 0 on.")
    match mode:
        case "delete":
            del cells[cell]
        case "insert":
            cells.insert(cell, _cell(document, kind, source, {}))
        case _:
            cells[cell] = _cell(document, kind, source, cells[cell])
    return json.dumps(document, ensure_ascii=False, indent=1) + "\n"


def _cell(
    document: dict[str, Any], kind: str, source: str, before: dict[str, Any]
) -> dict[str, Any]:
    cell = {"cell_type": kind, "metadata": before.get("metadata", {})}
    version = (document.get("nbformat"), document.get("nbformat_minor", 0))
    if version >= _IDS_SINCE:
        cell["id"] = before.get("id") or secrets.token_hex(_ID_BYTES)
    if kind == "code":  # what an earlier source has printed would be wrong
        cell |= {"execution_count": None, "outputs": []}
    return {**cell, "source": source.splitlines(keepends=True)}


def _parsed(notebook: str) -> dict[str, Any]:
    try:
        document = json.loads(notebook)
    except (ValueError, RecursionError):
        raise WorkError(_NO_NOTEBOOK) from None
    if not isinstance(document, dict) or document.get("nbformat") != _IDS_SINCE[0]:
        raise WorkError(_NO_NOTEBOOK)
    if not isinstance(document.get("nbformat_minor", 0), int):
        raise WorkError(_NO_NOTEBOOK)
    return document


def _cells(document: dict[str, Any]) -> list[dict[str, Any]]:
    cells = document.get("cells")
    if not isinstance(cells, list) or not all(isinstance(cell, dict) for cell in cells):
        raise WorkError(_NO_NOTEBOOK)
    return cells


def _source(cell: dict[str, Any]) -> str:
    source = cell.get("source", "")
    return "".join(map(str, source)) if isinstance(source, list) else str(source)
