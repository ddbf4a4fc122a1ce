"""How long a request to signal-cli-rest-api keeps its place."""

import asyncio

import pytest

from bot.errors import SignalUnavailable
from bot.messaging.rest_places import (
    PLACES,
    USUAL_TIMES,
    Places,
    Queue,
    RequestKind,
    RequestTimeouts,
    Usual,
)

LEAST = 5.0
MOST = 60.0


def usual(*answered_after: float) -> Usual:
    times = Usual(LEAST, MOST)
    for seconds in answered_after:
        times.answered(seconds)
    return times


@pytest.mark.parametrize(
    ("answered_after", "late_after"),
    [
        ([], LEAST),
        ([0.2] * 50, LEAST),
        ([4.0] * 50, USUAL_TIMES * 4.0),
        ([50.0] * 50, MOST),
        ([4.0] * 50 + [0.2] * 50, LEAST),
    ],
)
def test_a_request_runs_late_after_a_multiple_of_the_usual_time_within_bounds(
    answered_after: list[float], late_after: float
) -> None:
    assert usual(*answered_after).late_after == pytest.approx(late_after, rel=1e-3)


def test_as_long_as_none_is_answered_each_one_that_runs_late_doubles_the_time() -> None:
    times, now, seen = usual(), 100.0, []
    for _ in range(6):
        began, now = now, now + times.late_after
        times.ran_late(began=began, now=now)
        seen.append(times.late_after)
    assert seen == [10.0, 20.0, 40.0, 60.0, 60.0, 60.0]
    times.answered(0.2)
    assert times.late_after == LEAST


def test_requests_that_ran_at_the_same_time_double_it_once() -> None:
    times = usual()
    for _ in range(3):
        times.ran_late(began=100.0, now=105.0)
    assert times.late_after == 2 * LEAST


async def test_places_are_taken_in_turn_but_for_the_one_that_goes_first() -> None:
    queue, order = Queue(1), list[str]()

    async def enter(name: str, *, first: bool = False) -> None:
        await queue.enter(first=first)
        order.append(name)
        queue.leave()

    await queue.enter()
    async with asyncio.TaskGroup() as tasks:
        for name in ("one", "two"):
            tasks.create_task(enter(name))
        await asyncio.sleep(0)
        tasks.create_task(enter("first", first=True))
        await asyncio.sleep(0)
        queue.leave()
    assert order == ["first", "one", "two"]


async def test_no_place_is_lost_or_won_when_those_who_wait_are_cancelled() -> None:
    queue = Queue(PLACES)
    for _ in range(PLACES):
        await queue.enter()
    waiting = [asyncio.ensure_future(queue.enter()) for _ in range(6)]
    await asyncio.sleep(0)
    waiting[0].cancel()  # while it waits
    queue.leave()  # for the second
    waiting[1].cancel()  # at the same moment
    waiting[5].cancel()
    await asyncio.wait(waiting[:3])
    assert [one.done() for one in waiting] == [True, True, True, False, False, True]
    queue.leave()
    queue.leave()
    await asyncio.wait(waiting)
    for _ in range(PLACES):
        queue.leave()
    for _ in range(PLACES):
        async with asyncio.timeout(1.0):
            await queue.enter()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await queue.enter()


async def test_whoever_is_refused_and_cancelled_at_once_gives_no_place_back() -> None:
    queue = Queue(1)
    await queue.enter()
    waiting = [asyncio.ensure_future(queue.enter()) for _ in range(2)]
    await asyncio.sleep(0)
    queue.refuse_all()
    waiting[0].cancel()
    await asyncio.wait(waiting)
    assert isinstance(waiting[1].exception(), SignalUnavailable)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await queue.enter()


@pytest.mark.parametrize("kind", RequestKind)
async def test_a_request_that_used_all_its_time_ran_late(kind: RequestKind) -> None:
    longest = 0.002
    places = Places(RequestTimeouts(turn=1.0, least=5.0, question=longest, answer=longest))
    busy = asyncio.create_task(keep_the_loop_busy())  # so that no two timers fire at once
    try:
        with pytest.raises(TimeoutError):
            async with places.take(kind):
                await asyncio.Event().wait()
    finally:
        busy.cancel()
    assert places.stuck
    assert places.ran_late.is_set()


async def keep_the_loop_busy() -> None:
    while True:  # noqa: ASYNC110  # it waits for nothing
        await asyncio.sleep(0)
