"""Tool calls that a model writes into its answer instead of making them."""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from bot.llm.answers.code import Code
from bot.llm.answers.lenient_json import read_json
from bot.llm.answers.markup import MAX_CALLS, marked_calls
from bot.llm.answers.shapes import WrittenCall, calls_of, python_calls

MAX_OBJECTS: Final = 64
"""Places of one answer where an object is looked for."""

_FENCE: Final = re.compile(r"(?:```|~~~)[\w-]{0,20}")
_LAST_BLOCK: Final = re.compile(
    r"^[ \t]*```(?:json|tool_\w{1,10})?[ \t]*\n(?=\s*[\[{])", re.MULTILINE
)
_CALLING: Final = r"\{\s*[\"']?(?:tool|name|tool_name|function|tool_calls?|function_call)[\"']?\s*:"
_OBJECT: Final = re.compile(rf"^[ \t]*(?=[\[{{])|(?=\[?{_CALLING})", re.MULTILINE)
_BEGINS_A_CALL: Final = re.compile(rf"[\[\s]*{_CALLING}\s*[\"'\[{{]\s*(?P<name>[\w.-]{{0,128}})")


@dataclass(frozen=True, slots=True)
class Lifted:
    """An answer with the calls taken out of its words.

    Attributes:
        words: what is left for people.
        calls: what was called.
        is_broken: a call was begun, and none can be read.
    """

    words: str
    calls: Sequence[WrittenCall] = ()
    is_broken: bool = False


def lifted(text: str, offered: Collection[str], *, prompted: bool = False) -> Lifted:
    """Take the calls out of an answer's words.

    Calls with marks around them count wherever they stand outside of code. A bare object counts
    where it is all of the answer, or calls a tool that there is. In a block of
    code it is an example, unless it is all of the answer.

    Args:
        text: the answer without its reasoning.
        offered: the names of the tools that there are.
        prompted: the model was asked to call tools by bare objects, so a block that ends the answer
            is a call too.
    """
    marked = _marked(text, offered)
    if marked.calls or marked.is_broken or not offered:
        return marked
    if calls := _all_calls(text, offered):
        return Lifted("", calls[:MAX_CALLS])
    return _among_words(marked.words, offered, prompted=prompted)


def _marked(text: str, offered: Collection[str]) -> Lifted:
    found: list[WrittenCall] = []
    words: list[str] = []
    start = 0
    is_broken = False
    code: Code | None = None
    for place in marked_calls(text, offered):
        code = code or Code(text)
        if code.around(place.start) is not None:
            continue
        words.append(text[start : place.start])
        start = place.end
        found += place.calls
        is_broken = is_broken or not place.calls
    words.append(text[start:])
    return Lifted("".join(words), found[:MAX_CALLS], is_broken and not found)


def _all_calls(text: str, offered: Collection[str]) -> list[WrittenCall]:
    """Return the calls that an answer is as a whole, perhaps inside one block of code."""
    inside = _unfenced(text)
    found: list[WrittenCall] = []
    position = 0
    while position < len(inside):
        if inside[position].isspace() or inside[position] in ",;":
            position += 1
            continue
        read = read_json(inside, position) if inside[position] in "[{" else None
        calls = calls_of(read[0], offered) if read is not None else []
        if read is None or not calls:
            return python_calls(inside, offered) if not found else []
        found += calls
        position = read[1]
    return found


def _unfenced(text: str) -> str:
    """Return what is in the block of code that a text is as a whole, or the text itself."""
    first, newline, rest = text.strip().partition("\n")
    if not newline or _FENCE.fullmatch(first.rstrip()) is None:
        return text
    return rest.removesuffix("```").removesuffix("~~~")


def _among_words(text: str, offered: Collection[str], *, prompted: bool) -> Lifted:
    """Take out bare objects that call a tool that there is, and stand among words."""
    found: list[WrittenCall] = []
    words: list[str] = []
    start = 0
    code = Code(text)
    last_block = _last_block(text) if prompted else None
    for count, begun in enumerate(_OBJECT.finditer(text)):
        if count == MAX_OBJECTS:
            break
        around = code.around(begun.end())
        if begun.start() < start or (around is not None and around[0] != last_block):
            continue
        looks = _BEGINS_A_CALL.match(text, begun.end())
        read = read_json(text, begun.end())
        if read is None:
            if looks is None or not any(one.startswith(looks["name"]) for one in offered):
                continue
            return Lifted(text[: begun.start()].rstrip(), is_broken=True)
        calls = [call for call in calls_of(read[0], offered) if call.name in offered]
        if calls:
            words.append(text[start : begun.start() if around is None else around[0]])
            start = read[1] if around is None else around[1]
            found += calls
    return Lifted("".join([*words, text[start:]]), found[:MAX_CALLS])


def _last_block(text: str) -> int | None:
    """Return where a block of code begins that ends the text; None where words follow."""
    if not text.rstrip().endswith("```"):
        return None
    begun = [one.start() for one in _LAST_BLOCK.finditer(text)]
    return begun[-1] if begun else None
