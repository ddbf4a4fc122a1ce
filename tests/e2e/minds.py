"""A model with separate scripts for turns and for their helpers."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from bot.chat.prompt import HELPER
from tests.fakes.openai_server import Request, Step, text

Body = Mapping[str, Any]


class Minds:
    """Answers turns by one script, and each helper by that of its task.

    Args:
        turn: the answers to turns, one step for each request.
        helpers: the answers to a helper, by its task; without a script it says its task.

    Attributes:
        asked_by_helpers: the bodies of helpers' requests, in the order in which they came.
        asked_by_turns: those of turns.
        at_once: how many helpers waited for an answer at the same time, at most.
    """

    def __init__(self, *turn: Step, helpers: Mapping[str, Sequence[Step]] | None = None) -> None:
        self._turn = list(turn)
        self._helpers = {task: list(steps) for task, steps in (helpers or {}).items()}
        self._waiting = 0
        self._changed = asyncio.Condition()
        self.asked_by_helpers: list[Body] = []
        self.asked_by_turns: list[Body] = []
        self.at_once = 0

    async def __call__(self, request: Request, writer: asyncio.StreamWriter) -> None:
        """Answer a request."""
        if not is_of_helper(request.body):
            self.asked_by_turns.append(request.body)
            await self._turn.pop(0)(request, writer)
            return
        self.asked_by_helpers.append(request.body)
        self._waiting += 1
        self.at_once = max(self.at_once, self._waiting)
        async with self._changed:
            self._changed.notify_all()
        try:
            steps = self._helpers.get(task_of(request.body), [])
            step = steps.pop(0) if steps else text(f"did: {task_of(request.body)}")
            await step(request, writer)
        finally:
            self._waiting -= 1

    async def until(self, *, helpers: int) -> None:
        """Wait until helpers have sent this many requests, within the test's time limit."""
        async with self._changed:
            await self._changed.wait_for(lambda: len(self.asked_by_helpers) >= helpers)


def is_of_helper(body: Body) -> bool:
    """Whether a request is a helper's."""
    begin = HELPER.partition("\n")[0]
    return str(body["messages"][0]["content"]).startswith(begin)


def task_of(body: Body) -> str:
    """Return the task of a helper that asks."""
    return str(body["messages"][1]["content"])


def results_in(body: Body) -> list[str]:
    """Return the results of tools in a request, oldest first."""
    return [message["content"] for message in body["messages"] if message["role"] == "tool"]


def delegating(task: str, *tools: str) -> tuple[str, dict[str, object]]:
    """A call that asks for a helper."""
    return ("delegate", {"task": task, "tools": list(tools)} if tools else {"task": task})
