"""One clean answer of a model, whatever it writes: with words for people, and with tool calls.

The model may be asked more than once for it: to go on where the limit of tokens cut it off, to
write a call again that could not be read, and, the first time only, to learn how it is told of
tools.
"""

import json
import secrets
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import replace
from typing import Final, Literal

import structlog

from bot.llm.answers.cleaning import cleaned, is_odd
from bot.llm.answers.code import ends_in_code
from bot.llm.answers.reasoning import begins_with_reasoning, without_reasoning
from bot.llm.answers.written_calls import Lifted
from bot.llm.continuation import GO_ON, joined, to_last_word
from bot.llm.errors import LlmError, LlmToolsRefused
from bot.llm.learnt import Learnt
from bot.llm.messages import CUT_OFF, Completion, ModelRequest
from bot.llm.tool_prompt import with_tools_as_text
from conversation_store.models import Message, Role, ToolCall

MAX_CONTINUATIONS: Final = 3
CALL_AGAIN: Final = "Your tool call could not be read. Make it again, whole, or answer in words."
CALL_AGAIN_AS_TEXT: Final = (
    'Your tool call could not be read. Write it again as one JSON object, {"tool": NAME, "input":'
    " {ARGUMENTS}}, or answer in words."
)
MOST_TRIES: Final = 3
"""Questions that may need no tool at all, before the endpoint is taken at its word."""

MOST_CHARACTERS_OF_A_TOKEN: Final = 6
"""On average over a request with tools; JSON has about three."""

ToolCalling = Literal["auto", "native", "prompt", "off"]
Ask = Callable[[ModelRequest], Awaitable[Completion]]
"""Asks the model's endpoint once; raises LlmError."""

log = structlog.get_logger()


class Answering:
    """Gets clean answers from one model.

    Args:
        tool_calling: how it is told of tools; `auto`: natively, unless its endpoint says no.
        learnt: how it is to be told of them, from earlier questions.
    """

    def __init__(self, tool_calling: ToolCalling, learnt: Learnt) -> None:
        self._tool_calling = tool_calling
        self._learnt = learnt
        self._tries_left = MOST_TRIES
        self._is_trying = False

    async def answer(self, request: ModelRequest, ask: Ask) -> Completion:
        """Return the model's answer; requests that it took besides are its `earlier` ones.

        Raises:
            LlmError: no usable answer.
        """
        if self._tool_calling == "off":
            return await self._clean(replace(request, tools=()), ask, prompted=True)
        if self._tells_in_prompt:
            return await self._clean(request, ask, prompted=True)
        try:
            answer = await self._clean(request, ask, prompted=False)
        except LlmToolsRefused:
            if self._tool_calling != "auto":
                raise
            await self._learnt.tell_of_tools("prompt")
            return await self._clean(request, ask, prompted=True)
        if self._tool_calling == "auto" and self._learnt.tool_calling is None and request.tools:
            return await self._learn_of_tools(request, answer, ask)
        return answer

    @property
    def _tells_in_prompt(self) -> bool:
        if self._tool_calling == "auto":
            return self._learnt.tool_calling == "prompt"
        return self._tool_calling == "prompt"

    async def _learn_of_tools(
        self, request: ModelRequest, answer: Completion, ask: Ask
    ) -> Completion:
        """Find out whether the endpoint leaves tools out in silence; return the better answer."""
        if answer.message.tool_calls:
            await self._learnt.tell_of_tools("native")
        elif self._tries_left and not self._is_trying and _may_be_without_tools(request, answer):
            self._is_trying = True  # one of perhaps many turns is enough
            self._tries_left -= 1
            try:
                return await self._try_without_tools(request, answer, ask)
            except LlmError as error:
                log.info("llm.not_learnt", error=type(error).__name__)
            finally:
                self._is_trying = False
        return answer

    async def _try_without_tools(
        self, request: ModelRequest, answer: Completion, ask: Ask
    ) -> Completion:
        """Ask without tools, and where that counts the same tokens, with tools as text.

        Only a model that calls a tool then, and did not before, has not known of any: some
        endpoints count what is said alone.
        """
        without = await ask(ModelRequest(request.messages))
        if _prompt_tokens(without) != _prompt_tokens(answer):
            await self._learnt.tell_of_tools("native")
            return _after([without], answer)
        again = await self._clean(request, ask, prompted=True)
        if again.message.tool_calls:
            await self._learnt.tell_of_tools("prompt")
            return _after([answer, without], again)
        if not self._tries_left:
            await self._learnt.tell_of_tools("native")
        return _after([without, again], answer)

    async def _clean(self, request: ModelRequest, ask: Ask, *, prompted: bool) -> Completion:
        asked = with_tools_as_text(request) if prompted else request
        answer = await _whole(asked, await ask(asked), ask)
        if answer.finish_reason != CUT_OFF and not is_odd(answer.message.content or ""):
            return answer
        offered = _offered(request)
        found = _found(answer, offered, prompted=prompted)
        if found.is_broken and request.may_call and request.tools:
            log.info("llm.broken_call", kind="prompt" if prompted else "native")
            nudge = CALL_AGAIN_AS_TEXT if prompted else CALL_AGAIN
            again = _followed_by(asked, answer.message.content or "", nudge)
            answer = _after([answer], await _whole(again, await ask(again), ask))
            found = _found(answer, offered, prompted=prompted)
        return _with(answer, found)


def _may_be_without_tools(request: ModelRequest, answer: Completion) -> bool:
    """Whether the endpoint counted too few tokens for a prompt with the tools in it.

    A count that is too low for the messages alone says nothing: some leave out what they cached.
    """
    counted = _prompt_tokens(answer)
    if counted is None:
        return False
    most = MOST_CHARACTERS_OF_A_TOKEN * counted
    said = sum(len(message.content or "") for message in request.messages)
    if said > most:
        return False
    tools = sum(len(json.dumps(tool.parameters)) + len(tool.description) for tool in request.tools)
    return most < said + tools


def _prompt_tokens(answer: Completion) -> int | None:
    usage = answer.usage
    return usage.prompt_tokens if usage is not None and not usage.is_estimated else None


def _offered(request: ModelRequest) -> frozenset[str]:
    """Return the names of tools that the model knows of, those of earlier calls among them."""
    called = {call.name for message in request.messages for call in message.tool_calls}
    return frozenset({tool.name for tool in request.tools} | called)


async def _whole(request: ModelRequest, answer: Completion, ask: Ask) -> Completion:
    """Have an answer in words that was cut off go on, until it is whole or too long.

    Its reasoning stays in it until all of it is there: only then is it known where that ends.
    """
    for _ in range(MAX_CONTINUATIONS):
        whole = answer.message.content or ""
        words = whole if ends_in_code(whole) else without_reasoning(whole)
        if answer.finish_reason != CUT_OFF or answer.message.tool_calls or not words.strip():
            break
        begun = to_last_word(words)
        before = whole.rstrip().removesuffix(words.rstrip())
        if whole.rstrip() == before:
            before = ""  # reasoning stands among the words
        try:
            rest = await ask(_followed_by(request, begun, GO_ON))
        except LlmError as error:
            # What has come is worth more than none of it; that it was cut off is said.
            log.warning("llm.not_continued", error=type(error).__name__)
            break
        text = before + joined(begun, _without_new_reasoning(rest.message.content or ""))
        answer = _after([answer], replace(rest, message=replace(rest.message, content=text)))
    return answer


def _without_new_reasoning(rest: str) -> str:
    """Return the rest of an answer without what the model thought before it went on."""
    return without_reasoning(rest) if begins_with_reasoning(rest) else rest


def _followed_by(request: ModelRequest, said: str, answer: str) -> ModelRequest:
    """Return a request with what the model said, and what a person would say to that."""
    more = [Message(Role.ASSISTANT, said), Message(Role.USER, answer)]
    return replace(request, messages=[*request.messages, *more])


def _found(answer: Completion, offered: Collection[str], *, prompted: bool) -> Lifted:
    """Return what an answer says and calls; calls that the endpoint tells apart stay in it."""
    found = cleaned(answer.message.content or "", offered, prompted=prompted)
    if answer.finish_reason == CUT_OFF and answer.message.tool_calls:
        return replace(found, is_broken=not _whole_calls(answer.message.tool_calls))
    return replace(found, is_broken=found.is_broken and not answer.message.tool_calls)


def _whole_calls(calls: Sequence[ToolCall]) -> tuple[ToolCall, ...]:
    """Return those calls of a cut answer that had come whole."""
    return tuple(call for call in calls if _is_object(call.arguments))


def _is_object(arguments: str) -> bool:
    try:
        return isinstance(json.loads(arguments), dict)
    except (ValueError, RecursionError):
        return False


def _with(answer: Completion, found: Lifted) -> Completion:
    """Return an answer with the words and the calls that were found in it."""
    calls = answer.message.tool_calls
    if answer.finish_reason == CUT_OFF:
        calls = _whole_calls(calls)
    if not calls:
        calls = tuple(
            ToolCall(f"call_{secrets.token_hex(8)}", call.name, call.arguments)
            for call in found.calls
        )
    message = replace(answer.message, content=found.words or None, tool_calls=calls)
    return replace(answer, message=message)


def _after(earlier: Sequence[Completion], answer: Completion) -> Completion:
    """Return an answer that took other requests before."""
    return replace(answer, earlier=(*earlier, *answer.earlier))
