r"""Parse Markdown as chat models write it: CommonMark with rules of our own.

No words of a model may vanish, so some rules are tighter than CommonMark's:

- a marker between two letters or digits opens no style (`2*3`, `x**2`); scripts without spaces
  between words are exempt from this, and from the rules about punctuation;
- addresses, Windows paths, formulas (`$x$`, `\(x\)`, `\[x\]`) and special names of Python
  (`__init__`) contain no markup; formulas of the common kind become text (`bot.signal.formulas`);
- a few simple tags of HTML are styles (`<b>`); other HTML, link definitions and underlines below a
  line stay as they were typed;
- a quote ends at the first line without `>`.
"""

import re
import unicodedata
from collections.abc import Sequence
from functools import cache
from itertools import chain, pairwise
from types import FunctionType, ModuleType
from typing import Final

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock, table
from markdown_it.rules_core import StateCore
from markdown_it.rules_inline import StateInline
from markdown_it.rules_inline.state_inline import Delimiter
from markdown_it.token import Token

from bot.signal.formulas import in_unicode, raised

MAX_CELLS: Final = 8_000
"""Columns times lines of a table."""
MAX_NESTING: Final = 20
"""Depth of blocks inside each other; a list takes two levels."""

_FORMULA_CHARACTERS: Final = 500
_WITH_SPACED_WORDS: Final = "\u0590"
"""Latin, Greek, Cyrillic and Armenian letters and digits have smaller code points."""
_ADDRESS: Final = re.compile(r"://[^\s<>*`|\[\]\"\\]+")
_SCHEME: Final = re.compile(r"\b(?:https?|ftp)$", re.IGNORECASE)
_AFTER_ADDRESS: Final = "_~.,;:!?'"
_WINDOWS_PATH: Final = re.compile(r":(?:\\\*{0,2}[^\s\"<>|`*\\]*)+")
_DRIVE: Final = re.compile(r"\b[A-Za-z]$")
_STYLES_OF_TAGS: Final = {
    "b": "strong", "strong": "strong", "i": "em", "em": "em", "u": "em", "s": "strikethrough",
    "del": "strikethrough", "code": "code_inline",
}  # fmt: skip
_TAG: Final = re.compile(
    r"<(b|strong|i|em|u|s|del|code|sup|sub)>([^<>\n]{1,200})</\1>", re.IGNORECASE
)
_LINE_BREAK: Final = re.compile(r"<br ?/?>", re.IGNORECASE)
_MATHEMATICS: Final = re.compile(r"\\[a-zA-Z]|\^|_(?:\{|\w(?!\w))")
_FORMULA: Final = re.compile(
    r"\\\(.{1,200}?\\\)|\\\[.{1,200}?\\\]|\$\$[^$]{1,200}\$\$|\$[^$\n]{1,200}\$", re.DOTALL
)
_FORMULA_ENDS: Final = {"\\(": "\\)", "\\[": "\\]", "$$": "$$"}
_DOLLARS: Final = re.compile(  # Signs of money have blanks, markup or digits next to them.
    rf"\$(?!\s)(?:(?!\*\*)[^$`\n]){{1,{_FORMULA_CHARACTERS}}}+(?<!\s)\$(?!\w)"
)
_PYTHON_NAME: Final = re.compile(
    r"(?P<name>__[a-z][a-z0-9]{0,30}(?:_[a-z0-9]{1,30}){0,4}__)(?![\w])(?P<after>\.\w|[(=\[])?"
)
_SPECIAL_NAMES: Final = frozenset(
    name
    for kind in (type, int, list, dict, BaseException, FunctionType, ModuleType)
    for name in dir(kind)
) | {
    f"__{name}__"
    for name in [
        "main",
        "file",
        "path",
        "all",
        "aenter",
        "aexit",
        "aiter",
        "anext",
        "await",
        "enter",
        "exit",
    ]
}
_BAR: Final = re.compile(r"\\.|(?P<bar>\|)")
_BAR_OUTSIDE_CODE: Final = re.compile(r"\\.|(`++)[^`]++\1(?!`)|(?P<bar>\|)")
_PAIRS: Final = {"~": "strikethrough", "|": "spoiler"}


class _Parser(MarkdownIt):
    """Leaves addresses as they were typed: percent-encoding is unreadable."""

    def normalizeLink(self, url: str) -> str:  # noqa: N802
        return url

    def normalizeLinkText(self, link: str) -> str:  # noqa: N802
        return link


@cache
def parser() -> MarkdownIt:
    """Return the parser; it has no state, so one is enough."""
    made = _Parser("commonmark", {"html": False, "maxNesting": MAX_NESTING})
    made.enable("table").disable(["reference", "lheading", "html_block", "html_inline"])
    made.block.ruler.at("table", _table_of_a_size, {"alt": ["paragraph", "reference"]})
    made.block.ruler.push("end_of_quote", _ends_quote, {"alt": ["blockquote"]})
    made.core.ruler.after("block", "whole_cells", _whole_cells)
    made.inline.add_terminator_char("|")
    made.inline.ruler.before("escape", "verbatim", _verbatim)
    made.inline.ruler.before("autolink", "html", _html)
    made.inline.ruler.at("emphasis", _marker_run)
    made.inline.ruler2.after("balance_pairs", "pairs", _close_pairs)
    return made


def _table_of_a_size(state: StateBlock, first: int, end: int, silent: bool) -> bool:
    """Leave a table as text if it may have too many cells, including missing ones."""
    columns = state.src.count("|", state.bMarks[first], state.eMarks[first])
    return columns * (end - first) <= MAX_CELLS and table(state, first, end, silent)


def _ends_quote(state: StateBlock, _first: int, _end: int, silent: bool) -> bool:
    """End a quote at the first line without `>`, when the parser asks whether it continues.

    CommonMark lets a paragraph continue there. For each quote, the parser would read to the
    end of the text to find out.
    """
    return silent and state.parentType == "blockquote"  # a table asks the same rules


def _marker_run(state: StateInline, silent: bool) -> bool:
    """Note each marker in a run that may open or close a style."""
    marker = state.src[state.pos]
    if silent or marker not in "*_~|":
        return False
    end = state.pos
    while end < state.posMax and state.src[end] == marker:
        end += 1
    length = end - state.pos
    opens, closes = _flanks(state.src, state.pos, end)
    size = 2 if marker in _PAIRS else 1
    if marker in _PAIRS and length != size:
        opens = closes = False
        size = length
    for _ in range(length // size):
        state.push("text", "", 0).content = marker * size
        if opens or closes:
            rule_of_three = length if size == 1 else 0
            token = len(state.tokens) - 1
            delimiter = Delimiter(ord(marker), rule_of_three, token, -1, opens, closes)
            state.delimiters.append(delimiter)
    state.pos = end
    return True


def _flanks(text: str, start: int, end: int) -> tuple[bool, bool]:
    """Whether a run of markers can open and can close a style, by its neighbours."""
    before = text[start - 1] if start else " "
    after = text[end] if end < len(text) else " "
    word_before, word_after = _is_of_spaced_word(before), _is_of_spaced_word(after)
    opens = not after.isspace() and not (_is_punctuation(after) and word_before)
    closes = not before.isspace() and not (_is_punctuation(before) and word_after)
    if text[start] == "_":
        return opens and not before.isalnum(), closes and not after.isalnum()
    if word_before and word_after:
        return False, closes and end - start > 1
    return opens, closes


def _is_of_spaced_word(character: str) -> bool:
    return character < _WITH_SPACED_WORDS and character.isalnum()


def _is_punctuation(character: str) -> bool:
    return unicodedata.category(character)[0] in "PS"


def _close_pairs(state: StateInline) -> None:
    """Make tokens of the pairs found, as markdown-it does for emphasis."""
    nested = (meta["delimiters"] for meta in state.tokens_meta if meta and "delimiters" in meta)
    for delimiters in chain([state.delimiters], nested):
        for opener in delimiters:
            name = _PAIRS.get(chr(opener.marker))
            if name is not None and opener.end >= 0:
                closing = delimiters[opener.end].token
                state.tokens[opener.token] = Token(f"{name}_open", "", 1)
                state.tokens[closing] = Token(f"{name}_close", "", -1)


def _verbatim(state: StateInline, silent: bool) -> bool:
    """Keep addresses, Windows paths, formulas and names of Python as they were typed."""
    text, start = state.src, state.pos
    match text[start]:
        case ":":
            end = _end_of_place(text, start)
        case "\\" | "$":
            end = _end_of_formula(text, start)
        case "_":
            end = _end_of_name(text, start)
        case _:
            return False
    if end is None:
        return False
    end = min(end, state.posMax)
    if not silent:
        written = text[start:end]
        state.pending += _formula(written) if written[0] in "\\$" else written
    state.pos = end
    return True


def with_formulas(text: str) -> str:
    """Return a text of Markdown with its formulas as people see them."""
    return _FORMULA.sub(lambda found: _formula(found[0]), text)


def _formula(written: str) -> str:
    """Return a formula with Unicode signs, or as it was typed."""
    size = 1 if written.startswith("$") and not written.startswith("$$") else 2
    inside = written[size:-size]
    letters = re.findall(r"[a-zA-Z]+", inside)
    has_names = bool(letters) and max(map(len, letters)) == 1
    if size == 1 and not has_names and not _MATHEMATICS.search(inside):
        return written  # perhaps amounts of money
    return in_unicode(inside) or written


def _html(state: StateInline, silent: bool) -> bool:
    """Read a few simple tags as styles; all other HTML stays as it was typed."""
    if state.src[state.pos] != "<":
        return False
    if line_break := _LINE_BREAK.match(state.src, state.pos, state.posMax):
        if not silent:
            state.push("hardbreak", "br", 0)
        state.pos = line_break.end()
        return True
    tag = _TAG.match(state.src, state.pos, state.posMax)
    if tag is None:
        return False
    if not silent:
        style = _STYLES_OF_TAGS.get(tag[1].lower())
        if style is None:
            state.pending += raised(tag[2], is_above=tag[1].lower() == "sup")
        elif style == "code_inline":
            state.push(style, "code", 0).content = tag[2]
        else:
            state.push(f"{style}_open", tag[1], 1)
            state.push("text", "", 0).content = tag[2]
            state.push(f"{style}_close", tag[1], -1)
    state.pos = tag.end()
    return True


def _end_of_place(text: str, colon: int) -> int | None:
    before = text[max(0, colon - 6) : colon]
    # First check before the colon: the rest may be long, and each colon would read it again.
    if _SCHEME.search(before) and (address := _ADDRESS.match(text, colon)):
        return colon + len(address[0].rstrip(_AFTER_ADDRESS))
    if _DRIVE.search(before) and (path := _WINDOWS_PATH.match(text, colon)):
        return path.end()
    return None


def _end_of_name(text: str, start: int) -> int | None:
    """Return the end of a name such as `__init__`, unless it may be a word in bold."""
    name = _PYTHON_NAME.match(text, start)
    if name is None or text[start - 1 : start].isalnum():
        return None
    is_in_code = name["after"] or (start and text[start - 1] in "./")
    return name.end("name") if is_in_code or name["name"] in _SPECIAL_NAMES else None


def _end_of_formula(text: str, start: int) -> int | None:
    bound = start + _FORMULA_CHARACTERS
    ending = _FORMULA_ENDS.get(text[start : start + 2])
    if ending is not None:
        found = text.find(ending, start + 2, bound)
        return found + 2 if found > start + 2 else None
    if text[start] != "$":
        return None
    formula = _DOLLARS.match(text, start)
    return formula.end() if formula else None


def _whole_cells(state: StateCore) -> None:
    """Put surplus cells of a row into its last cell, because the parser drops them."""
    lines = state.src.split("\n")
    row: list[Token] = []
    inside = False
    for token in state.tokens:
        if token.type in {"tr_open", "tr_close"}:
            inside = token.type == "tr_open"
            if not inside and row[0].map is not None:
                _refill(row, lines[row[0].map[0]].strip(" \t>"))
            row = []
        elif inside and token.type == "inline":
            row.append(token)


def _refill(row: Sequence[Token], line: str) -> None:
    if len(_cells(line, _BAR)) <= len(row):
        return
    cells = _cells(line, _BAR_OUTSIDE_CODE)  # a surplus bar is more often code than a cell
    if len(cells) < len(row):
        cells = _cells(line, _BAR)
    last = len(row) - 1
    cells[last:] = ["|".join(cells[last:])]
    for token, cell in zip(row, cells, strict=True):
        token.content = cell.replace("\\|", "|").strip()


def _cells(line: str, bar: re.Pattern[str]) -> list[str]:
    bars = [match.start() for match in bar.finditer(line) if match["bar"]]
    edges = pairwise([-1, *bars, len(line)])
    cells = [line[before + 1 : after] for before, after in edges]
    first = 1 if not cells[0] else 0
    return cells[first : -1 if not cells[-1] else None]
