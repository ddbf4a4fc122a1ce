"""`kill -9` of a real process on a real disk, at each step of some activities.

The simulator tries many more histories; here nothing is simulated but Signal and the model.

A cell is an activity, a transport and a way to end the process. It has a chat for each step that
the bot takes to the outside, and each chat is held at its own step. Then the process is killed. So
one kill shows all moments of an activity, and it never comes too early or too late. The next life
of the bot runs in peace, and everything has to come right.
"""

import asyncio
import signal
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from itertools import product
from random import Random
from typing import Any, Final

import pytest

from bot.signal.formatting import split
from tests.e2e.daemon_process import Daemon
from tests.e2e.kill_stage import LAST, Asked, Case, Phone, Stage, Step, stage
from tests.e2e.minds import delegating
from tests.e2e.running_bot import world
from tests.e2e.traces import files_of, gone_from_files
from tests.fakes import openai_server
from tests.fakes.openai_server import text, tool_calls
from tests.fakes.signal_side import SharedFile

ASKS, CALLS, CALLED, SENDS, SENT = Step
ANSWERS: Final = (SENDS, SENT)

SOON_SECONDS: Final = 0.03
BRIEF_SECONDS: Final = 1.5
"""About as long as a start and the first recovery take."""
BRIEF_LIVES: Final = 3

UNKNOWN_FATE: Final = "whether it took effect is unknown"
TIMER_SECONDS: Final = 4
CALCULATE: Final = ("calculate", {"expression": "127*43"})
COUNT_RUNS: Final = """
with open("runs.txt", "a") as file:
    file.write("x")
print("runs:", len(open("runs.txt").read()))
"""
A_LOT: Final = "\n\n".join(f"paragraph {number}: {'word ' * 200}." for number in range(3))


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


async def say(stage: Stage, case: Case) -> None:
    """Write the first message."""
    case.is_armed = True
    await stage.say(case)


async def is_answered(stage: Stage, case: Case) -> None:
    """Wait for an answer to the first message."""
    await stage.until_answered(case, case.word())


def heard(case: Case, asked: Asked) -> openai_server.Step:
    """Answer that all words were heard."""
    return text(" ".join([*asked.words, "heard"]))


@dataclass(frozen=True, kw_only=True)
class Activity:
    """Behaviour of people and the bot around a kill.

    Attributes:
        steps: of the bot, in a turn that nothing disturbs.
        model: returns the model's reply.
        begin: the person's first act.
        meanwhile: the person's act while the chat is held.
        ended: waits for the end of the turn in the last life.
        check: checks the end, in addition to the checks of all activities.
        phones: there is a chat for each kind of phone at each step.
        in_group: the chats are groups.
        starts_over: the model may be asked again what it has answered.
        may_disappear: on a slow machine the message disappears before some steps.
    """

    steps: Sequence[Step]
    model: Callable[[Case, Asked], openai_server.Step] = heard
    begin: Act = say
    meanwhile: Act = nothing
    ended: Act = is_answered
    check: Callable[["Result"], None]
    phones: Sequence[Phone] = (Phone.PROMPT,)
    in_group: bool = False
    starts_over: bool = False
    may_disappear: bool = False


@dataclass(frozen=True)
class Result:
    """How a chat ended.

    Attributes:
        step: at which it was held.
        steps: which it had come to when the bot was killed.
        asked: requests to the model until then.
        shown: the answers that the person sees, without the last one.
        files: names of the files of each answer, each time that it was sent.
        left: bytes of the store's files in the end.
    """

    case: Case
    step: Step
    steps: Sequence[Step]
    asked: Sequence[Asked]
    end: End
    shown: Sequence[str]
    files: Sequence[Sequence[str]]
    left: bytes

    @property
    def is_sure(self) -> bool:
        """Whether the bot could know what Signal had taken when it was killed."""
        return self.end is End.HELD

    def shows(self, *texts: str) -> None:
        """Demand that the person sees these answers."""
        assert list(self.shown) == list(texts)

    def has_forgotten(self, version: int) -> None:
        """Demand that no byte of a message is left."""
        word = self.case.word(version)
        assert word.encode() not in self.left, f"{word} is still known"


# Activities ---------------------------------------------------------------------------------------


def shows_heard(result: Result) -> None:
    """The answer is there."""
    result.shows(f"{result.case.word()} heard")


def calculates(case: Case, asked: Asked) -> openai_server.Step:
    if not asked.results:
        return tool_calls(CALCULATE)
    return text(" ".join([*asked.words, "makes", asked.results[-1]]))


def tells_a_lot(case: Case, asked: Asked) -> openai_server.Step:
    return text(f"{asked.words[0]} {A_LOT}".replace("paragraph", f"{asked.words[0]} paragraph"))


def shows_a_lot(result: Result) -> None:
    word = result.case.word()
    result.shows(*split(f"{word} {A_LOT}".replace("paragraph", f"{word} paragraph")))


def writes_a_note(case: Case, asked: Asked) -> openai_server.Step:
    if not asked.results:
        return tool_calls(("notes_write", {"text": asked.words[0]}))
    return text(f"{asked.words[0]}: {asked.results[-1]}")


def is_written_once(result: Result) -> None:
    """The note is written, or the person hears that its fate is unknown."""
    (shown,) = result.shown
    if UNKNOWN_FATE in shown:
        assert result.case.called <= 1
        assert result.step in (CALLS, CALLED) or not result.is_sure
    else:
        assert "Written." in shown
        assert result.case.called == 1


def reminds(case: Case, asked: Asked) -> openai_server.Step:
    if asked.results:
        return text(f"{asked.words[0]} is set")
    at = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=1)
    return tool_calls(("remind", {"text": f"{asked.words[0]} is due", "at": at.isoformat()}))


async def is_reminded(stage: Stage, case: Case) -> None:
    await stage.until_answered(case, f"{case.word()} is set", f"{case.word()} is due")


def shows_reminder(result: Result) -> None:
    """Both messages are there; if both are in doubt, a receipt of one proves neither."""
    word = result.case.word()
    lines = {shown.removeprefix("⏰ ").split("\n")[0] for shown in result.shown}
    assert lines == {f"{word} is due", f"{word} is set"}


def delegates(case: Case, asked: Asked) -> openai_server.Step:
    """Give one helper a calculation and another one a note to write."""
    word = asked.words[0]
    if not asked.task:
        if asked.results:
            return text(f"{word}: {' | '.join(asked.results)}")
        return tool_calls(delegating(f"{word} adds"), delegating(f"{word} writes", "notes_write"))
    if asked.results:
        return text(asked.results[-1])
    if asked.task.endswith("adds"):
        return tool_calls(CALCULATE)
    return tool_calls(("notes_write", {"text": word}))


def both_have_helped(result: Result) -> None:
    """The calculation is there, and the note is written or its fate is unknown.

    A helper goes on until its next step while the other one is held.
    """
    (shown,) = result.shown
    assert "5461" in shown
    if UNKNOWN_FATE in shown:
        assert result.case.called <= 1
        assert CALLS in result.steps or not result.is_sure
        assert not any(one.task.endswith("writes") and one.results for one in result.asked)
    else:
        assert "Written." in shown
        assert result.case.called == 1


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
    assert set(result.files) == {("runs.txt",)}


def tabulates(case: Case, asked: Asked) -> openai_server.Step:
    return text(f"| {' | '.join('abcd')} | {asked.words[0]} |\n|-|-|-|-|-|\n| 1 | 2 | 3 | 4 | 5 |")


def has_picture(result: Result) -> None:
    """The table is there once, always with its picture."""
    (shown,) = result.shown
    assert result.case.word() in shown
    assert set(result.files) == {("table.png",)}


async def writes_more(stage: Stage, case: Case) -> None:
    await stage.say(case, version=1)
    await stage.say(case, version=2)


async def all_are_answered(stage: Stage, case: Case) -> None:
    await stage.until_answered(case, *(case.word(version) for version in range(3)))


def answers_all_in_order(result: Result) -> None:
    words = [word for shown in result.shown for word in shown.split() if word[0] == "n"]
    assert words == [result.case.word(version) for version in range(3)]


async def edits(stage: Stage, case: Case) -> None:
    await stage.signal.edit(case.word(1), case.timestamps[0], author=case.person)


async def edit_is_answered(stage: Stage, case: Case) -> None:
    await stage.until_answered(case, case.word(1))


def shows_the_edit(result: Result) -> None:
    *before, last = result.shown
    assert last == f"{result.case.word(1)} makes 5461"
    assert not before or not result.is_sure
    result.has_forgotten(0)


async def deletes(stage: Stage, case: Case) -> None:
    await stage.signal.delete(case.timestamps[0], author=case.person)


async def is_quiet(stage: Stage, case: Case) -> None:
    await stage.everything_read()


def is_forgotten(result: Result) -> None:
    result.has_forgotten(0)
    result.has_forgotten(1)
    assert not result.case.asked[:-1], "asked about what was deleted"


async def says_with_timer(stage: Stage, case: Case) -> None:
    case.is_armed = True
    await stage.say(case, expires_seconds=TIMER_SECONDS)


async def has_disappeared(stage: Stage, case: Case) -> None:
    await gone_from_files(stage.world, case.word())


def is_disappeared(result: Result) -> None:
    result.has_forgotten(0)


async def sends_a_file(stage: Stage, case: Case) -> None:
    case.is_armed = True
    file = SharedFile("text/plain", f"in the file: {case.word(1)}".encode(), "notes.txt")
    await stage.say(case, f"{case.word()}: read this", files=[file])


def reads_the_file(result: Result) -> None:
    result.shows(f"{result.case.word()} {result.case.word(1)} heard")


EVERY_PHONE: Final = tuple(Phone)
CALCULATION: Final = (ASKS, ASKS, *ANSWERS)

ACTIVITIES: Final = {
    "plain": Activity(steps=(ASKS, *ANSWERS), check=shows_heard, phones=EVERY_PHONE),
    "group": Activity(
        steps=(ASKS, *ANSWERS), check=shows_heard, phones=EVERY_PHONE, in_group=True
    ),
    "long answer": Activity(
        steps=(ASKS, *ANSWERS, *ANSWERS), model=tells_a_lot, check=shows_a_lot, phones=EVERY_PHONE
    ),
    "approval": Activity(
        steps=(ASKS, *ANSWERS, CALLS, CALLED, ASKS, *ANSWERS),
        model=writes_a_note, check=is_written_once,
    ),
    # A late receipt fits the answer and the reminder, so the bot deletes no copy.
    "reminder": Activity(
        steps=(ASKS, ASKS, *ANSWERS, *ANSWERS),
        model=reminds, ended=is_reminded, check=shows_reminder, phones=(Phone.PROMPT, Phone.NEVER),
    ),
    "helpers": Activity(
        steps=(ASKS, ASKS, ASKS, ASKS, *ANSWERS, CALLS, CALLED, ASKS, ASKS, *ANSWERS),
        model=delegates, check=both_have_helped,
    ),
    "program": Activity(
        steps=(ASKS, *ANSWERS, ASKS, ASKS, *ANSWERS), model=runs_a_program, check=has_run_once
    ),
    "more messages": Activity(
        steps=CALCULATION, model=calculates, meanwhile=writes_more,
        ended=all_are_answered, check=answers_all_in_order, starts_over=True,
    ),
    "edit": Activity(
        steps=CALCULATION, model=calculates, meanwhile=edits,
        ended=edit_is_answered, check=shows_the_edit, starts_over=True,
    ),
    "deletion": Activity(
        steps=CALCULATION, model=calculates, meanwhile=deletes, ended=is_quiet, check=is_forgotten
    ),
    "timer": Activity(
        steps=CALCULATION, model=calculates, begin=says_with_timer,
        ended=has_disappeared, check=is_disappeared, may_disappear=True,
    ),
    "file": Activity(steps=(ASKS, *ANSWERS), begin=sends_a_file, check=reads_the_file),
    "table": Activity(steps=(ASKS, *ANSWERS), model=tabulates, check=has_picture),
}  # fmt: skip


# The matrix ---------------------------------------------------------------------------------------

REST: Final = "signal-cli-rest-api"
DAEMON: Final = "signal-cli"
TRANSPORTS: Final = (DAEMON, REST)

HELD_SENDS: Final = 2
"""The bot sends few messages at once over signal-cli-rest-api, so few can be held."""


@pytest.mark.long
@pytest.mark.parametrize(
    ("transport", "end"),
    [
        pytest.param(*cell, marks=[] if cell == (DAEMON, End.HELD) else pytest.mark.full)
        for cell in product(TRANSPORTS, End)
    ],
)
async def test_everything_comes_right_after_a_kill(transport: str, end: End) -> None:
    random = Random(f"{transport} {end}")
    plays = plays_of()
    if transport == REST:
        plays = fitting(plays, random)
    last_second = last_second_cases(1 + max(play.case.number for play in plays))
    cases = [*(play.case for play in plays), *last_second]
    async with world() as here, stage(here, transport, cases) as the_stage:
        async with the_stage.alive() as bot:
            await for_each(plays, lambda play: play.activity.begin(the_stage, play.case))
            await the_stage.all_held()
            await for_each(plays, lambda play: play.activity.meanwhile(the_stage, play.case))
            await the_stage.everything_read()
            await write_in_a_row(the_stage, last_second)
            held = {play.case for play in plays if play.case.is_held}  # not what disappears first
            await kill(bot, the_stage, end, random)
        known = {play.case: set(play.case.replied) for play in plays}
        reached = {play.case: (tuple(play.case.steps), tuple(play.case.asked)) for play in plays}
        for _ in range(BRIEF_LIVES if end is End.AGAIN else 0):
            await the_stage.live_briefly(random.uniform(0, BRIEF_SECONDS))
        async with the_stage.alive() as bot:
            await for_each(plays, lambda play: play.activity.ended(the_stage, play.case))
            await the_stage.everything_read()
            await for_each(plays, lambda play: say_last_words(the_stage, play.case))
            await asyncio.gather(*(say_last_words(the_stage, case) for case in last_second))
            await the_stage.confirm_late()
            await for_each(plays, lambda play: sees_nothing_twice(the_stage, play.case))
            bot.send_signal(signal.SIGTERM)
            assert await bot.exit_code() == 0
        left = files_of(here)
    wrong: dict[str, str] = {}
    for play in plays:
        shown, files = the_stage.texts(play.case), the_stage.files(play.case)
        result = Result(
            play.case, play.step, *reached[play.case], end, shown[:-1], files[:-1], left
        )
        try:
            assert shown[-1] == f"{play.case.word(LAST)} heard"
            if end is End.HELD and play.case in held and not play.activity.starts_over:
                assert not known[play.case] & set(play.case.asked), "asked again"
            check(result, play.activity)
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
        """Step at which it is held; steps of helpers come in any order."""
        steps = self.case.steps if len(self.case.steps) >= self.case.moment else self.activity.steps
        return steps[self.case.moment - 1]

    @property
    def label(self) -> str:
        """Names it in a failure."""
        return (
            f"{self.name}, when the bot {self.step} (step {self.case.moment}),"
            f" the phone confirms {self.case.phone}"
        )


def plays_of() -> list[Play]:
    """Return a play for each step of each activity and each kind of phone."""
    plays: list[Play] = []
    for name, activity in ACTIVITIES.items():
        for moment, phone in product(range(1, len(activity.steps) + 1), activity.phones):
            case = Case(
                len(plays),
                activity.model,
                moment,
                phone,
                in_group=activity.in_group,
                may_disappear=activity.may_disappear,
            )
            plays.append(Play(name, activity, case))
    return plays


def fitting(plays: Sequence[Play], random: Random) -> list[Play]:
    """Leave out plays that are held at a send, but for some."""
    sends = [play.case for play in plays if play.step in ANSWERS]
    kept = random.sample(sends, min(HELD_SENDS, len(sends)))
    return [play for play in plays if play.step not in ANSWERS or play.case in kept]


async def for_each(plays: Sequence[Play], act: Callable[[Play], Coroutine[Any, Any, None]]) -> None:
    async with asyncio.TaskGroup() as tasks:
        for play in plays:
            tasks.create_task(_named(play, act))


async def _named(play: Play, act: Callable[[Play], Coroutine[Any, Any, None]]) -> None:
    try:
        await act(play)
    except TimeoutError:
        case = play.case
        raise AssertionError(f"{play.label}: waits in vain, after {case.steps}") from None


async def kill(bot: Daemon, stage: Stage, end: End, random: Random) -> None:
    if end is End.STOPPING:
        bot.send_signal(signal.SIGTERM)
    if end in (End.SOON, End.STOPPING):
        stage.let_go()
        await asyncio.sleep(random.uniform(0, SOON_SECONDS))
    await bot.killed()


def last_second_cases(first: int) -> list[Case]:
    """Return chats that are not held; their people write right before the kill."""
    return [Case(first + number, heard, may_disappear=True) for number in range(20)]


async def write_in_a_row(stage: Stage, cases: Sequence[Case]) -> None:
    for case in cases:
        await stage.say(case)
        await asyncio.sleep(0.001)


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


async def sees_nothing_twice(stage: Stage, case: Case) -> None:
    """Wait until copies that a phone confirmed late are deleted."""
    if case.phone is Phone.LATE:
        await stage.until(lambda: len(set(stage.texts(case))) == len(stage.texts(case)))


def check(result: Result, activity: Activity) -> None:
    """Demand what is true of every activity, then what is true of this one."""
    assert result.case.called <= 1, "called twice"
    if not result.is_sure or result.case.phone is Phone.NEVER:  # nothing proves what arrived
        result = replace(result, shown=tuple(dict.fromkeys(result.shown)))
    activity.check(result)
