"""Receipts and the clock; other tests of receipts are in tests/contract/test_messenger.py."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

import pytest

from bot.signal.errors import (
    SignalError,
    SignalPassedOver,
    SignalRateLimited,
    SignalRejected,
    SignalTimeout,
)
from bot.signal.events import Receipt
from bot.signal.receipts import (
    CLOCK_SKEW_MS,
    MAX_CONFIRMED_BY_ONE,
    MAX_KNOWN,
    TIDY_ATTEMPTS,
    Attempt,
    DeliveryReceipts,
)
from conversation_store.models import ChatId
from conversation_store.outbox import KEPT_MS, LATE_START_MS

ADA = "7f3c1a52-6b1e-4a0e-9a55-3a1e1b6f0d11"
CHAT = ChatId.direct(ADA)
TEAM = ChatId.group("AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=")
A_MINUTE_MS = 60_000


class Phone:
    """Ada's phone, and a clock that stands still."""

    def __init__(self) -> None:
        self.now_ms = 1_795_291_728_000
        self.receipts = DeliveryReceipts(clock=lambda: self.now_ms / 1_000)

    def confirm(self, timestamp: int) -> None:
        self.receipts.take(Receipt(ADA, (timestamp,)))

    async def lost_send(self, chat: ChatId, *confirmed: int) -> int | None:
        """Make a send whose answer is lost after the phone confirmed some messages.

        Return its timestamp, if a receipt proves it.
        """

        async def send() -> int:
            for timestamp in confirmed:
                self.confirm(timestamp)
            raise SignalTimeout("lost")

        with pytest.raises(SignalTimeout) as failure:
            await self.receipts.settle(chat, send())
        found = await self.receipts.wait_for_proof([failure.value.sending], 0.0)
        if found is not None:
            self.receipts.drop(failure.value.sending)
        return found


@pytest.mark.parametrize(("behind_ms", "proven"), [(CLOCK_SKEW_MS, True), (60_000, False)])
async def test_the_clock_of_signal_cli_may_be_a_little_behind(behind_ms: int, proven: bool) -> None:
    phone = Phone()
    phone.now_ms += A_MINUTE_MS
    confirmed = phone.now_ms - behind_ms
    assert await phone.lost_send(CHAT, confirmed) == (confirmed if proven else None)


async def test_receipts_prove_sends_also_after_the_clock_was_turned_back() -> None:
    phone = Phone()
    phone.now_ms -= 60 * A_MINUTE_MS
    assert await phone.lost_send(CHAT, phone.now_ms) == phone.now_ms


@pytest.mark.parametrize(("pause_ms", "proven"), [(LATE_START_MS, True), (1_000, False)])
async def test_send_in_doubt_affects_only_sends_soon_after_it(pause_ms: int, proven: bool) -> None:
    phone = Phone()
    assert await phone.lost_send(CHAT) is None
    phone.now_ms += pause_ms
    assert await phone.lost_send(CHAT, phone.now_ms) == (phone.now_ms if proven else None)


async def test_passed_over_send_does_not_affect_the_next_one() -> None:
    phone = Phone()
    with pytest.raises(SignalPassedOver) as failure:
        await phone.receipts.settle(CHAT, passed_over())
    phone.receipts.drop(failure.value.sending)
    assert await phone.lost_send(CHAT, phone.now_ms) == phone.now_ms


async def test_a_receipt_between_the_reply_and_its_note_still_names_the_copy() -> None:
    phone = Phone()
    doubt = Attempt(CHAT, phone.now_ms, phone.now_ms + 100, row=1)
    phone.receipts.add(doubt)
    kept, copy = phone.now_ms + 500, phone.now_ms + 50
    phone.receipts.know(kept)
    phone.confirm(kept)
    phone.receipts.sent_again(doubt, kept, is_edit=False)
    phone.confirm(copy)
    assert await phone.receipts.copies() == [(doubt, copy)]


@pytest.mark.parametrize("is_early", [False, True])
async def test_a_receipt_proves_a_send_during_which_the_clock_was_turned_back(
    is_early: bool,
) -> None:
    phone = Phone()
    sent_at = phone.now_ms

    async def send() -> int:
        phone.now_ms -= 60 * A_MINUTE_MS
        if is_early:
            phone.confirm(sent_at)
        raise SignalTimeout("lost")

    with pytest.raises(SignalTimeout) as failure:
        await phone.receipts.settle(CHAT, send())
    if not is_early:
        phone.confirm(sent_at)
    assert await phone.receipts.wait_for_proof([failure.value.sending], 0.0) == sent_at


async def test_a_receipt_may_be_for_a_request_during_which_the_clock_was_turned_back() -> None:
    phone = Phone()
    doubt = Attempt(CHAT, phone.now_ms, phone.now_ms + 1_000, row=1)
    phone.receipts.add(doubt)
    with phone.receipts.unnamed(CHAT):
        phone.confirm(phone.now_ms + 500)
        phone.now_ms -= 60 * A_MINUTE_MS
        assert phone.receipts.proof(doubt) is None


async def test_receipts_that_come_while_the_store_looks_are_looked_up_as_well() -> None:
    phone = Phone()
    doubt = Attempt(CHAT, phone.now_ms, phone.now_ms + 100, row=1)
    phone.receipts.add(doubt)
    stored = [phone.now_ms + 1, phone.now_ms + 2]

    async def known(timestamps: Sequence[int]) -> list[int]:
        phone.confirm(stored[1])
        return [timestamp for timestamp in timestamps if timestamp in stored]

    phone.receipts.known = known
    phone.confirm(stored[0])
    assert await phone.receipts.wait_for_proof([doubt], 0.0) is None


async def test_no_copy_is_deleted_that_may_be_a_message_on_its_way() -> None:
    phone = Phone()
    doubt = Attempt(CHAT, phone.now_ms, phone.now_ms + 10_000, row=1)
    phone.receipts.add(doubt)
    phone.receipts.sent_again(doubt, phone.now_ms + 500, is_edit=False)
    phone.confirm(phone.now_ms + 500)
    phone.now_ms += 5_000
    with phone.receipts.unnamed(CHAT, is_message=True):
        phone.confirm(phone.now_ms)
        phone.now_ms -= 60 * A_MINUTE_MS  # the clock is turned back
        assert await phone.receipts.copies() == []


async def test_an_unwanted_message_to_a_group_is_deleted_once_its_members_are_known() -> None:
    phone = Phone()
    unwanted = Attempt(TEAM, phone.now_ms, phone.now_ms + 100)
    phone.receipts.add(unwanted)
    phone.receipts.abandon(unwanted)
    phone.confirm(phone.now_ms)
    assert phone.receipts.in_unknown_groups == [unwanted]
    assert await phone.receipts.copies() == []
    unwanted.people = frozenset({ADA})
    assert await phone.receipts.copies() == [(unwanted, phone.now_ms)]


async def test_the_deletion_of_an_unwanted_message_is_not_deleted_as_well() -> None:
    phone = Phone()
    unwanted = Attempt(CHAT, phone.now_ms, phone.now_ms + 10_000)
    phone.receipts.add(unwanted)
    phone.receipts.abandon(unwanted)
    phone.now_ms += 5_000
    with phone.receipts.unnamed(CHAT):
        deletion = phone.now_ms
    phone.confirm(deletion)
    assert await phone.receipts.copies() == []


async def test_a_copy_that_may_be_in_two_chats_is_deleted_in_both() -> None:
    phone = Phone()
    private, in_team = (
        Attempt(chat, phone.now_ms, phone.now_ms + 100, row=row, people=frozenset({ADA}))
        for row, chat in ((1, CHAT), (2, TEAM))
    )
    for number, doubt in enumerate((private, in_team)):
        phone.receipts.add(doubt)
        phone.receipts.sent_again(doubt, phone.now_ms + 500 + number, is_edit=False)
        phone.confirm(phone.now_ms + 500 + number)
    phone.confirm(phone.now_ms + 50)
    copies = await phone.receipts.copies()
    assert sorted(copies, key=lambda one: one[0].row or 0) == [
        (private, phone.now_ms + 50),
        (in_team, phone.now_ms + 50),
    ]


async def test_the_end_of_another_request_lets_a_receipt_prove_a_send() -> None:
    phone = Phone()
    doubt = Attempt(CHAT, phone.now_ms, phone.now_ms + 100, row=1)
    reaction = Attempt(CHAT, phone.now_ms)
    for attempt in (doubt, reaction):
        phone.receipts.add(attempt)
    phone.confirm(phone.now_ms + 50)
    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(phone.receipts.wait_for_proof([doubt], 3_600.0))
        await asyncio.sleep(0)  # it looks once
        phone.receipts.drop(reaction)
    assert waiting.result() == phone.now_ms + 50


async def test_receipts_of_two_sends_of_a_message_prove_it() -> None:
    phone = Phone()
    doubts = [Attempt(CHAT, phone.now_ms, phone.now_ms + 100, row=1) for _ in range(2)]
    for doubt in doubts:
        phone.receipts.add(doubt)
    phone.confirm(phone.now_ms + 60)
    phone.confirm(phone.now_ms + 50)
    assert await phone.receipts.wait_for_proof(doubts, 0.0) == phone.now_ms + 50
    phone.confirm(phone.now_ms + 70)  # one of the three is of something else
    assert await phone.receipts.wait_for_proof(doubts, 0.0) is None


async def passed_over() -> int:
    raise SignalPassedOver("silence")


async def test_the_receipt_of_a_reaction_does_not_prove_the_answer_after_it() -> None:
    phone = Phone()
    with phone.receipts.unnamed(CHAT):
        reaction = phone.now_ms
    phone.now_ms += 1
    assert await phone.lost_send(CHAT, reaction) is None


@pytest.mark.parametrize("confirms_reactions", [True, False])
async def test_a_receipt_proves_its_answer_with_and_without_reaction_receipts(
    *, confirms_reactions: bool
) -> None:
    phone = Phone()
    with phone.receipts.unnamed(CHAT):
        reactions = [phone.now_ms] if confirms_reactions else []
    phone.now_ms += 1
    assert await phone.lost_send(CHAT, *reactions, phone.now_ms) == phone.now_ms


async def test_receipt_may_be_for_an_earlier_reaction_if_the_clock_is_late() -> None:
    phone = Phone()
    with phone.receipts.unnamed(CHAT):
        phone.now_ms += 1_000
    assert await phone.lost_send(CHAT, phone.now_ms - 500) is None
    phone.now_ms += LATE_START_MS
    assert await phone.lost_send(CHAT, phone.now_ms - CLOCK_SKEW_MS - 1) is None


@pytest.mark.parametrize("failure", [SignalTimeout("lost"), SignalRejected("no"), None])
async def test_late_reaction_affects_sends_until_it_cannot_have_started(
    failure: SignalError | None,
) -> None:
    phone = Phone()
    with suppress(SignalError), phone.receipts.unnamed(CHAT):
        if failure is not None:
            raise failure
    phone.now_ms += CLOCK_SKEW_MS
    expected = None if isinstance(failure, SignalTimeout) else phone.now_ms
    assert await phone.lost_send(CHAT, phone.now_ms) == expected


async def test_a_receipt_with_many_timestamps_is_not_compared_with_all_that_are_known() -> None:
    comparisons = 0

    class Timestamp(int):
        def __eq__(self, other: object) -> bool:
            nonlocal comparisons
            comparisons += 1
            return int.__eq__(self, other) is True

        __hash__ = int.__hash__

    receipts = DeliveryReceipts()
    for number in range(MAX_KNOWN):
        receipts.take(Receipt(None, (number,)))
    receipts.take(Receipt(ADA, tuple(map(Timestamp, range(500)))))
    assert comparisons <= 2 * 500


async def test_early_receipts_of_one_person_are_bounded_and_none_is_of_the_future() -> None:
    phone, kept = Phone(), list[int]()
    phone.receipts.keep = lambda timestamp, _: kept.append(timestamp)
    with phone.receipts.unnamed(CHAT):
        phone.confirm(phone.now_ms + A_MINUTE_MS)
        assert kept == []
        for ahead in (0, 500):
            first = phone.now_ms + ahead
            phone.receipts.take(Receipt(ADA, tuple(range(first, first + 500))))
    assert len(kept) == MAX_CONFIRMED_BY_ONE


async def test_the_oldest_known_timestamps_are_forgotten() -> None:
    phone = Phone()
    for number in range(MAX_KNOWN + 1):
        phone.receipts.take(Receipt(None, (phone.now_ms + number,)))
    assert await phone.lost_send(CHAT, phone.now_ms) == phone.now_ms
    assert await phone.lost_send(CHAT, phone.now_ms + MAX_KNOWN) is None


async def test_reactions_that_have_ended_take_no_more_room() -> None:
    phone = Phone()
    for _ in range(10 * TIDY_ATTEMPTS):
        with phone.receipts.unnamed(TEAM):
            pass
        phone.now_ms += CLOCK_SKEW_MS
    assert len(phone.receipts._attempts) <= TIDY_ATTEMPTS + 1


async def test_receipt_named_by_the_error_settles_only_its_send() -> None:
    phone = Phone()

    async def refuse() -> int:
        raise SignalRateLimited(timestamp=phone.now_ms)

    assert await phone.lost_send(TEAM) is None
    with pytest.raises(SignalRateLimited) as failure:
        await phone.receipts.settle(CHAT, refuse())
    phone.confirm(phone.now_ms)
    assert phone.receipts.proof(failure.value.sending) == phone.now_ms


async def test_a_message_that_nobody_wants_is_deleted_for_a_day() -> None:
    phone = Phone()
    attempt = Attempt(CHAT, phone.now_ms, phone.now_ms + A_MINUTE_MS)
    phone.receipts.add(attempt)
    phone.receipts.abandon(attempt)
    phone.confirm(phone.now_ms + 50)
    assert await phone.receipts.copies() == [(attempt, phone.now_ms + 50)]
    phone.now_ms += KEPT_MS + 2 * A_MINUTE_MS
    assert await phone.receipts.copies() == []


async def test_a_copy_is_deleted_beside_sends_of_which_nothing_stays() -> None:
    phone = Phone()
    doubt, unwanted, reaction = (
        Attempt(CHAT, phone.now_ms, phone.now_ms + 100, row=1),
        Attempt(CHAT, phone.now_ms, phone.now_ms + 100),
        Attempt(CHAT, phone.now_ms, phone.now_ms + 100, is_message=False),
    )
    for attempt in (doubt, unwanted, reaction):
        phone.receipts.add(attempt)
    phone.receipts.sent_again(doubt, phone.now_ms + 500, is_edit=False)
    phone.confirm(phone.now_ms + 500)
    phone.confirm(phone.now_ms + 50)
    assert await phone.receipts.copies() == []
    phone.receipts.abandon(unwanted)
    assert await phone.receipts.copies() == [(doubt, phone.now_ms + 50)]


async def test_the_end_of_a_request_lets_a_copy_be_recognised() -> None:
    phone = Phone()
    doubt, other = (Attempt(CHAT, phone.now_ms, phone.now_ms + 100, row=row) for row in (1, 2))
    for attempt in (doubt, other):
        phone.receipts.add(attempt)
    phone.receipts.sent_again(doubt, phone.now_ms + 500, is_edit=False)
    phone.confirm(phone.now_ms + 500)
    phone.confirm(phone.now_ms + 50)
    phone.receipts.news.clear()
    phone.receipts.drop(other)
    assert phone.receipts.news.is_set()
    assert await phone.receipts.copies() == [(doubt, phone.now_ms + 50)]
