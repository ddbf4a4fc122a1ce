"""`kill -9` at each step of helpers: nothing is done twice, and who has finished has finished."""

import asyncio
import sys
from typing import Any, Final

import pytest

from tests.e2e.daemon_process import HASTY, Daemon, daemon, ends_when_told, environment
from tests.e2e.minds import Body, delegating, is_of_helper, results_in, task_of
from tests.e2e.running_bot import World, world
from tests.e2e.stored import copied
from tests.e2e.test_approvals import WRITE, notes
from tests.e2e.test_conversation import CALCULATE
from tests.fakes.openai_server import Request, text, tool_calls

ORDINARY_STEPS: Final = (7,)
"""The note is written, and its helper has not said so."""
STEPS: Final = 8
"""From the first request to the last one, with the person's yes among them."""

MOMENTS: Final = (0.0, 0.004)
"""Seconds from a step to the kill."""

LIFE_SECONDS: Final = 30.0
WRITES, ADDS, SAYS = "write a note", "add 127*43", "say something"
TASKS: Final = (WRITES, ADDS, SAYS)
UNKNOWN_FATE: Final = "whether it took effect is unknown"


@pytest.mark.parametrize(
    ("step", "moment"),
    [
        pytest.param(
            step,
            moment,
            marks=() if (step in ORDINARY_STEPS and not moment) else (pytest.mark.full,),
        )
        for step in range(1, STEPS + 1)
        for moment in MOMENTS
    ],
)
async def test_helpers_go_on_after_a_kill_and_repeat_nothing(step: int, moment: float) -> None:
    async with world() as here:
        trial = Trial(here)
        await here.signal.say("work")
        await trial.live(kill_at=step, moment=moment)
        finished, stored = trial.finished(), trial.stored()
        trial.asked.clear()
        await trial.live()
        written = notes(here).count("buy milk")
    (answer,) = trial.answers()
    assert "It makes 5461." in answer
    assert "I have said it." in answer
    if UNKNOWN_FATE in answer:
        assert written <= 1
    else:
        assert "Written." in answer
        assert written == 1
    for body in filter(is_of_helper, trial.asked):
        assert task_of(body) not in finished, "It had finished"
        assert len(body["messages"]) - 1 >= stored.get(task_of(body), 0), "It had come further"


class Trial:
    """Lives of a daemon whose model delegates, and a person who says yes to everything.

    Args:
        here: both sides of the daemon.

    Attributes:
        asked: what the model was asked.
    """

    def __init__(self, here: World) -> None:
        self._here = here
        self._steps = 0
        self._kill_at = 0
        self._due = asyncio.Event()
        self.asked: list[Body] = []
        here.model.handler = self._model
        command = f"{sys.executable} -m tests.fakes.mcp_notes {here.folder / 'notes'}"
        self._settings = environment(here, MCP__SERVERS__NOTES__COMMAND=command, LOG__LEVEL="error")

    async def live(self, *, kill_at: int = 0, moment: float = 0.0) -> None:
        """Start the daemon, and kill it so many seconds after a step, or let it answer."""
        self._steps, self._kill_at = 0, kill_at
        self._due.clear()
        async with asyncio.timeout(LIFE_SECONDS):
            async with daemon(self._settings, folder=self._here.folder, module=HASTY) as running:
                async with asyncio.TaskGroup() as tasks:
                    phone = tasks.create_task(self._say_yes())
                    if kill_at:
                        await self._due.wait()
                        await asyncio.sleep(moment)
                        await running.killed()
                    else:
                        await self._finish(running)
                    phone.cancel()
        await self._here.signal.wait_until_alone()

    async def _say_yes(self) -> None:
        """Say yes to every question; after a restart again, as somebody who waits would."""
        signal_side = self._here.signal
        await signal_side.until(lambda: signal_side.subscribed)
        seen = 0
        while True:
            questions = [sent for sent in signal_side.sent if "👍" in sent.text]
            for sent in questions[seen:]:
                seen += 1
                await signal_side.react("👍", sent.timestamp)
                self._step()
            count = len(signal_side.sent)
            await signal_side.until(
                lambda count=count: len(signal_side.sent) > count,  # type: ignore[misc]
                seconds=LIFE_SECONDS,
            )

    async def _finish(self, running: Daemon) -> None:
        await self._here.signal.until(lambda: bool(self.answers()), seconds=LIFE_SECONDS)
        assert await ends_when_told(running, self._here)

    def answers(self) -> set[str]:
        """Return what the daemon answered; a send that is repeated says the same again."""
        return {one.text for one in self._here.signal.sent if one.text.startswith("Results")}

    def finished(self) -> set[str]:
        """Return the tasks whose helpers have handed in their answers."""
        rows = self._select(
            "SELECT tool_call_id FROM messages WHERE helper_of IS NULL AND role = 'tool'"
            " AND content IS NOT NULL"
        )
        return {TASKS[int(call_id[-1])] for (call_id,) in rows}

    def stored(self) -> dict[str, int]:
        """Return how many messages are stored of each task."""
        rows = self._select(
            "SELECT min(content) FILTER (WHERE role = 'user'), count(*) FROM messages"
            " WHERE helper_of IS NOT NULL GROUP BY helper_of"
        )
        return dict(rows)

    def _select(self, sql: str) -> list[tuple[Any, ...]]:
        with copied(self._here.folder / "store.db") as database:
            return database.execute(sql).fetchall()

    async def _model(self, request: Request, writer: asyncio.StreamWriter) -> None:
        self._step()
        body = request.body
        self.asked.append(body)
        results = results_in(body)
        if not is_of_helper(body):
            calls = delegating(WRITES, "notes_write"), delegating(ADDS), delegating(SAYS)
            step = text(f"Results: {' | '.join(results)}") if results else tool_calls(*calls)
        elif task_of(body) == SAYS:
            step = text("I have said it.")
        elif results:
            step = text(f"It makes {results[0]}." if task_of(body) == ADDS else results[0])
        else:
            step = tool_calls(CALCULATE if task_of(body) == ADDS else WRITE)
        await step(request, writer)

    def _step(self) -> None:
        self._steps += 1
        if self._steps == self._kill_at:
            self._due.set()
