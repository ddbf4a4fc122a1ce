"""Order inside a chat, concurrency across chats, bounds."""

import asyncio
from functools import partial

from bot.dispatch import mailboxes
from bot.dispatch.mailboxes import Job, Mailboxes


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
        await boxes.put("a", Job(partial(slow, "a1")))
        await boxes.put("a", Job(partial(quick, "a2")))
        await boxes.put("b", Job(partial(quick, "b1")))
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
            await boxes.put(f"chat {number}", Job(nothing))
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
            await boxes.put("a", Job(partial(work, number), inbox_id=number))
        await boxes.put("a", Job(partial(work, 99)))
        await started.wait()
        assert boxes.drop("a", before=2) == (1,)
        assert boxes.drop("nobody", before=9) == ()
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
            await boxes.put("a", Job(wait, number))
        assert boxes.is_full("a")
        assert not boxes.is_full("b")
        gate.set()
        await boxes.drain()
        assert not boxes.is_full("a")


async def test_whoever_brings_more_than_there_is_room_for_waits() -> None:
    gate = asyncio.Event()
    brought = 0

    async def wait() -> None:
        await gate.wait()

    async def bring(boxes: Mailboxes) -> None:
        nonlocal brought
        for number in range(mailboxes.MAX_WAITING + 600):
            await boxes.put(f"chat {number % 500}", Job(wait))
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
