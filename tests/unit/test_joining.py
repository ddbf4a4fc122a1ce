"""Messages that join a turn, beside what the stories in tests/e2e/test_joining.py tell."""

import asyncio

import pytest

from bot.chat.joining import MAX_PIECES, Queue, Room, RunningTurn
from conversation_store.models import AcceptedMessage
from tests.unit.stores import received


def piece(number: int, *, author: str = "ada") -> AcceptedMessage:
    return AcceptedMessage(number, received(number, author=author))


def joining(queue: Queue, pieces: list[AcceptedMessage], *, verified: bool = True) -> RunningTurn:
    return RunningTurn(queue, pieces, lambda _: verified, joined=lambda _: None)


async def joined(*waiting: AcceptedMessage, verified: bool = True) -> list[int]:
    """Return which of the messages that wait become part of the first one's turn."""
    queue, pieces = Queue(Room("ordinary")), [piece(0)]
    for one in waiting:
        queue.add(one)
    joining(queue, pieces, verified=verified).take()
    return [one.id for one in pieces[1:]]


async def test_turn_takes_a_bounded_number_of_messages() -> None:
    waiting = [piece(number) for number in range(1, MAX_PIECES + 5)]
    assert await joined(*waiting) == list(range(1, MAX_PIECES))


async def test_message_of_another_person_ends_the_messages_that_join() -> None:
    assert await joined(piece(1), piece(2, author="ben"), piece(3)) == [1]


async def test_message_under_a_key_that_is_not_trusted_does_not_join() -> None:
    assert await joined(piece(1), verified=False) == []


@pytest.mark.parametrize("steps", [0, 1, 2, 3, 4])
async def test_request_is_interrupted_also_while_a_message_joins(steps: int) -> None:
    ended: list[str] = []

    queue = Queue(Room("ordinary"))

    async def ask() -> None:
        try:
            await joining(queue, [piece(0)]).unless_one_comes(asyncio.Event().wait)
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
