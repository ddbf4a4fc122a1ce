"""Split an answer into messages that Signal shows well.

Signal shows up to 2,000 bytes as text and makes a file of a longer message. So a long answer is
split where a reader would pause: between paragraphs, otherwise lines, sentences or words. A code
block or a word that is longer than a message stays whole, and a heading stays with the text below
it. In plain text a code block is between fences; in styled text it is monospace of several lines.
"""

import re
import unicodedata
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from operator import attrgetter
from typing import Final

from bot.signal.markdown import Span, ranges_of, render, spans_of, well_formed
from conversation_store.models import StyledText, TextStyle

MAX_PART_BYTES: Final = 2_000
"""Signal shows one message of this size as text."""

MAX_ANSWER_BYTES: Final = 60_000
"""Limit of a whole answer; official apps read up to 64 KiB of one message."""

CUT_NOTICE: Final = "The answer was too long for Signal and ends here."

_CODE_BLOCK: Final = re.compile(
    r"^[ \t]*(`{3,})[^`\n]*$.*?(?:^[ \t]*\1`*(?=[ \t]*$)|\Z)", re.MULTILINE | re.DOTALL
)
_HEADING: Final = re.compile(r"^ {0,3}#{1,6} [^\n]*(?<=\S)", re.MULTILINE)
_EAST_ASIAN: Final = r"[\u3041-\u3096\u30a1-\u30fa\u3400-\u4dbf\u4e00-\u9fff]"  # kana, ideographs
_STOP: Final = r"[\u3002\uff01\uff1f]"  # their full stop, exclamation and question mark
_CLOSE: Final = r"[\u300d\u300f\uff09]"  # their closing brackets
_PAUSE: Final = re.compile(
    r"(?P<space>\s+)"
    rf"|(?P<sentence>(?:(?<={_STOP})|(?<={_STOP}{_CLOSE}))(?!{_STOP}|{_CLOSE}|\s|\Z))"
    rf"|(?<={_EAST_ASIAN})(?={_EAST_ASIAN})"
)
_SENTENCE_END: Final = re.compile(
    rf"(?:[.!?\u2026]|{_STOP})(?:[\"'\u201d\u2019\u00bb)\]*_]|{_CLOSE})*$"
)
_end: Final = attrgetter("end")
_CLOSING_LENGTH: Final = 4
_ZERO_WIDTH_JOINER: Final = "\u200d"
_VIRAMA: Final = 9
_REGIONAL: Final = "".join(map(chr, range(0x1F1E6, 0x1F200)))
"""Letters of flags, two for each."""
_GRAPHEME_BOUND: Final = 64
_WORD_BOUND: Final = 200


class _Rank(IntEnum):
    WORD = 0
    SENTENCE = 1
    LINE = 2
    PARAGRAPH = 3


@dataclass(frozen=True, slots=True)
class _Pause:
    """A place to split: the first part ends at `end`, the next one starts at `resume`."""

    end: int
    resume: int
    rank: _Rank


@dataclass(frozen=True, slots=True)
class _Layout:
    """Parts that stay together: code blocks, in order, and headings with the text below."""

    blocks: list[tuple[int, int]]
    headings: set[int]


def split(text: str) -> tuple[str, ...]:
    """Return the messages of a plain answer, in order.

    Joined they are the text without the white space between them. A text of more than
    `MAX_ANSWER_BYTES` is cut and says so at its end.
    """
    text, _ = _shortened(well_formed(text).strip())
    layout = _Layout(
        [match.span() for match in _CODE_BLOCK.finditer(text)],
        {match.end() for match in _HEADING.finditer(text)},
    )
    return tuple(text[start:end] for start, end in _parts(text, layout))


def split_styled(styled: StyledText) -> tuple[StyledText, ...]:
    """Return the messages of a styled answer, split like those of `split`, with their styles."""
    whole = well_formed(styled.text)
    text, kept = _shortened(whole.rstrip())
    first = len(text) - len(text.lstrip())
    spans = [span._replace(end=min(span.end, kept)) for span in spans_of(whole, styled.styles)]
    parts = _parts(text, _styled_layout(text, spans), first)
    return tuple(_part(text[start:end], start, spans) for start, end in parts)


def _styled_layout(text: str, spans: list[Span]) -> _Layout:
    layout = _Layout([], set())
    for start, end, style in spans:
        if style is TextStyle.MONOSPACE and "\n" in text[start:end]:
            layout.blocks.append((start, end))
        elif style is TextStyle.BOLD and _is_line(text, start, end):
            layout.headings.add(end)
    return layout


def _is_line(text: str, start: int, end: int) -> bool:
    return text[max(0, start - 1) : start] in {"", "\n"} and text[end : end + 1] == "\n"


def _part(text: str, start: int, spans: list[Span]) -> StyledText:
    end = start + len(text)
    cut = (
        Span(max(span.start, start) - start, min(span.end, end) - start, span.style)
        for span in spans
        if span.start < end and start < span.end
    )
    return StyledText(text, ranges_of(text, cut))


def _parts(text: str, layout: _Layout, start: int = 0) -> Iterator[tuple[int, int]]:
    """Yield the beginning and the end of each message."""
    if len(text.encode()) > MAX_PART_BYTES:
        pauses = list(_pauses(text, layout))
        while (reach := _reach(text, start, MAX_PART_BYTES)) < len(text):
            pause = _best(pauses, start, reach)
            if pause is None:
                break
            if start < pause.end:
                yield start, pause.end
            start = pause.resume
    if start < len(text):
        yield start, len(text)


def _shortened(text: str) -> tuple[str, int]:
    """Return the text to send, and the length of its beginning that comes from the given one."""
    if len(text.encode()) <= MAX_ANSWER_BYTES:
        return text, len(text)
    ending = f"\n\n{CUT_NOTICE}"
    reach = _reach(text, 0, MAX_ANSWER_BYTES - len(ending))
    kept = text[: _whole_graphemes(text, reach)]
    words = kept.rsplit(maxsplit=1)
    if len(words) > 1 and len(words[1]) <= _WORD_BOUND:
        kept = words[0]
    kept = kept.rstrip()
    return kept + ending, len(kept)


def _reach(text: str, start: int, limit: int) -> int:
    """Return the end of the longest piece from `start` on that has at most `limit` bytes."""
    piece = text[start : start + limit].encode()[:limit]
    return start + len(piece.decode(errors="ignore"))


def _best(pauses: list[_Pause], start: int, reach: int) -> _Pause | None:
    """Return the last of the strongest pauses within reach, or the first beyond it."""
    first = bisect_right(pauses, start, key=_end)
    beyond = bisect_right(pauses, reach, key=_end)
    if first < beyond:
        return max(pauses[first:beyond], key=lambda pause: (pause.rank, pause.end))
    return pauses[beyond] if beyond < len(pauses) else None


def _pauses(text: str, layout: _Layout) -> Iterator[_Pause]:
    blocks = deque(layout.blocks)
    for match in _PAUSE.finditer(text):
        pause = _pause(match)
        while blocks and blocks[0][1] <= pause.end:
            blocks.popleft()
        inside_code = bool(blocks) and blocks[0][0] < pause.resume
        if not inside_code and not _extends(text[pause.resume]):
            below_heading = pause.end in layout.headings
            yield replace(pause, rank=_Rank.WORD) if below_heading else pause


def _pause(match: re.Match[str]) -> _Pause:
    space = match["space"] or ""
    newlines = space.count("\n")
    # The indentation of the line after the pause belongs to that line.
    resume = match.end() if not newlines else match.start() + space.rindex("\n") + 1
    if newlines > 1:
        rank = _Rank.PARAGRAPH
    elif newlines:
        rank = _Rank.LINE
    elif match["sentence"] is not None or _ends_sentence(match.string, match.start()):
        rank = _Rank.SENTENCE
    else:
        rank = _Rank.WORD
    return _Pause(match.start(), resume, rank)


def _ends_sentence(text: str, end: int) -> bool:
    return _SENTENCE_END.search(text[max(0, end - _CLOSING_LENGTH) : end]) is not None


def _whole_graphemes(text: str, end: int) -> int:
    """Return a place at or a little before `end` that is not inside one visible character."""
    for place in range(end, max(0, end - _GRAPHEME_BOUND), -1):
        if not _inside_grapheme(text, place):
            return place
    return end


def _inside_grapheme(text: str, place: int) -> bool:
    """Whether the characters around a place belong together, by the rules of UAX 29."""
    before, after = text[place - 1], text[place]
    if _is_regional(before) and _is_regional(after):
        flags = place - len(text[:place].rstrip(_REGIONAL))
        return flags % 2 == 1
    joined = before == _ZERO_WIDTH_JOINER or unicodedata.combining(before) == _VIRAMA
    return joined or _extends(after)


def _extends(character: str) -> bool:
    """Whether a character belongs to the one before it: marks, joiners, skin tones, jamo, tags."""
    return (
        character == _ZERO_WIDTH_JOINER
        or unicodedata.category(character) in {"Mn", "Mc", "Me"}
        or "\U0001f3fb" <= character <= "\U0001f3ff"
        or "\u1160" <= character <= "\u11ff"
        or "\U000e0020" <= character <= "\U000e007f"
    )


def _is_regional(character: str) -> bool:
    return character in _REGIONAL


def rendered(answer: str, notices: Sequence[str]) -> tuple[StyledText, ...]:
    """Return the messages of an answer whose Markdown is shown as Signal's styles.

    Args:
        answer: what the model wrote.
        notices: plain lines above it.
    """
    return split_styled(_below(notices, render(answer)))


def plain(answer: str, notices: Sequence[str]) -> tuple[StyledText, ...]:
    """Return the messages of an answer that is shown as it was typed."""
    return tuple(map(StyledText, split("\n\n".join(filter(None, ("\n".join(notices), answer))))))


def _below(notices: Sequence[str], styled: StyledText) -> StyledText:
    """Put plain lines above a text; its styles move with it, counted in UTF-16 units."""
    if not notices:
        return styled
    opening = "\n".join(notices) + "\n\n"
    moved = len(opening.encode("utf-16-le", "replace")) // 2
    styles = (replace(style, start=style.start + moved) for style in styled.styles)
    return StyledText(opening + styled.text, tuple(styles))
