"""How many tokens do requests to the model take, and how much can endpoints reuse?

A greeting; and ten messages of one chat, with tools, a fact and a reminder, for each of the five
APIs. Bytes stand for tokens, because all requests have the same mix of words.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from benchmarks.report import Figure
from tests.contract.dialects.all_of_them import HARNESSES
from tests.contract.dialects.harness import Harness
from tests.e2e.running_bot import running_bot, world
from tests.fakes.openai_server import MODEL
from tests.fakes.scripted_http import script
from tests.fakes.signal_side import ADA

PARTS: Final = ("tools", "toolConfig", "system", "systemInstruction", "messages", "contents")
"""Parts of a request in the order in which models read them."""
MARKS: Final = frozenset({"cache_control", "cachePoint"})
"""Marks of what is to be kept; the model does not read them."""
BYTES_PER_TOKEN: Final = 4.4
"""Of system texts and tools, by OpenAI's o200k: 4.3 to 5.5."""
TURNS: Final = 10
SUM: Final = ("calculate", {"expression": "127*43"})
FACT: Final = ("remember", {"text": "Ada is allergic to nuts."})
REMINDER: Final = ("remind", {"text": "Call Ben", "at": "2030-01-01T09:00+00:00"})
CALLS: Final = {1: SUM, 3: FACT, 5: REMINDER, 7: SUM}


async def measure(*, quick: bool) -> Sequence[Figure]:
    """Return tokens, and the share of follow-up requests that repeats the request before."""
    read = {one.name: await _ten_turns(one) for one in (HARNESSES[:1] if quick else HARNESSES)}
    return [
        Figure("tokens of a greeting, for a person", await _greeting(""), "", at_most=2_100),
        Figure("tokens of a greeting, for an admin", await _greeting(ADA.aci), "", at_most=3_000),
        Figure("tokens of ten messages, all requests", _tokens(read[HARNESSES[0].name]), ""),
        *(
            Figure(f"share of a request that is reused, {name}", _share(one), "%", at_least=97.0)
            for name, one in read.items()
        ),
    ]


async def _greeting(admins: str) -> float:
    harness = HARNESSES[0]
    async with harness.server() as server, world() as here:
        llm = {"dialect": harness.name, "base_url": server.base_url, "model": MODEL}
        server.handler = harness.text("Hi.")
        llm_settings = {**llm, **harness.settings}
        async with running_bot(here.settings(llm=llm_settings, access={"admins": admins})):
            await here.asked("hi")
        return _tokens(map(_as_read, server.requests))


def _tokens(requests: Iterable[str]) -> float:
    return sum(len(one.encode()) for one in requests) / BYTES_PER_TOKEN


def _share(read: Sequence[str]) -> float:
    pairs = [*pairwise(read)]
    return 100 * sum(_common(*pair) for pair in pairs) / sum(len(after) for _, after in pairs)


async def _ten_turns(harness: Harness) -> Sequence[str]:
    async with harness.server() as server, world() as here:
        llm = {"dialect": harness.name, "base_url": server.base_url, "model": MODEL}
        async with running_bot(here.settings(llm={**llm, **harness.settings})):
            for turn in range(TURNS):
                answer = harness.text("That is a good question, and here is a short answer.")
                call = CALLS.get(turn)
                steps = () if call is None else (harness.tool_calls((call,), ""),)
                server.handler = script(*steps, then=answer)
                await here.asked(f"This is message {turn} of an ordinary conversation.")
        return [_as_read(body) for body in server.requests]


def _as_read(body: Mapping[str, Any]) -> str:
    parts = (json.dumps(_unmarked(body[part])) for part in PARTS if part in body)
    return "".join(parts).rstrip("]")


def _unmarked(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _unmarked(one) for key, one in value.items() if key not in MARKS}
    if isinstance(value, list):
        return [found for one in value if (found := _unmarked(one)) != {} or one == {}]
    return value


def _common(before: str, after: str) -> int:
    """Return the length of the common beginning."""
    pairs = enumerate(zip(before, after, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(before), len(after)))
