"""What a search found, and how the model reads it. All of it is what strangers wrote."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Final
from urllib.parse import urlsplit

_MAX_TITLE_CHARACTERS: Final = 150
_MAX_URL_CHARACTERS: Final = 2_048
_MAX_SNIPPET_CHARACTERS: Final = 400
_MAX_AGE_CHARACTERS: Final = 40

_NOTHING: Final = "No results. Other or fewer words may find more."


@dataclass(frozen=True, slots=True)
class SearchResult:
    """One page that was found, as the search engine has it.

    Attributes:
        title: plain text.
        url: whatever stands in place of an address.
        snippet: plain text.
        age: in words or as a date; empty where it is not known.
    """

    title: str
    url: str
    snippet: str
    age: str = ""


def numbered(results: Iterable[SearchResult], count: int) -> str:
    """Write results so that an answer can cite them by number.

    Args:
        results: the best first; those that cannot be opened, or were there before, are left out.
        count: how many to write at most.
    """
    by_address: dict[str, SearchResult] = {}
    for result in results:
        if _can_be_opened(result.url):
            by_address.setdefault(result.url.rstrip("/"), result)
    entries = enumerate(islice(by_address.values(), count), start=1)
    return "\n".join(_entry(number, result) for number, result in entries) or _NOTHING


def _can_be_opened(url: str) -> bool:
    if len(url) > _MAX_URL_CHARACTERS or not url.isprintable() or " " in url:
        return False
    try:
        address = urlsplit(url)
    except ValueError:
        return False
    named = address.hostname is not None and "@" not in address.netloc  # a name before @ misleads
    return address.scheme in {"http", "https"} and named


def _entry(number: int, result: SearchResult) -> str:
    title = _one_line(result.title, _MAX_TITLE_CHARACTERS) or urlsplit(result.url).netloc
    age = _one_line(result.age, _MAX_AGE_CHARACTERS)
    snippet = _one_line(result.snippet, _MAX_SNIPPET_CHARACTERS)
    head = f"[{number}] {title} — {result.url}" + (f" ({age})" if age else "")
    return f"{head}\n    {snippet}" if snippet else head


def _one_line(text: str, most_characters: int) -> str:
    """Return a text without line breaks and what cannot be seen, cut to a length."""
    visible = "".join(letter for letter in text if letter.isprintable() or letter.isspace())
    line = " ".join(visible.split())
    return line if len(line) <= most_characters else line[: most_characters - 1].rstrip() + "…"
