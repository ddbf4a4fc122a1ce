"""Split a model's text into the words for people and the tool calls among them.

Reasoning stands in `<think>` or in a channel of gpt-oss
(https://github.com/openai/harmony/blob/main/docs/format.md). Channels also hold gpt-oss's own
calls, which only its server can read. Other calls are written in one of five ways:
- `<tool_call>` around JSON
- Qwen-Coder's `<function=NAME>` around `<parameter=NAME>`
- Mistral's `[TOOL_CALLS]`
- a bare JSON object
- `{"tool": NAME, "input": {...}}`, the form that the bot's own prompt asks for

Marks of other models, such as `<|python_tag|>` or DeepSeek's DSML, are never shown. Text between
them is a call if it has one of these forms; otherwise it counts as a call that cannot be read.

Marks inside Markdown code are text (https://spec.commonmark.org/0.31.2/#fenced-code-blocks).
"""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from html import unescape
from itertools import islice
from typing import Final

from bot.llm.arguments import as_json, plain_name, read_arguments, read_json
from conversation_store.models import ToolCall

MAX_PLACES: Final = 64
"""Marks and objects read in one answer; reading each may take time in proportion to the answer."""
MAX_CALLS: Final = 32
MAX_NAME_CHARACTERS: Final = 128
CODE_BLANK: Final = " "

ODD: Final = re.compile(r"[<{\[\u2039]")
"""Occurs in every text with reasoning, marks or calls, which people should not see."""

_FENCE: Final = re.compile(
    r"(?:[ \t>]|[-*+][ \t]|\d{1,9}[.)][ \t])*+(?P<fence>`{3,}+|~{3,}+)(?P<info>[^`\n]*+)$"
)
"""A fence, perhaps in a list or a quotation."""
_SPAN: Final = re.compile(r"(?<!`)(`{1,8}+)(?!`)[^\n]{0,100}?(?<!`)\1(?!`)")
"""Code within a line; bounded, because each backtick may begin one."""
_BLOCK_OF_JSON: Final = re.compile(
    r"^[ \t]*(?:```|~~~)(?:json|tool_\w{1,10})?[ \t]*\n(?=\s*[\[{])", re.MULTILINE
)

_REASONING: Final = re.compile(
    r"(?P<think><think(?:\s[^<>]{0,200})?>)|(?P<close></think\s*+>)"
    r"|(?P<channel><\|channel\|>\s*+(?:analysis|thought|commentary\s++to=)[^<]{0,100}"
    r"(?:<\|message\|>)?)"
    r"|(?P<next><\|(?:end|start|channel|return|call)\|>)",
    re.IGNORECASE,
)
_TEMPLATE_MARK: Final = re.compile(
    r"(?:<\|start\|>\s*+(?:assistant|system|user)?+\s*+)?<\|channel\|>\s*+(?:final|commentary|analysis)?"
    r"(?:\s*+<\|constrain\|>\s*+\w{0,20})?\s*+(?:<\|message\|>)?"
    r"|<\|start\|>\s*+assistant(?:\s++to=[\w.-]{1,128})?+|<\|(?:start|end|message|constrain|return|call)\|>"
    r"|</tool_call>|\[/?TOOL_CALLS\]"
    r"|<[|\uff5c][^<>|\uff5c\s]{1,40}[|\uff5c]>"
)
_FOREIGN_MARK: Final = re.compile(
    r"(?P<token>[<\u2039]/?[|\uff5c](?!call\|>)[^<>\n]{0,60}?"
    r"(?:tool|function|invoke|action|plugin|DSML|python_tag|parameter)[^<>\n\u203a]{0,200}[>\u203a])"
    r"|</?(?!tool_call>)(?:[\w-]{1,20}:)?(?:\w{1,20}_)?(?:tool_?calls?|function_?calls?|tool_use|invoke"
    r"|arg_key|arg_value)(?:\s[^<>]{0,200})?>"
    r"|\[(?:END_)?TOOL_REQUEST\]",
    re.IGNORECASE,
)
"""Marks of other models around calls. Those of the group `token` never occur in prose."""
_ENDS: Final = re.compile(r"[<\u2039][|\uff5c]?/|\[END_|<[^<]*(?:\b|_)end(?:\b|_)", re.IGNORECASE)
_OF_A_CALL: Final = re.compile(r"[{\[]|name=|arg_key", re.IGNORECASE)

_NAME: Final = rf"[\w.-]{{1,{MAX_NAME_CHARACTERS}}}"
_OPENING: Final = re.compile(
    rf"(?P<tag><tool_call>)|(?P<xml><function=(?P<function>{_NAME})>)|(?P<list>\[TOOL_CALLS\])"
)
_CLOSING: Final = {
    "tag": re.compile(r"</tool_call>"),
    "xml": re.compile(r"</function>"),
    "list": re.compile(r"\[/TOOL_CALLS\]"),
}
_FUNCTION: Final = re.compile(rf"<function=({_NAME})>")
_PARAMETER: Final = re.compile(rf"<parameter=({_NAME})>")
_BETWEEN: Final = re.compile(r"(?:\s|[,;]|\[TOOL_CALLS\]|</?tool_call>)*+")
_NAMED: Final = re.compile(rf"(?P<name>{_NAME})(?:\[CALL_ID\]\w{{1,64}})?(?:\[ARGS\])?\s*(?=\{{)")

_CALLING: Final = r"\{\s*[\"']?(?:tool|name|function|tool_calls?)[\"']?\s*:"
_OBJECT: Final = re.compile(rf"^[ \t]*(?=[\[{{])|(?=\[?{_CALLING})", re.MULTILINE)
_BEGINS_A_CALL: Final = re.compile(rf"[\[\s]*{_CALLING}\s*[\"'\[{{]\s*(?P<name>[\w.-]{{0,128}})")

_NAMES: Final = ("tool", "name", "function")
_ARGUMENTS: Final = ("input", "arguments", "parameters")
_WRAPPERS: Final = ("tool_calls", "tool_call", "function")


@dataclass(frozen=True, slots=True)
class Cleaned:
    """An answer's words without its calls, and these calls, still without ids.

    `is_broken`: a call cannot be read.
    """

    words: str
    calls: Sequence[ToolCall] = ()
    is_broken: bool = False


def cleaned(text: str, offered: Collection[str] = (), *, prompted: bool = False) -> Cleaned:
    """Return the words of an answer and the calls written among them, in linear time.

    Marked calls count everywhere outside of code. A bare object counts if it is the whole answer,
    or if it calls an offered tool. A block of code counts only if it is the whole answer.

    Args:
        prompted: the prompt asked for bare objects, so a block that ends the answer counts too.
    """
    found = _marked(without_reasoning(text), offered)
    found = _foreign(found, offered)
    if offered and not found.calls and not found.is_broken:
        found = _bare(found.words, offered, prompted=prompted)
    words = _without_marks(found.words, _TEMPLATE_MARK).strip()
    # gpt-oss has to repeat its own kind of call, so that its server can read it.
    is_own_call = bool(offered) and not (words or found.calls) and " to=" in text and "<|" in text
    return replace(found, words=words, is_broken=found.is_broken or is_own_call)


# Code -------------------------------------------------------------------------------------------


def without_code(text: str) -> str:
    """Return a text of the same length with blanks in place of its code.

    A block without an end does not count as code, because it could hide anything.
    """
    if "`" not in text and "~~~" not in text:
        return text
    lines: list[str] = []
    fence, begun = "", 0
    for line in text.splitlines(keepends=True):
        before, fence = fence, fence_after(line, fence)
        if fence and not before:
            begun = len(lines)
        lines.append(_SPAN.sub(lambda code: CODE_BLANK * len(code[0]), line))
        if before and not fence:
            lines[begun:] = [CODE_BLANK * len(one) for one in lines[begun:]]
    return "".join(lines)


def fence_after(line: str, fence: str) -> str:
    """Return the fence that is open after a line, or an empty text."""
    found = _FENCE.match(line.rstrip("\r\n"))
    if found is None or (fence and found["info"].strip()):
        return fence
    if not fence:
        return found["fence"]
    return "" if found["fence"].startswith(fence) else fence


# Reasoning and marks of templates ---------------------------------------------------------------


def without_reasoning(text: str) -> str:
    """Return a text without its reasoning.

    A closing mark without an opening one ends reasoning that began with the text, because the
    templates of some models open it themselves. Reasoning without a closing mark never ends.
    """
    if _REASONING.search(text) is None:
        return text
    outside = without_code(text)
    parts: list[str] = []
    start = 0
    ends_with = ""
    for mark in _REASONING.finditer(text):
        if ends_with:
            if mark[ends_with]:
                # The mark of the next channel is removed later, with those of templates.
                start = mark.end() if mark["close"] else mark.start()
                ends_with = ""
        elif outside[mark.start()] == CODE_BLANK:
            continue
        elif mark["close"]:
            parts.clear()
            start = mark.end()
        elif not mark["next"]:
            parts.append(text[start : mark.start()])
            ends_with = "close" if mark["think"] else "next"
    if not ends_with:
        parts.append(text[start:])
    return "".join(parts).strip()


def _without_marks(text: str, marks: re.Pattern[str]) -> str:
    """Return a text without marks outside of code."""
    if marks.search(text) is None:
        return text
    outside = without_code(text)

    def kept(mark: re.Match[str]) -> str:
        return mark[0] if outside[mark.start()] == CODE_BLANK else ""

    return marks.sub(kept, text)


# Marked calls -----------------------------------------------------------------------------------


def _marked(text: str, offered: Collection[str]) -> Cleaned:
    """Take out the calls between marks."""
    if _OPENING.search(text) is None:
        return Cleaned(text)
    outside = without_code(text)
    found: list[ToolCall] = []
    words: list[str] = []
    start = 0
    is_broken = False
    for opening in islice(_OPENING.finditer(text), MAX_PLACES):
        if opening.start() < start or outside[opening.start()] == CODE_BLANK:
            continue
        read = _calls_at(opening, text, offered)
        if read is None:
            continue
        words.append(text[start : opening.start()])
        calls, start = read
        found += calls
        is_broken = is_broken or not calls
    words.append(text[start:])
    return Cleaned("".join(words), found[:MAX_CALLS], is_broken and not found)


def _calls_at(
    opening: re.Match[str], text: str, offered: Collection[str]
) -> tuple[list[ToolCall], int] | None:
    """Return the calls after a mark and their end; None if the text is prose about the mark.

    The calls are empty if they cannot be read.
    """
    kind = next(kind for kind in _CLOSING if opening[kind])
    closing = _CLOSING[kind].search(text, opening.end())
    begin = opening.start() if kind == "xml" else opening.end()
    inside = text[begin : closing.start() if closing else len(text)]
    if _FUNCTION.search(inside) is not None:
        calls, read_to = _xml_calls(inside, offered), len(inside)
    else:
        calls, read_to = _json_calls(inside, offered)
    if calls:
        return calls, closing.end() if closing else begin + read_to
    if kind == "xml" and known_name(opening["function"], offered) not in offered:
        return None
    if closing is not None and inside.strip() and not ODD.search(inside):
        return None
    return [], closing.end() if closing else len(text)


def _json_calls(inside: str, offered: Collection[str]) -> tuple[list[ToolCall], int]:
    """Read JSON calls, or names before JSON arguments, in a row; return them and their end."""
    found: list[ToolCall] = []
    read_to = 0
    while (between := _BETWEEN.match(inside, read_to)) is not None:
        named = _NAMED.match(inside, between.end())
        read = read_json(inside, named.end() if named else between.end())
        if read is None:
            break
        if named is not None:
            calls = [ToolCall("", known_name(named["name"], offered), as_json(read[0]))]
        else:
            calls = calls_of(read[0], offered)
        if not calls:
            break
        found += calls
        read_to = read[1]
    return found, read_to


def _xml_calls(text: str, offered: Collection[str]) -> list[ToolCall]:
    """Read `<function=NAME>` with its parameters; no calls if a parameter has no end."""
    found: list[ToolCall] = []
    _, *pieces = _FUNCTION.split(text, maxsplit=MAX_CALLS)
    for name, body in zip(pieces[::2], pieces[1::2], strict=True):
        arguments: dict[str, object] = {}
        _, *parameters = _PARAMETER.split(body)
        for key, piece in zip(parameters[::2], parameters[1::2], strict=True):
            said, closed, _ = piece.partition("</parameter>")
            if not closed:
                return []
            arguments[key] = _xml_value(unescape(said.strip("\n")))
        found.append(ToolCall("", known_name(name, offered), as_json(arguments)))
    return found


def _xml_value(words: str) -> object:
    """Return a parsed JSON value, or the text itself if it is not JSON."""
    try:
        value = json.loads(words)
    except (ValueError, RecursionError):
        return words
    return words if isinstance(value, str) else value


def _foreign(found: Cleaned, offered: Collection[str]) -> Cleaned:
    """Take out the marks of other models, with everything between the first and the last one."""
    text = found.words
    if _FOREIGN_MARK.search(text) is None:
        return found
    if found.calls:
        return replace(found, words=_without_marks(text, _FOREIGN_MARK))
    outside = without_code(text)
    marks = [one for one in _FOREIGN_MARK.finditer(text) if outside[one.start()] != CODE_BLANK]
    if not marks:
        return found
    begin, end = marks[0].start(), marks[-1].end()
    if not _ENDS.match(marks[-1][0]):
        end = len(text)
    between = _FOREIGN_MARK.sub("\n", text[begin:end])
    is_call = any(one["token"] for one in marks) or _OF_A_CALL.search(text[begin:end])
    if not is_call and not _ENDS.match(marks[0][0]):
        return found  # prose about the marks
    words = text[:begin] + text[end:]
    if not between.strip():
        return replace(found, words=words)
    inside = _marked(between, offered)
    if not inside.calls:
        inside = _bare(between.strip(), offered, prompted=True)
    return Cleaned(words, inside.calls, is_broken=not inside.calls)


# Bare objects -----------------------------------------------------------------------------------


def _bare(text: str, offered: Collection[str], *, prompted: bool) -> Cleaned:
    """Take out objects that are calls: one that is the whole text, or calls of offered tools.

    Without such a call, the text is unchanged.
    """
    opened = _unfenced(text, prompted=prompted)
    whole = opened.strip()
    if whole.startswith(("[", "{")):
        calls, read_to = _json_calls(whole, offered)
        if calls and read_to == len(whole):
            return Cleaned("", calls[:MAX_CALLS])
    found = _among_words(opened, offered)
    return found if found.calls or found.is_broken else Cleaned(text)


def _unfenced(text: str, *, prompted: bool) -> str:
    """Open a block of JSON if it is the whole text or, if prompted, ends the text."""
    stripped = text.strip()
    begun = [one.span() for one in _BLOCK_OF_JSON.finditer(stripped)]
    if not begun or (begun[-1][0] and not prompted):
        return text
    start, end = begun[-1]
    inside = stripped[end:].removesuffix("```").removesuffix("~~~")
    ends_text = "\n```" not in inside and "\n~~~" not in inside
    return stripped[:start] + inside if ends_text else text


def _among_words(text: str, offered: Collection[str]) -> Cleaned:
    found: list[ToolCall] = []
    words: list[str] = []
    start = 0
    outside = without_code(text)
    for begun in islice(_OBJECT.finditer(text), MAX_PLACES):
        if begun.start() < start or outside[begun.end()] == CODE_BLANK:
            continue
        looks = _BEGINS_A_CALL.match(text, begun.end())
        is_call = looks is not None and any(one.startswith(looks["name"]) for one in offered)
        read = read_json(text, begun.end(), leniently=is_call)
        if read is None:
            if not is_call:
                continue
            return Cleaned(text[: begun.start()].rstrip(), is_broken=True)
        calls = [call for call in calls_of(read[0], offered) if call.name in offered]
        if calls:
            words.append(text[start : begun.start()])
            start = read[1]
            found += calls
    return Cleaned("".join([*words, text[start:]]), found[:MAX_CALLS])


# Calls and values -------------------------------------------------------------------------------


def calls_of(value: object, offered: Collection[str]) -> list[ToolCall]:
    """Return the calls in a JSON value; none if any part of it is something else."""
    if isinstance(value, list):
        found = [calls_of(one, offered) for one in value]
        return [call for calls in found for call in calls] if all(found) else []
    if not isinstance(value, dict):
        return []
    for wrapper in _WRAPPERS:
        inner = value.get(wrapper)
        if isinstance(inner, dict | list) and (calls := calls_of(inner, offered)):
            return calls
    call = _named_call(value, offered)
    return [call] if call is not None else []


def _named_call(value: Mapping[str, object], offered: Collection[str]) -> ToolCall | None:
    """Return the call of an object that names its tool; None if it is something else."""
    key = next((one for one in _NAMES if isinstance(value.get(one), str)), None)
    if key is None or (key == "name" and "description" in value):
        return None  # the description of a tool has a name as well
    name = known_name(str(value[key]), offered)
    if not 0 < len(name) <= MAX_NAME_CHARACTERS:
        return None
    for member in _ARGUMENTS:
        if member in value and (key != "name" or name in offered or member != "input"):
            return ToolCall("", name, read_arguments(as_json(value[member] or {})))
    if name not in offered:
        return None
    others = {member: one for member, one in value.items() if member not in {key, "id", "type"}}
    return ToolCall("", name, as_json(others))


def known_name(written: str, offered: Collection[str]) -> str:
    """Return a tool's name without what models write around it."""
    name = written.strip().encode(errors="replace").decode()
    return name if name in offered else plain_name(name)
