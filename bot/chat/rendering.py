"""The daemon's side of rendering answers.

Rendering takes about 10 µs for each character, so only short answers are rendered on the event
loop. Longer ones are rendered in a process that can be killed, with a deadline. An answer that
misses the deadline is shown as it was typed.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Final

import structlog
from pydantic import FailFast, TypeAdapter

from bot.signal.formatting import plain, rendered, stops_in
from bot.signal.spoken_words import spoken_words
from conversation_store.models import StyledText, StyleRange, TextStyle
from tools.sandbox.errors import SandboxBug, WorkError
from tools.sandbox.pool import Limits, Sandbox, SandboxPolicy

SHORT_CHARACTERS: Final = 2_048
SHORT_STOPS: Final = 256
"""Bound of rendering on the event loop: up to 10 ms, measured by `benchmarks/loop_stall.py`."""

RENDER_SECONDS: Final = 8.0
"""From the request to its reply, including the wait for other answers and a process start."""

LIMITS: Final = Limits(
    call_seconds=2.0,
    line_bytes=4 * 2**20,  # the longest answer of a model, each character as two escapes
    reply_bytes=2**20,  # a longer reply is dropped, and the answer shown as it was typed
    idle_seconds=180.0,
)

Ask = Callable[[str], Awaitable[str]]

_Styles = Annotated[tuple[tuple[int, int, TextStyle], ...], FailFast()]
_MESSAGES: Final = TypeAdapter(Annotated[tuple[tuple[str, _Styles], ...], FailFast()])
"""Stops at the first error: a process that was taken over could cause a megabyte of them."""
_WORDS: Final = TypeAdapter(str)

log = structlog.get_logger()


@dataclass(eq=False, repr=False, slots=True)
class Renderer:
    """Renders answers as messages, and as words for speech."""

    ask: Ask
    _: KW_ONLY
    seconds: float = RENDER_SECONDS

    async def messages(self, answer: str, notices: Sequence[str]) -> tuple[StyledText, ...]:
        """Return the messages that show a model's answer below some plain lines."""
        if _is_short(answer, notices) and stops_in(answer) <= SHORT_STOPS:
            return rendered(answer, notices)
        request = json.dumps({"answer": answer, "notices": [*notices]})
        try:
            async with asyncio.timeout(self.seconds):
                reply = _MESSAGES.validate_json(await self.ask(request))
            return tuple(
                StyledText(text, tuple(StyleRange(*style) for style in styles))
                for text, styles in reply
            )
        except (WorkError, SandboxBug, OSError, ValueError) as error:  # TimeoutError is an OSError
            log.warning("answer.not_rendered", error=type(error).__name__)
        return await self.as_typed(answer, notices)

    async def spoken(self, answer: str) -> str:
        """Return the words of a model's answer that can be spoken; empty if that takes too long."""
        if _is_short(answer, ()) and stops_in(answer) <= SHORT_STOPS:
            return spoken_words(answer)
        try:
            async with asyncio.timeout(self.seconds):
                return _WORDS.validate_json(await self.ask(json.dumps({"to_speak": answer})))
        except (WorkError, SandboxBug, OSError, ValueError) as error:
            log.warning("answer.not_spoken", error=type(error).__name__)
        return ""

    async def as_typed(self, text: str, notices: Sequence[str]) -> tuple[StyledText, ...]:
        """Return the messages that show a text as it stands, below some plain lines."""
        if _is_short(text, notices):
            return plain(text, notices)
        # On a thread, so that a long text does not block the loop; the time grows only linearly.
        return await asyncio.to_thread(plain, text, notices)


def _is_short(text: str, notices: Sequence[str]) -> bool:
    return sum(map(len, (text, *notices))) <= SHORT_CHARACTERS


@asynccontextmanager
async def open_renderer(sandboxes: SandboxPolicy | None = None) -> AsyncIterator[Renderer]:
    """Provide a renderer; its processes start with the first long answer and end when idle."""
    async with Sandbox("bot.chat.rendering_worker", LIMITS, policy=sandboxes) as sandbox:
        yield Renderer(sandbox.call)
