"""PDF to text, page by page. Runs inside the sandbox."""

from io import BytesIO
from typing import Final

from pypdf import PdfReader
from pypdf.errors import DependencyError

from tools.documents.document import MAX_CHARACTERS, Document, TimeIsUp, time_bound
from tools.sandbox.errors import WorkError

PDF_SECONDS: Final = 5.0
MAX_PAGES: Final = 300
_LONGEST_TITLE: Final = 200


def document_of(body: bytes) -> Document:
    """Return the text of a PDF as far as time and size allow, or WorkError."""
    pages: list[str] = []
    title, count = "", 0
    try:
        with time_bound(PDF_SECONDS):
            reader = PdfReader(BytesIO(body))
            _unlock(reader)
            title, count = _title(reader), len(reader.pages)
            _collect(reader, pages)
    except TimeIsUp:
        pass
    except (WorkError, OSError):
        raise  # OSError: a part of the library was not loaded in time
    except Exception as error:  # a PDF may be made to trip the library anywhere
        if not pages:
            raise WorkError("This PDF is broken and cannot be read.") from error
    text = "\n\n".join(page for page in pages if page)
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
