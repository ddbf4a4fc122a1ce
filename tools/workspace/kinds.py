"""What kind of file a name says it is, for whoever gets it."""

import mimetypes
from typing import Final

ANYTHING: Final = "application/octet-stream"
_TYPES: Final = mimetypes.MimeTypes()  # the library's own table, and nothing of the machine's


def content_type_of(name: str) -> str:
    """Return a MIME type for a file name."""
    guessed, packed = _TYPES.guess_type(name)
    return guessed if guessed is not None and packed is None else ANYTHING


def suffix_of(content_type: str) -> str:
    """Return how the name of a file of a MIME type ends; empty where that is not known."""
    return _TYPES.guess_extension(content_type) or ""
