"""PDF to text, page by page. Runs inside the sandbox."""

from io import BytesIO
from itertools import islice
from typing import Any, Final

from pypdf import PdfReader
from pypdf.errors import DependencyError

from tools.documents.document import MAX_CHARACTERS, Document, TimeIsUp, time_bound
from tools.sandbox.errors import WorkError

PDF_SECONDS: Final = 5.0
MAX_PAGES: Final = 300
MAX_FIELDS: Final = 1_000
MAX_VALUE_CHARACTERS: Final = 2_000
_LONGEST_TITLE: Final = 200


def document_of(body: bytes) -> Document:
    """Return the text of a PDF as far as time and size allow, or WorkError."""
    pages: list[str] = []
    title, count, fields = "", 0, ""
    try:
        with time_bound(PDF_SECONDS):
            reader = PdfReader(BytesIO(body))
            _unlock(reader)
            title, count = _title(reader), len(reader.pages)
            _collect(reader, pages)
            fields = _fields(reader)
    except TimeIsUp:
        pass
    except (WorkError, OSError):
        raise  # OSError: a part of the library was not loaded in time
    except Exception as error:  # a PDF may be made to trip the library anywhere
        if not pages:
            raise WorkError("This PDF is broken and cannot be read.") from error
    text = "\n\n".join(filter(None, (*pages, fields)))
    if not text:
        raise WorkError(
            "This PDF takes too long to be read."
            if len(pages) < min(count, MAX_PAGES) or not count
            else "This PDF has no text; its pages are probably images."
        )
    note = f"Only the first {len(pages)} of {count} pages were read." if len(pages) < count else ""
    return Document(title, text, note)


def _unlock(reader: PdfReader) -> None:
    """Open a PDF that is encrypted but needs no password for reading, as many do."""
    try:
        locked = reader.is_encrypted and not reader.decrypt("")
    except DependencyError:
        locked = True
    if locked:
        raise WorkError("This PDF is protected with a password and cannot be read.")


def _title(reader: PdfReader) -> str:
    title = reader.metadata.title if reader.metadata else None
    return " ".join(str(title or "").split())[:_LONGEST_TITLE]


def _collect(reader: PdfReader, pages: list[str]) -> None:
    characters = 0
    for page in reader.pages[:MAX_PAGES]:
        if characters > MAX_CHARACTERS:
            break
        pages.append(page.extract_text().strip())
        characters += len(pages[-1])


def _fields(reader: PdfReader) -> str:
    """Return the filled fields of a form, a line each: `Name: Ada`."""
    found = (reader.get_fields() or {}).items()
    lines = (f"{_line(name)}: {_value(field)}" for name, field in islice(found, MAX_FIELDS))
    return "\n".join(line for line in lines if not line.endswith(": "))


def _value(field: Any) -> str:
    value = field.get("/V")
    if isinstance(value, list):  # several of a list
        return ", ".join(map(_line, value))
    if field.get("/FT") == "/Btn":
        return "" if value in {None, "", "/Off"} else _line(str(value).removeprefix("/"))
    return "" if value is None else _line(value)


def _line(value: object) -> str:
    return " ".join(str(value).split())[:MAX_VALUE_CHARACTERS]
