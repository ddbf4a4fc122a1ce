"""When a message request is accepted, and how often that is tried."""

import asyncio

import pytest

from bot.chat.door import MAX_IN_FLIGHT, MessageRequests
from bot.signal.errors import SignalError, SignalRejected, SignalTimeout, SignalUnavailable
from tests.fakes.partial_messenger import PartialMessenger

ADA = "7f3c1a52-6b1e-4a0e-9a55-3a1e1b6f0d11"
BEN = "0d1e2f30-0000-4000-8000-00000000000b"


class Channel(PartialMessenger):
    """Signal side on which each request waits in `asked` until it is answered."""

    def __init__(self) -> None:
        self.asked: asyncio.Queue[tuple[str, asyncio.Future[None]]] = asyncio.Queue()

    async def accept_request(self, person: str) -> None:
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        await self.asked.put((person, answer))
        await answer

    async def answer(self, error: SignalError | None = None) -> str:
        """Answer the next request and return its person."""
        person, answer = await self.asked.get()
        if error is None:
            answer.set_result(None)
        else:
            answer.set_exception(error)
        return person


async def settled() -> None:
    """Return when the group's tasks have done what they can do now."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_request_is_accepted_once_for_each_person() -> None:
    channel = Channel()
    async with asyncio.TaskGroup() as tasks:
        requests = MessageRequests(channel, tasks)
        for person in (ADA, ADA, BEN, ADA):
            requests.accept(person)
        assert [await channel.answer(), await channel.answer()] == [ADA, BEN]
        requests.accept(ADA)
    assert channel.asked.empty()


async def test_request_is_accepted_with_the_next_message_after_a_lost_connection() -> None:
    channel = Channel()
    async with asyncio.TaskGroup() as tasks:
        requests = MessageRequests(channel, tasks)
        requests.accept(ADA)
        await channel.answer(SignalUnavailable("gone"))
        await settled()
        requests.accept(ADA)
        assert await channel.answer() == ADA


@pytest.mark.parametrize("error", [SignalRejected("cannot"), SignalTimeout("late")])
async def test_refused_request_is_not_repeated(error: SignalError) -> None:
    channel = Channel()
    async with asyncio.TaskGroup() as tasks:
        requests = MessageRequests(channel, tasks)
        requests.accept(ADA)
        await channel.answer(error)
        await settled()
        requests.accept(ADA)
    assert channel.asked.empty()


async def test_requests_above_the_limit_wait_for_the_next_message() -> None:
    channel = Channel()
    people = [str(number) for number in range(MAX_IN_FLIGHT + 1)]
    async with asyncio.TaskGroup() as tasks:
        requests = MessageRequests(channel, tasks)
        for person in people:
            requests.accept(person)
        assert [await channel.answer() for _ in range(MAX_IN_FLIGHT)] == people[:-1]
        await settled()
        assert channel.asked.empty()
        requests.accept(people[-1])
        assert await channel.answer() == people[-1]
