"""Finds texts by words, best first: SQLite's FTS5 over an index that is in memory alone.

An index is built for one search over the few texts of one owner. So the rank (BM25) depends on no
texts of other people, deletions need no index, and writes cost nothing.
"""

import re
import unicodedata
from collections.abc import Sequence
from itertools import chain
from typing import Final

from conversation_store.connections import in_memory

MAX_QUERY_CHARACTERS: Final = 1_000
MAX_QUERY_WORDS: Final = 32

_PREFIX_CHARACTERS: Final = 4
"""Minimum length of a word that also finds longer words: `garden`, `gardening`."""

_TRIGRAM: Final = 3

# Scripts that put no space between words: each of their characters counts as a word.
# Source: the blocks of Unicode for Thai, Lao, Burmese, Khmer, kana, Han and Hangul.
_UNSPACED: Final = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff"
    "\U00020000-\U000323af"
)
_CHARACTER: Final = re.compile(f"([{_UNSPACED}])")
_RUN: Final = re.compile(f"[{_UNSPACED}]+|(?:(?![{_UNSPACED}])\\w)+")


def best(texts: Sequence[str], query: str, limit: int) -> list[int]:
    """Return the indexes of the texts that a query finds, best first.

    Texts with the words of the query come first, in any case and with any accents; then texts
    with these words inside of longer words.

    Args:
        query: words; nothing in it is syntax.
    """
    words = _RUN.findall(_plain(query[:MAX_QUERY_CHARACTERS]))[:MAX_QUERY_WORDS]
    if not words or not texts:
        return []
    by_word = " OR ".join(phrase for word in words for phrase in _phrases(word))
    by_part = " OR ".join(f'"{word}"' for word in words if len(word) >= _TRIGRAM)
    with in_memory() as db:
        db.run(
            "CREATE VIRTUAL TABLE words USING"
            " fts5(text, content='', tokenize='unicode61 remove_diacritics 2')"
        )
        db.run(
            "CREATE VIRTUAL TABLE parts USING fts5(text, tokenize='trigram remove_diacritics 1')"
        )
        for place, text in enumerate(texts):
            db.run("INSERT INTO words (rowid, text) VALUES (?, ?)", place, _spaced(text))
        sql = "SELECT rowid FROM words WHERE words MATCH ? ORDER BY rank, rowid DESC LIMIT ?"
        found = [place for (place,) in db.run(sql, by_word, limit)]
        if len(found) < limit and by_part:
            for place, text in enumerate(texts):
                db.run("INSERT INTO parts (rowid, text) VALUES (?, ?)", place, _plain(text))
            sql = "SELECT rowid FROM parts WHERE parts MATCH ? ORDER BY rank, rowid DESC LIMIT ?"
            inside = [place for (place,) in db.run(sql, by_part, limit)]
            found = list(dict.fromkeys(chain(found, inside)))
    return found[:limit]


def _phrases(word: str) -> list[str]:
    """Return the search terms of a word: the word, or its pairs of characters."""
    if _CHARACTER.match(word):
        last = max(1, len(word) - 1)
        return [f'"{" ".join(word[start : start + 2])}"' for start in range(last)]
    return [f'"{word}"{"*" * (len(word) >= _PREFIX_CHARACTERS)}']


def _plain(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold()


def _spaced(text: str) -> str:
    """Return a text with a space around every character that is a word by itself."""
    return _CHARACTER.sub(r" \1 ", _plain(text))
