"""Answers in doubt: an earlier process may have sent them. On a real store."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, time
from typing import Any, Final

import pytest

from bot.chat import outbox
from bot.chat.outbox import Outbox
from bot.signal.account import Group, OwnIdentity
from bot.signal.errors import SignalRejected, SignalTimeout, SignalUnavailable
from bot.signal.events import Receipt
from bot.signal.receipts import MAX_CONFIRMED_BY_ONE, Attempt, DeliveryReceipts
from conversation_store.models import (
    Attachment,
    ChatId,
    Message,
    OutgoingMessage,
    ReceivedMessage,
    Role,
    StoredTurn,
    ToolCall,
)
from conversation_store.outbox import Doubt
from conversation_store.store import ConversationStore, open_store
from tests.fakes.partial_messenger import PartialMessenger
from tests.unit.stores import accept, rows

ADA: Final = "7f3c1a52-6b1e-4a0e-9a55-3a1e1b6f0d11"
BOB: Final = "0d1e2f30-0000-4000-8000-000000000001"
TEAM: Final = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
PRIVATE: Final = ChatId.parse(f"direct:{ADA}")
GROUP: Final = ChatId.parse(f"group:{TEAM}")
START_MS: Final = 1_795_291_728_000
WAIT_SECONDS: Final = 30.0
SOON_SECONDS: Final = 0.3
A_DAY_MS: Final = 86_400_000


@dataclass(slots=True)
class Signal(PartialMessenger):
    """Signal side that takes everything and returns chosen timestamps."""

    next_timestamp: int = START_MS + 10_000
    sent: list[tuple[int, str]] = field(default_factory=list)
    deleted: list[tuple[str, int]] = field(default_factory=list)
    members: frozenset[str] | None = frozenset({ADA, BOB})
    connected: bool = True
    connected_since: float | None = field(default_factory=monotonic)
    happened: asyncio.Event = field(default_factory=asyncio.Event)
    asked_for_members: asyncio.Event = field(default_factory=asyncio.Event)

    async def send(self, chat: ChatId, text: str, **_: Any) -> int:
        return await self.receipts.settle(chat, self._taken(text))

    async def _taken(self, text: str) -> int:
        self.next_timestamp += 1
        self.sent.append((self.next_timestamp, text))
        self.happened.set()
        return self.next_timestamp

    async def delete(self, chat: ChatId, timestamp: int) -> None:
        self.deleted.append((str(chat), timestamp))
        self.happened.set()

    async def own_identity(self) -> OwnIdentity:
        raise SignalRejected("not here")

    async def group(self, chat: ChatId) -> Group | None:
        self.asked_for_members.set()
        if self.members is None:
            raise SignalUnavailable("away")
        return Group(self.members, frozenset(), True, False, False)


class Bot:
    """Store and the processes that use it, one after the other.

    Attributes:
        now_ms: the time of the clock.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.now_ms = START_MS
        self.signal = Signal()

    @asynccontextmanager
    async def store(self) -> AsyncIterator[ConversationStore]:
        async with open_store(self.path, clock=lambda: self.now_ms / 1_000) as store:
            yield store

    @asynccontextmanager
    async def life(self, *, reacts: bool = False) -> AsyncIterator["Life"]:
        async with self.store() as store, asyncio.TaskGroup() as tasks:
            life = Life(self, store, reacts=reacts)
            await life.begin(tasks)
            yield life
            life.end()

    def timestamps(self) -> list[int | None]:
        sql = "SELECT signal_timestamp FROM outbox WHERE kind != 'removal' ORDER BY id"
        return [at for (at,) in self.query(sql)]

    def confirmations(self) -> list[tuple[int, str]]:
        return self.query("SELECT timestamp, person FROM confirmations")

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """Look at the store, or change it, while no process has it open."""
        return rows(self.path.parent, sql)


class Life:
    """Process that continues the work of earlier ones."""

    def __init__(self, bot: Bot, store: ConversationStore, *, reacts: bool) -> None:
        self.store = store
        self._bot = bot
        self._reacts = reacts
        bot.signal.receipts = DeliveryReceipts(clock=lambda: bot.now_ms / 1_000)
        self._outbox = Outbox(bot.signal, store)
        self._tasks: list[asyncio.Task[None]] = []
        self._sends: list[asyncio.Task[None]] = []

    async def begin(self, tasks: asyncio.TaskGroup) -> None:
        """Start, with a worker for each chat."""
        self._bot.now_ms += 60_000
        self._bot.signal.next_timestamp = self._bot.now_ms
        await self._outbox.doubts.resume(reacts=self._reacts)
        chats: dict[str, list[OutgoingMessage]] = {}
        for part in await self.store.outbox.unfinished():
            chats.setdefault(part.chat, []).append(part)
        self._sends = [tasks.create_task(self._send_all(parts)) for parts in chats.values()]
        self._tasks = [tasks.create_task(self._outbox.doubts.run(self._queue))]

    def _queue(self, part: OutgoingMessage) -> None:
        self._tasks.append(asyncio.create_task(self._deliver(part)))

    async def _deliver(self, part: OutgoingMessage) -> None:
        await self._outbox.deliver((part,))

    def confirm(self, *timestamps: int, person: str = ADA) -> None:
        self._bot.signal.receipts.take(Receipt(person, timestamps))

    async def settled(self) -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            await asyncio.gather(*self._sends)

    async def happened(self) -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            await self._bot.signal.happened.wait()
        self._bot.signal.happened.clear()

    def end(self) -> None:
        for task in (*self._tasks, *self._sends):
            task.cancel()

    async def _send_all(self, parts: Sequence[OutgoingMessage]) -> None:
        for part in parts:
            await self._deliver(part)


@pytest.fixture
def bot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bot:
    """A bot that waits a short time for proofs."""
    monkeypatch.setattr(outbox, "PROOF_SECONDS", SOON_SECONDS)
    monkeypatch.setattr("bot.signal.receipts.LATE_START_MS", 5)
    monkeypatch.setattr(outbox, "PAUSES", (0.02, 0.02))
    monkeypatch.setattr(outbox, "RECEIPT_SECONDS", 0.0)
    return Bot(tmp_path / "store.db")


async def answered(
    store: ConversationStore,
    *texts: str,
    number: int = 1,
    chat: ChatId = PRIVATE,
    files: Sequence[Attachment] = (),
    received_at: int = START_MS - 60_000,
) -> tuple[OutgoingMessage, ...]:
    """Store an answer to a message, as a process does before it sends it."""
    message = ReceivedMessage("+49", ADA, number, chat, "q", received_at)
    accepted = await accept(store, message)
    return await store.turns.answer(accepted, texts, outcome="command", attachments=files)


async def answered_anew(store: ConversationStore, *texts: str) -> None:
    """Store an edit of the first message, and the answer that replaces the earlier answer."""
    edit = ReceivedMessage(
        "+49", ADA, 9, PRIVATE, "q", START_MS, kind="edit",
        target_author=ADA, target_timestamp=1,
    )  # fmt: skip
    accepted = await accept(store, edit)
    _, settled = await store.changes.settle_edit(accepted, answered_within_ms=A_DAY_MS)
    await store.turns.answer(settled, texts, outcome="command")


async def leave(bot: Bot, text: str, **more: Any) -> None:
    """Kill a process with an answer on its way."""
    async with bot.store() as store:
        await answered(store, text, **more)


async def begun(store: ConversationStore) -> StoredTurn:
    """Begin a turn in the group that calls a tool."""
    message = ReceivedMessage("+49", BOB, 2, GROUP, "q", START_MS)
    accepted = await accept(store, message)
    turn = store.turns.begin([accepted], "q")
    call = ToolCall("call_1", "calculate", "{}")
    await store.turns.record_calls(turn.id, Message(Role.ASSISTANT, None, tool_calls=(call,)))
    return turn


async def forget(store: ConversationStore, author: str, target: int) -> None:
    deletion = ReceivedMessage(
        "+49", author, 3, GROUP, "", START_MS, kind="deletion",
        target_author=author, target_timestamp=target,
    )  # fmt: skip
    accepted = await accept(store, deletion)
    await store.changes.forget(accepted)


Left = Callable[[Bot, ConversationStore], Awaitable[object]]
"""Does what an earlier process did before it was killed."""


def leaving(*texts: str, **more: Any) -> Left:
    async def leave_them(_: Bot, store: ConversationStore) -> None:
        await answered(store, *texts, **more)

    return leave_them


one: Final = leaving("one")
three_parts: Final = leaving("one", "two", "three")
a_file: Final = leaving("look", files=[Attachment("a.txt", "text/plain", b"a")])
in_a_group: Final = leaving("to all", number=2, chat=GROUP)


async def two_answers(_: Bot, store: ConversationStore) -> None:
    await answered(store, "one", number=1)
    await answered(store, "two", number=2)


async def sent_from_another_device(bot: Bot, store: ConversationStore) -> None:
    await answered(store, "one")
    Outbox(bot.signal, store)
    bot.signal.receipts.take(Receipt(None, (START_MS + 5,)))


async def in_a_group_without_bob(bot: Bot, store: ConversationStore) -> None:
    bot.signal.members = frozenset({ADA})
    await in_a_group(bot, store)


async def in_a_group_of_unknown_members(bot: Bot, store: ConversationStore) -> None:
    bot.signal.members = None
    await in_a_group(bot, store)


async def private_and_in_a_group(bot: Bot, store: ConversationStore) -> None:
    await one(bot, store)
    await in_a_group(bot, store)


async def progress_of_a_killed_turn(bot: Bot, store: ConversationStore) -> None:
    await one(bot, store)
    await begun(store)


async def earlier_progress(bot: Bot, store: ConversationStore) -> None:
    await one(bot, store)
    turn = await begun(store)
    store.turns.record_progress(turn.id, START_MS + 5)
    store.turns.record_progress(turn.id, START_MS + 9)
    await store.upkeep.ping()


async def copy_of_a_forgotten_message(bot: Bot, store: ConversationStore) -> None:
    await answered(store, "to all", number=1, chat=GROUP)
    await answered(store, "one", number=2)
    bot.now_ms += 1_000
    await store.doubts.load()  # the message is deleted before the next connection
    await forget(store, ADA, 1)


@pytest.mark.parametrize(
    ("left", "confirmed", "sent"),
    [
        (one, [(ADA, 5)], []),
        (one, [], ["one"]),
        (one, [(ADA, -1)], ["one"]),
        (one, [(ADA, 120_000)], ["one"]),
        (one, [(BOB, 5)], ["one"]),
        (three_parts, [(ADA, 5)], ["two", "three"]),
        (a_file, [(ADA, 5)], []),
        (two_answers, [(ADA, 5)], ["one", "two"]),
        (sent_from_another_device, [(ADA, 5)], ["one"]),
        (in_a_group, [(BOB, 5)], []),
        (in_a_group_without_bob, [(BOB, 5)], ["to all"]),
        (in_a_group_of_unknown_members, [(BOB, 5)], ["to all"]),
        (private_and_in_a_group, [(ADA, 5)], ["one", "to all"]),
        (private_and_in_a_group, [(ADA, 5), (BOB, 5)], ["one"]),
        (progress_of_a_killed_turn, [(ADA, 5)], ["one"]),
        (earlier_progress, [(ADA, 5)], ["one"]),
        (copy_of_a_forgotten_message, [(ADA, 5)], ["one"]),
    ],
)
async def test_only_receipts_that_can_mean_nothing_else_prove_an_answer(
    bot: Bot, left: Left, confirmed: list[tuple[str, int]], sent: list[str]
) -> None:
    async with bot.store() as store:
        await left(bot, store)
    bot.signal.sent.clear()
    async with bot.life() as life:
        for person, at in confirmed:
            life.confirm(START_MS + at, person=person)
        await life.settled()
    assert sorted(text for _, text in bot.signal.sent) == sorted(sent)
    if left is one and not sent:
        assert bot.timestamps() == [START_MS + 5]


async def test_receipt_may_be_for_a_reaction(bot: Bot) -> None:
    await leave(bot, "hello", received_at=START_MS - 100)
    async with bot.life(reacts=True) as life:
        life.confirm(START_MS + 5)
        await life.settled()
    assert len(bot.signal.sent) == 1


async def test_later_process_deletes_a_copy_once(bot: Bot) -> None:
    await leave(bot, "hello")
    async with bot.life() as life:
        await life.settled()
        ((kept, _),) = bot.signal.sent
        bot.signal.happened.clear()
        life.confirm(kept)
    async with bot.life() as life:
        life.confirm(START_MS + 5)
        await life.happened()
    async with bot.life() as life:
        life.confirm(START_MS + 5, kept)
        await life.settled()
    assert bot.signal.deleted == [(PRIVATE, START_MS + 5)]


async def test_copy_stays_if_only_the_copy_is_confirmed(bot: Bot) -> None:
    await leave(bot, "hello")
    async with bot.life() as life:
        await life.settled()
        bot.signal.happened.clear()
        life.confirm(START_MS + 5)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(SOON_SECONDS):
                await bot.signal.happened.wait()
    assert bot.signal.deleted == []


async def test_edit_sent_twice_is_kept_under_its_first_timestamp(bot: Bot) -> None:
    async with bot.store() as store:
        (first,) = await answered(store, "wrong")
        await store.outbox.mark_sent(first, START_MS - 50_000)
        await answered_anew(store, "right")
    async with bot.life() as life:
        await life.settled()
        assert [text for _, text in bot.signal.sent] == ["right"]
        life.confirm(START_MS + 5)
        async with asyncio.timeout(WAIT_SECONDS):
            while bot.timestamps()[-1] != START_MS + 5:
                await life.store.upkeep.ping()
    assert bot.signal.deleted == []
    assert bot.timestamps()[-1] == START_MS + 5


async def test_copy_stays_after_a_day(bot: Bot) -> None:
    await leave(bot, "hello")
    async with bot.life() as life:
        await life.settled()
        bot.now_ms += 2 * A_DAY_MS
        await life.store.upkeep.purge()
    assert bot.query("SELECT * FROM doubts") == []


@asynccontextmanager
async def sending_for_ever(bot: Bot) -> AsyncIterator[DeliveryReceipts]:
    """Provide a process that is killed while an answer is on its way."""
    async with bot.store() as store:
        parts = await answered(store, "hello")
        never = asyncio.Event()

        class Slow(Signal):
            async def _taken(self, text: str) -> int:
                self.happened.set()
                await never.wait()
                return 0

        slow = Slow()
        sending = asyncio.create_task(Outbox(slow, store).deliver(parts))
        await slow.happened.wait()
        yield slow.receipts
        sending.cancel()


async def test_early_receipt_is_kept_for_the_next_process_but_none_from_the_future(
    bot: Bot,
) -> None:
    async with sending_for_ever(bot) as receipts:
        now_ms = int(time() * 1_000)
        receipts.take(Receipt(ADA, (now_ms, now_ms + 60_000)))
    assert bot.confirmations() == [(now_ms, ADA)]


async def test_receipt_of_progress_hides_no_receipt_of_the_answer_after_a_kill(bot: Bot) -> None:
    await leave(bot, "to Ada")
    async with bot.store() as store:
        bot.signal.next_timestamp = START_MS + 4
        progress = await Outbox(bot.signal, store).doubts.send(PRIVATE, "✓ calculate")
        for timestamp in (progress, START_MS + 9):
            store.doubts.confirm(timestamp, ADA)  # each receipt came before its reply
        await store.upkeep.ping()
    bot.signal.sent.clear()
    async with bot.life() as life:
        await life.settled()
    assert bot.signal.sent == []
    assert bot.timestamps() == [START_MS + 9]


class Losing(Signal):
    """A Signal side that takes everything and does not answer the first send."""

    async def _taken(self, text: str) -> int:
        self.next_timestamp = max(self.next_timestamp, int(time() * 1_000) - 1)
        timestamp = await super()._taken(text)
        if len(self.sent) == 1:
            raise SignalTimeout("the reply was lost")
        return timestamp


def losing() -> Losing:
    phones = Losing()
    phones.receipts.know(0)  # its time begins now
    phones.next_timestamp = int(time() * 1_000)
    return phones


async def test_receipt_may_be_for_an_earlier_send_of_a_marked_message(bot: Bot) -> None:
    bot.now_ms = int(time() * 1_000)
    async with bot.store() as store:
        await answered(store, "to Ada, never sent")
        to_all = await answered(store, "to all", number=2, chat=GROUP)
        phones = losing()
        assert await Outbox(phones, store).deliver(to_all)
    async with bot.life() as life:
        life.confirm(*(timestamp for timestamp, _ in phones.sent))
        await life.settled()
    assert [text for _, text in bot.signal.sent] == ["to Ada, never sent"]


async def test_receipt_may_be_for_the_deletion_of_a_copy(bot: Bot) -> None:
    await leave(bot, "hello")
    async with bot.life() as life:
        await life.settled()
        ((kept, _),) = bot.signal.sent
        await answered(life.store, "again", number=2)
        bot.signal.happened.clear()
        life.confirm(START_MS + 5, kept)
        await life.happened()
        deletion = bot.now_ms + 20
    async with bot.life() as life:
        life.confirm(deletion)
        await life.settled()
    assert [text for _, text in bot.signal.sent] == ["hello", "again"]


async def test_receipt_may_be_for_a_deletion_during_an_earlier_send_in_doubt(bot: Bot) -> None:
    async with bot.store() as store:
        (part,) = await answered(store, "hello")
        store.doubts.note(Doubt(part.id, PRIVATE, START_MS, START_MS + 10_000))
        removal = await store.doubts.remove_copy(None, PRIVATE, START_MS - 30_000)
        assert removal is not None
        await store.outbox.mark_sent(removal, 0)
    async with bot.life() as life:
        life.confirm(START_MS + 5)
        await life.settled()
    assert [text for _, text in bot.signal.sent] == ["hello"]


async def test_receipt_counts_as_soon_as_the_members_of_its_group_are_known(
    bot: Bot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "PROOF_SECONDS", 2 * WAIT_SECONDS)
    monkeypatch.setattr(outbox, "MEMBERS_SECONDS", 0.02)
    await leave(bot, "to all", number=2, chat=GROUP)
    bot.signal.members = None
    async with bot.life() as life:
        life.confirm(START_MS + 5, person=BOB)
        async with asyncio.timeout(WAIT_SECONDS):
            await bot.signal.asked_for_members.wait()
        bot.signal.members = frozenset({ADA, BOB})
        await life.settled()
    assert bot.signal.sent == []
    assert bot.timestamps() == [START_MS + 5]


async def test_bot_concludes_nothing_without_a_connection(bot: Bot) -> None:
    bot.signal.connected = False
    bot.signal.connected_since = None
    await leave(bot, "hello")
    async with bot.life() as life:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(2 * SOON_SECONDS):
                await bot.signal.happened.wait()
        bot.signal.connected_since = monotonic()
        bot.signal.connected = True
        life.confirm(START_MS + 5)
        await life.settled()
    assert bot.signal.sent == []


async def test_answer_deleted_in_the_meantime_is_not_sent_again(bot: Bot) -> None:
    async with bot.store() as store:
        (part,) = await answered(store, "hello")
    async with bot.life() as life:
        bot.query(f"DELETE FROM outbox WHERE id = {part.id}")
        await life.settled()
    assert bot.signal.sent == []


async def test_early_receipts_of_one_person_are_bounded(bot: Bot) -> None:
    async with sending_for_ever(bot) as receipts:
        now_ms = int(time() * 1_000)
        for _ in range(3):
            receipts.take(Receipt(ADA, tuple(range(now_ms, now_ms + 500))))
            receipts.take(Receipt(ADA, tuple(range(now_ms - 1_000, now_ms - 500))))
    assert len(bot.confirmations()) == MAX_CONFIRMED_BY_ONE


async def test_receipt_that_proved_a_note_proves_no_answer(
    bot: Bot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "RECEIPT_SECONDS", WAIT_SECONDS)
    bot.signal.members = None
    async with bot.store() as store:
        phones = losing()
        sends = Outbox(phones, store).doubts
        note = asyncio.create_task(sends.send(PRIVATE, "Using calculate"))
        while not phones.sent:  # noqa: ASYNC110 - the send is all that happens
            await asyncio.sleep(0)
        phones.receipts.take(Receipt(ADA, (phones.sent[0][0],)))
        assert await note == phones.sent[0][0]
        assert phones.receipts.proof(Attempt(PRIVATE, 0, 2**62)) is None


async def test_a_receipt_settles_the_latest_of_several_sends(bot: Bot) -> None:
    async with bot.store() as store:
        (part,) = await answered(store, "hello")
        store.doubts.note(Doubt(part.id, PRIVATE, START_MS, START_MS + 16_000))
        store.doubts.note(Doubt(part.id, PRIVATE, START_MS + 8_000, START_MS + 80_000))
    async with bot.life() as life:
        life.confirm(START_MS + 9_000)
        await life.settled()
        life.confirm(START_MS + 5)  # only the first send can have this timestamp
        await life.happened()
    assert [at for _, at in bot.signal.deleted] == [START_MS + 5]
    assert bot.signal.sent == []


async def test_a_receipt_proves_an_answer_after_the_clock_was_turned_back(bot: Bot) -> None:
    await leave(bot, "hello")
    bot.now_ms -= 600_000
    async with bot.life() as life:
        life.confirm(START_MS + 5)
        await life.settled()
    assert bot.signal.sent == []
    assert bot.timestamps() == [START_MS + 5]
