"""Answers in doubt: an earlier process may have sent them. On a real store."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any, Final

import pytest

from bot.chat import outbox
from bot.chat.outbox import Doubts, Outbox
from bot.signal.account import Group
from bot.signal.errors import SignalTimeout, SignalUnavailable
from bot.signal.events import Receipt
from bot.signal.receipts import Attempt, DeliveryReceipts
from conversation_store.models import ChatId, OutgoingMessage
from conversation_store.outbox import KEPT_MS, Doubt
from conversation_store.store import ConversationStore, open_store
from tests.fakes.partial_messenger import PartialMessenger
from tests.unit.stores import (
    ADA,
    GROUP,
    accept,
    begin,
    call,
    edit_of,
    forget,
    received,
    rows,
    settle,
)

START_MS: Final = 1_795_291_728_000
A_MINUTE_MS: Final = 60_000
RESENT_MS: Final = START_MS + A_MINUTE_MS + 5_000
WAIT_SECONDS: Final = 30.0


class Signal(PartialMessenger):
    """A Signal side that has been connected for long, and always sends with the same timestamp."""

    connected_since: float | None = 0.0

    def __init__(self, clock: Callable[[], float], members: frozenset[str] | None) -> None:
        self.receipts = DeliveryReceipts(clock=clock)
        self.members = members
        self.asked_for_members = asyncio.Event()

    async def send(self, *_: Any, **__: Any) -> int:
        return START_MS + 5

    async def group(self, _: ChatId) -> Group:
        self.asked_for_members.set()
        if self.members is None:
            raise SignalUnavailable("away")
        return Group(self.members, frozenset(), True, False, False)


@dataclass
class Life:
    """A process on a store."""

    store: ConversationStore
    signal: Signal
    doubts: Doubts

    def confirm(self, *times: int, person: str = "ada") -> None:
        """Let a phone confirm messages, by their ms after the start of the first process."""
        self.signal.receipts.take(Receipt(person, tuple(START_MS + at for at in times)))

    async def proven(self) -> dict[str, int]:
        """Return the answers that a receipt proves, and their ms."""
        parts = [
            one for one in await self.store.outbox.unfinished() if self.doubts.is_in_doubt(one)
        ]
        found = {part.text: await self.doubts.earlier_proof(part) for part in parts}
        return {text: at - START_MS for text, at in found.items() if at is not None}

    async def sent_again(self, part: OutgoingMessage) -> None:
        """Note that an answer in doubt was sent again."""
        self.signal.receipts.know(RESENT_MS)
        await self.store.outbox.mark_sent(part, RESENT_MS)
        self.doubts.sent(part, RESENT_MS, by_receipt=False)

    async def copies(self) -> list[int]:
        return [at - START_MS for _, at in await self.signal.receipts.copies()]


@asynccontextmanager
async def life(
    folder: Path,
    after_ms: int = A_MINUTE_MS,
    *,
    reacts: bool = False,
    members: frozenset[str] | None = frozenset({"ada", "ben"}),
) -> AsyncIterator[Life]:
    """Provide a process that starts so long after the first one."""

    def clock() -> float:
        return (START_MS + after_ms) / 1_000

    async with open_store(folder / "store.db", clock=clock) as store:
        signal = Signal(clock, members)
        doubts = Doubts(signal, store)
        await doubts.resume(reacts=reacts)
        yield Life(store, signal, doubts)


async def answered(
    store: ConversationStore, *texts: str, number: int = 1, chat: ChatId = ADA
) -> tuple[OutgoingMessage, ...]:
    """Store an answer to a message, as a process does before it sends it."""
    message = received(number, "q", chat, received_at=START_MS - A_MINUTE_MS)
    return await store.turns.answer(await accept(store, message), texts, outcome="command")


Left = Callable[[Life], Awaitable[object]]
"""Does what the first process did before it was killed."""


def leaving(*texts: str, **more: Any) -> Left:
    async def leave(first: Life) -> None:
        await answered(first.store, *texts, **more)

    return leave


one: Final = leaving("one")
three_parts: Final = leaving("one", "two", "three")
in_a_group: Final = leaving("to all", number=2, chat=GROUP)


async def two_answers(first: Life) -> None:
    await one(first)
    await answered(first.store, "two", number=2)


async def sent_from_another_device(first: Life) -> None:
    await one(first)
    first.signal.receipts.take(Receipt(None, (START_MS + 5,)))


async def private_and_in_a_group(first: Life) -> None:
    await one(first)
    await in_a_group(first)


async def a_running_turn(first: Life) -> None:
    await one(first)
    turn = await begin(first.store, received(2, "q", GROUP))
    await call(first.store, turn, "4")


async def known_progress(first: Life) -> None:
    await one(first)
    turn = await begin(first.store, received(2, "q", GROUP))
    first.store.turns.record_progress(turn.id, START_MS + 5)


async def an_answer_that_was_forgotten(first: Life) -> None:
    await answered(first.store, "to all", chat=GROUP)
    await answered(first.store, "one", number=2)
    await forget(first.store, 1, 3, GROUP)


async def an_earlier_send_of_what_was_sent(first: Life) -> None:
    await one(first)
    (to_all,) = await answered(first.store, "to all", number=2, chat=GROUP)
    first.store.doubts.note(Doubt(to_all.id, GROUP, START_MS, START_MS + 10_000))
    await first.store.outbox.mark_sent(to_all, RESENT_MS)


async def a_deletion(first: Life) -> None:
    (part,) = await answered(first.store, "one")
    first.store.doubts.note(Doubt(part.id, ADA, START_MS, START_MS + 10_000))
    removal = await first.store.doubts.remove_copy(None, ADA, START_MS - 30_000)
    assert removal is not None
    await first.store.outbox.mark_sent(removal, 0)


async def progress_that_was_confirmed(first: Life) -> None:
    await one(first)
    for at in (5, 9):  # before the reply
        first.store.doubts.confirm(START_MS + at, "ada")
    assert await first.doubts.send(ADA, "✓ calculate") == START_MS + 5


@pytest.mark.parametrize(
    ("left", "confirmed", "proven"),
    [
        (one, [("ada", 5)], {"one": 5}),
        (one, [("ada", -1)], {}),
        (one, [("ada", 120_000)], {}),
        (one, [("ben", 5)], {}),
        (three_parts, [("ada", 5)], {"one": 5}),
        (two_answers, [("ada", 5)], {}),
        (sent_from_another_device, [("ada", 5)], {}),
        (in_a_group, [("ben", 5)], {"to all": 5}),
        (in_a_group, [("eve", 5)], {}),
        (private_and_in_a_group, [("ada", 5)], {}),
        (private_and_in_a_group, [("ada", 5), ("ben", 5)], {"to all": 5}),
        (a_running_turn, [("ada", 5)], {}),
        (known_progress, [("ada", 5)], {}),
        (an_answer_that_was_forgotten, [("ada", 5)], {}),
        (an_earlier_send_of_what_was_sent, [("ada", 5)], {}),
        (a_deletion, [("ada", 5)], {}),
        (progress_that_was_confirmed, [], {"one": 9}),
    ],
)
async def test_only_receipts_that_can_mean_nothing_else_prove_an_answer(
    tmp_path: Path, left: Left, confirmed: list[tuple[str, int]], proven: dict[str, int]
) -> None:
    async with life(tmp_path, 0) as first:
        await left(first)
        await first.store.upkeep.ping()
    async with life(tmp_path) as then:
        for person, at in confirmed:
            then.confirm(at, person=person)
        assert await then.proven() == proven


@pytest.mark.parametrize(
    ("left", "more", "proven"),
    [
        (one, {"reacts": True}, {}),
        (one, {"after_ms": -600_000}, {"one": 5}),
        (in_a_group, {"members": None}, {}),
    ],
    ids=["each message gets a reaction", "the clock was turned back", "unknown members"],
)
async def test_the_next_process_knows_what_a_receipt_may_be_for(
    tmp_path: Path, left: Left, more: dict[str, Any], proven: dict[str, int]
) -> None:
    async with life(tmp_path, 0) as first:
        await left(first)
    async with life(tmp_path, **more) as then:
        then.confirm(5)
        assert await then.proven() == proven


async def test_later_process_knows_a_copy_until_it_is_deleted(tmp_path: Path) -> None:
    async with life(tmp_path, 0) as first:
        (part,) = await answered(first.store, "hello")
    async with life(tmp_path) as second:
        await second.sent_again(part)
    for is_deleted in (False, True):
        async with life(tmp_path, 2 * A_MINUTE_MS) as then:
            then.confirm(5)
            assert await then.copies() == []  # perhaps no phone has the later one
            then.confirm(RESENT_MS - START_MS)
            assert await then.copies() == ([] if is_deleted else [5])
            await then.store.doubts.remove_copy(part.id, ADA, START_MS + 5)


async def test_edit_sent_twice_is_kept_under_its_first_timestamp(tmp_path: Path) -> None:
    async with life(tmp_path, 0) as first:
        (part,) = await answered(first.store, "wrong")
        await first.store.outbox.mark_sent(part, START_MS - 50_000)
        edit = edit_of(1, 9, "q", received_at=START_MS)
        _, accepted = await settle(first.store, edit, within_ms=KEPT_MS)
        (again,) = await first.store.turns.answer(accepted, ("right",), outcome="command")
        await first.store.outbox.mark_sent(again, RESENT_MS)
        assert await first.store.doubts.remove_copy(again.id, ADA, START_MS + 5) is None
    sql = f"SELECT signal_timestamp FROM outbox WHERE id = {again.id}"
    assert rows(tmp_path, sql) == [(START_MS + 5,)]


async def test_copy_stays_after_a_day(tmp_path: Path) -> None:
    async with life(tmp_path, 0) as first:
        (part,) = await answered(first.store, "hello")
    async with life(tmp_path) as second:
        await second.sent_again(part)
    async with life(tmp_path, 2 * KEPT_MS) as third:
        await third.store.upkeep.purge()
    assert rows(tmp_path, "SELECT * FROM doubts") == []


async def test_a_receipt_settles_the_latest_of_several_sends(tmp_path: Path) -> None:
    async with life(tmp_path, 0) as first:
        (part,) = await answered(first.store, "hello")
        for since, until in ((0, 16_000), (8_000, 80_000)):
            first.store.doubts.note(Doubt(part.id, ADA, START_MS + since, START_MS + until))
        await first.store.upkeep.ping()
    async with life(tmp_path) as second:
        second.confirm(9_000)
        assert await second.proven() == {"hello": 9_000}
        await second.store.outbox.mark_sent(part, START_MS + 9_000, by_receipt=True)
        second.doubts.sent(part, START_MS + 9_000, by_receipt=True)
        second.confirm(9_000, 5)  # only the first send can have this timestamp
        assert await second.copies() == [5]
    async with life(tmp_path) as third:  # the store has kept both receipts
        assert await third.copies() == [5]


async def test_receipt_counts_as_soon_as_the_members_of_its_group_are_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "PROOF_SECONDS", 2 * WAIT_SECONDS)
    monkeypatch.setattr(outbox, "MEMBERS_SECONDS", 0.02)
    async with life(tmp_path, 0) as first:
        await in_a_group(first)
    async with life(tmp_path, members=None) as then, asyncio.timeout(WAIT_SECONDS):
        then.signal.connected_since = monotonic()
        then.confirm(5, person="ben")
        running = asyncio.create_task(then.doubts.run(lambda _: None))
        proven = asyncio.create_task(then.proven())
        await then.signal.asked_for_members.wait()
        then.signal.members = frozenset({"ada", "ben"})
        assert await proven == {"to all": 5}
        running.cancel()


async def test_bot_concludes_nothing_without_a_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "PROOF_SECONDS", 0.1)
    async with life(tmp_path, 0) as first:
        (part,) = await answered(first.store, "hello")
    async with life(tmp_path) as then, asyncio.timeout(WAIT_SECONDS):
        then.signal.connected, then.signal.connected_since = False, None
        sending = Outbox(then.signal, then.store)
        sending.doubts = then.doubts
        delivering = asyncio.create_task(sending.deliver([part]))
        await asyncio.wait([delivering], timeout=0.5)
        then.signal.connected, then.signal.connected_since = True, monotonic()
        then.confirm(5)
        assert await delivering
        assert await then.store.outbox.unfinished() == ()


async def test_receipt_that_proved_a_note_proves_no_answer(tmp_path: Path) -> None:
    async with life(tmp_path) as here:
        receipts = here.signal.receipts
        receipts.add(Attempt(ADA, START_MS + 10 * A_MINUTE_MS))  # so that receipts are kept

        async def lost() -> int:
            here.confirm(A_MINUTE_MS + 1)
            raise SignalTimeout("the reply was lost")

        with pytest.raises(SignalTimeout) as failure:
            await receipts.settle(ADA, lost())
        assert await here.doubts.settle(ADA, failure.value, 3) == START_MS + A_MINUTE_MS + 1
        assert receipts.proof(Attempt(ADA, 0, 2**62)) is None
    assert len(rows(tmp_path, "SELECT * FROM doubts")) == 1  # a late copy of it may come
