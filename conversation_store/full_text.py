"""Finds texts by words, best first: SQLite's FTS5 over an index that is in memory alone.

An index is built for one search over the few texts of one owner. So the rank (BM25) depends on no
texts of other people, deletions need no index, and writes cost nothing.
"""

from collections.abc import Sequence
from itertools import chain
from typing import Final

from conversation_store.connections import in_memory
from conversation_store.words import indexed, partly, plain, words_of

_TRIGRAM: Final = 3


def best(texts: Sequence[str], query: str, limit: int) -> list[int]:
    """Return the indexes of the texts that a query finds, best first.

    Texts with the words of the query come first, in any case and with any accents; then texts
    with these words inside of longer words.

    Args:
        query: words; nothing in it is syntax.
    """
    words = words_of(query)
    if not words or not texts:
        return []
    by_word = " OR ".join(phrase for word in words for phrase in partly(word))
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
            db.run("INSERT INTO words (rowid, text) VALUES (?, ?)", place, indexed(text))
        sql = "SELECT rowid FROM words WHERE words MATCH ? ORDER BY rank, rowid DESC LIMIT ?"
        found = [place for (place,) in db.run(sql, by_word, limit)]
        if len(found) < limit and by_part:
            for place, text in enumerate(texts):
                db.run("INSERT INTO parts (rowid, text) VALUES (?, ?)", place, plain(text))
            sql = "SELECT rowid FROM parts WHERE parts MATCH ? ORDER BY rank, rowid DESC LIMIT ?"
            inside = [place for (place,) in db.run(sql, by_part, limit)]
            found = list(dict.fromkeys(chain(found, inside)))
    return found[:limit]
