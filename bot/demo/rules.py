"""The answers of the demo's offline assistant: a few rules, and no AI.

`reply` is a pure function from a conversation to words or tool calls. The first rule that has an
answer gives it.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from bot.demo.arithmetic import find_expressions
from conversation_store.models import Message, Role, ToolCall

CALCULATE: Final = "calculate"
DATE_TOOLS: Final = frozenset({"date_difference", "shift_date"})
CURRENT_TIME: Final = "current_time"
REMEMBER: Final = "remember"
RECALL: Final = "recall"
REMIND: Final = "remind"
MAX_CALLS: Final = 5
HOW_TO_CONNECT: Final = (
    "To talk to a real model, start it with LLM__BASE_URL (any OpenAI-compatible endpoint) and, "
    "where that needs one, LLM__API_KEY."
)


@dataclass(frozen=True, slots=True)
class Reading:
    """Answer with a text."""

    text: str


@dataclass(frozen=True, slots=True)
class Call:
    """Ask for a tool first."""

    tool: str
    arguments: Mapping[str, object]


Reply = Reading | tuple[Call, ...]


@dataclass(frozen=True, slots=True)
class Conversation:
    """What the rules look at.

    Attributes:
        text: the last message of a person, without the bot's prefix.
        written_at: its date and time from that prefix; empty if there is none.
        earlier: the messages of people before it, the latest first.
        system: the system prompt.
        tools: names of the offered tools.
    """

    text: str
    written_at: str
    earlier: tuple[str, ...]
    system: str
    tools: frozenset[str]


def reply(messages: Sequence[Message], tools: frozenset[str]) -> Reply:
    """Return what the assistant says next, given the names of the tools it is offered."""
    if messages and messages[-1].role is Role.TOOL:
        return _tell_results(messages)
    conversation = _read(messages, tools)
    for rule in RULES:
        found = rule(conversation)
        if found is not None:
            return found
    return _admit(conversation)


_PREFIX = re.compile(r"\[(\d{4}-\d\d-\d\d \d\d:\d\d UTC)\] (?:[^\n:]{1,64}: )?")


def _read(messages: Sequence[Message], tools: frozenset[str]) -> Conversation:
    said = [message.content or "" for message in messages if message.role is Role.USER] or [""]
    prefix = _PREFIX.match(said[-1])
    text, *earlier = [_PREFIX.sub("", one, count=1).strip() for one in reversed(said)]
    return Conversation(
        text=text,
        written_at=prefix[1] if prefix else "",
        earlier=tuple(earlier),
        system="\n".join(one.content or "" for one in messages if one.role is Role.SYSTEM),
        tools=tools,
    )


_DAY = r"(?:today|\d{4}-\d\d-\d\d)"
_ASKED = r"(?:(?:what is|what's|how much is|how many|convert) )?"
_UNITS = re.compile(
    rf"{_ASKED}(-?\d[\d.]{{0,20}}) ?(°?[a-z]{{1,20}}) (?:in|to) (°?[a-z]{{1,20}}) ?[?.!]?",
    re.IGNORECASE,
)
_BETWEEN = re.compile(rf"{_ASKED}days between ({_DAY}) and ({_DAY}) ?[?.!]?", re.IGNORECASE)
_SHIFTED = re.compile(
    rf"{_ASKED}({_DAY}) ?([-+]) ?(\d{{1,4}}) (day|week|month|year)s? ?[?.!]?", re.IGNORECASE
)


def _measure(conversation: Conversation) -> Reply | None:
    """Answer one question about units or dates."""
    call = _measuring_call(conversation.text)
    return (call,) if call is not None and call.tool in conversation.tools else None


def _measuring_call(text: str) -> Call | None:
    if asked := _UNITS.fullmatch(text):
        value, from_unit, to_unit = asked.groups()
        if value.count(".") < 2:  # `1.2.3` is no number
            units = {"from_unit": from_unit, "to_unit": to_unit}
            return Call("convert_units", {"value": float(value), **units})
    if asked := _BETWEEN.fullmatch(text):
        return Call("date_difference", {"start": asked[1], "end": asked[2]})
    if asked := _SHIFTED.fullmatch(text):
        day, sign, number, unit = asked.groups()
        return Call("shift_date", {"start": day, f"{unit.lower()}s": int(f"{sign}{number}")})
    return None


def _calculate(conversation: Conversation) -> Reply | None:
    expressions = find_expressions(conversation.text)[:MAX_CALLS]
    if not expressions:
        return None
    if CALCULATE not in conversation.tools:
        return Reading("That is a sum, but I am not offered the calculate tool, and cannot count.")
    return tuple(Call(CALCULATE, {"expression": expression}) for expression in expressions)


_FACT_TOLD = re.compile(r"(?:please )?remember (?:that )?(?!me\b)([^?]{2,500})", re.IGNORECASE)
_FACTS_ASKED = re.compile(r"what do you (?:remember|know)(?: about me)? ?\?*", re.IGNORECASE)


def _remember(conversation: Conversation) -> Reply | None:
    """Keep a fact, or find all of them, in the bot's own memory."""
    if {REMEMBER, RECALL} <= conversation.tools:
        if told := _FACT_TOLD.fullmatch(conversation.text):
            return (Call(REMEMBER, {"text": told[1]}),)
        if _FACTS_ASKED.fullmatch(conversation.text):
            return (Call(RECALL, {"query": ""}),)
    return None


_REMINDER_ASKED = re.compile(
    r"(?:please )?remind me in (\d{1,3}) (minute|hour|day)s? (?:to |of )?(.{1,200})",
    re.IGNORECASE,
)


def _remind(conversation: Conversation) -> Reply | None:
    """Set a reminder for so long after the message was written."""
    asked = _REMINDER_ASKED.fullmatch(conversation.text)
    if asked is None or REMIND not in conversation.tools or not conversation.written_at:
        return None
    number, unit, what = asked.groups()
    written = datetime.strptime(conversation.written_at, "%Y-%m-%d %H:%M UTC").replace(tzinfo=UTC)
    at = written + timedelta(**{f"{unit.lower()}s": int(number)})
    return (Call(REMIND, {"text": what, "at": at.isoformat()}),)


_NAME_ASKED = re.compile(r"\bmy name\b.*\?|\bwho am i\b|\bremember me\b", re.IGNORECASE)
_NAME_TOLD = re.compile(r"\b(?:my name is|my name's|call me) +([^\s,.!?]{1,40})", re.IGNORECASE)


def _tell_name(conversation: Conversation) -> Reply | None:
    if not _NAME_ASKED.search(conversation.text):
        return None
    told = next(filter(None, map(_NAME_TOLD.search, conversation.earlier)), None)
    if told is None:
        return Reading("You have not told me your name in this conversation.")
    return Reading(f"Your name is {told[1]}. You told me earlier in this conversation.")


def _learn_name(conversation: Conversation) -> Reply | None:
    told = _NAME_TOLD.search(conversation.text)
    return told and Reading(f"Nice to meet you, {told[1]}. Ask me later what your name is.")


_CLOCK_ASKED = re.compile(
    r"\b(?:what time|what(?:'s| is) the time)\b[^?.!]{0,30}\bin ([\w /+-]{1,60})", re.IGNORECASE
)


def _look_at_clock(conversation: Conversation) -> Reply | None:
    asked = _CLOCK_ASKED.search(conversation.text)
    if asked is None or CURRENT_TIME not in conversation.tools:
        return None
    return (Call(CURRENT_TIME, {"zone": asked[1].strip()}),)


_TIME_ASKED = re.compile(
    r"\b(?:what|which) (?:time|day|date)\b|\bwhat(?:'s| is) the (?:time|date|day)\b", re.IGNORECASE
)
_DATE = re.compile(r"\d{4}-\d\d-\d\d|[A-Z][a-z]+ \d{1,2}, \d{4}|\d{1,2} [A-Z][a-z]+ \d{4}")


def _tell_time(conversation: Conversation) -> Reply | None:
    if not _TIME_ASKED.search(conversation.text):
        return None
    if conversation.written_at:
        return Reading(f"Your message was written at {conversation.written_at}.")
    date = _DATE.search(conversation.system)
    return Reading(f"The date is {date[0]}." if date else "Nobody has told me the date.")


_WHO: Final = (
    "I am this bot's offline demo: a handful of rules, no AI. The bot around me is the real one."
    f" {HOW_TO_CONNECT}"
)
_SMALL_TALK: Final = {
    r"\b(?:who|what) are you\b|\bare you (?:an? )?(?:ai|bot|human|robot|real)\b": _WHO,
    r"\byour name\b|\b(?:what|which) model\b": _WHO,
    r"\Ahelp\b|\bhelp me\b|\bwhat can you do\b|\bhow does this work\b": (
        "I am an offline demo, no AI. {abilities} The bot's own commands: !help."
    ),
    r"\A(?:hello|hi|hey|good (?:morning|afternoon|evening))\b[^?]{0,30}\Z": (
        "Hello! I am this bot's offline demo, no AI. {abilities}"
    ),
    r"\b(?:thanks|thank you|thx|cheers)\b": "You are welcome.",
}


def _chat(conversation: Conversation) -> Reply | None:
    for pattern, answer in _SMALL_TALK.items():
        if re.search(pattern, conversation.text, re.IGNORECASE):
            return Reading(answer.replace("{abilities}", _abilities(conversation)))
    return None


RULES: Final[tuple[Callable[[Conversation], Reply | None], ...]] = (
    _remember,
    _remind,
    _measure,
    _calculate,
    _tell_name,
    _learn_name,
    _look_at_clock,
    _tell_time,
    _chat,
)


def _admit(conversation: Conversation) -> Reading:
    return Reading(
        "I cannot answer that: I am an offline demo, no AI. "
        f"{_abilities(conversation)}\n\n{HOW_TO_CONNECT}"
    )


def _abilities(conversation: Conversation) -> str:
    tools = {
        CALCULATE: "calculate (What is 127*43?)",
        "convert_units": "convert (What is 5 km in miles?)",
        CURRENT_TIME: "look at the clock (What time is it in Tokyo?)",
        REMEMBER: "keep facts (Remember that Ada likes tea)",
        REMIND: "remind you (Remind me in 1 minute to stretch)",
    }
    offered = [text for tool, text in tools.items() if tool in conversation.tools]
    remember = "remember your name (My name is Ada)"
    return f"I can {', '.join([*offered, remember])} and tell when you wrote (What time is it?)."


def _tell_results(messages: Sequence[Message]) -> Reading:
    """Put the tool results at the end of the conversation into words."""
    results = {one.tool_call_id: one.content or "" for one in messages if one.role is Role.TOOL}
    calls = next((one.tool_calls for one in reversed(messages) if one.tool_calls), ())
    return Reading("\n".join(_tell_result(call, results.get(call.id, "")) for call in calls))


_NUMBER = re.compile(r"[-+]?[\d.]")
_CLOCK = re.compile(r"(\w+day, .{1,100}?)(?: \(.*)?\. ISO 8601: ")


def _tell_result(call: ToolCall, result: str) -> str:
    subject = _subject(call)
    if call.name == CURRENT_TIME and (clock := _CLOCK.match(result)):
        return f"It is {clock[1]}."
    if call.name in {REMEMBER, RECALL, REMIND}:
        return result
    if call.name in DATE_TOOLS and result.endswith((")", "s", "h", "min", "day")):
        return f"It is {result}." if call.name == "shift_date" else f"{result}."
    if not _NUMBER.match(result) or result.endswith("."):
        return f"I could not work out {subject}. The {call.name} tool says: {result}"
    return f"{result}." if " = " in result else f"{subject} = {result}."


def _subject(call: ToolCall) -> str:
    """Return the expression or the zone of the call, or else its arguments."""
    try:
        arguments = json.loads(call.arguments)
    except ValueError:
        return call.arguments
    if not isinstance(arguments, dict):
        return call.arguments
    subject = arguments.get("expression") or arguments.get("zone")
    return subject if isinstance(subject, str) else call.arguments
