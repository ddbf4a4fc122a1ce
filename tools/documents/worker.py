"""The program of the reader's sandbox: `python -I -m tools.documents.worker`.

A request is a JSON object: the `kind` of a document, its declared `content_type`, its `url` for its
links, and its `body` as Base64. The reply is a `Document` as text.
"""

import base64
import encodings
import json
import pkgutil
from contextlib import suppress
from importlib import import_module
from types import ModuleType
from typing import Final

import pypdf
from trafilatura.utils import detect_encoding
from w3lib.encoding import html_to_unicode

from tools.documents import html, office, pdf
from tools.documents.document import MAX_CHARACTERS, Document
from tools.sandbox.child import serve
from tools.sandbox.errors import WorkError
from tools.texts import WESTERN, decoded, is_western

_DETECTED_BYTES: Final = 65_536

_INVISIBLE = {code: None for code in (*range(32), 127) if chr(code) not in "\n\t"}
_SAMPLE_WORDS = "<p>Some words, so that every part of the libraries is loaded from disk.</p>"
_SAMPLE_PAGE = f"<html><head><title>Sample</title></head><body>{_SAMPLE_WORDS}</body></html>"


def read(request: str) -> str:
    """Return a document as text; WorkError if it cannot be read."""
    document = _document(**json.loads(request))
    if not document.text.strip():
        raise WorkError("There is no text here; the page is empty, or made by scripts.")
    return _bounded(document).as_text()


def _document(kind: str, content_type: str, url: str, body: str) -> Document:
    data = base64.b64decode(body)
    match kind:
        case "pdf":
            return pdf.document_of(data)
        case "sheets":
            return office.sheets_of(data)
        case "words":
            return office.words_of(data)
    is_declared = kind == "html" or "charset" in content_type.lower()
    text = _declared(data, content_type) if is_declared else decoded(data, guess=_guess)[0]
    if kind == "html":
        return Document(html.title_of(text), html.text_of(text, url))
    return Document("", text)


def _declared(body: bytes, content_type: str) -> str:
    """Return bytes as text: by mark, header or markup as browsers do, as UTF-8, or by a guess."""
    with suppress(LookupError, ValueError, OSError):
        text = html_to_unicode(content_type, body, auto_detect_fun=_guess)[1]
        if _is_readable(text):
            return text
    texts = [body.decode(name, "replace") for name in ("utf-8", _guess(body))]
    return max(texts, key=_is_readable)


def _guess(body: bytes) -> str:
    with suppress(UnicodeError):
        body.decode()
        return "utf-8"
    if is_western(body):
        return WESTERN
    names = detect_encoding(body[:_DETECTED_BYTES])
    return next(iter(names), WESTERN)


def _is_readable(text: str) -> bool:
    return text.count("\ufffd") * 100 <= len(text)


def _bounded(document: Document) -> Document:
    """Cut a document to its bound, and drop characters that UTF-8 or terminals cannot show."""
    note = document.note
    if len(document.text) > MAX_CHARACTERS:
        note = f"Only the first {MAX_CHARACTERS} characters were read."
    return Document(_clean(document.title), _clean(document.text[:MAX_CHARACTERS]), note)


def _clean(text: str) -> str:
    shown = text.replace("\r\n", "\n").translate(_INVISIBLE)
    return shown.encode(errors="replace").decode().strip("\n")


def _load_all_of(package: ModuleType) -> None:
    """Import every module of a package: nothing can be imported once the sandbox is closed."""
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.", lambda _: None):
        with suppress(ImportError):  # some are for other systems or optional packages
            import_module(module.name)


if __name__ == "__main__":
    for library in (encodings, pypdf):
        _load_all_of(library)
    html.text_of(_SAMPLE_PAGE, "https://sample.invalid/")
    serve(read)
