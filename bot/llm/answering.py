"""Turns a model's output into one clean answer: words for people, and tool calls.

An answer may take several requests. The bot asks the model to continue an answer that the token
limit cut off, or to repeat an unreadable call. For each endpoint, it finds out once whether tools
must be described in the prompt.
"""

import re
import secrets
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import replace
from typing import Final, Literal

import structlog

from bot.llm.api import json_in
from bot.llm.cleanup import ODD, cleaned, fence_after, without_reasoning
from bot.llm.client import Learnt
from bot.llm.errors import LlmError, LlmToolsRefused
from bot.llm.messages import CUT_OFF, Completion, ModelRequest
from bot.llm.rearranged import with_tools_as_text
from conversation_store.models import Message, Role

MAX_CONTINUATIONS: Final = 3
GO_ON: Final = (
    "Your answer was cut off. Go on exactly where it ends, even in the middle of a sentence."
    " Repeat nothing of it, and say nothing about this."
)
CALL_AGAIN: Final = "Your tool call could not be read. Make it again, whole, or answer in words."
CALL_AGAIN_AS_TEXT: Final = (
    'Your tool call could not be read. Write it again as one JSON object, {"tool": NAME, "input":'
    " {ARGUMENTS}}, or answer in words."
)
CALL_SHORTER: Final = (
    "Your tool call was cut off at the limit of tokens and did not run. Make it again with shorter"
    " arguments, or answer in words."
)
NO_WORDS_YET: Final = "(My tool call was cut off.)"
"""Stands for an answer without words, because APIs refuse empty messages."""
MAX_DOUBTS: Final = 3
"""After this many checks without a call, the endpoint is trusted to pass tools to the model."""
MOST_CHARACTERS_OF_A_TOKEN: Final = 6
"""On average over a request with tools; JSON has about three."""

MAX_OVERLAP_CHARACTERS: Final = 2_000
MIN_OVERLAP_CHARACTERS: Final = 6
"""Shorter overlaps count as chance."""
MAX_BROKEN_WORD_CHARACTERS: Final = 40

_FENCE_AGAIN: Final = re.compile(r"\A\s*(?:```|~~~)[ \t]*\w[^\n`]*\n")
"""Opening fence that a continuation repeats; a fence without a language would close the block."""

ToolCalling = Literal["auto", "native", "prompt", "off"]
Ask = Callable[[ModelRequest], Awaitable[Completion]]
"""Asks the model's endpoint once; raises LlmError."""

log = structlog.get_logger()


async def clean_answer(
    request: ModelRequest, ask: Ask, learnt: Learnt, tool_calling: ToolCalling
) -> Completion:
    """Return a model's clean answer, with the answers to further requests as `earlier` ones.

    Args:
        learnt: how to tell the model of tools, from earlier questions.
        tool_calling: how to tell it; `auto`: natively, unless that is refused.
    """
    if tool_calling == "off":
        return await _clean(replace(request, tools=()), ask, prompted=True)
    is_auto = tool_calling == "auto"
    if "prompt" in (tool_calling, learnt.facts.tool_calling):
        return await _clean(request, ask, prompted=True)
    try:
        answer = await _clean(request, ask, prompted=False)
    except LlmToolsRefused:
        if not is_auto:
            raise
        await learnt.note(tool_calling="prompt")
        return await _clean(request, ask, prompted=True)
    if not is_auto or learnt.facts.tool_calling is not None:
        return answer
    return await _checked(request, answer, ask, learnt)


async def _checked(
    request: ModelRequest, answer: Completion, ask: Ask, learnt: Learnt
) -> Completion:
    """Find out whether the endpoint silently drops tools; return the better answer.

    The count of tokens proves nothing, because some endpoints count only the messages. Tools
    were dropped only if the model called none before, but calls one when they are text.
    """
    if answer.message.tool_calls:
        await learnt.note(tool_calling="native")
    if learnt.doubts == MAX_DOUBTS or not _may_be_without_tools(request, answer):
        return answer
    learnt.doubts += 1
    try:
        again = await _clean(request, ask, prompted=True)
    except LlmError as error:
        log.info("llm.not_learnt", error=type(error).__name__)
        return answer
    if again.message.tool_calls:
        await learnt.note(tool_calling="prompt")
        return _after([answer], again)
    if learnt.doubts == MAX_DOUBTS:
        await learnt.note(tool_calling="native")
    return _after([again], answer)


def _may_be_without_tools(request: ModelRequest, answer: Completion) -> bool:
    """Whether the endpoint counted too few tokens for a prompt with the tools in it.

    A count that is too low even for the messages tells nothing: some endpoints omit cached tokens.
    """
    if answer.message.tool_calls or answer.usage is None or answer.usage.is_estimated:
        return False
    most = MOST_CHARACTERS_OF_A_TOKEN * answer.usage.prompt_tokens
    said = sum(len(message.content or "") for message in request.messages)
    return said <= most < said + sum(tool.size for tool in request.tools)


async def _clean(request: ModelRequest, ask: Ask, *, prompted: bool) -> Completion:
    """Return a clean answer; ask once more if its call cannot be read."""
    asked = with_tools_as_text(request) if prompted else request
    answer = await _whole(asked, await ask(asked), ask)
    called = {call.name for message in request.messages for call in message.tool_calls}
    offered = frozenset({tool.name for tool in request.tools} | called)
    found, is_broken = _read(answer, offered, prompted=prompted)
    if not (is_broken and request.may_call and request.tools):
        return found
    log.info("llm.broken_call", kind="prompt" if prompted else "native")
    shorter_or_whole = CALL_SHORTER if answer.finish_reason == CUT_OFF else CALL_AGAIN
    nudge = CALL_AGAIN_AS_TEXT if prompted else shorter_or_whole
    request = _followed_by(asked, answer.message.content or "", nudge)
    again = await _whole(request, await ask(request), ask)
    return _after([answer], _read(again, offered, prompted=prompted)[0])


def _read(
    answer: Completion, offered: Collection[str], *, prompted: bool
) -> tuple[Completion, bool]:
    """Return an answer with its clean words and whole calls, and whether a call was broken."""
    words, calls = answer.message.content or "", answer.message.tool_calls
    is_cut = answer.finish_reason == CUT_OFF
    if not is_cut and not ODD.search(words):
        return answer, False
    found = cleaned(words, offered, prompted=prompted)
    if calls:
        whole = [call for call in calls if isinstance(json_in(call.arguments), dict)]
        is_broken = is_cut and len(whole) < len(calls)
        calls = tuple(whole) if is_cut else calls
    else:
        # Some servers drop a call that was cut off, so the answer is empty.
        is_broken = found.is_broken or (is_cut and not words.strip())
        calls = tuple(replace(call, id=f"call_{secrets.token_hex(8)}") for call in found.calls)
    message = replace(answer.message, content=found.words or None, tool_calls=calls)
    return replace(answer, message=message), is_broken


async def _whole(request: ModelRequest, answer: Completion, ask: Ask) -> Completion:
    """Continue an answer in words that was cut off, with at most `MAX_CONTINUATIONS` requests.

    Its reasoning stays in it, because only the whole answer shows where reasoning ends.
    """
    for _ in range(MAX_CONTINUATIONS):
        whole = answer.message.content or ""
        is_call = bool(answer.message.tool_calls)
        if answer.finish_reason != CUT_OFF or is_call or not without_reasoning(whole).strip():
            break
        begun = to_last_word(whole)
        try:
            rest = await ask(_followed_by(request, without_reasoning(begun), GO_ON))
        except LlmError as error:
            # Return the part: it is better than nothing, and people learn that it was cut off.
            log.warning("llm.not_continued", error=type(error).__name__)
            break
        text = joined(begun, without_reasoning(rest.message.content or ""))
        answer = _after([answer], replace(rest, message=replace(rest.message, content=text)))
    return answer


def _followed_by(request: ModelRequest, said: str, reply: str) -> ModelRequest:
    """Return a request followed by the model's words and a reply to them."""
    words = said if said.strip() else NO_WORDS_YET
    more = [Message(Role.ASSISTANT, words), Message(Role.USER, reply)]
    return replace(request, messages=[*request.messages, *more])


def _after(earlier: Sequence[Completion], answer: Completion) -> Completion:
    return replace(answer, earlier=(*earlier, *answer.earlier))


def to_last_word(text: str) -> str:
    """Return a text without its last word, which may be incomplete.

    The rest ends in white space, so a continuation fits without guessing. A text without spaces,
    as in Chinese, stays as it is.
    """
    last_space = max(text.rfind(" "), text.rfind("\n"))
    is_word = len(text) - last_space <= MAX_BROKEN_WORD_CHARACTERS
    return text[: last_space + 1] if last_space >= 0 and is_word else text


def joined(begun: str, rest: str) -> str:
    """Return an answer with its continuation, without the words that the continuation repeats.

    Args:
        begun: ends in white space, see `to_last_word`, or in the middle of a text without spaces.
    """
    fence = ""
    for line in begun.splitlines():
        fence = fence_after(line, fence)
    if fence:
        rest = _FENCE_AGAIN.sub("", rest, count=1)
    has_space, has_new_line = begun[-1:].isspace(), begun.endswith("\n")
    if has_space and not has_new_line:
        rest = rest.lstrip()
    said = begun.rstrip()[-MAX_OVERLAP_CHARACTERS:]
    lengths = range(min(len(rest), len(said)), 0, -1)
    overlap = next((length for length in lengths if said.endswith(rest[:length])), 0)
    is_line_again = not has_new_line and overlap == len(said.rpartition("\n")[2].strip())
    if overlap < MIN_OVERLAP_CHARACTERS and not is_line_again:
        return begun + rest
    again = rest[overlap:]
    return begun + (again.lstrip() if has_space else again)
