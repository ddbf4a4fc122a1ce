"""How a turn is stopped and changed at any moment, and what it says came of that."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest

from bot.chat.joining import Queue, Room, RunningTurn, TurnChanged, TurnStopped
from conversation_store.models import AcceptedMessage
from tests.unit.stores import received


def pieces(count: int = 1) -> list[AcceptedMessage]:
    return [AcceptedMessage(number, received(number)) for number in range(1, count + 1)]


def running_turn(messages: list[AcceptedMessage]) -> RunningTurn:
    queue = Queue(Room("ordinary"))
    return RunningTurn(queue, messages, lambda _: True, joined=lambda _: None)


def places() -> asyncio.Semaphore:
    return asyncio.Semaphore(1)


def told_while_it_ends(tell: Callable[[], object]) -> Callable[[], Coroutine[Any, Any, str]]:
    """Work that is done in the same step in which somebody tells its turn something."""

    async def work() -> str:
        tell()
        return "done"

    return work


async def test_turn_begins_afresh_if_it_is_changed_at_the_moment_when_it_is_done() -> None:
    (piece,) = messages = pieces()
    turn = running_turn(messages)
    revised = replace(piece, message=replace(piece.message, text="other words"))
    with pytest.raises(TurnChanged):
        await turn.run(told_while_it_ends(lambda: turn.change(piece.id, revised)), places())
    assert messages == [revised]


async def test_turn_is_not_stopped_at_the_moment_when_it_is_done() -> None:
    turn = running_turn(pieces())
    stops: list[asyncio.Task[bool]] = []

    async def work() -> str:
        stops.append(asyncio.create_task(turn.stop()))
        await asyncio.sleep(0)
        return "done"

    assert await turn.run(work, places()) == "done"
    assert not await stops[0]


async def test_turn_that_is_slow_to_let_go_may_be_changed_again_and_stopped() -> None:
    messages = pieces(2)
    turn = running_turn(messages)
    begun, letting_go, may_go = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def work() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            letting_go.set()
            await may_go.wait()

    running = asyncio.create_task(turn.run(work, places()))
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
    assert [piece.id for piece in messages] == [1, 2]
