"""One call of one tool, as one pipeline.

Find, validate, limit the rate, approve, run under a time-out, mark and trim, bound the files,
audit. Whatever happens to the call is a result that the model reads. Only cancellation and a
failing audit leave the executor.
"""

import asyncio
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from difflib import get_close_matches
from time import monotonic
from typing import Any, Final

import structlog

from sandbox.errors import WorkError, WorkTimeout, WorkUnavailable
from tools import policy
from tools.approval import Approval
from tools.arguments import without_unknown
from tools.audit import Audit
from tools.base import Caller, Consent, Outcome, Tool, ToolOutput, ToolRequest, ToolResult
from tools.errors import (
    AwaitsPerson,
    Declined,
    Interrupted,
    InvalidArguments,
    RateLimited,
    ToolError,
    ToolTimeout,
    ToolUnavailable,
    Unanswered,
    UnknownTool,
)
from tools.files import note_about, presentable
from tools.rate_limits import RateLimits
from tools.registry import Registry
from tools.results import MIN_LIMIT_BYTES, mark, trim
from tools.settings import MAX_RESULT_BYTES

CONSENT_SECONDS: Final = 10.0
"""For finding out whether a person has to be asked."""
_VERSION_CHARACTERS: Final = 16
MAX_ARGUMENTS_BYTES: Final = 65_536
MAX_SCHEMA_CHARACTERS: Final = 2_000
"""A longer schema is not repeated with each complaint: the model has it already."""

_MAX_NAME_CHARACTERS: Final = 64
_MAX_NAMES: Final = 40

_EMPTY: Final = "The tool ran and returned nothing."
_IMAGES_ALONE: Final = "The tool ran; you are shown what it returned."
_FILES_ALONE: Final = "The tool ran; the person gets what it returned as a file."
_BUG: Final = "The tool failed because of a fault in the tool itself; trying again will not help."
_PERHAPS_DONE: Final = " Whether it took effect is unknown; tell the person."

log = structlog.get_logger()


class _Bug(ToolError):
    """A fault in a tool, logged."""


_OUTCOMES: Final[tuple[tuple[type[ToolError], Outcome], ...]] = (
    (UnknownTool, Outcome.UNKNOWN),
    (InvalidArguments, Outcome.INVALID),
    (RateLimited, Outcome.RATE_LIMITED),
    (Declined, Outcome.DECLINED),
    (Unanswered, Outcome.UNANSWERED),
    (Interrupted, Outcome.INTERRUPTED),
    (ToolTimeout, Outcome.TIMEOUT),
    (_Bug, Outcome.BUG),
    (ToolError, Outcome.FAILED),
)


class ToolExecutor:
    """Runs what a model asks for; any number of calls at the same time.

    Args:
        registry: the tools there are.
        limits: how often they may be called.
        timeout_seconds: for one run of a tool that has no time of its own.
        result_limit_bytes: a longer result is cut, as UTF-8.

    Attributes:
        timeout_seconds: may be changed at any time.

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
        self._limits = limits
        self.timeout_seconds = timeout_seconds
        self._result_limit_bytes = result_limit_bytes

    async def execute(self, request: ToolRequest, audit: Audit, approval: Approval) -> ToolResult:
        """Run one call to its end and return what the model reads of it, audited.

        One that a person has to answer has not ended, and is not audited yet.

        Args:
            request: as the model sent it; nothing about it needs to be right.
            audit: is told before the run of what a person has allowed, and before this returns; its
                errors are not caught.
            approval: asks a person before what needs a yes.
        """
        stopwatch = _Stopwatch()
        shown = ToolOutput("")
        try:
            tool = self._find(request)
            arguments, ignored = _validate(tool, request.arguments)
            if not request.resumed:  # it was counted when it began
                self._limits.take(tool, request.caller.person)
            if _needs_yes(tool, arguments, request):
                asking = replace(request, consent=await self._consent(tool, arguments))
                question = _question(tool, arguments, asking.consent)
                await policy.approve(asking, question, approval)
                tool = self._find_again(tool, request)
                await audit.starting(request)
            with stopwatch:
                output = await self._run(tool, arguments, _calling(request))
            shown = self._presentable(tool, output, ignored)
            outcome = Outcome.OK
        except AwaitsPerson:
            return ToolResult(request, Outcome.AWAITS_PERSON, "", 0.0)
        except ToolError as error:
            outcome = _outcome(error)
            shown = ToolOutput(trim(str(error), self._result_limit_bytes))
        result = ToolResult(
            request, outcome, shown.text, stopwatch.seconds, shown.files, shown.images
        )
        await audit.finished(result)
        return result

    async def _consent(self, tool: Tool, arguments: Any) -> Consent:
        """Return what a call needs of people; a tool that cannot tell asks each time."""
        if not tool.side_effects:
            return Consent(changes=tool.asks_if is not None)
        version = _version(tool)
        if tool.consent is None:
            return Consent(covers=(tool.name,), version=version)
        with _bugs_told(tool.name):
            try:
                async with asyncio.timeout(CONSENT_SECONDS):
                    return replace(await tool.consent(arguments), version=version)
            except (ToolError, WorkError, TimeoutError):
                return Consent()

    def asks_first(self, request: ToolRequest) -> bool:
        """Whether a person is asked before a call runs; also False where it cannot run at all."""
        try:
            tool = self._find(request)
            return tool.side_effects or (
                (tool.address is not None or tool.lasting or tool.asks_if is not None)
                and _needs_yes(tool, _validate(tool, request.arguments)[0], request)
            )
        except ToolError:
            return False

    def _find(self, request: ToolRequest) -> Tool:
        tool = self._registry.get_for(request.caller, request.tool)
        if tool is None:
            offered = self._registry.offered_to(request.caller)
            raise UnknownTool(_unknown(request.tool, [tool.name for tool in offered]))
        return tool

    def _find_again(self, asked_about: Tool, request: ToolRequest) -> Tool:
        """Find a tool as it is now: whole minutes may have passed since a person was asked."""
        tool = self._registry.get_for(request.caller, request.tool)
        if tool is None or _as_listed(tool) != _as_listed(asked_about):
            raise ToolError(
                f"Not run: {asked_about.name} was allowed, but is gone meanwhile, or another than "
                "it was. Tell the person that it was not done."
            )
        return tool

    async def _run(self, tool: Tool, arguments: Any, caller: Caller) -> str | ToolOutput:
        seconds = tool.timeout_seconds or self.timeout_seconds
        with _bugs_told(tool.name):
            try:
                async with asyncio.timeout(seconds) as bound:
                    return await tool.run(arguments, caller)
            except (ToolUnavailable, WorkUnavailable) as error:
                self._registry.withdraw(self._registry.source_of(tool.name), str(error))
                raise ToolUnavailable(str(error)) from None
            except (ToolTimeout, WorkTimeout) as error:
                raise _timed_out(tool, str(error)) from None
            except WorkError as error:
                raise ToolError(str(error)) from None
            except TimeoutError:
                if not bound.expired():
                    raise
                words = f"{tool.name} took over {seconds:g} seconds and was stopped."
                raise _timed_out(tool, words) from None

    def _presentable(self, tool: Tool, output: str | ToolOutput, ignored: str) -> ToolOutput:
        """Return what the model reads and sees of an output, and what the person gets."""
        with _bugs_told(tool.name):  # an output that is no text and no files is a tool's bug, too
            if not isinstance(output, ToolOutput):
                output = ToolOutput(output)
            files = presentable(output.files)
            note = note_about(len(files), of=len(output.files)) + ignored
            words = output.text
            if not words.strip() and (files or output.images):
                words = _FILES_ALONE if files else _IMAGES_ALONE
            # What can be read in a picture is nobody's word, whoever made the picture.
            untrusted = tool.untrusted or output.untrusted or bool(output.images)
            text = self._readable(tool.name, words, note, untrusted=untrusted)
            return ToolOutput(text, files, output.images)

    def _readable(self, tool: str, content: str, note: str, *, untrusted: bool) -> str:
        room = max(MIN_LIMIT_BYTES, self._result_limit_bytes - len(note))
        if not content.strip():
            return note.strip() or _EMPTY
        if untrusted:
            return mark(content, tool, room) + note
        return trim(content, room) + note


class _Stopwatch:
    """The seconds spent inside; 0.0 when it was never entered."""

    seconds = 0.0

    def __enter__(self) -> None:
        self._started = monotonic()

    def __exit__(self, *_: object) -> None:
        self.seconds = monotonic() - self._started


@contextmanager
def _bugs_told(tool: str) -> Iterator[None]:
    """Be the boundary around a tool's own code: a bug in it must not end the turn."""
    try:
        yield
    except ToolError:
        raise
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        # Nobody cancelled this call: the tool awaited something that was cancelled elsewhere.
        log.exception("tool.bug", tool=tool)
        raise _Bug(_BUG) from None
    except Exception:
        log.exception("tool.bug", tool=tool)
        raise _Bug(_BUG) from None


def _validate(tool: Tool, text: str) -> tuple[Any, str]:
    """Return the arguments of a call, and a note about those that the tool does not have."""
    if len(text) > MAX_ARGUMENTS_BYTES:
        raise InvalidArguments(f"The arguments of {tool.name} are too long.")
    try:
        with _bugs_told(tool.name):
            return tool.parse(text), ""
    except InvalidArguments as problems:
        if (without := without_unknown(tool, text)) is not None:
            with suppress(InvalidArguments), _bugs_told(tool.name):
                return tool.parse(without.text), without.note
        schema = f"this schema: {tool.schema_text}"
        if len(tool.schema_text) > MAX_SCHEMA_CHARACTERS:
            schema = "the tool's schema."
        raise InvalidArguments(
            f"The arguments of {tool.name} are wrong: {problems}. "
            f"Send one JSON object that fits {schema}"
        ) from None


def _needs_yes(tool: Tool, arguments: Any, request: ToolRequest) -> bool:
    with _bugs_told(tool.name):
        changes = tool.asks_if is not None and tool.asks_if(arguments, request.caller)
        return changes or policy.needs_yes(tool, arguments, request.heard)


def _question(tool: Tool, arguments: Any, consent: Consent) -> str:
    with _bugs_told(tool.name):
        return policy.question(tool, arguments, consent.risks)


def _calling(request: ToolRequest) -> Caller:
    """Return the caller of a run: a call within a call is named after both."""
    within = request.caller.call
    call = f"{within}/{request.call_id}" if within else request.call_id
    return replace(request.caller, call=call)


def _timed_out(tool: Tool, words: str) -> ToolTimeout:
    return ToolTimeout(words + (_PERHAPS_DONE if tool.side_effects else ""))


def _version(tool: Tool) -> str:
    """Return what differs when a server puts another tool under the same name."""
    listed = f"{tool.description}\0{tool.schema_text}"
    return hashlib.sha256(listed.encode(errors="replace")).hexdigest()[:_VERSION_CHARACTERS]


def _as_listed(tool: Tool) -> tuple[object, ...]:
    """Return what a yes was given for: an MCP server may put another tool under the same name."""
    return tool.description, tool.parameters, tool.side_effects


def _outcome(error: ToolError) -> Outcome:
    return next(outcome for kind, outcome in _OUTCOMES if isinstance(error, kind))


def _unknown(name: str, names: list[str]) -> str:
    name = name[:_MAX_NAME_CHARACTERS]
    nearest = get_close_matches(name, names, n=1)
    suggestion = f" Did you mean {nearest[0]}?" if nearest else ""
    listed = ", ".join(names[:_MAX_NAMES]) or "none"
    more = len(names) - _MAX_NAMES
    rest = f" and {more} more" if more > 0 else ""
    return f"There is no tool named {name!r}.{suggestion} Tools: {listed}{rest}."
