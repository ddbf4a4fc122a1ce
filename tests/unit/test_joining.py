"""Messages that join a turn: cases beyond the stories in tests/e2e/test_joining.py."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest

from bot.chat.joining import MAX_PIECES, Queue, Room, RunningTurn, TurnChanged, TurnStopped
from conversation_store.models import AcceptedMessage
from tests.unit.stores import received


def piece(number: int, *, author: str = "ada", replaces: int | None = None) -> AcceptedMessage:
    return AcceptedMessage(number, received(number, author=author), replaces=replaces)


def joining(queue: Queue, pieces: list[AcceptedMessage], *, verified: bool = True) -> RunningTurn:
    return RunningTurn(queue, pieces, lambda _: verified, joined=lambda _: None)


async def joined(
    *waiting: AcceptedMessage, verified: bool = True, replaces: int | None = None
) -> list[int]:
    """Return which of the messages that wait become part of the first one's turn."""
    queue, pieces = Queue(Room("ordinary")), [piece(0, replaces=replaces)]
    for one in waiting:
        queue.add(one)
    joining(queue, pieces, verified=verified).take()
    return [one.id for one in pieces[1:]]


async def test_turn_takes_a_bounded_number_of_messages() -> None:
    waiting = [piece(number) for number in range(1, MAX_PIECES + 5)]
    assert await joined(*waiting) == list(range(1, MAX_PIECES))


async def test_message_does_not_join_an_edit_whose_answer_takes_an_older_place() -> None:
    assert await joined(piece(1), replaces=7) == []


async def test_messages_that_wait_as_one_are_found_by_a_later_one_of_them() -> None:
    queue = Queue(Room("ordinary"))
    queue.add(replace(piece(1), joined=(piece(2), piece(3))))
    assert [one.id for one in queue.holding(3)] == [1, 2, 3]
    assert queue.holding(1) == queue.holding(4) == []


async def test_message_under_a_key_that_is_not_trusted_does_not_join() -> None:
    assert await joined(piece(1), verified=False) == []


@pytest.mark.parametrize("steps", [0, 1, 2, 3, 4])
async def test_request_is_interrupted_also_while_a_message_joins(steps: int) -> None:
    ended: list[str] = []

    queue = Queue(Room("ordinary"))

    async def ask() -> None:
        try:
            await joining(queue, [piece(0)]).unless_message_joins(asyncio.Event().wait)
            ended.append("joined")
        except asyncio.CancelledError:
            ended.append("interrupted")
            raise

    async with asyncio.TaskGroup() as tasks:
        asking = tasks.create_task(ask())
        await asyncio.sleep(0)
        queue.add(piece(1))
        for _ in range(steps):
            await asyncio.sleep(0)
        before = ended.copy()
        asking.cancel()
    assert ended == (before or ["interrupted"])


def told_while_it_ends(tell: Callable[[], object]) -> Callable[[], Coroutine[Any, Any, str]]:
    """Return work that ends in the same step of the loop in which its turn is told something."""

    async def work() -> str:
        tell()
        return "done"

    return work


async def test_turn_restarts_if_it_is_changed_in_its_last_moment() -> None:
    messages = [piece(1)]
    turn = joining(Queue(Room("ordinary")), messages)
    revised = replace(messages[0], message=replace(messages[0].message, text="other words"))
    with pytest.raises(TurnChanged):
        await turn.run(told_while_it_ends(lambda: turn.change(1, revised)), asyncio.Semaphore(1))
    assert messages == [revised]


async def test_turn_is_not_stopped_at_the_moment_when_it_is_done() -> None:
    turn = joining(Queue(Room("ordinary")), [piece(1)])
    stops: list[asyncio.Task[bool]] = []

    async def work() -> str:
        stops.append(asyncio.create_task(turn.stop()))
        await asyncio.sleep(0)
        return "done"

    assert await turn.run(work, asyncio.Semaphore(1)) == "done"
    assert not await stops[0]


async def test_turn_that_is_slow_to_cancel_may_be_changed_again_and_stopped() -> None:
    messages = [piece(1), piece(2)]
    turn = joining(Queue(Room("ordinary")), messages)
    begun, letting_go, may_go = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def work() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            letting_go.set()
            await may_go.wait()

    running = asyncio.create_task(turn.run(work, asyncio.Semaphore(1)))
    await begun.wait()
    assert turn.change(1, None)
    await letting_go.wait()
    assert turn.piece(1) is None
    stop = asyncio.create_task(turn.stop())
    await asyncio.sleep(0)
    assert turn.change(2, None)
    may_go.set()
    with pytest.raises(TurnStopped):
        await running
    assert await stop
    assert [one.id for one in messages] == [1, 2]
