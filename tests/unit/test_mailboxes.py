"""Order inside a chat, concurrency across chats, bounds."""

import asyncio
from functools import partial
from typing import Final

import pytest

from bot.dispatch import mailboxes
from bot.dispatch.mailboxes import Job, Mailboxes
from conversation_store.models import AcceptedMessage, ChatId, ReceivedMessage

A: Final = ChatId.direct("a")
B: Final = ChatId.direct("b")
NOBODY: Final = ChatId.direct("nobody")


def accepted(number: int) -> AcceptedMessage:
    return AcceptedMessage(number, ReceivedMessage("+49", "ada", number, A, "words", 1))


async def test_jobs_of_a_chat_run_in_order_and_chats_run_side_by_side() -> None:
    done: list[str] = []
    gate, first_done = asyncio.Event(), asyncio.Event()

    async def slow(name: str) -> None:
        await gate.wait()
        done.append(name)

    async def quick(name: str) -> None:
        done.append(name)
        first_done.set()

    async with asyncio.TaskGroup() as tasks:
        boxes = Mailboxes(tasks)
        await boxes.put(A, Job(partial(slow, "a1")))
        await boxes.put(A, Job(partial(quick, "a2")))
        await boxes.put(B, Job(partial(quick, "b1")))
        await first_done.wait()
        assert done == ["b1"]
        gate.set()
        await boxes.drain()
    assert done == ["b1", "a1", "a2"]


async def test_a_chat_without_work_leaves_nothing_behind() -> None:
    async def nothing() -> None: ...

    async with asyncio.TaskGroup() as tasks:
        boxes = Mailboxes(tasks)
        for number in range(100):
            await boxes.put(ChatId.direct(f"{number}"), Job(nothing))
        await boxes.drain()
        assert boxes._waiting == {}
        assert boxes._workers == set()
        assert boxes._count == 0


async def test_dropping_takes_earlier_messages_and_leaves_what_must_be_done() -> None:
    done: list[int] = []
    started, gate = asyncio.Event(), asyncio.Event()

    async def work(number: int) -> None:
        started.set()
        await gate.wait()
        done.append(number)

    async with asyncio.TaskGroup() as tasks:
        boxes = Mailboxes(tasks)
        for number in range(3):
            await boxes.put(A, Job(partial(work, number), accepted(number)))
        await boxes.put(A, Job(partial(work, 99)))
        await started.wait()
        assert [one.id for one in boxes.drop(A, before=2)] == [1]
        assert boxes.drop(NOBODY, before=9) == ()
        gate.set()
        await boxes.drain()
    assert done == [0, 2, 99]


async def test_a_full_chat_is_seen_and_other_chats_are_not_full() -> None:
    gate = asyncio.Event()

    async def wait() -> None:
        await gate.wait()

    async with asyncio.TaskGroup() as tasks:
        boxes = Mailboxes(tasks)
        for number in range(mailboxes.MAX_WAITING_IN_CHAT):
            await boxes.put(A, Job(wait, accepted(number)))
        assert boxes.is_full(A)
        assert not boxes.is_full(B)
        gate.set()
        await boxes.drain()
        assert not boxes.is_full(A)


async def test_whoever_brings_more_than_there_is_room_for_waits() -> None:
    gate = asyncio.Event()
    brought = 0

    async def wait() -> None:
        await gate.wait()

    async def bring(boxes: Mailboxes) -> None:
        nonlocal brought
        for number in range(mailboxes.MAX_WAITING + 600):
            await boxes.put(ChatId.direct(f"{number % 500}"), Job(wait))
            brought += 1

    async with asyncio.TaskGroup() as tasks:
        boxes = Mailboxes(tasks)
        bringing = tasks.create_task(bring(boxes))
        last = -1
        while brought != last:
            last = brought
            for _ in range(5):
                await asyncio.sleep(0)
        assert brought <= mailboxes.MAX_WAITING + 6000
        assert not bringing.done()
        gate.set()
        await bringing
        await boxes.drain()


async def test_a_message_that_waits_is_replaced_and_withdrawn_in_its_place() -> None:
    done: list[str] = []
    gate = asyncio.Event()

    async def work(name: str) -> None:
        await gate.wait()
        done.append(name)

    async with asyncio.TaskGroup() as tasks:
        boxes = Mailboxes(tasks)
        for number in range(4):
            await boxes.put(A, Job(partial(work, str(number)), accepted(number)))
        await asyncio.sleep(0)  # the worker takes the first
        assert boxes.piece(A, 0) is None
        assert boxes.piece(A, 2) == accepted(2)
        assert boxes.replace(A, 2, Job(partial(work, "two"), accepted(2)))
        assert boxes.replace(A, 3, None)
        assert not boxes.replace(A, 3, None)
        gate.set()
        await boxes.drain()
        assert boxes._count == 0
    assert done == ["0", "1", "two"]


async def test_only_the_next_message_joins_and_only_if_it_is_a_piece() -> None:
    done: list[int] = []
    gate = asyncio.Event()

    async def work(number: int) -> None:
        await gate.wait()
        done.append(number)

    async with asyncio.TaskGroup() as tasks:
        boxes = Mailboxes(tasks)
        for number, joins in enumerate((True, True, False, True)):
            await boxes.put(A, Job(partial(work, number), accepted(number), joins=joins))
        await asyncio.sleep(0)  # the worker takes the first
        assert boxes.take_joining(A, lambda _: False) is None
        assert boxes.take_joining(A, lambda _: True) == accepted(1)
        assert boxes.take_joining(A, lambda _: True) is None
        gate.set()
        await boxes.drain()
    assert done == [0, 2, 3]


@pytest.mark.parametrize("steps", [0, 1, 2, 3])
async def test_a_job_is_interrupted_also_while_it_is_told_of_another(steps: int) -> None:
    ended: list[str] = []

    async def nothing() -> None: ...

    async def wait_for_another() -> None:
        try:
            await boxes.arrival(A, seconds=60.0)
            ended.append("told")
        except asyncio.CancelledError:
            ended.append("interrupted")
            raise

    async with asyncio.TaskGroup() as tasks:
        boxes = Mailboxes(tasks)
        await boxes.put(A, Job(wait_for_another))
        await asyncio.sleep(0)
        await boxes.put(A, Job(nothing))
        for _ in range(steps):
            await asyncio.sleep(0)
        before = ended.copy()
        boxes.cancel()
    assert ended == (before or ["interrupted"])
