"""Queues of chats: order, bounds and idle chats; cases beyond the stories in tests/e2e."""

import asyncio
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from prometheus_client import generate_latest

from bot.chat.access import Access
from bot.chat.chat import Chats
from bot.chat.joining import MAX_WAITING, Queue, Room
from bot.chat.outbox import Notices, Outbox
from bot.chat.upkeep import FileCleanup
from bot.config.settings import AccessSettings
from bot.language.languages import Languages
from conversation_store.models import AcceptedMessage, ChatId
from tests.exposition import Exposition
from tests.fakes.partial_messenger import PartialMessenger
from tests.unit.stores import ADA, accept, received, store_at, waiting

BEN: Final = ChatId.direct("ben")


def chats(tasks: asyncio.TaskGroup, store: Any = None, **parts: Any) -> Chats:
    """Return chats with only the parts that a test needs."""
    unused: dict[str, Any] = dict.fromkeys(
        ("replies", "conversation", "questions", "notices", "presence", "door", "file_cleanup")
    )
    return Chats(tasks=tasks, store=store, reminders_changed=asyncio.Event(), **unused | parts)


def message(number: int) -> AcceptedMessage:
    return AcceptedMessage(number, received(number))


async def test_callers_wait_for_room_in_the_queues() -> None:
    room = Room("ordinary")
    queue = Queue(room)
    for number in range(MAX_WAITING):
        queue.add(message(number))
    async with asyncio.TaskGroup() as tasks:
        bringing = tasks.create_task(room.wait())
        await asyncio.sleep(0)
        assert not bringing.done()
        queue.take()
    queue.clear()


def test_message_that_waits_is_replaced_and_removed_in_its_place() -> None:
    queue = Queue(Room("ordinary"))
    first = message(0)
    for item in (first, message(1), message(2)):
        queue.add(item)
    other = AcceptedMessage(1, received(7))
    queue.replace(1, other)
    queue.replace(2, None)
    queue.replace(2, None)
    assert queue.find(2) is None
    assert queue.find(1) is other
    assert [queue.take() for _ in range(len(queue))] == [first, other]


def test_dropping_takes_earlier_messages_and_leaves_other_work() -> None:
    async def work() -> None: ...

    queue = Queue(Room("ordinary"))
    first, second, third = (message(number) for number in range(3))
    for item in (first, work, second, third):
        queue.add(item)
    assert queue.drop(before=2) == [first, second]
    assert [queue.take() for _ in range(len(queue))] == [work, third]


async def test_messages_dropped_by_a_stop_are_closed_for_good(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store, asyncio.TaskGroup() as tasks:
        here = chats(tasks, store, file_cleanup=FileCleanup(PartialMessenger()))
        accepted = [await accept(store, received(number)) for number in (1, 2)]
        with here.open(ADA) as chat:
            for one in accepted:
                chat.queue.add(one)
            assert await chat.stop(before=1_000) == 2
        assert await waiting(store) == []


async def test_notice_waits_for_the_work_of_its_chat(tmp_path: Path) -> None:
    sent: list[str] = []
    gate = asyncio.Event()

    class Letterbox(PartialMessenger):
        connected = True

        async def send(self, chat: ChatId, text: str, **_: Any) -> int:
            sent.append(text)
            return 1

    async def turn() -> None:
        await gate.wait()
        sent.append("the answer")

    async with store_at(tmp_path) as store, asyncio.TaskGroup() as tasks:
        notices = Notices(Outbox(Letterbox(), store), Languages(store), Access(AccessSettings()))
        here = chats(tasks, store, notices=notices)
        running = tasks.create_task(here.run(asyncio.Queue()))
        with here.open(ADA) as chat:
            chat.add(turn)
        await notices.send(ADA, "the notice")
        await asyncio.sleep(0)
        assert sent == []
        gate.set()
        await asyncio.sleep(0)
        await here.drain()
        running.cancel()
    assert sent == ["the answer", "the notice"]


async def test_suspended_turns_are_counted_in_a_thread_while_chats_come() -> None:
    class Counted(set[int]):
        """Another chat comes while this is counted."""

        def __len__(self) -> int:
            opened.enter_context(here.open(BEN))
            return 2

    async with asyncio.TaskGroup() as tasks:
        here = chats(tasks)
        with ExitStack() as opened:
            chat = opened.enter_context(here.open(ADA))
            chat.suspended = Counted()
            scraped = await asyncio.to_thread(generate_latest)
            chat.suspended = set()
    assert Exposition(scraped.decode()).value("suspended_turns") == 2
