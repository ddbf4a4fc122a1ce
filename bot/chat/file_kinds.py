"""The kind of a person's file, by the type that the sender gives and by its name."""

from enum import StrEnum
from pathlib import PurePosixPath
from typing import Final

from conversation_store.models import ReceivedFile
from tools.documents.kinds import may_be_document

_UNSAID: Final = frozenset({"", "application/octet-stream"})
_MAX_NAME_CHARACTERS: Final = 80
_QUOTES_AND_BRACKETS: Final = str.maketrans('[]“”"', " " * 5)

# Phones call such files by the names of spreadsheets, films and programs; bytes tell when read.
_TEXT_SUFFIXES: Final = frozenset(
    {
        ".c", ".cfg", ".conf", ".cpp", ".cs", ".css", ".csv", ".diff", ".go", ".h", ".hpp", ".ics",
        ".ini", ".java", ".js", ".json", ".jsonl", ".kt", ".log", ".lua", ".md", ".patch", ".php",
        ".pl", ".py", ".r", ".rb", ".rs", ".rst", ".sh", ".sql", ".srt", ".swift", ".tex", ".toml",
        ".ts", ".tsv", ".txt", ".vcf", ".xml", ".yaml", ".yml",
    }
)  # fmt: skip
_TYPES: Final = {
    ".gif": "image/gif",
    ".htm": "text/html",
    ".html": "text/html",
    ".jpeg": "image/jpeg",
    ".jpg": "image/jpeg",
    ".m4a": "audio/mp4",
    ".mp3": "audio/mpeg",
    ".ogg": "audio/ogg",
    ".pdf": "application/pdf",
    ".docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    ".odp": "application/vnd.oasis.opendocument.presentation",
    ".ods": "application/vnd.oasis.opendocument.spreadsheet",
    ".odt": "application/vnd.oasis.opendocument.text",
    ".png": "image/png",
    ".pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
    ".wav": "audio/wav",
    ".webp": "image/webp",
    ".xls": "application/vnd.ms-excel",
    ".xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
}


class FileKind(StrEnum):
    """How the bot reads a file."""

    IMAGE = "image"
    SOUND = "sound"
    DOCUMENT = "document"
    OTHER = "other"


def kind_of_file(file: ReceivedFile) -> FileKind:
    """Tell what a file seems to be."""
    content_type = type_of_file(file)
    if file.voice_note or content_type.startswith("audio/"):
        return FileKind.SOUND
    if may_be_document(content_type):
        return FileKind.DOCUMENT
    return FileKind.IMAGE if content_type.startswith("image/") else FileKind.OTHER


def type_of_file(file: ReceivedFile) -> str:
    """Return a file's MIME type, corrected by its name."""
    suffix = PurePosixPath(file.name or "").suffix.lower()
    if suffix in _TEXT_SUFFIXES and not may_be_document(file.content_type):
        return "text/plain"
    return (
        _TYPES.get(suffix, file.content_type) if file.content_type in _UNSAID else file.content_type
    )


def title_of_file(file: ReceivedFile) -> str:
    """Return the name of a file on one line, without characters that could end a frame around it.

    A file without a name is called by its kind.
    """
    name = " ".join((file.name or "").translate(_QUOTES_AND_BRACKETS).split())
    printable = "".join(filter(str.isprintable, name))[:_MAX_NAME_CHARACTERS]
    return f"“{printable}”" if printable else _UNNAMED[kind_of_file(file)]


_UNNAMED: Final = {
    FileKind.IMAGE: "the image",
    FileKind.SOUND: "the recording",
    FileKind.DOCUMENT: "the document",
    FileKind.OTHER: "the file",
}
