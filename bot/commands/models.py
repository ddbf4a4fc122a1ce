"""`!models`: what the endpoint offers, and which one answers here."""

import time
from collections.abc import Callable
from typing import Final

from bot.commands.base import CommandContext, Reply
from bot.llm.client import LlmClient
from bot.llm.errors import LlmError

CACHE_SECONDS: Final = 300.0
MAX_SHOWN: Final = 50


class Models:
    """Lists the endpoint's models, asked at most once in `CACHE_SECONDS`."""

    name = "models"
    summary = "which models there are, and which one answers"
    urgent = False

    def __init__(
        self,
        directory: LlmClient,
        current: str,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._directory = directory
        self._current = current
        self._clock = clock
        self._known: tuple[str, ...] = ()
        self._asked_at = -CACHE_SECONDS

    async def run(self, context: CommandContext) -> Reply:
        """Return the list, with a mark on the current one."""
        if self._clock() - self._asked_at >= CACHE_SECONDS:
            try:
                self._known = await self._directory.models()
            except LlmError:
                return Reply(
                    f"{self._current} answers here. The list of models cannot be had right now."
                )
            self._asked_at = self._clock()
        shown = sorted(self._known)[:MAX_SHOWN]
        lines = [f"• {name}" + (" ← answers here" * (name == self._current)) for name in shown]
        if self._current not in shown:
            lines.insert(0, f"{self._current} answers here.")
        if len(self._known) > MAX_SHOWN:
            lines.append(f"… and {len(self._known) - MAX_SHOWN} more")
        return Reply("\n".join(lines))
