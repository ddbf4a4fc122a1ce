"""The marks that templates of models put around a tool call, and what they write between them.

`<tool_call>` Hermes, Qwen, GLM and many others; `<function=…>` Llama, Qwen3-Coder;
`<invoke name="…">` Claude, MiniMax; `[TOOL_CALLS]` Mistral; `<|python_tag|>` Llama;
`<｜tool▁calls▁begin｜>` DeepSeek; `<|tool_calls_section_begin|>` Kimi; `<|tool_call|>` Granite
and Phi; `<|START_ACTION|>` Cohere; channels gpt-oss; `✿FUNCTION✿` and `Action:` models that are
told how.
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping
from html import unescape
from itertools import islice
from typing import Final, NamedTuple

from bot.llm.answers.lenient_json import read_json
from bot.llm.answers.shapes import (
    WrittenCall,
    arguments_of,
    as_json,
    calls_of,
    known_name,
    python_calls,
)

MAX_PLACES: Final = 64
"""Of one answer that are looked at: each may cost as much time as the answer is long."""

MAX_CALLS: Final = 32
"""Of one answer."""

_NAME: Final = r"[\w.-]{1,128}"
_TAG: Final = r"(?:\w{1,16}:)?(?:tool_?calls?|function_?calls?|tool_?use|invoke|function)"
_OPENING: Final = re.compile(
    rf"<(?P<tag>{_TAG})(?:=[^<>\n]{{1,130}}|\s[^<>\n]{{1,200}})?>"
    r"|(?P<mistral>\[TOOL_CALLS\])"
    r"|(?P<llama><\|python_tag\|>)"
    r"|(?P<deepseek><｜tool▁calls?▁begin｜>)"
    r"|(?P<kimi><\|tool_calls?_section_begin\|>)"
    r"|(?P<token><\|(?:tool_calls?|START_ACTION|tool_call_begin)\|>)"
    rf"|(?P<harmony>\bto=(?P<to>{_NAME}+)[^{{}}<]{{0,60}}+(?:<\|\w{{1,20}}\|>[^{{}}<]{{0,60}}+){{0,2}}"
    r"<\|message\|>)"
    rf"|(?P<qwen>✿FUNCTION✿:?)"
    rf"|^[ \t]*(?P<react>Action):[ \t]*(?P<does>{_NAME})[ \t]*\n[ \t]*Action Input:",
    re.MULTILINE,
)
_CLOSING: Final = {
    "mistral": re.compile(r"\[/TOOL_CALLS\]"),
    "llama": re.compile(r"<\|(?:eom_id|eot_id|end_of_text)\|>"),
    "deepseek": re.compile(r"<｜tool▁calls▁end｜>"),
    "kimi": re.compile(r"<\|tool_calls?_section_end\|>"),
    "token": re.compile(r"<\|(?:/tool_calls?|END_ACTION|tool_call_end)\|>"),
    "harmony": re.compile(r"<\|(?:call|end|return|start|channel)\|>"),
    "qwen": re.compile(r"✿RES(?:ULT)?✿|✿RETURN✿"),
    "react": re.compile(r"\Z"),  # what follows is the result as the model imagines it
}
_BRACKET: Final = re.compile(r"[<{\[(]")
_MAYBE: Final = frozenset({"function", "tool_use", "tooluse", "invoke"})
"""Tags that a text may be about; without a call in them they are words."""

_XML_CALL: Final = re.compile(
    rf"<(?:\w{{1,16}}:)?(?:function|invoke)(?:=|\s+name\s*=\s*)[\"']?(?P<name>{_NAME})[\"']?\s*>"
)
_XML_PARAMETER: Final = re.compile(
    rf"<(?:\w{{1,16}}:)?parameter(?:=|\s+name\s*=\s*)[\"']?(?P<name>{_NAME})[\"']?[^<>\n]{{0,100}}>"
)
_XML_PARAMETER_END: Final = re.compile(r"</(?:\w{1,16}:)?parameter>")
_GLM_CALL: Final = re.compile(rf"\s*(?P<name>{_NAME})\s*(?=<arg_key>|\Z)")
_GLM_PAIR: Final = re.compile(r"<arg_key>(?P<name>[^<>]{1,128})</arg_key>\s{0,100}<arg_value>")
_GLM_PAIR_END: Final = re.compile(r"</arg_value>")
_BETWEEN: Final = re.compile(
    r"(?:\s|[,;]|```|<｜tool[^<>｜]{0,20}｜>|<\|tool_call_(?:begin|end)\|>|\[TOOL_CALLS\]|✿FUNCTION✿:?"
    r"|</?tool_call>|function(?=<｜tool▁sep｜>))*"
)
_NAMED_JSON: Final = re.compile(
    rf"(?P<name>{_NAME})(?::\d{{1,6}})?"
    r"(?:\s|:|\[CALL_ID\]\w{1,64}|\[ARGS\]|<｜tool▁sep｜>|<\|tool_call_argument_begin\|>|✿ARGS✿"
    r"|```(?:json)?)*(?=\{)"
)


class Marked(NamedTuple):
    """A place of a text with marks around it.

    Attributes:
        start: of the place, its marks included.
        end: of it.
        calls: what it calls; none where that cannot be read.
    """

    start: int
    end: int
    calls: list[WrittenCall]


def marked_calls(text: str, offered: Collection[str]) -> Iterator[Marked]:
    """Go through the places of a text that are marked as calls, also those in code."""
    end = 0
    for opening in islice(_OPENING.finditer(text), MAX_PLACES):
        if opening.start() < end:
            continue
        place = _place(opening, text, offered)
        if place is not None:
            end = place.end
            yield place


def _place(opening: re.Match[str], text: str, offered: Collection[str]) -> Marked | None:
    tag = opening["tag"]
    closing = _closing(opening, text)
    inside = text[opening.end() : closing.start() if closing else len(text)]
    name = opening["to"] or opening["does"]
    if name:
        calls, read_to = _arguments(known_name(name, offered), inside)
    else:
        calls, read_to = _inside(opening[0], inside, offered)
    if closing is not None:
        is_prose = inside.strip() and _BRACKET.search(inside) is None
        if not calls and (tag in _MAYBE or is_prose):
            return None
        return Marked(opening.start(), closing.end(), calls)
    if calls:
        return Marked(opening.start(), opening.end() + read_to, calls)
    return None if tag in _MAYBE else Marked(opening.start(), len(text), [])


def _closing(opening: re.Match[str], text: str) -> re.Match[str] | None:
    """Return what ends a place; None where nothing does."""
    if opening["tag"]:
        return re.compile(f"</{re.escape(opening['tag'])}>").search(text, opening.end())
    kind = next(kind for kind in _CLOSING if opening[kind])
    return _CLOSING[kind].search(text, opening.end())


def _arguments(name: str, inside: str) -> tuple[list[WrittenCall], int]:
    """Read a call whose name is known already."""
    start = len(inside) - len(inside.lstrip())
    read = read_json(inside, start)
    if read is None or not isinstance(read[0], dict):
        return [], 0
    return [WrittenCall(name, arguments_of(read[0]))], read[1]


def _inside(opening: str, inside: str, offered: Collection[str]) -> tuple[list[WrittenCall], int]:
    """Read what stands between marks, in whichever way it is written, and say how far."""
    if _XML_CALL.search(opening + inside) is not None:
        return _xml_calls(opening + inside, offered), len(inside)
    if (glm := _GLM_CALL.match(inside)) is not None:
        pairs = _pairs(inside, _GLM_PAIR, _GLM_PAIR_END)
        name = known_name(glm["name"], offered)
        if name not in offered and (not pairs or opening.strip("<>") in _MAYBE):
            return [], 0
        return [] if pairs is None else [_call(name, pairs)], len(inside)
    calls, read_to = _json_calls(inside, offered)
    if calls:
        return calls, read_to
    return python_calls(inside, offered), len(inside)


def _json_calls(inside: str, offered: Collection[str]) -> tuple[list[WrittenCall], int]:
    """Read calls in JSON, or names before their arguments in JSON, one after the other."""
    found: list[WrittenCall] = []
    read_to = 0
    while (between := _BETWEEN.match(inside, read_to)) is not None:
        named = _NAMED_JSON.match(inside, between.end())
        read = read_json(inside, named.end() if named else between.end())
        if read is None:
            break
        if named is not None:
            name = known_name(named["name"], offered)
            calls = [WrittenCall(name, arguments_of(read[0]))]
        else:
            calls = calls_of(read[0], offered)
        if not calls:
            break
        found += calls
        read_to = read[1]
    return found, read_to


def _xml_calls(text: str, offered: Collection[str]) -> list[WrittenCall]:
    found: list[WrittenCall] = []
    openings = list(islice(_XML_CALL.finditer(text), MAX_CALLS + 1))
    ends = [one.start() for one in openings[1:]] + [len(text)]
    for opening, end in islice(zip(openings, ends, strict=True), MAX_CALLS):
        inside = text[opening.end() : end]
        name = known_name(opening["name"], offered)
        if inside.lstrip().startswith("{"):
            calls, _ = _arguments(name, inside)
        else:
            pairs = _pairs(inside, _XML_PARAMETER, _XML_PARAMETER_END)
            calls = [] if pairs is None else [_call(name, pairs)]
        if not calls:
            return []
        found += calls
    return found


def _pairs(
    text: str, opening: re.Pattern[str], closing: re.Pattern[str]
) -> dict[str, object] | None:
    """Return the arguments that are written between tags; None where one of them is not whole."""
    found: dict[str, object] = {}
    position = 0
    while (begun := opening.search(text, position)) is not None:
        ended = closing.search(text, begun.end())
        if ended is None:
            return None
        found[begun["name"].strip()] = _loose(text[begun.end() : ended.start()])
        position = ended.end()
    return found


def _call(name: str, arguments: Mapping[str, object]) -> WrittenCall:
    return WrittenCall(name, as_json(arguments))


def _loose(value: str) -> object:
    """Return what is written between tags: a value where it is one in JSON, else the words."""
    words = unescape(value.strip("\n"))
    try:
        read = json.loads(words)
    except (ValueError, RecursionError):
        return words
    return words if isinstance(read, str) else read
