"""The values that go into the reader's process and come out of it."""

import base64
import json
from dataclasses import asdict, dataclass
from typing import Final, Self

from tools.documents.kinds import DocumentKind

MAX_CHARACTERS: Final = 1_000_000
MAX_LINE_CHARACTERS: Final = 400
"""Bound of a title and of a note."""


@dataclass(frozen=True, slots=True)
class DocumentSource:
    """A document as it was downloaded.

    Attributes:
        content_type: the header, for the character set.
        url: its address, for its links.
    """

    kind: DocumentKind
    content_type: str
    url: str
    body: bytes

    def as_text(self) -> str:
        """Return the JSON that `from_text` reads."""
        return json.dumps({**asdict(self), "body": base64.b64encode(self.body).decode("ascii")})

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Parse the JSON of `as_text`."""
        fields = json.loads(text)
        return cls(
            kind=DocumentKind(fields["kind"]),
            content_type=fields["content_type"],
            url=fields["url"],
            body=base64.b64decode(fields["body"]),
        )


@dataclass(frozen=True, slots=True)
class Document:
    """A document as text, at most MAX_CHARACTERS long.

    Attributes:
        title: on one line; may be empty.
        text: paragraphs.
        note: a sentence about missing parts, or empty.
    """

    title: str
    text: str
    note: str = ""

    def as_text(self) -> str:
        """Return the title and the note, cut to a line each, and below them the text."""
        lines = (line.replace("\n", " ")[:MAX_LINE_CHARACTERS] for line in (self.title, self.note))
        return "\n".join((*lines, self.text))

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Parse the text of `as_text`, and cut what is too long.

        Raises:
            ValueError: it has another form.
        """
        title, note, words = text.split("\n", 2)
        return cls(title[:MAX_LINE_CHARACTERS], words[:MAX_CHARACTERS], note[:MAX_LINE_CHARACTERS])
