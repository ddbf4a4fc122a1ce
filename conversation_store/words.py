"""Split texts and queries of all scripts into the words that SQLite's FTS5 indexes and looks for.

Case and accents do not count. Scripts that put no space between words are indexed by character. A
query in them matches texts with the same characters in a row.
"""

import re
import unicodedata
from typing import Final

MAX_QUERY_CHARACTERS: Final = 1_000
MAX_QUERY_WORDS: Final = 32

PREFIX_CHARACTERS: Final = 4
"""Minimum length of a word that also finds longer words: `garden`, `gardening`."""

# Scripts that put no space between words: each of their characters counts as a word.
# Source: the blocks of Unicode for Thai, Lao, Burmese, Khmer, kana, Han and Hangul.
_UNSPACED: Final = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff"
    "\U00020000-\U000323af"
)
_CHARACTER: Final = re.compile(f"([{_UNSPACED}])")
_RUN: Final = re.compile(f"[{_UNSPACED}]+|(?:(?![{_UNSPACED}])\\w)+")


def plain(text: str) -> str:
    """Return a text case-folded and normalised (NFKC)."""
    return unicodedata.normalize("NFKC", text).casefold()


def indexed(text: str) -> str:
    """Return a text as it is indexed, with a space around every character that is a word."""
    return _CHARACTER.sub(r" \1 ", plain(text))


def words_of(query: str) -> list[str]:
    """Return the words of a search, at most `MAX_QUERY_WORDS`."""
    return _RUN.findall(plain(query[:MAX_QUERY_CHARACTERS]))[:MAX_QUERY_WORDS]


def whole(word: str) -> str:
    """Return FTS5's expression for a word, or for a run of characters that are words."""
    if _CHARACTER.match(word):
        return f'"{" ".join(word)}"'
    return f'"{word}"{"*" * (len(word) >= PREFIX_CHARACTERS)}'


def partly(word: str) -> list[str]:
    """Return FTS5's expressions for a word, or for each pair of characters that are words."""
    if _CHARACTER.match(word):
        return [whole(word[start : start + 2]) for start in range(max(1, len(word) - 1))]
    return [whole(word)]
