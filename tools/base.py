"""What a tool is: a name, a description, typed arguments and a coroutine."""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


@dataclass(frozen=True, slots=True)
class ToolFile:
    """A file that a tool gives to the person, beside the words that the model reads.

    Attributes:
        name: ASCII letters, digits, dots and hyphens.
        content_type: a MIME type without parameters.
        data: its bytes.
    """

    name: str
    content_type: str
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class ToolImage:
    """An image that a tool shows to the model, scaled and of a format that models take.

    Attributes:
        content_type: a MIME type.
        data: its bytes.
    """

    content_type: str
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """What a tool returns that has more to give than words.

    Attributes:
        text: what the model reads.
        files: what the person gets with the answer.
        images: what the model is shown behind the text; whatever they show is strangers'.
        untrusted: this result holds what strangers wrote, even if the tool's results do not always.
    """

    text: str
    files: tuple[ToolFile, ...] = ()
    images: tuple[ToolImage, ...] = ()
    untrusted: bool = False


@dataclass(frozen=True, slots=True)
class Caller:
    """Whom a call is made for.

    Attributes:
        person: opaque here; the rate of calls is counted by it.
        chat: where, opaque as well.
        is_admin: the person administers the bot.
        turn: the turn that the call belongs to; None outside of one.
        call: names the call within its turn. After a restart both are the same again, so a tool
            that stores something recognises a call that it has carried out already.
        tools: names of the only tools that exist for the call; None: all that are offered.
    """

    person: str
    chat: str = ""
    is_admin: bool = False
    turn: int | None = None
    call: str = ""
    tools: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class Consent:
    """What a call needs of people before it runs.

    Attributes:
        asks: somebody is asked, unless it is covered.
        covers: what a person may allow for longer, so that nobody is asked about it; all of it
            has to be allowed. Empty: each call is asked about.
        version: of the tool; what was allowed of another version is not allowed.
        risks: why the person should be careful, in words.
        changes: it changes something; else the question is about what it could tell others.
    """

    asks: bool = True
    covers: tuple[str, ...] = ()
    version: str = ""
    risks: tuple[str, ...] = ()
    changes: bool = True

    @property
    def is_dangerous(self) -> bool:
        """Whether it has risks that are known, or so many that nobody could list them."""
        return self.changes and (bool(self.risks) or not self.covers)


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that a model may call. Made of a function by `tools.schema.tool_from`.

    Attributes:
        name: what the model calls it, `[a-zA-Z0-9_-]{1,64}`.
        description: what it does, for the model.
        parameters: the JSON Schema of the arguments that the model is shown.
        schema_text: the same as compact JSON, written once for each tool.
        parse: makes arguments of what the model sends; raises InvalidArguments.
        run: does the work for a caller, with what `parse` returned; raises ToolError for an
            expected failure.
        side_effects: it writes, runs or spends something: a person is asked before each call, and
            it is never run a second time by itself.
        asks_if: of a tool without side effects: whether this very call has some, so that a person
            is asked about it; None: none has.
        question: what a call is going to do, for the person who is asked, on one line; the
            arguments are listed below it. None: the tool's name and description.
        consent: what a call with side effects needs of people; None: each is asked about, and may
            be allowed for longer by the tool's name.
        untrusted: its results hold what strangers wrote; they are marked as such for the model.
        address: the address on the internet that a call asks, where the model chooses it.
        lasting: what it is sent is shown to the model again in later conversations, or it takes
            such away: once the model has read what strangers wrote, a person is asked before each
            call.
        calls_per_minute: of all people together.
        timeout_seconds: for one run, where it is another than that of all tools.
        admins_only: it does not exist for anybody else.
        changes: it changes or sends something, though nobody needs to be asked about it.
        bookkeeping: it only notes what the model is about to do: people are not shown that it is
            called, and a turn may call it beside its other calls.
        for_admins: what admins are offered in its place, by the same name; None: the same.
        answered_by_person: a person gives the result: a run may raise AwaitsPerson, and is repeated
            once there is an answer.
        probe: finds out whether it can work at all; raises ToolUnavailable.
    """

    name: str
    description: str
    parameters: Mapping[str, object]
    parse: Callable[[str], Any]
    run: Callable[[Any, Caller], Awaitable[str | ToolOutput]]
    side_effects: bool = False
    asks_if: Callable[[Any, Caller], bool] | None = None
    question: Callable[[Any], str] | None = None
    consent: Callable[[Any], Awaitable[Consent]] | None = None
    untrusted: bool = False
    address: Callable[[Any], str] | None = None
    lasting: bool = False
    calls_per_minute: int = 120
    timeout_seconds: float | None = None
    admins_only: bool = False
    changes: bool = False
    bookkeeping: bool = False
    for_admins: "Tool | None" = None
    answered_by_person: bool = False
    probe: Callable[[], Awaitable[None]] | None = None
    schema_text: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        text = json.dumps(self.parameters, ensure_ascii=False, separators=(",", ":"))
        object.__setattr__(self, "schema_text", text)

    @property
    def only_reads(self) -> bool:
        """Whether no call of it leaves anything behind."""
        leaves_something = self.side_effects or self.changes or self.lasting or self.bookkeeping
        return not leaves_something and self.asks_if is None

    def exists_for(self, caller: Caller) -> bool:
        """Whether somebody may call it."""
        is_among_tools = caller.tools is None or self.name in caller.tools
        return is_among_tools and (caller.is_admin or not self.admins_only)


def first_sentence(description: str) -> str:
    """Return the part of a description that fits on one line."""
    return description.split(". ", maxsplit=1)[0].rstrip(".") + "."


class Outcome(StrEnum):
    """How a call ended; also the label of metrics and audit rows."""

    OK = "ok"
    FAILED = "failed"
    INVALID = "invalid"
    UNKNOWN = "unknown"
    RATE_LIMITED = "rate_limited"
    DECLINED = "declined"
    UNANSWERED = "unanswered"
    TIMEOUT = "timeout"
    BUG = "bug"
    INTERRUPTED = "interrupted"
    REFUSED = "refused"
    AWAITS_PERSON = "awaits_person"
    """It has not ended: a person was asked."""


@dataclass(frozen=True, slots=True)
class Heard:
    """What the model has been told in a conversation, by whom.

    Attributes:
        people: what people wrote, with what is in the files that they sent.
        results: what tools returned, as the model read it.
        strangers_before: whether it has read strangers' words further back, which it is no longer
            shown and may still repeat.
    """

    people: Sequence[str] = ()
    results: Sequence[str] = ()
    strangers_before: bool = False


@dataclass(frozen=True, slots=True)
class ToolRequest:
    """One call as it reaches the executor.

    Attributes:
        call_id: names the call within its turn.
        tool: what the model calls; perhaps no tool at all.
        arguments: the model's text, not always JSON.
        caller: whom it is made for.
        heard: what the model knew when it made the call.
        consent: what it needs of people, once that is known.
        resumed: it was begun before, and goes on.
    """

    call_id: str
    tool: str
    arguments: str
    caller: Caller
    heard: Heard = Heard()
    consent: Consent = Consent()
    resumed: bool = False


@dataclass(frozen=True, slots=True)
class ToolResult:
    """How a call ended, what the model reads and sees of it, and what the person gets.

    The duration is that of the tool's run.
    """

    request: ToolRequest
    outcome: Outcome
    content: str
    duration_seconds: float
    files: tuple[ToolFile, ...] = ()
    images: tuple[ToolImage, ...] = ()
