"""From a model's text to what people are shown of it, and what it calls."""

import re
from collections.abc import Collection
from dataclasses import replace
from typing import Final

from bot.llm.answers.code import Code
from bot.llm.answers.reasoning import without_reasoning
from bot.llm.answers.written_calls import Lifted, lifted

_ODD: Final = re.compile(
    r"[<{\[◁✿]|Action:|Final Answer:|^analysis|^Here is my"
    r"|^[ \t]*+(?:\w{1,64} = )?[\w.]{1,128}+\(|^```",
    re.MULTILINE,
)
"""What every text has in it that needs a closer look."""

_HEADER: Final = (
    r"(?:<\|start\|>\s*+(?:assistant|system|user)?+\s*+)?<\|channel\|>\s*(?:final|commentary|analysis)?"
    r"(?:\s*<\|constrain\|>\s*\w{0,20})?\s*(?:<\|message\|>)?"
)
_REST: Final = re.compile(
    rf"{_HEADER}|<\|start\|>\s*assistant|<\|/?[A-Za-z][\w.-]{{1,40}}\|>|<｜[^<>｜\n]{{1,40}}｜>"
    r"|</(?:tool_calls?|function_calls?|tool_response)>|\[/?TOOL_CALLS\]|\[/?INST\]|<\|im_(?:start|end)\|>"
    r"|<(?:end_of_turn|eos|start_of_turn)>|</s>\s*\Z",
)
_WRAPPED: Final = re.compile(
    r"\s*<(answer|response|final|final_answer|output)>(?!\s*<)(.*)</\1>\s*", re.DOTALL
)
"""XML that somebody asked for has further tags in it."""

_THOUGHT: Final = re.compile(
    r"\A\s*Thought:.*?(?=^[ \t]*(?:Action:[^\n]*\n[ \t]*Action Input|Final Answer):)",
    re.DOTALL | re.MULTILINE,
)
_FINAL_ANSWER: Final = re.compile(r"\A\s*Final Answer:\s*")
_GRANITE: Final = re.compile(
    r"\A\s*Here is my thought process:.*?^[ \t]*Here is my response:\s*", re.DOTALL | re.MULTILINE
)


def is_odd(text: str) -> bool:
    """Whether a text has anything in it that people may not be meant to see."""
    return _ODD.search(text) is not None


def cleaned(text: str, offered: Collection[str] = (), *, prompted: bool = False) -> Lifted:
    """Return the words of an odd answer, and the calls that were written among them.

    Takes time in proportion to the text.

    Args:
        text: as the model wrote it.
        offered: the names of the tools that there are.
        prompted: the model was asked to write calls as text.
    """
    answer = _unwrapped(without_reasoning(_THOUGHT.sub("", _GRANITE.sub("", text))))
    found = lifted(answer, offered, prompted=prompted)
    return replace(found, words=_without_marks(_THOUGHT.sub("", found.words)).strip())


def _unwrapped(text: str) -> str:
    """Return what stands between the two marks that some models put around their whole answer."""
    wrapped = _WRAPPED.fullmatch(text)
    return _FINAL_ANSWER.sub("", wrapped[2] if wrapped is not None else text)


def _without_marks(text: str) -> str:
    """Return a text without the marks that a template left in it; those in code stay."""
    if _REST.search(text) is None:
        return text
    code = Code(text)
    parts: list[str] = []
    start = 0
    for mark in _REST.finditer(text):
        is_struck_through = mark[0].startswith("</s>") and ("<s>" in text or "<s " in text)
        if code.around(mark.start()) is None and not is_struck_through:
            parts.append(text[start : mark.start()])
            start = mark.end()
    return "".join([*parts, text[start:]])
