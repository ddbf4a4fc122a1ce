"""The demo's offline assistant: a few rules and no AI, behind OpenAI's API on loopback."""

import json
import re
import uuid
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from aiohttp import web

MODEL: Final = "offline-demo"
HOST: Final = "127.0.0.1"
STOP_SECONDS: Final = 1.0
BYTES_PER_TOKEN: Final = 4

Json = Mapping[str, Any]

THANKS: Final = re.compile(r"\b(?:thanks|thank you|thx|cheers)\b", re.IGNORECASE)
WELCOME: Final = "You are welcome."
INTRODUCTION: Final = (
    "I am this bot's offline demo: a few rules, no AI. The bot around me is the real one."
)
EXAMPLES: Final = {
    "calculate": "calculate and convert (What is 127*43? What is 5 km in miles?)",
    "date_time": "look at the clock (What time is it in Tokyo?)",
    "remember": "keep facts (Remember that Ada likes tea)",
    "remind": "remind you (Remind me in 1 minute to stretch)",
}
HOW_TO_CONNECT: Final = (
    "The bot's own commands: !help. To talk to a real model, start the demo with LLM__BASE_URL "
    "(any OpenAI-compatible endpoint) and, where that needs one, LLM__API_KEY."
)


@dataclass(frozen=True, slots=True)
class Call:
    """Tool call that the assistant asks for."""

    tool: str
    arguments: Json


def _reminder(asked: re.Match[str]) -> Json:
    at = datetime.now(UTC) + timedelta(**{f"{asked[2].lower()}s": int(asked[1])})
    return {"text": asked[3], "at": at.isoformat(timespec="seconds")}


_ASKED: Final = r"(?:(?:what is|what's|how much is|calculate|convert) )?"
_RULES: Final[Sequence[tuple[str, str, Callable[[re.Match[str]], Json]]]] = (
    (r"remember (?:that )?(.{2,500})", "remember", lambda said: {"text": said[1]}),
    (r"what do you (?:remember|know)(?: about me)?", "recall", lambda _: {"query": ""}),
    (r"remind me in (\d{1,3}) (minute|hour|day)s? (?:to )?(.{1,200})", "remind", _reminder),
    (r"what time is it in ([\w /+-]{1,60})", "date_time", lambda said: {"zone": said[1]}),
    (
        _ASKED + r"(-?\d{1,12}(?:\.\d{1,12})? ?°?[a-z]{1,20} (?:in|to) °?[a-z]{1,20})",
        "calculate",
        lambda said: {"expression": said[1]},
    ),
    (
        _ASKED
        + r"(?=.*\d)(?=.*[-+*/^%!(√\u00d7÷])((?:sqrt|sin|cos|of|pi|[-\d ,.+*/^%!()√\u00d7÷])+)",
        "calculate",
        lambda said: {"expression": said[1].strip()},
    ),
)
"""Whole message, tool, and the tool's arguments. The first rule that fits applies."""

_WRITTEN_AT: Final = re.compile(r"\[\w{3} \d{4}-\d\d-\d\d \d\d:\d\d UTC\] ")


def reply(messages: Sequence[Json], tools: Collection[str]) -> str | Call:
    """Return the assistant's next step, given the messages of a request and the offered tools."""
    if messages[-1]["role"] == "tool":
        function = messages[-2]["tool_calls"][0]["function"]
        return _sentence(function["name"], function["arguments"], messages[-1]["content"])
    text = _WRITTEN_AT.sub("", messages[-1]["content"], count=1).strip(" \n?=.")
    for pattern, tool, arguments in _RULES:
        if tool in tools and (said := re.fullmatch(pattern, text, re.IGNORECASE)):
            return Call(tool, arguments(said))
    if THANKS.search(text):
        return WELCOME
    can = [example for tool, example in EXAMPLES.items() if tool in tools]
    return "\n\n".join(
        (INTRODUCTION, *(["I can " + ", ".join(can) + "."] if can else []), HOW_TO_CONNECT)
    )


def _sentence(tool: str, arguments: str, result: str) -> str:
    """Put the result of a tool call into words; failed tools return a whole sentence."""
    if tool == "calculate" and " = " not in result and not result.endswith("."):
        return f"{json.loads(arguments)['expression']} = {result}."
    return result if result.endswith(".") else f"{result}."


# The endpoint


@asynccontextmanager
async def serve_assistant() -> AsyncIterator[str]:
    """Run the offline assistant on a free port of loopback and yield its base URL."""
    app = web.Application()
    app.add_routes(
        [web.get("/v1/models", _list_models), web.post("/v1/chat/completions", _complete)]
    )
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=STOP_SECONDS)
    await runner.setup()
    try:
        await web.TCPSite(runner, HOST, 0).start()
        yield f"http://{HOST}:{runner.addresses[0][1]}/v1"
    finally:
        await runner.cleanup()


async def _list_models(_: web.Request) -> web.Response:
    return web.json_response({"object": "list", "data": [{"id": MODEL, "object": "model"}]})


async def _complete(request: web.Request) -> web.Response:
    body = await request.read()
    asked = json.loads(body)
    answer = reply(asked["messages"], {tool["function"]["name"] for tool in asked.get("tools", ())})
    common = {"id": f"chatcmpl-{uuid.uuid4().hex}", "object": "chat.completion.chunk"}
    chunks = [json.dumps(common | chunk) for chunk in _chunks(answer, len(body))]
    events = "".join(f"data: {chunk}\n\n" for chunk in (*chunks, "[DONE]"))
    return web.Response(text=events, content_type="text/event-stream")


def _chunks(answer: str | Call, prompt_bytes: int) -> Iterator[dict[str, Any]]:
    """Yield the chunks of an answer: text or tool call, finish reason, estimated usage."""
    delta: dict[str, Any] = {"role": "assistant"}
    if isinstance(answer, Call):
        said = json.dumps(answer.arguments)
        function = {"name": answer.tool, "arguments": said}
        call = {"index": 0, "id": f"call_{uuid.uuid4().hex}", "type": "function"}
        delta["tool_calls"] = [call | {"function": function}]
        reason = "tool_calls"
    else:
        said = delta["content"] = answer
        reason = "stop"
    for part, finish_reason in ((delta, None), ({}, reason)):
        yield {"choices": [{"index": 0, "delta": part, "finish_reason": finish_reason}]}
    asked, answered = prompt_bytes // BYTES_PER_TOKEN + 1, len(said) // BYTES_PER_TOKEN + 1
    usage = {"prompt_tokens": asked, "completion_tokens": answered}
    yield {"choices": [], "usage": usage | {"total_tokens": asked + answered}}
