"""A table comes in and a plot goes out, over both transports, with `kill -9` at each step."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import product
from typing import Any, Final

import pytest

from tests.e2e.daemon_process import Daemon, daemon, environment
from tests.e2e.running_bot import World, world
from tests.e2e.test_commands import CSV, PLOT, log_of
from tests.e2e.test_reminders import there_is
from tests.fakes.openai_server import Step, text, tool_calls
from tests.fakes.signal_rest_api import NUMBER, SignalRestApi
from tests.integration.test_spawned import until

RUN: Final = f"{PLOT}\nopen('log', 'a').write('ran\\n')\n"
NOTED: Final = "SELECT 1 FROM approvals WHERE signal_timestamp IS NOT NULL"
SLEEPS: Final = "import time\ntime.sleep(60)\n"
PLOTTED: Final = "Here is the plot."
UNKNOWN: Final = "I do not know what came of it."


@dataclass(frozen=True, slots=True)
class Phone:
    """What a person does and sees, whichever way the bot reaches Signal.

    Attributes:
        side: the look-alike of signal-cli's daemon, or of signal-cli-rest-api.
        settings: with which the bot finds it.
    """

    side: Any
    settings: dict[str, str]

    async def ready(self) -> None:
        """Wait until the bot listens."""
        if isinstance(self.side, SignalRestApi):
            await self.side.wait_for_receiver()

    async def gone(self) -> None:
        """Wait until the killed bot has let go."""
        if isinstance(self.side, SignalRestApi):
            await self.side.wait_until(lambda: self.side.receivers == 0)
        else:
            await self.side.wait_until_alone()

    async def sent(self, begins: str) -> Any:
        """Return the first message that begins so, once it is there."""
        await until(lambda: self.all_sent(begins))
        return self.all_sent(begins)[0]

    def all_sent(self, begins: str) -> list[Any]:
        """Return all messages that begin so."""
        return [one for one in self.side.sent if one.text.startswith(begins)]


@asynccontextmanager
async def phone(here: World, transport: str) -> AsyncIterator[Phone]:
    more = {"TOOLS__WORKSPACE__FOR": "everyone"}
    if transport == "signal-cli":
        yield Phone(here.signal, environment(here, **more))
        return
    async with SignalRestApi.listen() as api:
        more |= {"SIGNAL__URL": api.url, "SIGNAL__PHONE_NUMBER": NUMBER}
        yield Phone(api, environment(here, **more))


def results_in(request: Any) -> list[str]:
    return [one["content"] for one in request.body["messages"] if one["role"] == "tool"]


class Model:
    """Plots, and has the bot killed before it says what comes next.

    Args:
        code: that it runs.
        killed_with: so many results of tools; None: it kills nobody.
    """

    def __init__(self, code: str, killed_with: int | None) -> None:
        self._steps: Sequence[Step] = (
            tool_calls(("run_python", {"code": code})),
            tool_calls(("send_file", {"file_path": "plot.png"})),
            text(PLOTTED),
        )
        self._killed_with = killed_with
        self.bot: Daemon | None = None

    async def __call__(self, request: Any, writer: Any) -> None:
        results = results_in(request)
        if len(results) == self._killed_with and self.bot is not None:
            self._killed_with = None
            await self.bot.killed()
            return
        is_unknown = any("It was begun before a restart" in result for result in results)
        await (text(UNKNOWN) if is_unknown else self._steps[len(results)])(request, writer)


STEPS: Final = ("asked", "running", "with its result", "with the file")
QUICK: Final = {("signal-cli", "asked")}


@pytest.mark.parametrize(
    ("transport", "killed"),
    [
        pytest.param(*one, marks=() if one in QUICK else pytest.mark.full)
        for one in product(("signal-cli", "signal-cli-rest-api"), STEPS)
    ],
)
async def test_whenever_the_bot_is_killed_the_command_runs_once_and_the_plot_comes_once(
    transport: str, killed: str
) -> None:
    model = Model(
        RUN + (SLEEPS if killed == "running" else ""),
        {"with its result": 1, "with the file": 2}.get(killed),
    )
    async with world(model) as here, phone(here, transport) as ada:
        async with daemon(ada.settings, folder=here.folder) as bot:
            model.bot = bot
            await ada.ready()
            await ada.side.say("plot the sums per month", files=[CSV])
            question = await ada.sent("❓ Run this Python program")
            if killed == "asked":  # else it would be asked once more, which is another story
                await there_is(here, NOTED)
            else:
                await ada.side.react("👍", question.timestamp)
            if killed == "running":
                await until(lambda: log_of(here))
            if killed in ("asked", "running"):
                await bot.killed()
            await bot.exit_code()
        await ada.gone()
        async with daemon(ada.settings, folder=here.folder):
            await ada.ready()
            if killed == "asked":
                await ada.side.react("👍", question.timestamp)
            answer = await ada.sent(UNKNOWN if killed == "running" else PLOTTED)
        log = log_of(here)
        assert log is not None
        assert log.read_text() == "ran\n"
        assert len(ada.all_sent(answer.text)) == 1
        names = [file.name for file in answer.attachments]
        assert names == ([] if killed == "running" else ["plot.png"])
        assert (log.parent / "plot.png").read_bytes().startswith(b"\x89PNG")
