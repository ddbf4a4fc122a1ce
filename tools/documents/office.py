"""Office documents to text: Word, Excel, PowerPoint and OpenDocument. Runs inside the sandbox.

Tables become lines with tabs. Formatting, deleted text and comments are left out.

No library reads all of this: python-docx loses inserted text and text boxes, docx2python shows
moved text twice, mammoth loses headers, and markitdown shows 0.075 for 7.5 % and takes 80 MB.

Sources: ECMA-376 (Office Open XML); OpenDocument 1.3, part 3.
"""

import re
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from io import BytesIO, StringIO
from itertools import islice
from posixpath import join, normpath
from typing import Any, Final
from xml.etree.ElementTree import Element, ParseError, XMLPullParser
from zipfile import BadZipFile, ZipFile, is_zipfile

import xlrd
from python_calamine import CalamineError, PasswordError, SheetVisibleEnum, load_workbook
from xlrd.compdoc import CompDocError

from tools.documents.document import MAX_CHARACTERS, Document, TimeIsUp, time_bound
from tools.sandbox.errors import WorkError

OFFICE_SECONDS: Final = 5.0
MAX_PART_BYTES: Final = 64 * 2**20
"""Bound of one unpacked part."""
_CHUNK_BYTES: Final = 2**16
MAX_PARTS: Final = 500
MAX_DEPTH: Final = 200
_BROKEN: Final = "This document is broken and cannot be read."
_PROTECTED: Final = "This document is protected with a password and cannot be read."
_SLOW: Final = "This document takes too long to be read."
_EMPTY: Final = "This document has no text."
_NOT_ALL: Final = "Only the first part of it was read."

_WORDS: Final = ("word/document.xml", "word/footnotes.xml", "word/endnotes.xml", "content.xml")
_STYLES: Final = "xl/styles.xml"
_WORKBOOK: Final = "xl/workbook.xml"
_PRESENTATION: Final = "ppt/presentation.xml"
_SHEETS_OF_OPENDOCUMENT: Final = "content.xml"
_SLIDE: Final = re.compile(r"ppt/slides/slide(\d{1,4})\.xml")
_HIDDEN_SLIDE: Final = re.compile(rb'<\w+:sld\s[^>]*\bshow="(?:0|false)"')
_EDGE: Final = re.compile(r"word/(?:header|footer)\d{1,3}\.xml")
_NOTES: Final = re.compile(r"ppt/notesSlides/[^/]+\.xml")
MAX_REPEATED_CELLS: Final = 100
# A text box is written twice: for new programs, and as "Fallback" for old ones. So is moved text.
_UNSEEN: Final = frozenset(
    {
        *("delText", "instrText", "moveFrom", "Fallback", "tracked-changes", "annotation"),
        *("note-citation", "fld"),  # numbers of notes and of slides
    }
)
_BREAKS: Final = {"br": "\n", "cr": "\n", "line-break": "\n", "noBreakHyphen": "-"}
_ROWS: Final = frozenset({"tr", "table-row"})
_CELLS: Final = frozenset({"tc", "table-cell", "covered-table-cell"})
_MAX_SPACES: Final = 1_000
_CELL: Final = re.compile(rb"<(?:\w+:)?c\s([^<>]*)>")
_CELL_ATTRIBUTE: Final = re.compile(rb'\b([rs])="(\w{1,12})"')
_EXACT: Final = 2**53
_PERCENT_FORMATS: Final = frozenset({"9", "10"})  # 0% and 0.00%, built into Excel


_NOTES_HEADING: Final = "Notes:"
_EDGE_HEADING: Final = "Header or footer:"
_ONLY_WITH_TEXT: Final = frozenset({_NOTES_HEADING, _EDGE_HEADING})


class _Enough(Exception):
    """The text is as long as it may be."""


def words_of(body: bytes) -> Document:
    """Return the text of a document or presentation as far as time and size allow, or WorkError."""
    text = _Text()
    with _as_far_as_possible(text.lines) as notes, ZipFile(BytesIO(body)) as archive:
        for heading, name in _parts(archive):
            text.add(heading)
            before = len(text.lines)
            text.read(archive, name)
            if heading in _ONLY_WITH_TEXT and len(text.lines) == before:
                text.lines.pop()
    return _document(text.lines, notes)


def sheets_of(body: bytes) -> Document:
    """Return the cells of a workbook, sheet by sheet; see `words_of`."""
    lines: list[str] = []
    with _as_far_as_possible(lines) as notes:
        if is_zipfile(BytesIO(body)):
            with ZipFile(BytesIO(body)) as archive:
                if _SHEETS_OF_OPENDOCUMENT in archive.namelist():  # it has cells as people see them
                    text = _Text(lines)
                    text.read(archive, _SHEETS_OF_OPENDOCUMENT, sheets=True)
                    return _document(lines, notes)
        with load_workbook(BytesIO(body)) as workbook:
            percents = _percents(body)
            for about in workbook.sheets_metadata:
                sheet = workbook.get_sheet_by_name(about.name)
                is_hidden = about.visible != SheetVisibleEnum.Visible
                heading = f"Sheet {about.name}{' (hidden)' * is_hidden}:"
                _add_sheet(lines, heading, sheet, percents.get(about.name, iter(())))
    return _document(lines, notes)


@contextmanager
def _as_far_as_possible(lines: list[str]) -> Iterator[list[str]]:
    """Bound the time, and keep the lines that were read before something went wrong."""
    notes: list[str] = []
    try:
        with time_bound(OFFICE_SECONDS):
            yield notes
    except (TimeIsUp, _Enough):
        notes.append(_NOT_ALL)
    except PasswordError:
        raise WorkError(_PROTECTED) from None
    except (
        BadZipFile, CalamineError, KeyError, NotImplementedError, ParseError, RuntimeError,
        ValueError,
    ) as error:  # fmt: skip
        if not lines:
            raise WorkError(_BROKEN) from error
        notes.append(_NOT_ALL)


def _document(lines: list[str], notes: list[str]) -> Document:
    text = "\n".join(lines).strip("\n")
    if not text.strip():
        raise WorkError(_SLOW if notes else _EMPTY)
    return Document("", text, *notes)


# Words --------------------------------------------------------------------------------------------


class _Text:
    """The lines of a document so far, and the parts of its open rows and cells."""

    def __init__(self, lines: list[str] | None = None) -> None:
        self.lines: list[str] = [] if lines is None else lines
        self._characters = 0
        self._open: list[list[str]] = []

    def read(self, archive: ZipFile, name: str, *, sheets: bool = False) -> None:
        """Add the paragraphs of one part."""
        unseen = 0
        for event, element in _events(archive, name):
            tag = _tag(element)
            if tag in _UNSEEN:
                unseen += 1 if event == "start" else -1
            if event == "start":
                if tag in _ROWS | _CELLS and not unseen:
                    self._open.append([])
                    if len(self._open) > MAX_DEPTH:
                        raise ValueError("tables are nested too deep")
                elif tag == "table" and sheets:
                    self.add(f"Sheet {_attribute(element, 'name')}:")
            elif unseen or tag in _UNSEEN:
                _empty(element)
            elif tag in {"p", "h"}:
                self.add("".join(element.itertext()))
                _empty(element)
            elif tag in _ROWS | _CELLS:
                self._close(tag, element)
                _empty(element)
            else:
                _write(tag, element)

    def add(self, text: str) -> None:
        """Add a paragraph; inside a table it becomes a part of its cell."""
        if not text.strip():
            return
        if self._open:
            self._open[-1].append(" ".join(text.split()))
            return
        self.lines.append(text)
        self._characters += len(text)
        if self._characters > MAX_CHARACTERS:
            raise _Enough

    def _close(self, tag: str, element: Element) -> None:
        parts = self._open.pop()
        if tag in _ROWS:
            self.add("\t".join(parts).rstrip())
        elif self._open:
            text, times = " ".join(parts), _times(element)
            self._open[-1] += [text] * times if tag == "table-cell" else [text, *[""] * (times - 1)]


def _times(cell: Element) -> int:
    """Return how many columns a cell stands for: merged ones, or equal ones in OpenDocument."""
    spans = (_attribute(one, "val") for one in cell.iter() if _tag(one) == "gridSpan")
    times = _attribute(cell, "number-columns-repeated") or next(spans, "")
    return min(int(times) if times.isdecimal() else 1, MAX_REPEATED_CELLS)


def _write(tag: str, element: Element) -> None:
    """Write out an element inside a paragraph that stands for characters."""
    if tag in _BREAKS:
        element.text = _BREAKS[tag]
    elif tag == "tab" and not element.attrib:  # with attributes it is the place of a tab stop
        element.text = "\t"
    elif tag == "s":
        count = _attribute(element, "c") or "1"
        element.text = " " * min(int(count) if count.isdecimal() else 1, _MAX_SPACES)


def _parts(archive: ZipFile) -> Iterator[tuple[str, str]]:
    """Yield the parts with text in their order, each with its heading."""
    names = set(archive.namelist()[: 20 * MAX_PARTS])
    yield from (("", name) for name in _WORDS if name in names)
    found = filter(None, map(_SLIDE.fullmatch, names))
    slides = [slide[0] for slide in sorted(found, key=lambda slide: int(slide[1]))]
    if _PRESENTATION in names:  # it has the order, which need not be that of the files' names
        targets = _targets(archive, _PRESENTATION)
        ids = [_attribute(slide, "id") for slide in _elements(archive, _PRESENTATION, "sldId")]
        places = {targets.get(id_): place for place, id_ in enumerate(ids)}
        slides.sort(key=lambda name: places.get(name, len(ids)))
    for number, name in enumerate(slides[:MAX_PARTS], 1):
        with archive.open(name) as part:
            is_hidden = _HIDDEN_SLIDE.search(part.read(_CHUNK_BYTES)) is not None
        yield f"Slide {number}{' (hidden)' * is_hidden}:", name
        notes = filter(_NOTES.fullmatch, _targets(archive, name).values())
        yield from ((_NOTES_HEADING, one) for one in notes if one in names)
    edges = sorted(filter(_EDGE.fullmatch, names))
    yield from ((_EDGE_HEADING, name) for name in edges)


# Sheets -------------------------------------------------------------------------------------------


def _add_sheet(
    lines: list[str], heading: str, sheet: Any, percents: Iterator[tuple[int, int]]
) -> None:
    _, left = sheet.start or (0, 0)  # `iter_rows` leaves out empty columns, but no empty rows
    characters = sum(map(len, lines))
    percent_cells = set(islice(percents, MAX_CHARACTERS // 3))  # each takes three characters
    for row, cells in enumerate(sheet.iter_rows()):
        line = "\t".join(
            _cell(cell, is_percent=(row, column) in percent_cells)
            for column, cell in enumerate(cells, left)
        ).rstrip()
        if line:
            lines += [heading, line] if heading else [line]
            heading = ""
        characters += len(line)
        if characters > MAX_CHARACTERS:
            raise _Enough


def _cell(value: object, *, is_percent: bool) -> str:
    """Return a cell as a spreadsheet shows it, on one line; whole numbers have no fraction."""
    if isinstance(value, float):
        if is_percent:
            return f"{value * 100:.10g}%"
        if value.is_integer() and abs(value) < _EXACT:
            return str(int(value))
    if isinstance(value, timedelta):
        minutes, seconds = divmod(int(value.total_seconds()), 60)
        return f"{minutes // 60}:{minutes % 60:02}:{seconds:02}"
    return " ".join(str(value).split())


def _percents(body: bytes) -> dict[str, Iterator[tuple[int, int]]]:
    """Return the cells of each sheet of an .xlsx or .xls that are shown as percentages.

    Their rows and columns are from 0, in the order of the file. Calamine does not tell formats.
    """
    if not is_zipfile(BytesIO(body)):
        return _old_percents(body)
    archive = ZipFile(BytesIO(body))
    if _STYLES not in archive.namelist() or not (styles := _percent_styles(archive)):
        return {}
    targets = _targets(archive, _WORKBOOK)
    sheets = _elements(archive, _WORKBOOK, "sheet")
    parts = {sheet.get("name", ""): targets.get(_attribute(sheet, "id")) for sheet in sheets}
    return {name: _places_in(archive, part, styles) for name, part in parts.items() if part}


def _old_percents(body: bytes) -> dict[str, Iterator[tuple[int, int]]]:
    with suppress(xlrd.XLRDError, CompDocError, AssertionError, struct.error, LookupError):
        book = xlrd.open_workbook(file_contents=body, logfile=StringIO(), formatting_info=True)
        formats = [book.format_map[style.format_key].format_str for style in book.xf_list]
        return {sheet.name: _places_of(sheet, formats) for sheet in book.sheets()}
    return {}


def _places_of(sheet: Any, formats: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield the places of numbers whose format has a percent sign."""
    for row in range(sheet.nrows):
        for column, cell in enumerate(sheet.row(row)):
            if cell.ctype == xlrd.XL_CELL_NUMBER and "%" in formats[cell.xf_index]:
                yield row, column


def _places_in(archive: ZipFile, part: str, styles: set[str]) -> Iterator[tuple[int, int]]:
    """Yield the places of the cells with one of some styles."""
    with archive.open(part) as file:
        written = file.read(MAX_PART_BYTES)
    for cell in _CELL.finditer(written):  # parsing a large sheet as XML takes too long
        attributes = dict(_CELL_ATTRIBUTE.findall(cell[1]))
        if attributes.get(b"s", b"").decode() in styles:
            yield _place(attributes.get(b"r", b"").decode())


def _percent_styles(archive: ZipFile) -> set[str]:
    """Return the numbers of the styles whose number format has a percent sign."""
    formats = set(_PERCENT_FORMATS)
    styles: set[str] = set()
    for element in _elements(archive, _STYLES, "numFmt", "cellXfs"):
        if _tag(element) == "numFmt" and "%" in element.get("formatCode", ""):
            formats.add(element.get("numFmtId", ""))
        styles |= {
            str(number) for number, style in enumerate(element) if style.get("numFmtId") in formats
        }
    return styles


def _place(reference: str) -> tuple[int, int]:
    """Return the row and the column of a reference such as B7, from 0."""
    column = 0
    for letter in reference.rstrip("0123456789"):
        column = column * 26 + ord(letter) - ord("A") + 1
    row = reference.lstrip("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
    return int(row) - 1 if row.isdecimal() else -1, column - 1


# Parts of an archive ------------------------------------------------------------------------------


def _events(archive: ZipFile, name: str) -> Iterator[tuple[str, Element]]:
    parser: Any = XMLPullParser(("start", "end"))
    with archive.open(name) as part:
        for _ in range(MAX_PART_BYTES // _CHUNK_BYTES):
            if not (data := part.read(_CHUNK_BYTES)):
                parser.close()
                return
            parser.feed(data)
            yield from parser.read_events()
    raise _Enough


def _elements(archive: ZipFile, name: str, *wanted: str) -> Iterator[Element]:
    """Yield the elements of a part with one of some names."""
    for event, element in _events(archive, name):
        if event == "end" and _tag(element) in wanted:
            yield element
            _empty(element)


def _targets(archive: ZipFile, name: str) -> dict[str, str]:
    """Return the parts that another part refers to, by the ids that it uses for them."""
    folder, _, file = name.rpartition("/")
    relations = f"{folder}/_rels/{file}.rels"
    if relations not in archive.namelist():
        return {}
    return {
        element.get("Id", ""): normpath(join("/", folder, element.get("Target", "")))[1:]
        for element in _elements(archive, relations, "Relationship")
    }


def _tag(element: Element) -> str:
    return element.tag.rpartition("}")[2]


def _attribute(element: Element, name: str) -> str:
    """Return an attribute that stands in some namespace."""
    return next((v for key, v in element.attrib.items() if key.endswith(f"}}{name}")), "")


def _empty(element: Element) -> None:
    tail = element.tail
    element.clear()
    element.tail = tail
