"""The progress message of a turn. The seconds take no time here."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import pairwise
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.chat.progress import (
    DETAIL_PAUSE_SECONDS,
    MAX_EDITS,
    MAX_EDITS_FOR_MARKS,
    MAX_LINE_BYTES,
    PROGRESS_SECONDS,
    Progress,
)
from bot.errors import SignalError, SignalUnavailable
from conversation_store.models import Attachment, ChatId, Quote, StyleRange
from tests.fakes.partial_messenger import PartialMessenger
from tests.skipped_waits import run_without_waiting, without_waiting

CHAT: Final = ChatId.direct("ada")


class Channel(PartialMessenger):
    """Keeps what was shown; a Messenger in little. Its timestamps count from 101."""

    def __init__(self, *, takes_seconds: float = 0.01) -> None:
        self.shown: list[tuple[str, int | None]] = []
        self.remembered: list[int] = []
        self.takes_seconds = takes_seconds
        self.error: SignalError | None = None

    @property
    def texts(self) -> list[str]:
        return [text for text, _ in self.shown]

    async def send(
        self,
        chat: ChatId,
        text: str,
        *,
        styles: Sequence[StyleRange] = (),
        quote: Quote | None = None,
        replaces: int | None = None,
        attachments: Sequence[Attachment] = (),
    ) -> int:
        await asyncio.sleep(self.takes_seconds)
        if self.error is not None:
            raise self.error
        self.shown.append((text, replaces))
        return 100 + len(self.shown)

    def remember(self, timestamp: int) -> None:
        self.remembered.append(timestamp)


@asynccontextmanager
async def turn(channel: Channel, *, timestamp: int | None = None) -> AsyncIterator[Progress]:
    progress = Progress(channel, CHAT, timestamp, remember=channel.remember)
    async with progress.running():
        yield progress


async def a_while() -> None:
    """Long enough for what is shown to arrive."""
    await asyncio.sleep(1)


@without_waiting
async def test_a_long_wait_for_the_model_is_one_message_however_often_it_is_noted() -> None:
    channel = Channel()
    async with turn(channel) as progress:
        progress.still_trying()
        await a_while()
        progress.still_trying()
        await a_while()
    assert channel.shown == [("🔧 The model does not answer yet. Still trying…", None)]


@without_waiting
async def test_a_long_wait_between_tools_is_shown_in_their_message_and_gone_with_the_next() -> None:
    channel = Channel()
    async with turn(channel) as progress:
        progress.show(["calculate"])
        await a_while()
        progress.finished("calculate", ok=True)
        progress.still_trying()
        await a_while()
        progress.show(["web_search"])
        await a_while()
        progress.finished("web_search", ok=True)
        progress.still_trying()
        await a_while()
    assert channel.shown == [
        ("🔧 Using calculate…", None),
        ("🔧 Using calculate ✓\nThe model does not answer yet. Still trying…", 101),
        ("🔧 Using calculate ✓, web_search…", 102),
        (
            "🔧 Using calculate ✓, web_search ✓\nThe model does not answer yet. Still trying…",
            103,
        ),
        ("🔧 Using calculate ✓, web_search ✓", 104),
    ]


ENDED: Final = "🔧 Using calculate ✓, web_fetch ✗"


@pytest.mark.parametrize(
    ("timestamp", "edits", "at_once"),
    [(101, 0, [ENDED]), (101, MAX_EDITS_FOR_MARKS, []), (None, 0, [])],
)
@without_waiting
async def test_what_ended_before_a_restart_is_shown_again_and_is_no_news(
    timestamp: int | None, edits: int, at_once: list[str]
) -> None:
    channel = Channel()
    progress = Progress(channel, CHAT, timestamp, remember=channel.remember, edits=edits)
    async with progress.running():
        progress.show_again([("calculate", True), ("web_fetch", False)])
        await a_while()
        assert channel.texts == at_once
        progress.show(["web_search"])
        await a_while()
        progress.finished("web_search", ok=True)
    running, over = f"{ENDED}, web_search…", f"{ENDED}, web_search ✓"
    assert channel.texts == [*at_once, running, over]


@without_waiting
async def test_a_tool_that_runs_for_long_gives_a_sign_of_life_now_and_then() -> None:
    channel = Channel()
    async with turn(channel) as progress:
        progress.show(["run_command"])
        await asyncio.sleep(70)
        progress.finished("run_command", ok=True)
        await a_while()
        progress.show(["run_command"])
        await a_while()
        progress.finished("run_command", ok=True)
    assert channel.texts == [
        "🔧 Using run_command…",
        "🔧 Using run_command… (15 s)",
        "🔧 Using run_command… (30 s)",
        "🔧 Using run_command… (60 s)",
        "🔧 Using run_command ✓",
        "🔧 Using run_command…",
        "🔧 Using run_command ✓",
    ]


@without_waiting
async def test_signs_of_life_leave_an_edit_for_the_end() -> None:
    channel = Channel()
    async with turn(channel) as progress:
        progress.show(["run_command"])
        await asyncio.sleep(100_000)
        progress.finished("run_command", ok=False)
    assert len(channel.texts) == MAX_EDITS_FOR_MARKS + 2
    assert channel.texts[-1] == "🔧 Using run_command ✗"


@without_waiting
async def test_one_message_is_edited_as_tools_start_and_end() -> None:
    channel = Channel()
    async with turn(channel) as progress:
        progress.show(["calculate"])
        await a_while()
        progress.finished("calculate", ok=True)
        await a_while()
        progress.show(["get_weather", "web_search"])
        await a_while()
        progress.finished("web_search", ok=False)
        await a_while()
        progress.finished("get_weather", ok=True)
        await a_while()
    assert channel.shown == [
        ("🔧 Using calculate…", None),
        ("🔧 Using calculate ✓", 101),
        ("🔧 Using calculate ✓, get_weather, web_search…", 102),
        ("🔧 Using calculate ✓, get_weather, web_search ✗…", 103),
        ("🔧 Using calculate ✓, get_weather ✓, web_search ✗", 104),
    ]
    assert channel.remembered == [101, 102, 103, 104, 105]


@without_waiting
async def test_after_a_restart_the_earlier_message_is_edited() -> None:
    channel = Channel()
    async with turn(channel, timestamp=77) as progress:
        progress.show(["calculate"])
        await a_while()
    assert channel.shown == [("🔧 Using calculate…", 77)]
    assert channel.remembered == [101]


@pytest.mark.parametrize("timestamp", [None, 77])
@without_waiting
async def test_nothing_is_shown_for_no_tools(timestamp: int | None) -> None:
    channel = Channel()
    async with turn(channel, timestamp=timestamp) as progress:
        progress.show([])
        await a_while()
    assert channel.shown == []


@without_waiting
async def test_what_changes_while_an_edit_is_under_way_is_shown_together() -> None:
    channel = Channel(takes_seconds=1)
    async with turn(channel) as progress:
        progress.show(["calculate"])
        await asyncio.sleep(0.5)
        progress.finished("calculate", ok=True)
        progress.show(["web_search"])
        progress.finished("web_search", ok=True)
        progress.show(["web_fetch"])
        await asyncio.sleep(2)
    assert channel.shown == [
        ("🔧 Using calculate…", None),
        ("🔧 Using calculate ✓, web_search ✓, web_fetch…", 101),
    ]


@without_waiting
async def test_a_quick_tool_costs_one_edit_before_the_answer_and_none_after_it() -> None:
    channel = Channel(takes_seconds=0.2)
    async with turn(channel) as progress:
        progress.show(["calculate"])
        await asyncio.sleep(0.002)
        progress.finished("calculate", ok=True)
    shown = [("🔧 Using calculate…", None), ("🔧 Using calculate ✓", 101)]
    assert channel.shown == shown
    await a_while()
    assert channel.shown == shown


@without_waiting
async def test_a_tool_runs_until_all_its_calls_have_ended_and_failed_if_one_of_them_did() -> None:
    channel = Channel()
    async with turn(channel) as progress:
        progress.show(["web_fetch", "web_fetch"])
        await a_while()
        progress.finished("web_fetch", ok=False)
        await a_while()
        progress.finished("web_fetch", ok=True)
        await a_while()
        progress.show(["web_fetch"])
        await a_while()
        progress.finished("web_fetch", ok=True)
    assert channel.texts == [
        "🔧 Using web_fetch…",
        "🔧 Using web_fetch ✗",
        "🔧 Using web_fetch…",
        "🔧 Using web_fetch ✓",
    ]


@pytest.mark.parametrize("count", [10, 30])
@without_waiting
async def test_many_tools_one_after_the_other_keep_signals_limit_of_edits(count: int) -> None:
    channel = Channel()
    names = [f"tool_{number}" for number in range(count)]
    async with turn(channel) as progress:
        for name in names:
            progress.show([name])
            await a_while()
            progress.finished(name, ok=True)
            await a_while()
    assert len(channel.shown) == 1 + MAX_EDITS
    assert channel.texts[-1] == f"🔧 Using {' ✓, '.join(names)} ✓"
    assert [replaces for _, replaces in channel.shown] == [None, *range(101, 101 + MAX_EDITS)]


@without_waiting
async def test_ten_tools_at_once_keep_signals_limit_of_edits() -> None:
    channel = Channel()
    names = [f"tool_{number}" for number in range(10)]
    async with turn(channel) as progress:
        progress.show(names)
        for name in names:
            await a_while()
            progress.finished(name, ok=True)
    assert len(channel.shown) <= 1 + MAX_EDITS
    assert channel.texts[-1] == f"🔧 Using {' ✓, '.join(names)} ✓"


@without_waiting
async def test_late_in_a_long_turn_new_tools_are_still_shown_at_once() -> None:
    channel = Channel()
    async with turn(channel) as progress:
        for number in range(7):
            progress.show([f"tool_{number}"])
            await a_while()
            assert channel.texts[-1].endswith(f"tool_{number}…")
            progress.finished(f"tool_{number}", ok=True)
            await a_while()


@without_waiting
async def test_progress_survives_a_lost_signal_side_and_continues_with_the_next_tool() -> None:
    channel = Channel()
    channel.error = SignalUnavailable("away")
    async with turn(channel) as progress:
        progress.show(["calculate"])
        await a_while()
        channel.error = None
        progress.show(["web_search"])
        await a_while()
        channel.error = SignalUnavailable("away again")
        progress.finished("calculate", ok=True)
        await a_while()
        channel.error = None
        progress.finished("web_search", ok=True)
    assert channel.shown == [
        ("🔧 Using calculate, web_search…", None),
        ("🔧 Using calculate ✓, web_search ✓", 101),
    ]


@without_waiting
async def test_a_message_that_never_came_to_be_is_not_begun_when_the_answer_is_there() -> None:
    channel = Channel()
    channel.error = SignalUnavailable("away")
    async with turn(channel) as progress:
        progress.show(["calculate"])
        await a_while()
        channel.error = None
        progress.finished("calculate", ok=True)
    assert channel.texts == []


@without_waiting
async def test_a_signal_side_that_hangs_costs_a_turn_one_bounded_wait_at_its_end() -> None:
    clock = asyncio.get_running_loop().time
    async with turn(Channel(takes_seconds=1_000)) as progress:
        progress.show(["calculate"])
        progress.finished("calculate", ok=True)
        await asyncio.sleep(0.1)
        ended = clock()
    assert clock() - ended == pytest.approx(PROGRESS_SECONDS - 0.1, abs=0.2)


def test_a_turn_that_is_stopped_waits_for_nothing() -> None:
    async def stopped_turn() -> None:
        async with asyncio.timeout(0.5), turn(Channel(takes_seconds=1_000)) as progress:
            progress.show(["calculate"])
            await asyncio.Event().wait()

    async def scenario() -> None:
        clock = asyncio.get_running_loop().time
        with pytest.raises(TimeoutError):
            await stopped_turn()
        assert clock() == 0.5
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run_without_waiting(scenario())


def test_an_error_of_the_turn_comes_out_as_it_is_after_the_last_state_is_shown() -> None:
    error = ConnectionError()

    async def failing_turn(channel: Channel) -> None:
        async with turn(channel) as progress:
            progress.show(["calculate"])
            await a_while()
            progress.finished("calculate", ok=False)
            raise error

    async def scenario() -> None:
        channel = Channel()
        with pytest.raises(ConnectionError) as raised:
            await failing_turn(channel)
        assert raised.value is error
        assert channel.texts == ["🔧 Using calculate…", "🔧 Using calculate ✗"]

    run_without_waiting(scenario())


def test_a_timestamp_that_cannot_be_kept_ends_the_turn() -> None:
    def refuse(timestamp: int) -> None:
        raise OSError("disk full")

    async def forgetful_turn() -> None:
        progress = Progress(Channel(), CHAT, None, remember=refuse)
        async with progress.running():
            progress.show(["calculate"])
            await asyncio.Event().wait()

    async def scenario() -> None:
        with pytest.raises(ExceptionGroup) as raised:
            await forgetful_turn()
        assert raised.value.subgroup(OSError) is not None

    run_without_waiting(scenario())


@without_waiting
async def test_a_list_stands_below_the_tools_and_needs_none() -> None:
    channel = Channel()
    async with turn(channel) as progress:
        progress.show_list(["◐ look", "☐ compare"])
        await a_while()
        progress.show(["web_search"])
        await a_while()
        progress.show_list(["☑ look", "◐ compare"])
        progress.finished("web_search", ok=True)
        await a_while()
        progress.show_list([])
    assert channel.shown == [
        ("🔧 0/2\n◐ look\n☐ compare", None),
        ("🔧 Using web_search…\n◐ look\n☐ compare", 101),
        ("🔧 Using web_search ✓\n☑ look\n◐ compare", 102),
        ("🔧 Using web_search ✓", 103),
    ]


@without_waiting
async def test_each_helper_has_a_line_between_the_tools_and_the_list() -> None:
    channel = Channel()
    async with turn(channel) as progress:
        progress.show_list(["◐ look"])
        progress.show(["delegate", "delegate"])
        first, second = progress.helper("find trains"), progress.helper("compare\nhotels")
        with first.working():
            first.show(["web_search"])
            await a_while()
            first.finished("web_search", ok=True)
        with suppress(KeyError), second.working():
            raise KeyError
        progress.finished("delegate", ok=True)
        progress.finished("delegate", ok=False)
    assert channel.texts == [
        "🔧 Using delegate…\n↳ find trains: web_search\n↳ compare hotels\n◐ look",
        "🔧 Using delegate ✗\n↳ ✓ find trains: web_search ✓\n↳ ✗ compare hotels\n◐ look",
    ]


@without_waiting
async def test_many_helpers_with_many_tools_fit_into_a_message_and_show_the_latest() -> None:
    channel = Channel()
    async with turn(channel) as progress:
        progress.show(["delegate"])
        for number in range(20):
            helper = progress.helper(f"task {number} " + "жжж" * 50)
            with helper.working():
                for name in ("web_search", "web_fetch", "calculate", "read_file"):
                    helper.show([name])
                    helper.finished(name, ok=True)
        await a_while()
    more, *lines = channel.texts[-1].splitlines()[1:]
    assert more == "↳ +12"
    assert len(lines) == 8
    assert lines[-1].startswith("↳ ✓ task 19 жжж")
    assert lines[-1].endswith("read_file ✓")
    assert all(len(line.encode()) <= MAX_LINE_BYTES for line in lines)


@without_waiting
async def test_a_list_of_before_a_restart_stands_there_again() -> None:
    channel = Channel()
    progress = Progress(channel, CHAT, 77, remember=channel.remember)
    progress.show_list(["☑ look", "◐ compare"])
    async with progress.running():
        await a_while()
    assert channel.shown == [("🔧 1/2\n☑ look\n◐ compare", 77)]


@pytest.mark.parametrize("edits", [0, 4, MAX_EDITS - 1])
def test_over_restarts_and_questions_the_limit_holds_and_the_end_is_shown(edits: int) -> None:
    async def run(channel: Channel, name: str, edits: int, *, goes_on: bool) -> int:
        before = len(channel.shown)
        progress = Progress(channel, CHAT, 77, remember=channel.remember, edits=edits)
        async with progress.running():
            for number in range(12):
                progress.show([f"{name}_{number}"])
                await a_while()
                progress.finished(f"{name}_{number}", ok=True)
                await a_while()
            if goes_on:
                progress.keep_last_edit()
        return len(channel.shown) - before

    async def scenario() -> None:
        channel = Channel()
        edits_of_all = edits + await run(channel, "first", edits, goes_on=True)
        assert edits_of_all == MAX_EDITS - 1
        edits_of_all += await run(channel, "last", edits_of_all, goes_on=False)
        assert edits_of_all == MAX_EDITS
        assert channel.texts[-1].endswith("last_11 ✓")

    run_without_waiting(scenario())


def test_a_list_that_changes_all_the_time_is_shown_ever_less_often_and_in_the_end() -> None:
    times: list[float] = []

    class Clocked(Channel):
        async def send(
            self,
            chat: ChatId,
            text: str,
            *,
            styles: Sequence[StyleRange] = (),
            quote: Quote | None = None,
            replaces: int | None = None,
            attachments: Sequence[Attachment] = (),
        ) -> int:
            times.append(asyncio.get_running_loop().time())
            return await super().send(chat, text, replaces=replaces, attachments=attachments)

    async def scenario() -> None:
        channel = Clocked()
        async with turn(channel) as progress:
            for number in range(1_000):
                progress.show_list([f"☐ {number}"])
                await a_while()
        assert len(channel.shown) == 1 + MAX_EDITS
        assert channel.texts[-1] == "🔧 0/1\n☐ 999"
        pauses = [round(later - earlier) for earlier, later in pairwise(times[:-1])]
        assert pauses == [1] * MAX_EDITS_FOR_MARKS + [15, 30, 60, 120]

    run_without_waiting(scenario())


@without_waiting
async def test_the_last_change_of_a_list_is_shown_though_nothing_else_happens() -> None:
    channel = Channel()
    async with turn(channel) as progress:
        for number in range(MAX_EDITS_FOR_MARKS + 2):
            progress.show_list([f"☐ {number}"])
            await a_while()
        assert channel.texts[-1] == f"🔧 0/1\n☐ {MAX_EDITS_FOR_MARKS}"
        await asyncio.sleep(DETAIL_PAUSE_SECONDS)
        assert channel.texts[-1] == f"🔧 0/1\n☐ {MAX_EDITS_FOR_MARKS + 1}"


def test_a_signal_side_that_stays_away_is_not_asked_again_and_again_for_a_list() -> None:
    tries = 0

    class Away(Channel):
        async def send(
            self,
            chat: ChatId,
            text: str,
            *,
            styles: Sequence[StyleRange] = (),
            quote: Quote | None = None,
            replaces: int | None = None,
            attachments: Sequence[Attachment] = (),
        ) -> int:
            nonlocal tries
            tries += 1
            raise SignalUnavailable("away")

    async def scenario() -> None:
        async with turn(Away(), timestamp=77) as progress:
            for number in range(100):
                progress.show_list([f"☐ {number}"])
                await asyncio.sleep(100)
        assert tries <= MAX_EDITS

    run_without_waiting(scenario())


CALLS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "c", "d", "e", "f", "g"]),
        st.integers(0, 20),  # begins
        st.integers(0, 20),  # lasts
        st.booleans(),  # ends well
    ),
    min_size=1,
    max_size=30,
)


@settings(max_examples=200, derandomize=True, database=None, deadline=None)
@given(CALLS, st.sampled_from([0.0, 0.5, 1.5]))
def test_however_calls_overlap_the_last_state_is_whole_within_ten_edits(
    calls: list[tuple[str, int, int, bool]], takes_seconds: float
) -> None:
    async def call(progress: Progress, name: str, begins: int, lasts: int, ok: bool) -> None:
        await asyncio.sleep(begins)
        progress.show([name])
        await asyncio.sleep(lasts)
        progress.finished(name, ok=ok)

    async def scenario() -> None:
        channel = Channel(takes_seconds=takes_seconds)
        async with turn(channel) as progress, asyncio.TaskGroup() as tasks:
            for each in calls:
                tasks.create_task(call(progress, *each))
        assert 1 <= len(channel.shown) <= 1 + MAX_EDITS
        last = channel.texts[-1].removeprefix("🔧 Using ").split(", ")
        assert {tool[0] for tool in last} == {name for name, *_ in calls}
        assert all(tool[1:] in (" ✓", " ✗") for tool in last)
        chain = [None, *range(101, 100 + len(channel.shown))]
        assert [replaces for _, replaces in channel.shown] == chain

    run_without_waiting(scenario())
