"""Run one call of one tool, as one pipeline.

Find, validate, limit the rate, approve, run under a time-out, mark and trim, bound the files,
audit. Every way that a call can end is a result that the model reads. Only cancellation and a
failing audit leave the executor.
"""

import asyncio
import hashlib
import math
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from difflib import get_close_matches
from itertools import chain
from time import monotonic
from typing import Any, Final

import structlog
from cachetools import TTLCache

from tools.base import (
    MIN_LIMIT_BYTES,
    AwaitsPerson,
    Caller,
    Consent,
    Decision,
    Heard,
    InvalidArguments,
    Outcome,
    Tool,
    ToolError,
    ToolOutput,
    ToolRequest,
    ToolResult,
    holds_marked,
    mark,
    marked_by,
    note_about,
    presentable,
    trim,
)
from tools.question import CallQuestion, question
from tools.registry import Registry
from tools.sandbox.errors import ToolUnavailable, WorkError, WorkTimeout
from tools.settings import COMMAND_TOOLS, MAX_RESULT_BYTES

log = structlog.get_logger()

_MAY_NAME: Final = frozenset({"web_search", "web_fetch"})
"""Tools whose results name addresses that the model did not choose. A tool of an MCP server may
only repeat words that the model has sent it."""

_WITHOUT_YES: Final[Mapping[Decision, str]] = {
    Decision.NO: (
        "Not run: the person said no. Do not call it again unless the person asks for it; "
        "tell the person that it was not done."
    ),
    Decision.SILENCE: (
        "Not run: the person was asked and did not answer in time. Do not call it again by "
        "yourself; tell the person that it was not done and may be asked for again."
    ),
    Decision.NOT_ASKED: (
        "Not run: it needs a person's yes, and nobody could be asked. Do not call it again by "
        "yourself; tell the person that it was not done."
    ),
    Decision.INTERRUPTED: (
        "It was begun before a restart; whether it took effect is unknown. Do not call it again "
        "by yourself; tell the person."
    ),
}
_ENDS: Final[Mapping[Decision, Outcome]] = {
    Decision.NO: "declined",
    Decision.SILENCE: "unanswered",
    Decision.NOT_ASKED: "unanswered",
    Decision.INTERRUPTED: "interrupted",
}


def needs_yes(tool: Tool, arguments: Any, caller: Caller, heard: Heard) -> bool:
    """Tell whether a call needs a person's yes, by its parsed arguments and the words before it."""
    if tool.side_effects or (tool.asks_if is not None and tool.asks_if(arguments, caller)):
        return True
    if tool.address is None and not tool.lasting:
        return False
    if not heard.strangers_before and not strangers_words(heard):
        return False
    if tool.address is None:
        return tool.as_said is None or not tool.as_said(arguments, caller, heard.own)
    pages = (result for result in heard.results if marked_by(result) in _MAY_NAME)
    return not _is_named(tool.address(arguments), (*heard.people, *pages))


def strangers_words(heard: Heard) -> bool:
    """Tell whether the model was shown strangers' words, also in files that people handed on."""
    return any(map(holds_marked, chain(heard.results, heard.people)))


def may_run_unasked(consent: Consent, heard: Heard) -> bool:
    """Tell whether "always" still holds for a call.

    It does not once the model has read strangers' words, because these may have asked for the call.
    Earlier results of the same tools do not count, and for commands, which reach no network,
    neither do those of this turn.
    """
    first = 0 if set(consent.covers) <= set(COMMAND_TOOLS) else heard.of_turn
    earlier = heard.results[: len(heard.results) - first]
    others = [result for result in earlier if marked_by(result) not in consent.covers]
    of_turn = heard.results[len(earlier) :]
    return not any(map(holds_marked, chain(others, of_turn, heard.people)))


def _is_named(address: str, texts: Iterable[str]) -> bool:
    """Tell whether a text has an address, apart from its fragment, last slash and scheme."""
    sent = address.partition("#")[0].rstrip("/")
    without_scheme = sent.partition("://")[2] or sent
    return any(without_scheme in text for text in texts)


MINUTE_SECONDS: Final = 60.0
MAX_COUNTED: Final = 10_000
"""People and tools whose calls are counted at once; above it, the oldest count is forgotten."""


class RateLimits:
    """Counter of calls in minutes that begin with a call.

    Attributes:
        per_person: calls per minute for one person; may be changed at any time.
        per_bot: calls per minute for all people together; may be changed at any time.
    """

    def __init__(
        self, *, per_person: int, per_bot: int, clock: Callable[[], float] = monotonic
    ) -> None:
        self.per_person = per_person
        self.per_bot = per_bot
        self._clock = clock
        self._begun: TTLCache[tuple[str, str], list[float]] = TTLCache(
            MAX_COUNTED, MINUTE_SECONDS, timer=clock
        )

    def take(self, tool: Tool, caller: str) -> None:
        """Count one call for the tool, the person and the bot, or for none.

        Raises:
            ToolError: one of them has used up its minute; the text says which, and until when.
        """
        now = self._clock()
        limits = (
            (("tool", tool.name), tool.calls_per_minute, f"too many calls of {tool.name}"),
            (("person", caller), self.per_person, "too many tool calls for this person"),
            (("bot", ""), self.per_bot, "too many tool calls by everybody together"),
        )
        counted = [(self._begun.setdefault(key, []), most, reason) for key, most, reason in limits]
        for calls, most, reason in counted:
            if len(calls) >= most:
                seconds = max(1, math.ceil(calls[0] + MINUTE_SECONDS - now))
                after = "1 second" if seconds == 1 else f"{seconds} seconds"
                sentence = f"Not run: {reason} right now; the next one can run in {after}."
                raise ToolError(sentence, "rate_limited")
        for calls, _, _ in counted:
            calls.append(now)


MAX_ARGUMENTS_BYTES: Final = 65_536
MAX_SCHEMA_CHARACTERS: Final = 2_000
"""A longer schema is not repeated with each complaint: the model has it already."""
_VERSION_CHARACTERS: Final = 16
_MAX_NAME_CHARACTERS: Final = 64
_SIMILAR: Final = 0.8
_NONE_SIMILAR: Final = "If none of your tools can do it, tell the person so."

NO_SUCH_TOOL: Final = "There is no tool named"
WRONG_ARGUMENTS: Final = "The arguments of"
_EMPTY: Final = "The tool ran and returned nothing."
_IMAGES_ALONE: Final = "The tool ran; you are shown what it returned."
_FILES_ALONE: Final = "The tool ran; the person gets what it returned as a file."
_BUG: Final = "The tool failed because of a fault in the tool itself; trying again will not help."
_PERHAPS_DONE: Final = " Whether it took effect is unknown; tell the person."

Ask = Callable[[ToolRequest, CallQuestion], Awaitable[Decision]]
"""Asks a person whether a call may run. The request has the consent that it needs; the question is
complete and of bounded length. Asking again about the same call goes on with the same question. If
no question is needed, the answer is yes at once."""

Starting = Callable[[ToolRequest], Awaitable[None]]
"""Stores that a call now runs; after it returns, that survives a crash."""

Finished = Callable[[ToolResult], Awaitable[None]]
"""Stores the result of a call; after it returns, that survives a crash."""


class ToolExecutor:
    """Runs the calls of models; any number at the same time.

    Args:
        timeout_seconds: for one run of a tool that has no time-out of its own; may be changed at
            any time.
        result_limit_bytes: a longer result is cut, as UTF-8.

    Raises:
        ValueError: the limit leaves a result no room.
    """

    def __init__(
        self,
        registry: Registry,
        *,
        limits: RateLimits,
        timeout_seconds: float,
        result_limit_bytes: int = MAX_RESULT_BYTES,
    ) -> None:
        if result_limit_bytes < MIN_LIMIT_BYTES:
            raise ValueError(f"a result needs at least {MIN_LIMIT_BYTES} bytes")
        self._registry = registry
        self.limits = limits
        self.timeout_seconds = timeout_seconds
        self._result_limit_bytes = result_limit_bytes

    async def execute(
        self, request: ToolRequest, *, ask: Ask, starting: Starting, finished: Finished
    ) -> ToolResult:
        """Run one call to its end and return its audited result.

        A call that awaits a person has not ended, and is not audited yet.

        Args:
            request: as the model sent it; nothing about it needs to be right.
            ask: called before a call that needs a yes.
            starting: called before the run of an allowed call; its errors are not caught.
            finished: called before this returns; its errors are not caught.
        """
        started: float | None = None
        try:
            tool = self._find(request)
            arguments = _validate(tool, request.arguments)
            if not request.resumed:  # it was counted when it began
                self.limits.take(tool, request.caller.person)
            if (asking := _asking(tool, arguments, request)) is not None:
                tool = self._allowed(tool, request, await ask(*asking))
                await starting(request)
            started = monotonic()
            output = await self._run(tool, arguments, _calling(request))
            shown = self._presentable(tool, output)
            outcome: Outcome = "ok"
        except AwaitsPerson:
            return ToolResult(request, "awaits_person", "", 0.0)
        except ToolError as error:
            outcome = error.outcome
            shown = ToolOutput(trim(str(error), self._result_limit_bytes))
        seconds = 0.0 if started is None else monotonic() - started
        result = ToolResult(request, outcome, shown.text, seconds, shown.files, shown.images)
        await finished(result)
        return result

    def asks_first(self, request: ToolRequest) -> bool:
        """Tell whether a person is asked before a call; False as well if it cannot run at all."""
        try:
            tool = self._find(request)
            arguments = _validate(tool, request.arguments)
            return _asking(tool, arguments, request) is not None
        except ToolError:
            return False

    def _find(self, request: ToolRequest) -> Tool:
        tool = self._registry.get(request.tool, request.caller)
        if tool is None:
            name = request.tool[:_MAX_NAME_CHARACTERS]
            names = [tool.name for tool in self._registry.offered_to(request.caller)]
            nearest = get_close_matches(name.lower(), names, n=1, cutoff=_SIMILAR)
            suggestion = f"Did you mean {nearest[0]}?" if nearest else _NONE_SIMILAR
            raise ToolError(f"{NO_SUCH_TOOL} {name!r}. {suggestion}", "unknown")
        return tool

    def _allowed(self, asked_about: Tool, request: ToolRequest, decision: Decision) -> Tool:
        """Return the tool after the question, which may have taken minutes."""
        if decision is not Decision.YES:
            raise ToolError(_WITHOUT_YES[decision], _ENDS[decision])
        tool = self._registry.get(request.tool, request.caller)
        # An MCP server may have put another tool under the same name.
        if tool is None or _version(tool) != _version(asked_about):
            raise ToolError(
                f"Not run: {asked_about.name} was allowed, but was removed or changed in the "
                "meantime. Tell the person that it was not done."
            )
        return tool

    async def _run(self, tool: Tool, arguments: Any, caller: Caller) -> str | ToolOutput:
        seconds = tool.timeout_seconds or self.timeout_seconds
        with _bugs_told(tool.name):
            try:
                async with asyncio.timeout(seconds) as bound:
                    return await tool.run(arguments, caller)
            except ToolUnavailable as error:
                self._registry.withdraw(self._registry.source_of(tool.name), str(error))
                raise ToolError(str(error)) from None
            except ToolError:
                raise
            except WorkTimeout as error:
                raise _timed_out(tool, str(error)) from None
            except WorkError as error:
                raise ToolError(str(error)) from None
            except TimeoutError:
                if not bound.expired():
                    raise
                words = f"{tool.name} took over {seconds:g} seconds and was stopped."
                raise _timed_out(tool, words) from None

    def _presentable(self, tool: Tool, output: str | ToolOutput) -> ToolOutput:
        """Return an output within all bounds, with strangers' words marked."""
        with _bugs_told(tool.name):  # an output of a wrong type is a tool's bug, too
            if not isinstance(output, ToolOutput):
                output = ToolOutput(output)
            files = presentable(output.files)
            note = note_about(len(files), of=len(output.files))
            room = max(MIN_LIMIT_BYTES, self._result_limit_bytes - len(note))
            words = output.text
            if not words.strip() and (files or output.images):
                words = _FILES_ALONE if files else _IMAGES_ALONE
            if not words.strip():
                text = note.strip() or _EMPTY
            # Any picture may show strangers' words.
            elif tool.untrusted or output.untrusted or output.images:
                text = mark(words, tool.name, room) + note
            else:
                text = trim(words, room) + note
            return ToolOutput(text, files, output.images)


@contextmanager
def _bugs_told(tool: str) -> Iterator[None]:
    """Turn a bug in a tool's own code into a result, so that it does not end the turn."""
    try:
        yield
    except ToolError:
        raise
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        # The call was not cancelled: the tool awaited something that was cancelled elsewhere.
        log.exception("tool.bug", tool=tool)
        raise ToolError(_BUG, "bug") from None
    except Exception:
        log.exception("tool.bug", tool=tool)
        raise ToolError(_BUG, "bug") from None


def _validate(tool: Tool, text: str) -> Any:
    """Return the parsed arguments of a call."""
    if len(text) > MAX_ARGUMENTS_BYTES:
        raise InvalidArguments(f"{WRONG_ARGUMENTS} {tool.name} are too long.")
    try:
        with _bugs_told(tool.name):
            return tool.parse(text)
    except InvalidArguments as problems:
        schema = f"this schema: {tool.schema_text}"
        if len(tool.schema_text) > MAX_SCHEMA_CHARACTERS:
            schema = "the tool's schema."
        raise InvalidArguments(
            f"{WRONG_ARGUMENTS} {tool.name} are wrong: {problems}. "
            f"Send one JSON object that fits {schema}"
        ) from None


def _asking(
    tool: Tool, arguments: Any, request: ToolRequest
) -> tuple[ToolRequest, CallQuestion] | None:
    """Return the request with its consent, and the question about it; None if it needs no yes."""
    with _bugs_told(tool.name):
        if not needs_yes(tool, arguments, request.caller, request.heard):
            return None
        consent = Consent(needs_admin=tool.asks_if is not None)
        if tool.side_effects and tool.consent is not None:
            consent = tool.consent(arguments)
        elif tool.side_effects:
            consent = Consent(covers=(tool.name,), version=_version(tool), needs_admin=False)
        return replace(request, consent=consent), question(tool, arguments, consent.hints)


def _calling(request: ToolRequest) -> Caller:
    """Return the caller of a run; the id of a helper's call begins with that of its helper."""
    within = request.caller.call
    call = f"{within}/{request.call_id}" if within else request.call_id
    return replace(request.caller, call=call)


def _timed_out(tool: Tool, words: str) -> ToolError:
    return ToolError(words + (_PERHAPS_DONE if tool.side_effects else ""), "timeout")


def _version(tool: Tool) -> str:
    listed = f"{tool.side_effects}\0{tool.description}\0{tool.schema_text}"
    return hashlib.sha256(listed.encode(errors="replace")).hexdigest()[:_VERSION_CHARACTERS]
