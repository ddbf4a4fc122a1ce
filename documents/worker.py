"""The program of the reader's sandbox: `python -I -m documents.worker`.

A request is a `DocumentSource`, the reply a `Document`, both as JSON.
"""

import encodings

import pypdf

from documents import charset, html, office, pdf
from documents.document import MAX_CHARACTERS, Document, DocumentSource
from documents.kinds import DocumentKind
from documents.preload import load_all_of
from sandbox.child import serve
from sandbox.errors import WorkError

_SAMPLE_WORDS = "<p>Some words, so that every part of the libraries is loaded from disk.</p>"
_SAMPLE_PAGE = f"<html><head><title>Sample</title></head><body>{_SAMPLE_WORDS}</body></html>"


def read(request: str) -> str:
    """Read a document and return it as text.

    Raises:
        WorkError: it cannot be read.
    """
    document = _document(DocumentSource.from_text(request))
    if not document.text.strip():
        raise WorkError("There is no text here; the page is empty, or made by scripts.")
    return _bounded(document).as_text()


def _document(source: DocumentSource) -> Document:
    match source.kind:
        case DocumentKind.PDF:
            return pdf.document_of(source.body)
        case DocumentKind.SHEETS:
            return office.sheets_of(source.body)
        case DocumentKind.WORDS:
            return office.words_of(source.body)
        case DocumentKind.HTML:
            page = charset.decoded(source.body, source.content_type)
            return Document(html.title_of(page), html.text_of(page, source.url))
        case DocumentKind.TEXT:
            return Document("", charset.decoded(source.body, source.content_type))


def _bounded(document: Document) -> Document:
    """Cut a document to its bound, and leave out what UTF-8 and terminals cannot show."""
    note = document.note
    if len(document.text) > MAX_CHARACTERS:
        note = f"Only the first {MAX_CHARACTERS} characters were read."
    return Document(_clean(document.title), _clean(document.text[:MAX_CHARACTERS]), note)


def _clean(text: str) -> str:
    shown = text.replace("\r\n", "\n").translate(_INVISIBLE)
    return shown.encode(errors="replace").decode().strip("\n")


_INVISIBLE = {code: None for code in (*range(32), 127) if chr(code) not in "\n\t"}

if __name__ == "__main__":
    for library in (encodings, pypdf):
        load_all_of(library)
    html.text_of(_SAMPLE_PAGE, "https://sample.invalid/")
    serve(read)
