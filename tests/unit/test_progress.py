"""The progress message of a turn. The seconds take no time here."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Final

import pytest

from bot.chat.progress import (
    EDITS_AT_ONCE,
    MAX_EDITS,
    MAX_LINE_BYTES,
    PAUSE_SECONDS,
    PROGRESS_SECONDS,
    Progress,
)
from bot.signal.errors import SignalError, SignalUnavailable
from conversation_store.models import ChatId
from tests.fakes.partial_messenger import PartialMessenger
from tests.skipped_waits import without_waiting

CHAT: Final = ChatId.direct("ada")


class Channel(PartialMessenger):
    """Records what was shown. Its timestamps count from 101."""

    def __init__(self, *, takes_seconds: float = 0.01) -> None:
        self.shown: list[tuple[str, int | None]] = []
        self.times: list[float] = []
        self.takes_seconds = takes_seconds
        self.error: SignalError | None = None

    @property
    def texts(self) -> list[str]:
        return [text for text, _ in self.shown]

    async def send(
        self, chat: ChatId, text: str, *, replaces: int | None = None, **_: object
    ) -> int:
        self.times.append(asyncio.get_running_loop().time())
        await asyncio.sleep(self.takes_seconds)
        if self.error is not None:
            raise self.error
        self.shown.append((text, replaces))
        return 100 + len(self.shown)


@asynccontextmanager
async def turn(channel: Channel, *, timestamp: int | None = None) -> AsyncIterator[Progress]:
    progress = Progress(channel, CHAT, timestamp, remember=lambda _: None)
    async with progress.running():
        yield progress


async def a_while() -> None:
    """Wait until the latest change is shown."""
    await asyncio.sleep(1)


Change = tuple[str, bool | None] | float
"""A tool that starts or ends well or not, the trouble of Signal's side, or seconds that pass."""
AWAY: Final = ("away", None)
TRIES: Final = ("still trying", None)
NOTICE: Final = "The model does not answer yet. Still trying…"


@pytest.mark.parametrize(
    ("changes", "shown"),
    [
        (
            [("a", None), 1, ("a", True), TRIES, 1, ("b", None), 1, ("b", True), TRIES, 1],
            ["a…", f"a ✓\n{NOTICE}", "a ✓, b…", f"a ✓, b ✓\n{NOTICE}", "a ✓, b ✓"],
        ),
        (
            [("a", None), 70, ("a", True), 1, ("a", None), 1, ("a", True)],
            ["a…", "a… (15 s)", "a… (30 s)", "a… (60 s)", "a ✓", "a…", "a ✓"],
        ),
        (
            [*[("a", None)] * 2, 1, ("a", False), 1, ("a", True), 1, ("a", None), 1, ("a", True)],
            ["a…", "a ✓", "a…", "a ✓"],
        ),
        (
            [*[("a", None)] * 2, 1, ("a", False), 1, ("a", False), 1, ("a", None), 1, ("a", True)],
            ["a…", "a ✗", "a…", "a ✓"],
        ),
        (
            [AWAY, ("a", None), 1, AWAY, ("b", None), 1, AWAY, ("a", True), 1, AWAY, ("b", True)],
            ["a, b…", "a ✓, b ✓"],
        ),
    ],
    ids=["notice", "long call", "one call failed", "all calls failed", "Signal is away"],
)
@without_waiting
async def test_message_names_running_tools(changes: list[Change], shown: list[str]) -> None:
    channel = Channel()
    async with turn(channel) as progress:
        for change in changes:
            match change:
                case float() | int():
                    await asyncio.sleep(change)
                case ("away", _):
                    channel.error = None if channel.error else SignalUnavailable("away")
                case ("still trying", _):
                    progress.still_trying()
                case (name, None):
                    progress.tools.show(name)
                case (name, ok):
                    progress.tools.finished(name, ok=bool(ok))
    assert channel.texts == [f"🔧 Using {text}" for text in shown]
    replaced = [replaces for _, replaces in channel.shown]
    assert replaced == [None, *range(101, 100 + len(replaced))]


@pytest.mark.parametrize("end", ["answer", "answer after a restart", "stop"])
@without_waiting
async def test_no_turn_is_said_to_be_still_trying_after_its_end(end: str) -> None:
    channel = Channel()
    async with turn(channel) as progress:
        progress.still_trying()
        await a_while()
        if end == "stop":
            await progress.show_stopped()
        elif end == "answer after a restart":
            async with turn(channel, timestamp=101):
                await a_while()
    assert channel.shown[0] == (f"🔧 {NOTICE}", None)
    assert channel.shown[1] == ("🔧 The model took longer than usual.", 101)


@without_waiting
async def test_changes_during_an_edit_are_shown_together() -> None:
    channel = Channel(takes_seconds=1)
    async with turn(channel) as progress:
        progress.tools.show("calculate")
        await asyncio.sleep(0.5)
        progress.tools.finished("calculate", ok=True)
        progress.tools.show("web_search")
        progress.tools.finished("web_search", ok=True)
        progress.tools.show("web_fetch")
        await asyncio.sleep(2)
    assert channel.shown == [
        ("🔧 Using calculate…", None),
        ("🔧 Using calculate ✓, web_search ✓, web_fetch…", 101),
    ]


@without_waiting
async def test_hanging_signal_side_costs_one_bounded_wait() -> None:
    clock = asyncio.get_running_loop().time
    async with turn(Channel(takes_seconds=1_000)) as progress:
        progress.tools.show("calculate")
        progress.tools.finished("calculate", ok=True)
        await asyncio.sleep(0.1)
        ended = clock()
    assert clock() - ended == pytest.approx(PROGRESS_SECONDS - 0.1, abs=0.2)


@without_waiting
async def test_stopped_turn_waits_for_nothing() -> None:
    async def stopped_turn() -> None:
        async with asyncio.timeout(0.5), turn(Channel(takes_seconds=1_000)) as progress:
            progress.tools.show("calculate")
            await asyncio.Event().wait()

    clock = asyncio.get_running_loop().time
    with pytest.raises(TimeoutError):
        await stopped_turn()
    assert clock() == 0.5
    assert asyncio.all_tasks() == {asyncio.current_task()}


@without_waiting
async def test_many_helpers_fit_into_one_message() -> None:
    channel = Channel()
    async with turn(channel) as progress:
        progress.tools.show("delegate")
        for number in range(20):
            helper = progress.helper(f"task {number} " + "жжж" * 50)
            for name in ("web_search", "web_fetch", "calculate", "read_file"):
                helper.show(name)
                helper.finished(name, ok=True)
            helper.ended(ok=True)
        await a_while()
    more, *lines = channel.texts[-1].splitlines()[1:]
    assert more == "↳ +12"
    assert len(lines) == 8
    assert lines[-1].startswith("↳ ✓ task 19 жжж")
    assert lines[-1].endswith("read_file ✓")
    assert all(len(line.encode()) <= MAX_LINE_BYTES for line in lines)


@pytest.mark.parametrize("edits", [0, 4, MAX_EDITS - 1])
@without_waiting
async def test_limit_of_edits_holds_over_restarts(edits: int) -> None:
    async def run(channel: Channel, name: str, edits: int, *, goes_on: bool) -> int:
        before = len(channel.shown)
        progress = Progress(channel, CHAT, 77, remember=lambda _: None, edits=edits)
        async with progress.running():
            for number in range(12):
                progress.tools.show(f"{name}_{number}")
                await a_while()
                progress.tools.finished(f"{name}_{number}", ok=True)
                await a_while()
            if goes_on:
                progress.keep_last_edit()
        return len(channel.shown) - before

    channel = Channel()
    edits_of_all = edits + await run(channel, "first", edits, goes_on=True)
    assert max(edits, EDITS_AT_ONCE) <= edits_of_all < MAX_EDITS
    edits_of_all += await run(channel, "last", edits_of_all, goes_on=False)
    assert edits_of_all <= MAX_EDITS
    assert channel.texts[-1].endswith("last_11 ✓")


@without_waiting
async def test_frequent_changes_of_a_list_are_shown_less_and_less_often() -> None:
    channel = Channel()
    async with turn(channel) as progress:
        for number in range(1_000):
            progress.show_list([f"☐ {number}"])
            await a_while()
    assert len(channel.shown) == 1 + MAX_EDITS
    assert channel.texts[-1] == "🔧 0/1\n☐ 999"
    pauses = [round(later - earlier) for earlier, later in pairwise(channel.times[:-1])]
    assert pauses == [1] * EDITS_AT_ONCE + [15, 30, 60]


@without_waiting
async def test_last_change_of_a_list_is_shown_after_a_pause() -> None:
    channel = Channel()
    async with turn(channel) as progress:
        for number in range(EDITS_AT_ONCE + 2):
            progress.show_list([f"☐ {number}"])
            await a_while()
        assert channel.texts[-1] == f"🔧 0/1\n☐ {EDITS_AT_ONCE}"
        await asyncio.sleep(PAUSE_SECONDS)
        assert channel.texts[-1] == f"🔧 0/1\n☐ {EDITS_AT_ONCE + 1}"


@without_waiting
async def test_changes_of_a_list_ask_an_absent_signal_side_a_bounded_number_of_times() -> None:
    channel = Channel()
    channel.error = SignalUnavailable("away")
    async with turn(channel, timestamp=77) as progress:
        for number in range(100):
            progress.show_list([f"☐ {number}"])
            await asyncio.sleep(100)
    assert len(channel.times) <= MAX_EDITS
