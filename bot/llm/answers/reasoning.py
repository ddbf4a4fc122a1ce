"""A model's reasoning, where it stands in its answer instead of in a field of its own.

Each family of models marks it in its own way:
`<think>` DeepSeek, Qwen and most others; `[THINK]` Mistral's Magistral; `◁think▷` Kimi;
`<|START_THINKING|>` Cohere; channels OpenAI's gpt-oss, see
https://github.com/openai/harmony/blob/main/docs/format.md
"""

import re
from typing import Final

from bot.llm.answers.code import Code

_NAMES: Final = (
    r"(?:\w{1,16}:)?(?:think|thinking|thoughts?|thought_process|reasoning|reflection"
    r"|scratchpad|inner_monologue|antthinking)"
)
_OPENS: Final = (
    rf"<(?P<tag>{_NAMES})(?:\s[^<>]{{0,200}})?>",
    r"\[THINK\]",
    r"◁think▷",
    r"<\|(?:START_THINKING|begin_of_thought|begin_of_thinking|think|thinking)\|>",
    r"<\|channel\|>\s*(?:analysis|thought)\b(?![^<]{0,100}\bto=)[^<]{0,100}(?:<\|message\|>)?",
)
_CLOSES: Final = (
    rf"</(?:{_NAMES})\s*>",
    r"\[/THINK\]",
    r"◁/think▷",
    r"<\|(?:END_THINKING|end_of_thought|end_of_thinking|/think|/thinking)\|>",
)
_MARK: Final = re.compile(
    f"(?P<open>{'|'.join(_OPENS)})|(?P<close>{'|'.join(_CLOSES)})"
    r"|(?P<next><\|(?:end|start|channel|return|call)\|>)",
    re.IGNORECASE,
)
_STRIPPED_CHANNELS: Final = re.compile(
    r"\A\s*analysis(?=[A-Z\s]).*?assistant(?:final|commentary)", re.DOTALL
)
"""What is left of gpt-oss's channels where a server has removed the marks between them."""


CHANNEL: Final = "<|channel|>"
_HEADER_CHARACTERS: Final = 160
"""Before a channel, where it may say who is called."""

_QUOTES: Final = "'\"`"

MAX_MISTAKEN_BLOCKS: Final = 8
"""How often the places of code are looked for anew; after that no code hides a mark."""


def without_reasoning(text: str) -> str:
    """Return a text without the reasoning in it; what stands in code is left alone.

    A mark that is closed and was never opened ends reasoning that began with the text, as the
    templates of some models open it themselves. One that is never closed reaches to the end.
    """
    if (channels := _STRIPPED_CHANNELS.match(text)) is not None:
        text = text[channels.end() :]
    if _MARK.search(text) is None:
        return text
    kept = text
    for is_last in [False] * MAX_MISTAKEN_BLOCKS + [True]:
        code = Code("" if is_last else text)
        kept, mistaken_from = _kept(text, code)
        if mistaken_from is None:
            break
        text = text[mistaken_from:]
    return kept


def begins_with_reasoning(text: str) -> bool:
    """Whether a text begins with a mark that opens reasoning."""
    mark = _MARK.match(text.lstrip())
    return mark is not None and mark["open"] is not None


def _kept(text: str, code: Code) -> tuple[str, int | None]:
    """Return a text without its reasoning.

    Also return None, or, if a block of code turned out to be reasoning, where what follows begins.
    """
    parts: list[str] = []
    start = 0
    inside: str | None = None
    opened_in: tuple[int, int] | None = None
    for mark in _MARK.finditer(text):
        if inside is not None:
            if (inside == CHANNEL and mark["next"]) or (inside != CHANNEL and mark["close"]):
                # The mark of another channel is read again by whoever knows channels.
                start = mark.end() if mark["close"] else mark.start()
                inside = None
            continue
        around = code.around(mark.start())
        if mark["open"] and around is not None:
            opened_in = around
        elif mark["open"] and not _is_of_a_call(text, mark):
            parts.append(text[start : mark.start()])
            inside = CHANNEL if mark["open"].startswith(CHANNEL) else mark["open"]
        elif mark["close"] and around is None:
            parts.clear()
            start = mark.end()
        elif (
            mark["close"]
            and around != opened_in
            and code.is_block(around)
            and text[mark.start() - 1] not in _QUOTES
        ):
            return "", mark.end()
    if inside is None:
        parts.append(text[start:])
    return "".join(parts).strip(), None


def _is_of_a_call(text: str, mark: re.Match[str]) -> bool:
    """Whether a channel is that of a tool call, whose recipient stands before it."""
    before = text[max(0, mark.start() - _HEADER_CHARACTERS) : mark.start()]
    return mark["open"].startswith(CHANNEL) and " to=" in before.rpartition("<|start|>")[2]
