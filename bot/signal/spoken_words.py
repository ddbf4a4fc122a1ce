"""Turn an answer in Markdown into words for speech: prose alone.

Code, tables, addresses, pictures, formulas, crossed-out and hidden words are never spoken. The text
of a link is spoken, unless the text is an address.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from markdown_it.token import Token

from bot.signal.formatting import is_too_dense, well_formed
from bot.signal.markdown_rules import MAX_NESTING, parser

_SKIPPED: Final = frozenset({"s", "spoiler", "strikethrough"})
"""Inline styles whose words are not meant to be heard."""
_ADDRESS: Final = re.compile(
    r"(?:\b[a-z][a-z0-9+.-]{1,20}://|\bwww\.|\bmailto:)[^\s<>]+"
    r"|\b(?:[a-z0-9-]{1,63}\.){1,8}[a-z]{2,24}(?::\d{1,5})?/[^\s<>]*"
    r"|\b[\w.+-]{1,64}@(?:[a-z0-9-]{1,63}\.){1,8}[a-z]{2,24}\b",
    re.IGNORECASE,
)
_ENDING: Final = ".,;:!?)]}'\"…"
"""Marks at the end of an address that belong to the sentence."""
_DOMAIN: Final = re.compile(r"(?:[a-z0-9-]{1,63}\.){1,8}[a-z]{2,24}/?", re.IGNORECASE)
_FORMULA: Final = re.compile(
    r"\$\$.{1,500}?\$\$|\\\(.{1,500}?\\\)|\\\[.{1,500}?\\\]|\$(?![\s\d])[^$\n]{1,500}?(?<!\s)\$(?!\w)",
    re.DOTALL,
)
_TAG: Final = re.compile(r"</?[a-z][^<>]{0,200}>", re.IGNORECASE)
_EMPTY_BRACKETS: Final = re.compile(r"\(\s*[,;]?\s*\)|\[\s*\]|“\s*”|\"\s*\"")
_BEFORE_MARK: Final = re.compile(r"\s+([.,;:!?)])")
_SENTENCE_END: Final = re.compile(
    '[.!?\u2026\u061f][)"\u201d\u2019\u00bb]*(?=\\s|$)|[\u3002\uff01\uff1f]'
)
_FIRST_SYMBOL: Final = "\u2190"
"""Arrows, boxes and emoji begin here; earlier symbols, such as °, are read aloud."""
_JOINERS: Final = frozenset("\u200d\ufe0e\ufe0f\u20e3")


def spoken_words(answer: str) -> str:
    """Return the words of an answer that can be spoken, a line for each paragraph.

    The result is empty if there is nothing to say, or if the answer takes too long to parse.
    """
    text = well_formed(answer).replace("\r\n", "\n").replace("\r", "\n")
    if is_too_dense(text):
        return ""
    tokens = parser().parse(text)
    if any(token.level >= MAX_NESTING - 1 for token in tokens):
        return ""
    return "\n".join(filter(_says_something, map(_tidy, _paragraphs(tokens))))


def first_sentences(words: str, most: int) -> str:
    """Return the first sentences of a text with at most `most` characters; at least some words."""
    if len(words) <= most:
        return words
    ends = [found.end() for found in _SENTENCE_END.finditer(words, 0, most)]
    ends += [place for place in (words.rfind("\n", 0, most),) if place > 0]
    if ends:
        return words[: max(ends)].strip()
    cut = words[:most]
    return (cut.rpartition(" ")[0] or cut).strip()


def _paragraphs(tokens: Iterable[Token]) -> Iterator[str]:
    in_table = False
    for token in tokens:
        if token.type in {"table_open", "table_close"}:
            in_table = token.nesting > 0
        elif token.type == "inline" and not in_table:
            yield "".join(_pieces(token.children or ()))


def _pieces(tokens: Sequence[Token]) -> Iterator[str]:
    """Yield the words inside a paragraph, a heading or an item of a list."""
    hidden = 0
    link: list[str] | None = None
    for token in tokens:
        if token.type.removesuffix("_open").removesuffix("_close") in _SKIPPED:
            hidden += token.nesting
        elif token.type == "link_open":
            link = []
        elif token.type == "link_close":
            said = "".join(link or ()).strip()
            link = None
            if not _DOMAIN.fullmatch(said):
                yield said
        elif not hidden and (token.type == "text" or token.type.endswith("break")):
            said = token.content if token.type == "text" else "\n"
            if link is None:
                yield said
            else:
                link.append(said)


def _tidy(paragraph: str) -> str:
    """Remove formulas, tags, addresses, symbols and the gaps they leave; end with punctuation."""
    text = _FORMULA.sub(" ", paragraph)
    text = _TAG.sub(" ", text)
    text = _ADDRESS.sub(lambda found: _marks_after(found[0]), text)
    text = "".join(character for character in text if not _is_symbol(character))
    text = _EMPTY_BRACKETS.sub(" ", text)
    text = _BEFORE_MARK.sub(r"\1", " ".join(text.split()))
    return f"{text}." if text and text[-1].isalnum() else text


def _marks_after(address: str) -> str:
    return address[len(address.rstrip(_ENDING)) :]


def _is_symbol(character: str) -> bool:
    if character < _FIRST_SYMBOL:
        return character in _JOINERS
    is_emoji = unicodedata.category(character) in {"So", "Sk", "Co", "Cn", "Cs"}
    return is_emoji or character in _JOINERS


def _says_something(paragraph: str) -> bool:
    return any(map(str.isalnum, paragraph))
