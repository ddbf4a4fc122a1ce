"""How many calls get through, whatever the times at which they come."""

from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tools.base import Tool, ToolError
from tools.executor import RateLimits
from tools.schema import tool_from

SECOND = 1_000_000_000
PLENTY = 1_000_000


@dataclass
class Clock:
    now: int = 0

    def __call__(self) -> int:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += round(seconds * SECOND)


def tool(name: str = "web_search", calls_per_minute: int = PLENTY) -> Tool:
    async def act() -> str:
        """Do something."""
        return ""

    act.__name__ = name
    return tool_from(act, calls_per_minute=calls_per_minute)


def fits(limits: RateLimits, called: Tool, caller: str = "someone") -> bool:
    try:
        limits.take(called, caller)
    except ToolError:
        return False
    return True


def test_a_minutes_worth_of_calls_may_come_at_once_and_then_one_whenever_one_is_refilled() -> None:
    clock = Clock()
    limits = RateLimits(per_person=PLENTY, per_bot=PLENTY, clock=clock)
    search = tool(calls_per_minute=6)
    assert [fits(limits, search) for _ in range(7)] == [True] * 6 + [False]
    clock.advance(9.9)
    assert not fits(limits, search)
    clock.advance(0.1)
    assert [fits(limits, search) for _ in range(2)] == [True, False]
    clock.advance(3_600)
    assert [fits(limits, search) for _ in range(7)] == [True] * 6 + [False]


def test_a_refusal_says_which_limit_and_when_the_next_call_can_run() -> None:
    clock = Clock()
    limits = RateLimits(per_person=2, per_bot=3, clock=clock)
    search = tool(calls_per_minute=1)
    limits.take(search, "first")
    clock.advance(53.5)
    with pytest.raises(ToolError) as refusal:
        limits.take(search, "first")
    assert str(refusal.value) == (
        "Not run: too many calls of web_search right now; the next one can run in 7 seconds."
    )
    clock.advance(6)
    with pytest.raises(ToolError, match=r"web_search right now; .* can run in 1 second\."):
        limits.take(search, "second")

    fetch = tool("web_fetch")
    limits.take(fetch, "first")
    limits.take(fetch, "first")
    with pytest.raises(ToolError, match="too many tool calls for this person right now"):
        limits.take(fetch, "first")
    limits.take(fetch, "second")
    with pytest.raises(ToolError, match="too many tool calls by everybody together right now"):
        limits.take(fetch, "third")


def test_announced_wait_is_correct() -> None:
    clock = Clock()
    limits = RateLimits(per_person=7, per_bot=5, clock=clock)
    search = tool(calls_per_minute=3)
    while fits(limits, search):
        pass
    with pytest.raises(ToolError, match="in 20 seconds"):
        limits.take(search, "someone")
    clock.advance(20)
    limits.take(search, "someone")


def test_one_tool_and_one_person_take_nothing_from_the_others() -> None:
    limits = RateLimits(per_person=2, per_bot=PLENTY, clock=Clock())
    search, fetch = tool(calls_per_minute=1), tool("web_fetch")
    assert fits(limits, search, "first")
    assert not fits(limits, search, "second")
    assert fits(limits, fetch, "first")
    assert not fits(limits, fetch, "first")
    assert fits(limits, fetch, "second")


def test_a_refused_call_takes_from_no_bucket() -> None:
    limits = RateLimits(per_person=2, per_bot=3, clock=Clock())
    search, fetch = tool(calls_per_minute=1), tool("web_fetch")
    assert [fits(limits, search) for _ in range(100)] == [True] + [False] * 99
    assert fits(limits, fetch), "the person's bucket was not emptied by refused calls"
    assert fits(limits, fetch, "another"), "nor was the bot's"


def test_people_and_tools_whose_buckets_are_full_again_are_forgotten() -> None:
    clock = Clock()
    limits = RateLimits(per_person=60, per_bot=PLENTY, clock=clock)
    most = 0
    for number in range(1_500):
        limits.take(tool(f"tool_{number % 50}", 1_000), f"person {number}")
        most = max(most, len(limits))
        clock.advance(0.1)
    assert most < 1_000, "no more than called within a minute, tools and the bot itself beside them"
    clock.advance(60)
    limits.take(tool(), "the last")
    assert len(limits) == 3


def test_busy_tool_keeps_no_other_caller_in_memory() -> None:
    clock = Clock()
    limits = RateLimits(per_person=60, per_bot=PLENTY, clock=clock)
    search = tool(calls_per_minute=30)
    for _ in range(20):
        limits.take(search, "someone")
    for number in range(100):
        clock.advance(2)
        limits.take(search, f"person {number}")
    assert len(limits) <= 4, "the tool, the bot, the latest person, and perhaps the one before"


times = st.lists(st.integers(0, 90 * SECOND), max_size=60)


@settings(derandomize=True, deadline=None)
@given(st.integers(1, 40), times)
def test_no_window_ever_has_more_calls_than_the_bucket_holds_and_refills(
    per_minute: int, pauses: list[int]
) -> None:
    clock = Clock()
    limits = RateLimits(per_person=per_minute, per_bot=PLENTY, clock=clock)
    search = tool()
    taken: list[int] = []
    for pause in pauses:
        clock.now += pause // per_minute
        taken += [clock.now for _ in range(per_minute) if fits(limits, search)]
    for first, begin in enumerate(taken):
        for count, end in enumerate(taken[first:], start=1):
            # An interval is rounded down to whole nanoseconds: at most one for each call.
            refilled = (end - begin + count) * per_minute / (60 * SECOND)
            assert count <= per_minute + refilled


@settings(derandomize=True, deadline=None)
@given(st.integers(1, 1_000), times)
def test_caller_within_the_rate_is_never_refused(per_minute: int, pauses: list[int]) -> None:
    clock = Clock()
    limits = RateLimits(per_person=per_minute, per_bot=PLENTY, clock=clock)
    search = tool()
    moments = [0]
    for pause in pauses:
        moments.append(moments[-1] + 60 * SECOND // per_minute + pause)
    for now, following in pairwise(moments):
        clock.now = now
        limits.take(search, "someone")
        assert following > now
