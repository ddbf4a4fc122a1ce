"""Finds texts by words, best first: SQLite's FTS5 over an index that is in memory alone.

The index is made of one owner's few texts for one question. So the rank (BM25) of a person's texts
depends on nobody else's, no index has to forget what is deleted, and writing costs nothing.
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
"""A word of so many letters also finds those that begin with it: `garden`, `gardening`."""

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
    """Return the places of the texts that a query finds, best first.

    First those that have its words, whatever their accents and case; then those that have them
    inside of longer ones.

    Args:
        texts: to be searched.
        query: words; nothing in it is syntax.
        limit: at most so many.
    """
    words = _RUN.findall(_plain(query[:MAX_QUERY_CHARACTERS]))[:MAX_QUERY_WORDS]
    if not words or not texts:
        return []
    by_word = " OR ".join(phrase for word in words for phrase in _phrases(word))
    by_part = " OR ".join(f'"{word}"' for word in words if len(word) >= _TRIGRAM)
    with in_memory() as execute:
        execute(
            "CREATE VIRTUAL TABLE words USING"
            " fts5(text, content='', tokenize='unicode61 remove_diacritics 2')"
        )
        execute(
            "CREATE VIRTUAL TABLE parts USING fts5(text, tokenize='trigram remove_diacritics 1')"
        )
        for place, text in enumerate(texts):
            execute("INSERT INTO words (rowid, text) VALUES (?, ?)", (place, _spaced(text)))
        sql = "SELECT rowid FROM words WHERE words MATCH ? ORDER BY rank, rowid DESC LIMIT ?"
        found = [place for (place,) in execute(sql, (by_word, limit))]
        if len(found) < limit and by_part:
            for place, text in enumerate(texts):
                execute("INSERT INTO parts (rowid, text) VALUES (?, ?)", (place, _plain(text)))
            sql = "SELECT rowid FROM parts WHERE parts MATCH ? ORDER BY rank, rowid DESC LIMIT ?"
            inside = [place for (place,) in execute(sql, (by_part, limit))]
            found = list(dict.fromkeys(chain(found, inside)))
    return found[:limit]


def _phrases(word: str) -> list[str]:
    """Return what stands for a word: itself, or the pairs of characters that it consists of."""
    if _CHARACTER.match(word):
        last = max(1, len(word) - 1)
        return [f'"{" ".join(word[start : start + 2])}"' for start in range(last)]
    return [f'"{word}"{"*" * (len(word) >= _PREFIX_CHARACTERS)}']


def _plain(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold()


def _spaced(text: str) -> str:
    """Return a text with a space around every character that is a word by itself."""
    return _CHARACTER.sub(r" \1 ", _plain(text))
