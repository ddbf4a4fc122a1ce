"""Values around a tool: the tool itself, a call, its caller, its result."""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class ToolFile:
    """A file for the person, sent with the answer; the type is a MIME type without parameters."""

    name: str
    content_type: str
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class ToolImage:
    """An image for the model, scaled and in a format that models take."""

    content_type: str
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """Output of a tool that returns more than words.

    Attributes:
        text: for the model.
        files: for the person.
        images: for the model, after the text; always counted as strangers' words.
        untrusted: this result holds strangers' words, even if the tool's results usually do not.
    """

    text: str
    files: tuple[ToolFile, ...] = ()
    images: tuple[ToolImage, ...] = ()
    untrusted: bool = False


@dataclass(frozen=True, slots=True)
class Caller:
    """The person that a call is made for.

    Attributes:
        person: opaque here; rate limits count by it.
        chat: opaque as well.
        is_admin: the person administers the bot.
        turn: of the call; None outside of one.
        call: id within the turn. After a restart both are the same, so a tool that stores
            something recognises a call that it has carried out.
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
    """The consent that a call needs before it runs.

    Attributes:
        asks: a person is asked, unless the tool is allowed for longer.
        covers: the tools that an answer of "always" allows for longer; empty: none.
        version: of the tool; an "always" does not cover other versions.
        hints: reasons to look closely, in words; they decide nothing.
        needs_admin: in a group, only an admin may allow it.
    """

    asks: bool = True
    covers: tuple[str, ...] = ()
    version: str = ""
    hints: tuple[str, ...] = ()
    needs_admin: bool = True


_WRAPPED: Final = '{"type":"function","function":{"name":"","description":"","parameters":}},'


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as a model is told of it.

    Attributes:
        parameters: JSON Schema of an object.
        size: bytes that it takes in a request, about, as OpenAI's API spells it.
    """

    name: str
    description: str
    parameters: Mapping[str, object]
    size: int = field(default=0, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that a model may call. Made of a function by `tools.schema.tool_from`.

    Attributes:
        name: for the model, `[a-zA-Z0-9_-]{1,64}`.
        description: for the model.
        parameters: JSON Schema of the arguments.
        schema_text: the same as shown to the model, as compact JSON.
        spec: the part that the model is told.
        parse: turns the model's text into arguments; raises InvalidArguments.
        run: does the work; raises ToolError for an expected failure.
        side_effects: it writes, runs or spends something: a person is asked before each call, and
            an interrupted call never runs again by itself.
        asks_if: for a tool without side effects: tells whether this call needs a person's yes.
        question: heading of the question to the person, on one line above the arguments; None: the
            tool's name and description.
        consent: for a tool with side effects: the consent that a call needs; None: each call is
            asked about, and the tool may be allowed for longer.
        untrusted: its results hold strangers' words, and are marked as such for the model.
        address: the internet address that a call asks, if the model chooses it.
        lasting: it stores words that the model sees in later conversations, or deletes such: once
            the model has read strangers' words, a person is asked before each call.
        calls_per_minute: limit for all people together.
        timeout_seconds: for one run; None: the same as for all tools.
        admins_only: it does not exist for other people.
        changes: it changes or sends something without a question.
        bookkeeping: it only notes plans of the model: it is not shown to people, and a turn may
            call it together with other tools.
        answered_by_person: a run may raise AwaitsPerson, and is repeated after the answer.
        probe: tests whether it can work at all; raises ToolUnavailable.
    """

    name: str
    description: str
    parameters: Mapping[str, object]
    parse: Callable[[str], Any]
    run: Callable[[Any, Caller], Awaitable[str | ToolOutput]]
    side_effects: bool = False
    asks_if: Callable[[Any, Caller], bool] | None = None
    question: Callable[[Any], str] | None = None
    consent: Callable[[Any], Consent] | None = None
    untrusted: bool = False
    address: Callable[[Any], str] | None = None
    lasting: bool = False
    calls_per_minute: int = 120
    timeout_seconds: float | None = None
    admins_only: bool = False
    changes: bool = False
    bookkeeping: bool = False
    answered_by_person: bool = False
    probe: Callable[[], Awaitable[None]] | None = None
    schema_text: str = field(init=False, repr=False, compare=False)
    spec: ToolSpec = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        shown = dict(self.parameters)
        if shown.get("additionalProperties") is False:
            del shown["additionalProperties"]  # the bot checks that, and says so
        text = _compact(shown)
        size = len(f"{_WRAPPED}{self.name}{self.description}{text}".encode(errors="replace"))
        spec = ToolSpec(self.name, self.description, shown, size)
        object.__setattr__(self, "schema_text", text)
        object.__setattr__(self, "spec", spec)

    @property
    def only_reads(self) -> bool:
        """Whether no call of it leaves anything behind."""
        leaves_something = self.side_effects or self.changes or self.lasting or self.bookkeeping
        return not leaves_something and self.asks_if is None

    def exists_for(self, caller: Caller) -> bool:
        """Tell whether a caller may use it."""
        is_among_tools = caller.tools is None or self.name in caller.tools
        return is_among_tools and (caller.is_admin or not self.admins_only)


def _compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def first_sentence(description: str) -> str:
    """Return the part of a description that fits on one line."""
    return description.split(". ", maxsplit=1)[0].rstrip(".") + "."


class Outcome(StrEnum):
    """The end of a call; also the label of metrics and audit rows."""

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
    """The call has not ended: a person was asked."""


class Decision(StrEnum):
    """The answer to the question whether a call may run."""

    YES = "yes"
    NO = "no"
    SILENCE = "silence"
    NOT_ASKED = "not_asked"
    """The question could not be sent."""
    INTERRUPTED = "interrupted"
    """Allowed and begun before a restart; the result is unknown."""


@dataclass(frozen=True, slots=True)
class Heard:
    """Words that the model was told in a conversation.

    Attributes:
        people: words of people, with the content of their files.
        results: results of tools, as the model read them.
        strangers_before: it has read strangers' words further back; it no longer sees them, but
            may still repeat them.
    """

    people: Sequence[str] = ()
    results: Sequence[str] = ()
    strangers_before: bool = False


@dataclass(frozen=True, slots=True)
class ToolRequest:
    """A call as it reaches the executor.

    Attributes:
        call_id: within its turn.
        tool: the name that the model calls; perhaps no tool at all.
        arguments: the model's text, not always JSON.
        heard: the words that the model knew when it made the call.
        consent: set once it is known.
        resumed: the call goes on after a restart or a person's answer.
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
    """The end of a call: content and images for the model, files for the person."""

    request: ToolRequest
    outcome: Outcome
    content: str
    duration_seconds: float
    files: tuple[ToolFile, ...] = ()
    images: tuple[ToolImage, ...] = ()
