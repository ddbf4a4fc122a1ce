"""The model of a simulated world: it answers by the words of the request alone.

People mark their messages (`#m7#`) and say what the model shall do. The model answers `re m7`. When
messages joined into one turn, it names them all.
"""

import asyncio
import itertools
import json
import re
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final

from tests.e2e.minds import is_of_helper
from tests.fakes.openai_server import chunk, cut, raw_body, sse, status, words_of
from tests.fakes.scripted_http import EVENT_STREAM, Request, _chunk, _head

MARK: Final = re.compile(r"#(\w+)# (\w+)")
"""A person's message: its mark, and the kind of work."""

KINDS: Final = (
    "plain", "long", "calc", "write", "ask", "plan", "delegate", "remember", "remind", "react",
    "todo", "slow", "schedule",
)  # fmt: skip


PARTS: Final = 3
"""Paragraphs of a long answer, in addition to the first one; together, two messages."""


class Mood(StrEnum):
    """The fate of one request to the model."""

    SLOW = "streams slowly"
    BREAKS_OFF = "breaks off in the middle"
    HANGS_UP = "hangs up without an answer"
    LIMITS = "limits the rate"
    FAILS = "has a fault of its own"
    REFUSES = "refuses the key"
    GARBLES = "answers with rubbish"
    SILENT = "never answers"


@dataclass(frozen=True, slots=True)
class Asked:
    """Request to the model.

    Attributes:
        at: when it came, in virtual seconds.
        words: the whole request as text.
    """

    at: float
    words: str


@dataclass(eq=False)
class Mind:
    """The model's side; a step of `OpenAiServer`.

    Attributes:
        now: virtual seconds.
        wall: seconds since 1970 by the clock of the bot's machine.
        moods: fates of the next requests; afterwards all is well.
        asked: every request.
        reminders: how often the model has set each reminder, by its first line.
        results: what it was told first about each of its calls, by the id of the call.
        retold: calls about which it was told something else later.
    """

    now: Callable[[], float]
    wall: Callable[[], float]
    moods: deque[Mood] = field(default_factory=deque)
    asked: list[Asked] = field(default_factory=list)
    reminders: Counter[str] = field(default_factory=Counter)
    results: dict[str, str] = field(default_factory=dict)
    retold: list[str] = field(default_factory=list)
    setting: dict[str, bool] = field(default_factory=dict)
    numbers: Any = field(default_factory=lambda: itertools.count(1))

    async def __call__(self, request: Request, writer: asyncio.StreamWriter) -> None:
        words = json.dumps(request.body["messages"], ensure_ascii=False)
        self.asked.append(Asked(self.now(), words))
        self._compare(request.body["messages"])
        mood = self.moods.popleft() if self.moods else None
        match mood:
            case Mood.HANGS_UP:
                await cut(request, writer)
            case Mood.LIMITS:
                await status(429, {"error": {"message": "slow"}}, {"Retry-After": "1"})(
                    request, writer
                )
            case Mood.FAILS:
                await status(500)(request, writer)
            case Mood.REFUSES:
                await status(401, {"error": {"message": "bad key"}})(request, writer)
            case Mood.GARBLES:
                await raw_body(b"<html>no</html>", content_type="text/html")(request, writer)
            case Mood.SILENT:
                await asyncio.sleep(10_000)
            case Mood.BREAKS_OFF:
                await sse(chunk({"content": "The"}), done=False, cut=True)(request, writer)
            case _:
                pause = 1.5 if mood is Mood.SLOW or "# slow" in words[-200:] else 0.01
                await self._answer(request, writer, pause)

    def _compare(self, messages: Sequence[Mapping[str, Any]]) -> None:
        """Note each call whose result differs from that of an earlier request."""
        for message in messages:
            if message["role"] == "tool":
                call, result = message["tool_call_id"], words_of(message["content"])
                if (first := self.results.setdefault(call, result)) != result:
                    self.retold.append(f"{call}: first {first[:60]!r}, then {result[:60]!r}")

    async def _answer(self, request: Request, writer: asyncio.StreamWriter, pause: float) -> None:
        await asyncio.sleep(0.05)
        delta, reason = self.reply(request.body)
        head = {"role": "assistant", "content": ""}
        usage = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
        events = [chunk(head), chunk(delta), chunk({}, finish_reason=reason, usage=usage)]
        headers = {"content-type": EVENT_STREAM, "transfer-encoding": "chunked"}
        writer.write(_head(200, headers))
        for event in [*map(json.dumps, events), "[DONE]"]:
            writer.write(_chunk(f"data: {event}\n\n".encode()))
            await writer.drain()
            await asyncio.sleep(pause)
        writer.write(_chunk(b""))

    def reply(self, body: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
        """Return the answer to a request, and why it ends."""
        said, results = _turn(body["messages"])
        marks = dict(MARK.findall(said))
        if not marks:
            return {"content": "Hm."}, "stop"
        tools = {tool["function"]["name"] for tool in body.get("tools", ())}
        last, kind = list(marks.items())[-1]
        if is_of_helper(body):
            kind = "calc"
        call = self._call(kind, last, results)
        if call is not None and call[0] in tools:
            self.setting[last] = kind in {"remind", "schedule"}
            self.reminders[f"due {last}"] += kind == "remind"
            self.reminders[f"re {scheduled(last)}"] += kind == "schedule"
            return {"tool_calls": [_call_of(next(self.numbers), *call)]}, "tool_calls"
        words = " ".join(f"re {mark}" for mark in marks)
        if kind == "long":
            words += "".join(f"\n\nmore {last}/{n}: {'word ' * 180}." for n in range(PARTS))
        if results:
            words += f" ({len(results)})"
        if self.setting.get(last) and results and "It is now" in results[-1]:
            words += f" {last} is set"
        return {"content": words}, "stop"

    def _call(
        self, kind: str, mark: str, results: Sequence[str]
    ) -> tuple[str, Mapping[str, object]] | None:
        """Return the next call of a turn, if it has one."""
        done = len(results)
        if kind == "todo" and done < 4:
            steps = [f"step {n}" for n in range(3)]
            items = [
                {"text": step, "state": "done" if n < done else "open"}
                for n, step in enumerate(steps)
            ]
            return "todo", {"items": items}
        if done:
            return None
        if kind == "write":
            return "notes_write", {"text": f"{mark}:{next(self.numbers)}"}
        at = datetime.fromtimestamp(self.wall() + 8, UTC).replace(microsecond=0)
        calls: dict[str, tuple[str, Mapping[str, object]]] = {
            "calc": ("calculate", {"expression": "127*43"}),
            "ask": ("ask_user", {"question": f"Which colour, {mark}?", "options": ["Red", "Blue"]}),
            "plan": ("propose_plan", {"plan": f"1. Do {mark}"}),
            "delegate": ("delegate", {"task": f"add for #{mark}# calc"}),
            "remember": ("remember", {"text": f"fact {mark}"}),
            "remind": ("remind", {"text": f"due {mark}", "at": at.isoformat()}),
            "react": ("react", {"emoji": "👍"}),
            "schedule": ("schedule", {"question": _scheduled(mark), "at": at.isoformat()}),
        }
        return calls.get(kind)


def scheduled(mark: str) -> str:
    """Return the mark of the question that a message schedules."""
    return f"sc{mark[2:5]}z"


def _scheduled(mark: str) -> str:
    return f"#{scheduled(mark)}# plain"


def _turn(messages: Sequence[Mapping[str, Any]]) -> tuple[str, list[str]]:
    """Return the words of people and the results of tools since the last answer."""
    said: list[str] = []
    results: list[str] = []
    for message in reversed(messages[1:]):
        content = words_of(message["content"]) if message.get("content") else ""
        if message["role"] == "assistant" and not message.get("tool_calls"):
            break
        if message["role"] == "user":
            said.insert(0, content)
        elif message["role"] == "tool":
            results.insert(0, content)
            if "The person answered" in content or "the person answered" in content:
                said.insert(0, content)  # in their own words, instead of a yes or an option
    return "\n".join(said), results


def _call_of(number: int, name: str, arguments: Mapping[str, object]) -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"index": 0, "id": f"call_{number}", "type": "function", "function": function}
