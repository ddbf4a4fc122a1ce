"""The model of the soak: it repeats the words of the question, and fails at times."""

import asyncio
import re
from collections.abc import Sequence
from enum import StrEnum
from random import Random
from typing import Final

from tests.fakes.openai_server import (
    Body,
    Cut,
    OpenAiServer,
    Request,
    chunk,
    sse,
    status,
    text,
    tool_calls,
    words_of,
)

WORDS: Final = re.compile(r"\bq\d{5}v\d\d\b")
PRODUCT: Final = re.compile(r"(\d+)\*(\d+)")
ADDRESS: Final = re.compile(r"http://\S+/")
MUCH: Final = "tell me a lot"
SLOWLY: Final = "think slowly"
WRITES: Final = "write a note"

THINKING_SECONDS: Final = (0.02, 0.4)
SLOW_SECONDS: Final = 4.0
LONG_THOUGHT_SECONDS: Final = 6.0
WRITE_TOOL: Final = "notes_write"


class Mood(StrEnum):
    """State of the model."""

    WELL = "well"
    SLOW = "slow"
    CUTTING = "cuts its streams"
    BUSY = "too many requests"


class Model:
    """Answers for an endpoint.

    Args:
        server: the endpoint.
        random: how long it thinks.

    Attributes:
        mood: may be changed at any time.
    """

    def __init__(self, server: OpenAiServer, random: Random) -> None:
        self.mood = Mood.WELL
        self._server = server
        self._random = random
        server.handler = self.answer

    async def answer(self, request: Request, writer: asyncio.StreamWriter) -> None:
        """Act as a step of the endpoint."""
        self._server.requests.clear()
        self._server.received.clear()
        await asyncio.sleep(self._random.uniform(*THINKING_SECONDS))
        match self.mood:
            case Mood.BUSY:
                busy = {"error": {"message": "slow down"}}
                await status(429, busy, {"Retry-After": "1"})(request, writer)
                return
            case Mood.CUTTING:
                await sse(chunk({"content": "Well,"}), done=False, cut=True)(request, writer)
                raise Cut
            case Mood.SLOW:
                await asyncio.sleep(SLOW_SECONDS)
            case Mood.WELL:
                pass
        await self._say(request, writer)

    async def _say(self, request: Request, writer: asyncio.StreamWriter) -> None:
        messages = request.body["messages"]
        turn = messages[_begin_of_turn(messages) :]
        asked = "\n".join(words_of(m["content"]) for m in turn if m["role"] == "user")
        results = [m["content"] for m in turn if m["role"] == "tool"]
        words = " ".join(dict.fromkeys(WORDS.findall(asked)))
        if SLOWLY in asked:
            await asyncio.sleep(LONG_THOUGHT_SECONDS)
        call = None if results else _call(asked, words)
        if call is not None:
            await tool_calls(call)(request, writer)
        elif MUCH in asked:
            paragraphs = (f"{words} paragraph {n}: {'word ' * 200}." for n in range(3))
            await text("\n\n".join(paragraphs))(request, writer)
        else:
            await text(f"{words} heard")(request, writer)


def _begin_of_turn(messages: Sequence[Body]) -> int:
    """Return the index after the last answer, which calls no tool."""
    return max(
        place + 1
        for place, message in enumerate(messages)
        if message["role"] == "system"
        or (message["role"] == "assistant" and not message.get("tool_calls"))
    )


def _call(asked: str, words: str) -> tuple[str, dict[str, str]] | None:
    """Return the call that a question needs, if any."""
    if (product := PRODUCT.search(asked)) is not None:
        return "calculate", {"expression": product[0]}
    if (address := ADDRESS.search(asked)) is not None:
        return "web_fetch", {"url": address[0]}
    if WRITES in asked:
        return WRITE_TOOL, {"text": words}
    return None
