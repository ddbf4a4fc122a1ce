"""How many calls get through in a minute."""

from dataclasses import dataclass

import pytest

from tools.base import Tool, ToolError
from tools.executor import RateLimits
from tools.schema import tool_from

PLENTY = 1_000_000


@dataclass
class Clock:
    now: float = 1_000.0

    def __call__(self) -> float:
        return self.now


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


def test_calls_of_a_minute_may_come_at_once_and_the_next_ones_a_minute_later() -> None:
    clock = Clock()
    limits = RateLimits(per_person=PLENTY, per_bot=PLENTY, clock=clock)
    search = tool(calls_per_minute=6)
    for _ in range(3):
        assert [fits(limits, search) for _ in range(7)] == [True] * 6 + [False]
        clock.now += 59.9
        assert not fits(limits, search)
        clock.now += 0.1


def test_refusal_says_which_limit_and_when_the_next_call_can_run() -> None:
    clock = Clock()
    limits = RateLimits(per_person=2, per_bot=3, clock=clock)
    search = tool(calls_per_minute=1)
    limits.take(search, "first")
    clock.now += 53.5
    with pytest.raises(ToolError) as refusal:
        limits.take(search, "first")
    assert str(refusal.value) == (
        "Not run: too many calls of web_search right now; the next one can run in 7 seconds."
    )
    clock.now += 6
    with pytest.raises(ToolError, match=r"web_search right now; .* can run in 1 second\."):
        limits.take(search, "second")
    fetch = tool("web_fetch")
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
        clock.now += 5
    with pytest.raises(ToolError, match="in 45 seconds"):
        limits.take(search, "someone")
    clock.now += 45
    limits.take(search, "someone")


def test_one_tool_and_one_person_take_nothing_from_the_others() -> None:
    limits = RateLimits(per_person=2, per_bot=PLENTY, clock=Clock())
    search, fetch = tool(calls_per_minute=1), tool("web_fetch")
    assert fits(limits, search, "first")
    assert not fits(limits, search, "second")
    assert fits(limits, fetch, "first")
    assert not fits(limits, fetch, "first")
    assert fits(limits, fetch, "second")


def test_refused_call_does_not_count() -> None:
    limits = RateLimits(per_person=2, per_bot=3, clock=Clock())
    search, fetch = tool(calls_per_minute=1), tool("web_fetch")
    assert [fits(limits, search) for _ in range(100)] == [True] + [False] * 99
    assert fits(limits, fetch), "refused calls do not count for the person"
    assert fits(limits, fetch, "another"), "nor for the bot"
