"""Office documents to text: of Word, Excel, PowerPoint, and their OpenDocument kin.

Tables become lines with tabs. What documents look like, and what was deleted from them, is left
out. Runs inside the sandbox.

Sources: ECMA-376 (Office Open XML); OpenDocument 1.3, part 3.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from io import BytesIO, RawIOBase
from typing import IO, Any, Final
from xml.etree.ElementTree import Element, ParseError, iterparse
from zipfile import BadZipFile, ZipFile

from python_calamine import CalamineError, PasswordError, load_workbook

from documents.document import MAX_CHARACTERS, Document
from documents.time_bound import TimeIsUp, time_bound
from sandbox.errors import WorkError

OFFICE_SECONDS: Final = 5.0
MAX_PART_BYTES: Final = 64 * 2**20
"""Of one part, unpacked."""
MAX_PARTS: Final = 500
MAX_DEPTH: Final = 200
_BROKEN: Final = "This document is broken and cannot be read."
_PROTECTED: Final = "This document is protected with a password and cannot be read."
_SLOW: Final = "This document takes too long to be read."
_EMPTY: Final = "This document has no text."
_NOT_ALL: Final = "Only the first part of it was read."

_WORDS: Final = ("word/document.xml", "word/footnotes.xml", "word/endnotes.xml", "content.xml")
_SLIDE: Final = re.compile(r"ppt/slides/slide(\d{1,4})\.xml")
_UNSEEN: Final = frozenset({"delText", "instrText", "tracked-changes", "annotation"})
_BREAKS: Final = {"br": "\n", "cr": "\n", "line-break": "\n", "noBreakHyphen": "-"}
_MAX_SPACES: Final = 1_000
_EXACT: Final = 2**53


def words_of(body: bytes) -> Document:
    """Return what a text or a presentation says, as far as time and size allow.

    Raises:
        WorkError: it is broken, or has no text.
    """
    collected = _Collected()
    note = ""
    try:
        with time_bound(OFFICE_SECONDS), ZipFile(BytesIO(body)) as archive:
            for heading, name in _parts(archive):
                collected.line(heading)
                with archive.open(name) as part:
                    _collect(_Bounded(part), collected)
    except TimeIsUp:
        note = _NOT_ALL
    except _Enough:
        note = _NOT_ALL
    except WorkError:
        raise
    except (
        BadZipFile,
        NotImplementedError,
        RuntimeError,
        ValueError,
        ParseError,
    ) as error:
        if not collected.lines:
            raise WorkError(_BROKEN) from error
        note = _NOT_ALL
    text = "\n".join(collected.lines).strip()
    if not text:
        raise WorkError(_SLOW if note else _EMPTY)
    return Document("", text, note)


def sheets_of(body: bytes) -> Document:
    """Return the cells of a workbook, sheet by sheet; see `words_of`."""
    lines: list[str] = []
    note = ""
    try:
        with time_bound(OFFICE_SECONDS), load_workbook(BytesIO(body)) as workbook:
            for line in _lines_of(workbook):
                lines.append(line)  # noqa: PERF402 - what was read before the time is up counts
    except TimeIsUp:
        note = _NOT_ALL
    except PasswordError:
        raise WorkError(_PROTECTED) from None
    except (CalamineError, ValueError) as error:
        if not lines:
            raise WorkError(_BROKEN) from error
        note = _NOT_ALL
    if not lines:
        raise WorkError(_SLOW if note else _EMPTY)
    return Document("", "\n".join(lines), note)


def _lines_of(workbook: Any) -> Iterator[str]:
    characters = 0
    for name in workbook.sheet_names:
        rows = workbook.get_sheet_by_name(name).iter_rows()
        heading = f"Sheet {name}:"
        for row in rows:
            line = "\t".join(_cell(cell) for cell in row).rstrip()
            if line:
                if heading:
                    yield heading
                    heading = ""
                yield line
            characters += len(line)
            if characters > MAX_CHARACTERS:
                return


def _cell(value: object) -> str:
    """Return a cell as a spreadsheet shows it, on one line; whole numbers have no fraction."""
    whole = isinstance(value, float) and value.is_integer() and abs(value) < _EXACT
    return str(int(value)) if whole else " ".join(str(value).split())  # type: ignore[call-overload]


class _Enough(Exception):
    """As much was read as is shown."""


@dataclass(slots=True)
class _Collected:
    """Lines so far; tables inside tables are lists in lists."""

    lines: list[str] = field(default_factory=list)
    characters: int = 0
    cells: list[list[str]] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)

    def line(self, text: str) -> None:
        """Take a paragraph; inside a cell, it becomes a part of it."""
        if not text.strip():
            return
        if self.cells:
            self.cells[-1].append(" ".join(text.split()))
            return
        self.lines.append(text)
        self.characters += len(text)
        if self.characters > MAX_CHARACTERS:
            raise _Enough

    def begin(self, name: str) -> None:
        """Take the beginning of a row or a cell."""
        if name == "row":
            self.rows.append([])
        else:
            self.cells.append([])
        if len(self.rows) + len(self.cells) > MAX_DEPTH:
            raise WorkError(_BROKEN)

    def end(self, name: str) -> None:
        """Take the end of a row or a cell."""
        if name == "cell" and self.cells:
            words = " ".join(self.cells.pop())
            if self.rows:
                self.rows[-1].append(words)
        elif name == "row" and self.rows:
            self.line("\t".join(self.rows.pop()).rstrip())


_TABLE: Final = {"tr": "row", "table-row": "row", "tc": "cell", "table-cell": "cell"}


class _Bounded(RawIOBase):
    """A part of an archive that ends in an error where it is larger than it may be."""

    def __init__(self, part: IO[bytes]) -> None:
        self._part = part
        self._left = MAX_PART_BYTES

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes."""
        data = self._part.read(size if size > 0 else self._left + 1)
        self._left -= len(data)
        if self._left < 0:
            raise _Enough
        return data


def _parts(archive: ZipFile) -> Iterator[tuple[str, str]]:
    """Yield the parts that have text, in their order, each with what stands above it."""
    names = set(archive.namelist()[: 20 * MAX_PARTS])
    yield from (("", name) for name in _WORDS if name in names)
    slides = sorted((int(found[1]), name) for name in names if (found := _SLIDE.fullmatch(name)))
    yield from ((f"Slide {number}:", name) for number, name in slides[:MAX_PARTS])


def _collect(part: Any, collected: _Collected) -> None:
    for event, element in iterparse(part, events=("start", "end")):  # noqa: S314 - behind walls
        name = element.tag.rpartition("}")[2]
        if event == "start":
            if name in _TABLE:
                collected.begin(_TABLE[name])
        elif name in {"p", "h"}:
            collected.line("".join(element.itertext()))
            _empty(element)
        elif name in _TABLE:
            collected.end(_TABLE[name])
            _empty(element)
        else:
            _take(name, element)


def _empty(element: Element) -> None:
    tail = element.tail
    element.clear()
    element.tail = tail


def _take(name: str, element: Element) -> None:
    """Make text of an element inside a paragraph, and none of what is not seen."""
    if name in _UNSEEN:
        _empty(element)
    elif name in _BREAKS:
        element.text = _BREAKS[name]
    elif name == "tab" and not element.attrib:  # with attributes it says where tabs stop
        element.text = "\t"
    elif name == "s":
        count = next((value for key, value in element.attrib.items() if key.endswith("}c")), "1")
        element.text = " " * min(int(count) if count.isdecimal() else 1, _MAX_SPACES)
