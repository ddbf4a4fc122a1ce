"""Time for which a request to signal-cli-rest-api keeps its slot."""

import asyncio
from typing import Final

import pytest

from bot.signal.errors import SignalTimeout, SignalUnavailable
from bot.signal.rest_requests import (
    PLACES,
    USUAL_TIMES,
    WEIGHTS,
    Line,
    Places,
    RequestKind,
    RestTimeouts,
)

LEAST = 5.0
MOST = 60.0


LIMITS: Final = RestTimeouts(late=LEAST, send=MOST)


async def answer(places: Places, after_seconds: float) -> None:
    request = await places._enter("text")
    request.began -= after_seconds
    places._answered(request)
    request.give_place()


async def run_late(places: Places) -> None:
    request = await places._enter("group")
    request.began -= places.patience("group")
    places._run_late(request)
    places._spare = None


@pytest.mark.parametrize(
    ("answered_after", "late_after"),
    [
        ([], LEAST),
        ([0.2], LEAST),
        ([4.0], USUAL_TIMES * 4.0),
        ([50.0], MOST),
        ([4.0, 0.2], LEAST),
    ],
)
async def test_request_runs_late_after_multiple_of_last_answer_within_bounds(
    answered_after: list[float], late_after: float
) -> None:
    places = Places(LIMITS)
    for seconds in answered_after:
        await answer(places, seconds)
    assert places.patience("text") == pytest.approx(late_after, rel=0.01)


async def test_late_requests_double_patience() -> None:
    places, seen = Places(LIMITS), []
    for _ in range(4):
        await run_late(places)
        seen.append(places.patience("group"))
    assert seen == pytest.approx([20.0, 40.0, 60.0, 60.0], rel=0.01)


async def test_slots_are_taken_in_turn_except_for_priority() -> None:
    line, order = Line(1), list[str]()

    async def enter(name: str, *, first: bool = False) -> None:
        await line.enter(first=first)
        order.append(name)
        line.leave()

    await line.enter(first=False)
    async with asyncio.TaskGroup() as tasks:
        for name in ("one", "two"):
            tasks.create_task(enter(name))
        await asyncio.sleep(0)
        tasks.create_task(enter("first", first=True))
        await asyncio.sleep(0)
        line.leave()
    assert order == ["first", "one", "two"]


async def test_cancelled_waits_keep_the_number_of_places() -> None:
    line = Line(PLACES)
    for _ in range(PLACES):
        await line.enter(first=False)
    waiting = [asyncio.ensure_future(line.enter(first=False)) for _ in range(6)]
    await asyncio.sleep(0)
    waiting[0].cancel()  # while it waits
    line.leave()  # for the second
    waiting[1].cancel()  # at the same moment
    waiting[5].cancel()
    await asyncio.wait(waiting[:3])
    assert [one.done() for one in waiting] == [True, True, True, False, False, True]
    line.leave()
    line.leave()
    await asyncio.wait(waiting)
    for _ in range(PLACES):
        line.leave()
    for _ in range(PLACES):
        async with asyncio.timeout(30):
            await line.enter(first=False)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await line.enter(first=False)


async def test_refused_and_cancelled_request_gives_no_place_back() -> None:
    line = Line(1)
    await line.enter(first=False)
    waiting = [asyncio.ensure_future(line.enter(first=False)) for _ in range(2)]
    await asyncio.sleep(0)
    line.refuse_all()
    waiting[0].cancel()
    await asyncio.wait(waiting)
    assert isinstance(waiting[1].exception(), SignalUnavailable)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await line.enter(first=False)


@pytest.mark.parametrize("kind", WEIGHTS)
async def test_a_request_that_used_all_its_time_ran_late(kind: RequestKind) -> None:
    longest = 0.002
    places = Places(RestTimeouts(turn=1.0, late=5.0, request=longest, send=longest))
    busy = asyncio.create_task(keep_the_loop_busy())  # so that no two timers fire at once
    try:
        with pytest.raises(SignalTimeout):
            async with places.take(kind):
                await asyncio.Event().wait()
    finally:
        busy.cancel()
    assert places.stuck
    assert places.ran_late.is_set()


async def keep_the_loop_busy() -> None:
    while True:  # noqa: ASYNC110  # it waits for nothing
        await asyncio.sleep(0)
