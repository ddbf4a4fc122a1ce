"""`!status`: how busy the bot is, and what answers here."""

import time
from collections.abc import Callable
from typing import Protocol

from bot.commands.base import CommandContext, Reply
from tools.registry import Registry


class Workload(Protocol):
    """What is in progress. Implemented by `bot.dispatch.turns.Turns`."""

    @property
    def running(self) -> int:
        """How many turns are in progress."""
        ...


class ModelState(Protocol):
    """What is known of the model's attestation. Implemented by `AttestedModel`."""

    def summary(self) -> str:
        """Return it in one or two sentences."""
        ...


class Status:
    """Says version, model, uptime and load; nothing about anybody."""

    name = "status"
    summary = "how busy I am, and which model answers"
    urgent = False

    def __init__(
        self,
        *,
        version: str,
        model: str,
        model_state: ModelState,
        registry: Registry,
        workload: Workload,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._version = version
        self._model = model
        self._model_state = model_state
        self._registry = registry
        self._workload = workload
        self._clock = clock
        self._started_at = clock()

    async def run(self, context: CommandContext) -> Reply:
        """Return a few lines."""
        return Reply(
            "\n".join(
                (
                    f"signal-tee-bot {self._version}, up for {self._uptime()}",
                    f"Model: {self._model}. {self._model_state.summary()}",
                    f"Tools: {', '.join(tool.name for tool in self._registry) or 'none'}",
                    f"Answers in progress: {self._workload.running}",
                )
            )
        )

    def _uptime(self) -> str:
        minutes, seconds = divmod(int(self._clock() - self._started_at), 60)
        hours, minutes = divmod(minutes, 60)
        days, hours = divmod(hours, 24)
        units = ((days, "d"), (hours, "h"), (minutes, "min"), (seconds, "s"))
        shown = [f"{amount} {unit}" for amount, unit in units if amount]
        return " ".join(shown[:2]) or "0 s"
