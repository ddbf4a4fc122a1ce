"""`kill -9` of a real process on a real disk, at each step of some activities.

The simulator tries many more histories; here nothing is simulated but Signal and the model.

A cell is a transport and a way to end the process. It has a chat for each step that the bot takes
to the outside in each activity, and each chat is held at its own step. Then the process is killed.
So one kill shows all moments, and it never comes too early or too late. The next life of the bot
runs in peace, and everything has to come right.
"""

import asyncio
import signal
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import product
from random import Random
from typing import Any, Final

import pytest

from tests.e2e.daemon_process import Daemon
from tests.e2e.kill_stage import LAST, Asked, Case, Stage, Step, stage
from tests.e2e.running_bot import world
from tests.e2e.test_approvals import notes
from tests.e2e.traces import files_of
from tests.fakes import openai_server
from tests.fakes.openai_server import text, tool_calls

ASKS, SENDS, SENT = Step
ANSWERS: Final = (SENDS, SENT)

SOON_SECONDS: Final = 0.03
BRIEF_SECONDS: Final = 1.5
"""About as long as a start and the first recovery take."""
BRIEF_LIVES: Final = 3

UNKNOWN_FATE: Final = "whether it took effect is unknown"
COUNT_RUNS: Final = """
with open("runs.txt", "a") as file:
    file.write("x")
print("runs:", len(open("runs.txt").read()))
"""


class End(StrEnum):
    """Way to end the first life, and further kills before the life in peace."""

    HELD = "held"
    """Killed while every chat is held at its step."""
    SOON = "soon"
    """Every chat goes on; killed some milliseconds later."""
    STOPPING = "stopping"
    """Told to stop, every chat goes on; killed some milliseconds later."""
    AGAIN = "again"
    """Killed while every chat is held, then three times in the first moments of its next lives."""


Act = Callable[[Stage, Case], Coroutine[Any, Any, None]]


async def nothing(stage: Stage, case: Case) -> None:
    """Do nothing."""


async def is_answered(stage: Stage, case: Case) -> None:
    """Wait for an answer to the first message."""
    await stage.until_answered(case, case.word())


def heard(case: Case, asked: Asked) -> openai_server.Step:
    """Answer that all words were heard."""
    return text(" ".join([*asked.words, "heard"]))


@dataclass(frozen=True)
class Result:
    """How a chat ended.

    Attributes:
        shown: the answers that the person sees, without the last one.
        files: names of the files that were sent.
        written: the notes of all chats.
        left: bytes of the store's files in the end.
    """

    case: Case
    shown: Sequence[str]
    files: Sequence[str]
    written: str
    left: bytes


@dataclass(frozen=True, kw_only=True)
class Activity:
    """Behaviour of a person and the bot around a kill.

    Attributes:
        steps: of the bot, in a turn that nothing disturbs.
        model: returns the model's reply.
        meanwhile: the person's act while the chat is held.
        ended: waits for the end of the turn in the last life.
        check: checks the end.
    """

    steps: Sequence[Step]
    model: Callable[[Case, Asked], openai_server.Step] = heard
    meanwhile: Act = nothing
    ended: Act = is_answered
    check: Callable[[Result], None]


# Activities ---------------------------------------------------------------------------------------


def shows_heard(result: Result) -> None:
    assert result.shown == [f"{result.case.word()} heard"]


def writes_a_note(case: Case, asked: Asked) -> openai_server.Step:
    if not asked.results:
        return tool_calls(("notes_write", {"text": asked.words[0]}))
    return text(f"{asked.words[0]}: {asked.results[-1]}")


def is_written_once(result: Result) -> None:
    """The note is written, or the person hears that its fate is unknown."""
    (shown,) = result.shown
    times = result.written.count(result.case.word())
    assert times == 1 or (times == 0 and UNKNOWN_FATE in shown)
    assert UNKNOWN_FATE in shown or "Written." in shown


def runs_a_program(case: Case, asked: Asked) -> openai_server.Step:
    """Run a program that counts its runs in a file, and send the file."""
    if not asked.results:
        return tool_calls(("run_python", {"code": COUNT_RUNS}))
    if len(asked.results) == 1:
        return tool_calls(("send_file", {"file_path": "runs.txt"}))
    return text(f"{asked.words[0]} {asked.results[0]}")


def has_run_once(result: Result) -> None:
    (shown,) = result.shown
    assert "runs: 1" in shown
    assert set(result.files) == {"runs.txt"}


async def writes_more(stage: Stage, case: Case) -> None:
    await stage.say(case, version=1)
    await stage.say(case, version=2)


async def all_are_answered(stage: Stage, case: Case) -> None:
    await stage.until_answered(case, *(case.word(version) for version in range(3)))


def answers_all_in_order(result: Result) -> None:
    words = [word for shown in result.shown for word in shown.split() if word[0] == "n"]
    assert words == [result.case.word(version) for version in range(3)]


async def deletes(stage: Stage, case: Case) -> None:
    await stage.signal.delete(case.timestamps[0], author=case.person)


async def is_quiet(stage: Stage, case: Case) -> None:
    await stage.everything_read()


def is_forgotten(result: Result) -> None:
    assert result.shown == []
    assert result.case.word().encode() not in result.left
    assert not result.case.asked[:-1], "asked about what was deleted"


ACTIVITIES: Final = {
    "plain": Activity(steps=(ASKS, *ANSWERS), check=shows_heard),
    "approval": Activity(
        steps=(ASKS, *ANSWERS, ASKS, *ANSWERS), model=writes_a_note, check=is_written_once
    ),
    "program": Activity(
        steps=(ASKS, *ANSWERS, ASKS, ASKS, *ANSWERS), model=runs_a_program, check=has_run_once
    ),
    "more messages": Activity(
        steps=(ASKS, *ANSWERS),
        meanwhile=writes_more, ended=all_are_answered, check=answers_all_in_order,
    ),
    "deletion": Activity(
        steps=(ASKS, *ANSWERS), meanwhile=deletes, ended=is_quiet, check=is_forgotten
    ),
}  # fmt: skip


# The matrix ---------------------------------------------------------------------------------------

REST: Final = "signal-cli-rest-api"
DAEMON: Final = "signal-cli"

HELD_SENDS: Final = 2
"""The bot sends few messages at once over signal-cli-rest-api, so few can be held."""


@pytest.mark.long
@pytest.mark.parametrize(
    ("transport", "end"),
    [
        pytest.param(*cell, marks=[] if cell == (DAEMON, End.HELD) else pytest.mark.full)
        for cell in product((DAEMON, REST), End)
    ],
)
async def test_everything_comes_right_after_a_kill(transport: str, end: End) -> None:
    random = Random(f"{transport} {end}")
    plays = plays_of()
    if transport == REST:
        plays = fitting(plays, random)
    last_second = [Case(len(plays_of()) + number, heard) for number in range(20)]
    cases = [*(play.case for play in plays), *last_second]
    async with world() as here, stage(here, transport, cases) as the_stage:
        async with the_stage.alive() as bot:
            await for_each(plays, lambda play: the_stage.say(play.case))
            await the_stage.all_held()
            await for_each(plays, lambda play: play.activity.meanwhile(the_stage, play.case))
            await the_stage.everything_read()
            for case in last_second:
                await the_stage.say(case)
            await kill(bot, the_stage, end, random)
        for _ in range(BRIEF_LIVES if end is End.AGAIN else 0):
            await the_stage.live_briefly(random.uniform(0, BRIEF_SECONDS))
        async with the_stage.alive() as bot:
            await for_each(plays, lambda play: play.activity.ended(the_stage, play.case))
            await the_stage.everything_read()
            await asyncio.gather(*(say_last_words(the_stage, case) for case in cases))
            bot.send_signal(signal.SIGTERM)
            assert await bot.exit_code() == 0
        left, written = files_of(here), notes(here)
    wrong: dict[str, str] = {}
    for play in plays:
        # Unless every chat was held, nothing proves what arrived at the moment of the kill.
        *shown, last = dict.fromkeys(the_stage.texts(play.case))
        files = the_stage.files(play.case)
        try:
            assert last == f"{play.case.word(LAST)} heard"
            assert end is not End.HELD or len(the_stage.texts(play.case)) == len(shown) + 1
            play.activity.check(Result(play.case, shown, files, written, left))
        except (AssertionError, ValueError) as error:
            wrong[play.label] = f"{error} {shown}"
    assert not wrong, wrong
    are_answered_once_or_lost(the_stage, last_second)


@dataclass(frozen=True)
class Play:
    """An activity in a chat of its own, which is held at one step."""

    name: str
    activity: Activity
    case: Case

    @property
    def step(self) -> Step:
        """Step at which it is held."""
        return self.activity.steps[self.case.moment - 1]

    @property
    def label(self) -> str:
        """Names it in a failure."""
        return f"{self.name}, when the bot {self.step} (step {self.case.moment})"


def plays_of() -> list[Play]:
    """Return a play for each step of each activity."""
    plays: list[Play] = []
    for name, activity in ACTIVITIES.items():
        for moment in range(1, len(activity.steps) + 1):
            plays.append(Play(name, activity, Case(len(plays), activity.model, moment)))
    return plays


def fitting(plays: Sequence[Play], random: Random) -> list[Play]:
    """Leave out plays that are held at a send, but for some."""
    kept = random.sample([play for play in plays if play.step in ANSWERS], HELD_SENDS)
    return [play for play in plays if play.step not in ANSWERS or play in kept]


async def for_each(plays: Sequence[Play], act: Callable[[Play], Coroutine[Any, Any, None]]) -> None:
    async def named(play: Play) -> None:
        try:
            await act(play)
        except TimeoutError:
            steps = play.case.steps
            raise AssertionError(f"{play.label}: waits in vain, after {steps}") from None

    async with asyncio.TaskGroup() as tasks:
        for play in plays:
            tasks.create_task(named(play))


async def kill(bot: Daemon, stage: Stage, end: End, random: Random) -> None:
    if end is End.STOPPING:
        bot.send_signal(signal.SIGTERM)
    if end in (End.SOON, End.STOPPING):
        stage.let_go()
        await asyncio.sleep(random.uniform(0, SOON_SECONDS))
    await bot.killed()


def are_answered_once_or_lost(stage: Stage, cases: Sequence[Case]) -> None:
    """Demand that each first message is answered once, or was lost on the way to the bot."""
    for case in cases:
        texts = dict.fromkeys(stage.texts(case))
        words = [word for words in texts for word in words.split() if word != "heard"]
        assert words in ([case.word(LAST)], [case.word(), case.word(LAST)])


async def say_last_words(stage: Stage, case: Case) -> None:
    """Find out that the chat goes on."""
    await stage.say(case, version=LAST)
    await stage.until_answered(case, case.word(LAST))
