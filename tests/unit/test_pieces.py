"""Which messages are pieces of one turn."""

import asyncio
from functools import partial

from bot.dispatch.mailboxes import Job, Mailboxes
from bot.dispatch.turns.batching import MAX_PIECES, Batching
from conversation_store.models import AcceptedMessage
from tests.unit.stores import ADA, received

NOW_MS = 1_000_000
SETTLE_SECONDS = 5.0
LONG_AGO = NOW_MS - 3_600_000


def piece(
    number: int, *, sent_at: int, received_at: int = LONG_AGO, author: str = "ada"
) -> AcceptedMessage:
    message = received(number, author=author, sent_at=sent_at, received_at=received_at)
    return AcceptedMessage(number, message)


class Desk:
    """Gathers the pieces of one chat's first message; the clock stands still."""

    def __init__(self, tasks: asyncio.TaskGroup, settle_seconds: float) -> None:
        self.mailboxes = Mailboxes(tasks)
        self.gathered: list[AcceptedMessage] = []
        self.left_alone: list[int] = []
        self._pieces = Batching(
            self.mailboxes, settle_seconds=settle_seconds, clock=lambda: NOW_MS / 1_000
        )

    def add_first(self, first: AcceptedMessage) -> None:
        self.gathered.append(first)
        self.mailboxes.add(ADA, Job(partial(self._pieces.gather, ADA, self.gathered), first))

    def add(self, following: AcceptedMessage) -> None:
        self.mailboxes.add(ADA, Job(partial(self._leave, following), following, joins=True))

    async def _leave(self, one: AcceptedMessage) -> None:
        self.left_alone.append(one.id)


async def gathered(*pieces: AcceptedMessage, settle_seconds: float = SETTLE_SECONDS) -> list[int]:
    """Let pieces wait together, and return which of them become one turn."""
    async with asyncio.TaskGroup() as tasks:
        desk = Desk(tasks, settle_seconds)
        desk.add_first(pieces[0])
        for following in pieces[1:]:
            desk.add(following)
        await desk.mailboxes.drain()
    joined = [one.id for one in desk.gathered]
    assert [*joined, *desk.left_alone] == [one.id for one in pieces]
    return joined


async def test_what_waits_joins_as_far_as_it_was_sent_in_one_go() -> None:
    times = (0, 4_000, 8_000, 13_001)
    assert await gathered(*(piece(1 + at, sent_at=at) for at in times)) == [1, 4_001, 8_001]


async def test_somebody_elses_message_ends_the_pieces() -> None:
    others = piece(2, sent_at=0, author="bob")
    assert await gathered(piece(1, sent_at=0), others, piece(3, sent_at=0)) == [1]


async def test_without_a_time_to_settle_every_message_stands_alone() -> None:
    assert await gathered(piece(1, sent_at=0), piece(2, sent_at=0), settle_seconds=0.0) == [1]


async def test_a_turn_has_a_bounded_number_of_pieces() -> None:
    many = [piece(number, sent_at=0) for number in range(MAX_PIECES + 5)]
    assert len(await gathered(*many)) == MAX_PIECES


async def test_what_comes_in_meanwhile_joins_however_late_the_first_was_delivered() -> None:
    async with asyncio.TaskGroup() as tasks:
        desk = Desk(tasks, SETTLE_SECONDS)
        desk.add_first(piece(1, sent_at=0, received_at=NOW_MS))
        await asyncio.sleep(0)
        desk.add(piece(2, sent_at=NOW_MS, received_at=NOW_MS))
        await asyncio.sleep(0)
        desk.add(piece(3, sent_at=NOW_MS, received_at=NOW_MS, author="bob"))
        await desk.mailboxes.drain()
    assert [one.id for one in desk.gathered] == [1, 2]
    assert desk.left_alone == [3]
