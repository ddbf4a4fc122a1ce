"""Bytes of a file as text and back, and cells of Jupyter notebooks as text.

Source: https://nbformat.readthedocs.io/en/latest/format_description.html
"""

import codecs
import json
import secrets
from dataclasses import dataclass
from typing import Any, Final

from tools.sandbox.errors import WorkError

BINARY_BYTES: Final = 8_192
"""A null byte among the first ones shows that a file holds other data than text."""
_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_LAST_RESORT: Final = "cp1252"
for _name in ("utf-8", "utf-8-sig", "utf-16-le", "utf-16-be", "latin-1", _LAST_RESORT):
    codecs.lookup(_name)  # loaded before the walls stand

NOTEBOOK: Final = ".ipynb"
_IDS_SINCE: Final = (4, 5)
_ID_BYTES: Final = 4
_NO_NOTEBOOK: Final = "This is no notebook of the format 4."


@dataclass(frozen=True, slots=True)
class Text:
    """The text of a file, without the mark of its encoding."""

    text: str
    encoding: str

    def with_text(self, text: str) -> bytes:
        """Return other words as bytes of this file; WorkError if it has no letter for one."""
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
    """Return whether a file that begins with these bytes is text."""
    return data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or b"\0" not in data


def decoded(data: bytes, *, is_whole: bool = True) -> Text:
    """Return bytes as text: by their mark, as UTF-8, or as Western European.

    If they are not whole, they may end in the middle of a letter.
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


def notebook_as_text(notebook: str) -> str:
    """Return the cells of a notebook with their numbers, without their outputs; or WorkError."""
    parts = []
    for number, cell in enumerate(_cells(_parsed(notebook))):
        source = cell.get("source", "")
        text = "".join(map(str, source)) if isinstance(source, list) else str(source)
        parts.append(f"[cell {number}, {cell.get('cell_type', '?')}]\n{text}")
    return "\n\n".join(parts) or "[The notebook has no cells.]"


def edited_notebook(notebook: str, number: int, mode: str, source: str, kind: str) -> str:
    """Return a notebook with one cell changed; see `edit_notebook`."""
    document = _parsed(notebook)
    cells = _cells(document)
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
