"""What becomes of answers that an earlier process may have sent; on a real store."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, time
from typing import Any, Final

import apsw
import pytest

from bot.backoff import Backoff
from bot.dispatch.outgoing import doubts
from bot.dispatch.outgoing.doubts import MAX_CONFIRMED_BY_ONE, Doubts
from bot.dispatch.outgoing.noted_sends import NotedSends
from bot.dispatch.outgoing.outbox import Outbox, SendPolicy
from bot.errors import SignalTimeout, SignalUnavailable
from bot.messaging.account import Group
from bot.messaging.events import Receipt, SentElsewhere
from conversation_store.models import (
    Attachment,
    ChatId,
    Message,
    OutgoingMessage,
    Quote,
    ReceivedKind,
    ReceivedMessage,
    Role,
    StyleRange,
    ToolCall,
    Turn,
)
from conversation_store.store import ConversationStore, open_store
from tests.fakes.partial_messenger import PartialMessenger

ADA: Final = "7f3c1a52-6b1e-4a0e-9a55-3a1e1b6f0d11"
BOB: Final = "0d1e2f30-0000-4000-8000-000000000001"
TEAM: Final = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
PRIVATE: Final = ChatId.parse(f"direct:{ADA}")
GROUP: Final = ChatId.parse(f"group:{TEAM}")
START_MS: Final = 1_795_291_728_000
WAIT_SECONDS: Final = 5.0
SOON_SECONDS: Final = 0.3
A_DAY_MS: Final = 86_400_000
AT_ONCE: Final = SendPolicy(backoff=Backoff(first_seconds=0.001, longest_seconds=0.001))


@dataclass(slots=True)
class Signal(PartialMessenger):
    """A Signal side that takes everything and tells the timestamps it is told to."""

    next_timestamp: int = START_MS + 10_000
    sent: list[tuple[int, str]] = field(default_factory=list)
    deleted: list[tuple[str, int]] = field(default_factory=list)
    members: frozenset[str] | None = frozenset({ADA, BOB})
    connected: bool = True
    connected_since: float | None = field(default_factory=monotonic)
    happened: asyncio.Event = field(default_factory=asyncio.Event)

    async def send(
        self,
        chat: ChatId,
        text: str,
        *,
        styles: Sequence[StyleRange] = (),
        quote: Quote | None = None,
        replaces: int | None = None,
        attachments: Sequence[Attachment] = (),
    ) -> int:
        self.next_timestamp += 1
        self.sent.append((self.next_timestamp, text))
        self.happened.set()
        return self.next_timestamp

    async def delete(self, chat: ChatId, timestamp: int) -> None:
        self.deleted.append((str(chat), timestamp))
        self.happened.set()

    async def group(self, chat: ChatId) -> Group | None:
        if self.members is None:
            raise SignalUnavailable("away")
        return Group(self.members, frozenset(), True, False, False)


class Bot:
    """One store and the processes that use it, one after the other.

    Attributes:
        now_ms: what the clock says.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.now_ms = START_MS
        self.signal = Signal()

    @asynccontextmanager
    async def store(self) -> AsyncIterator[ConversationStore]:
        """Open the store for a process that is killed when it is left."""
        async with open_store(self.path, clock=lambda: self.now_ms / 1_000) as store:
            yield store

    @asynccontextmanager
    async def life(self, *, reacts: bool = False) -> AsyncIterator["Life"]:
        """Begin another process, which sends what is left."""
        async with self.store() as store, asyncio.TaskGroup() as tasks:
            life = Life(self, store, reacts=reacts)
            await life.begin(tasks)
            yield life
            life.end()

    def timestamps(self) -> list[int | None]:
        """Return what the store knows of its messages' timestamps, in their order."""
        return [at for (at,) in self.query("SELECT signal_timestamp FROM outbox ORDER BY id")]

    def confirmations(self) -> list[tuple[int, str]]:
        """Return which receipts the store keeps."""
        return self.query("SELECT timestamp, person FROM confirmations")

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """Look at the store, or change it, while no process has it open."""
        connection = apsw.Connection(str(self.path))
        try:
            return connection.execute(sql).fetchall()
        finally:
            connection.close()


class Life:
    """A process that goes on with what earlier ones have left."""

    def __init__(self, bot: Bot, store: ConversationStore, *, reacts: bool) -> None:
        self.store = store
        self._bot = bot
        self.doubts = Doubts(
            bot.signal,
            store,
            Outbox(bot.signal, store),
            reacts=lambda: reacts,
            clock=lambda: bot.now_ms / 1_000,
        )
        self._tasks: list[asyncio.Task[None]] = []
        self._sends: list[asyncio.Task[None]] = []

    async def begin(self, tasks: asyncio.TaskGroup) -> None:
        """Start, with a worker for each chat."""
        self._bot.now_ms += 60_000
        self._bot.signal.next_timestamp = self._bot.now_ms
        await self.doubts.resume()
        chats: dict[str, list[OutgoingMessage]] = {}
        for part in (await self.store.messages.unfinished()).outgoing:
            chats.setdefault(part.chat, []).append(part)
        self._sends = [tasks.create_task(self._send_all(parts)) for parts in chats.values()]
        self._tasks = [tasks.create_task(self.doubts.run())]

    def confirm(self, *timestamps: int, person: str = ADA) -> None:
        """Let a person's phone confirm some timestamps."""
        self.doubts.take(Receipt(person, timestamps))

    async def settled(self) -> None:
        """Wait until everything that was left is sent or proven."""
        async with asyncio.timeout(WAIT_SECONDS):
            await asyncio.gather(*self._sends)

    async def happened(self) -> None:
        """Wait until the Signal side was asked for something."""
        async with asyncio.timeout(WAIT_SECONDS):
            await self._bot.signal.happened.wait()
        self._bot.signal.happened.clear()

    def end(self) -> None:
        """Be killed."""
        for task in (*self._tasks, *self._sends):
            task.cancel()

    async def _send_all(self, parts: Sequence[OutgoingMessage]) -> None:
        for part in parts:
            await self.doubts.deliver(part)


@pytest.fixture
def bot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bot:
    """A bot that waits a short time for proofs."""
    monkeypatch.setattr(doubts, "PROOF_SECONDS", SOON_SECONDS)
    monkeypatch.setattr(doubts, "QUIET_SECONDS", SOON_SECONDS / 10)
    return Bot(tmp_path / "store.db")


async def answered(
    store: ConversationStore,
    *texts: str,
    number: int = 1,
    chat: ChatId = PRIVATE,
    files: Sequence[Attachment] = (),
) -> tuple[OutgoingMessage, ...]:
    """Store an answer to a message, as a process does before it sends it."""
    message = ReceivedMessage("+49", ADA, number, chat, "q", START_MS - 60_000)
    (accepted,) = await store.messages.accept([message])
    assert accepted is not None
    return await store.turns.answer(accepted, texts, outcome="command", attachments=files)


async def answered_anew(store: ConversationStore, *texts: str) -> None:
    """Let the person edit the first message, and store the answer that replaces the earlier one."""
    edit = ReceivedMessage(
        "+49", ADA, 9, PRIVATE, "q", START_MS, kind=ReceivedKind.EDIT,
        target_author=ADA, target_timestamp=1,
    )  # fmt: skip
    (accepted,) = await store.messages.accept([edit])
    assert accepted is not None
    _, settled = await store.messages.settle_edit(accepted, answered_within_ms=A_DAY_MS)
    await store.turns.answer(settled, texts, outcome="command")


async def begun(store: ConversationStore) -> Turn:
    """Begin a turn in the group that calls a tool."""
    message = ReceivedMessage("+49", BOB, 2, GROUP, "q", START_MS)
    (accepted,) = await store.messages.accept([message])
    assert accepted is not None
    turn = store.turns.begin([accepted], "q")
    call = ToolCall("call_1", "calculate", "{}")
    await store.turns.record_calls(turn.id, Message(Role.ASSISTANT, None, tool_calls=(call,)))
    return turn


async def leave(bot: Bot, *texts: str, chat: ChatId = PRIVATE) -> None:
    """Be killed with an answer on its way."""
    async with bot.store() as store:
        await answered(store, *texts, chat=chat)


async def leave_private_and_group(bot: Bot) -> None:
    """Be killed with an answer to Ada and one to her group on their way."""
    await leave(bot, "private")
    async with bot.store() as store:
        await answered(store, "to all", number=2, chat=GROUP)


async def test_a_receipt_for_an_unknown_timestamp_proves_that_an_answer_was_sent(bot: Bot) -> None:
    await leave(bot, "hello")
    async with bot.life() as life:
        life.confirm(START_MS + 5)
        await life.settled()
    assert bot.signal.sent == []
    assert bot.timestamps() == [START_MS + 5]


async def test_without_a_receipt_an_answer_is_sent_again(bot: Bot) -> None:
    await leave(bot, "hello")
    async with bot.life() as life:
        await life.settled()
    assert [text for _, text in bot.signal.sent] == ["hello"]


async def test_a_receipt_that_the_last_process_took_before_it_was_killed_counts(bot: Bot) -> None:
    await leave(bot, "hello")
    async with bot.life() as life:
        life.confirm(START_MS + 5)
    async with bot.life() as life:
        await life.settled()
    assert bot.signal.sent == []


@pytest.mark.parametrize("at", [START_MS - 1, START_MS + 120_000])
async def test_a_message_from_before_the_answer_or_after_the_start_proves_nothing(
    bot: Bot, at: int
) -> None:
    await leave(bot, "hello")
    async with bot.life() as life:
        life.confirm(at)
        await life.settled()
    assert len(bot.signal.sent) == 1


async def test_a_receipt_of_somebody_else_proves_nothing(bot: Bot) -> None:
    await leave(bot, "hello")
    async with bot.life() as life:
        life.confirm(START_MS + 5, person=BOB)
        await life.settled()
    assert len(bot.signal.sent) == 1


async def test_a_late_receipt_for_a_message_that_is_marked_proves_nothing(bot: Bot) -> None:
    async with bot.store() as store:
        (marked,) = await answered(store, "before", number=1)
        await answered(store, "hello", number=2)
        await store.outbox.mark_sent(marked, START_MS + 5)
    async with bot.life() as life:
        life.confirm(START_MS + 5)
        await life.settled()
    assert [text for _, text in bot.signal.sent] == ["hello"]


async def test_what_the_owner_sent_from_another_device_proves_nothing(bot: Bot) -> None:
    await leave(bot, "hello")
    async with bot.life() as life:
        life.doubts.take(SentElsewhere(START_MS + 5))
    async with bot.life() as life:  # also not to a later process
        life.confirm(START_MS + 5)
        await life.settled()
    assert len(bot.signal.sent) == 1


async def test_of_a_long_answer_one_receipt_proves_the_first_part_alone(bot: Bot) -> None:
    await leave(bot, "one", "two", "three")
    async with bot.life() as life:
        life.confirm(START_MS + 5)
        await life.settled()
    assert [text for _, text in bot.signal.sent] == ["two", "three"]


async def test_a_receipt_for_a_part_that_is_marked_does_not_prove_the_next(bot: Bot) -> None:
    async with bot.store() as store:
        first, _ = await answered(store, "one", "two")
        await store.outbox.mark_sent(first, START_MS + 9)
    async with bot.life() as life:
        life.confirm(START_MS + 5)  # an earlier copy of the first part
        await life.settled()
    assert [text for _, text in bot.signal.sent] == ["two"]


async def test_a_file_is_proven_like_words(bot: Bot) -> None:
    async with bot.store() as store:
        await answered(store, "look", files=[Attachment("a.txt", "text/plain", b"a")])
    async with bot.life() as life:
        life.confirm(START_MS + 5)
        await life.settled()
    assert bot.signal.sent == []


async def test_one_receipt_for_two_answers_that_may_have_been_sent_proves_neither(
    bot: Bot,
) -> None:
    async with bot.store() as store:
        await answered(store, "one", number=1)
        await answered(store, "two", number=2)
    async with bot.life() as life:
        life.confirm(START_MS + 5)
        await life.settled()
    assert [text for _, text in bot.signal.sent] == ["one", "two"]


async def test_in_a_group_a_receipt_of_any_member_is_proof(bot: Bot) -> None:
    await leave(bot, "hello", chat=GROUP)
    async with bot.life() as life:
        life.confirm(START_MS + 5, person=BOB)
        await life.settled()
    assert bot.signal.sent == []


@pytest.mark.parametrize("members", [frozenset({ADA}), None])
async def test_a_receipt_of_somebody_who_may_not_be_in_the_group_is_none(
    bot: Bot, members: frozenset[str] | None
) -> None:
    bot.signal.members = members
    await leave(bot, "hello", chat=GROUP)
    async with bot.life() as life:
        life.confirm(START_MS + 5, person=BOB)
        await life.settled()
    assert len(bot.signal.sent) == 1


async def test_a_receipt_may_be_for_what_was_on_its_way_to_a_group_of_the_person(bot: Bot) -> None:
    await leave_private_and_group(bot)
    async with bot.life() as life:
        life.confirm(START_MS + 5)
        await life.settled()
    assert len(bot.signal.sent) == 2


async def test_what_two_members_confirm_is_no_private_message(bot: Bot) -> None:
    await leave_private_and_group(bot)
    async with bot.life() as life:
        life.confirm(START_MS + 5)
        life.confirm(START_MS + 5, person=BOB)
        await life.settled()
    assert [text for _, text in bot.signal.sent] == ["private"]


async def test_a_phone_may_have_confirmed_a_reaction(bot: Bot) -> None:
    async with bot.store() as store:
        message = ReceivedMessage("+49", ADA, 1, PRIVATE, "q", START_MS - 100)
        (accepted,) = await store.messages.accept([message])
        assert accepted is not None
        await store.turns.answer(accepted, ["hello"], outcome="command")
    async with bot.life(reacts=True) as life:
        life.confirm(START_MS + 5)
        await life.settled()
    assert len(bot.signal.sent) == 1


async def test_when_a_phone_confirms_both_copies_the_unknown_one_is_deleted(bot: Bot) -> None:
    await leave(bot, "hello")
    async with bot.life() as life:
        await life.settled()
        ((kept, _),) = bot.signal.sent
        bot.signal.happened.clear()
        life.confirm(START_MS + 5, kept)
        await life.happened()
    assert bot.signal.deleted == [(PRIVATE, START_MS + 5)]
    assert bot.timestamps() == [kept]


async def test_a_copy_is_deleted_by_a_later_process_as_well_and_only_once(bot: Bot) -> None:
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


async def test_what_only_one_of_a_group_that_has_the_later_copy_confirms_is_private(
    bot: Bot,
) -> None:
    await leave_private_and_group(bot)
    async with bot.life() as life:
        life.confirm(START_MS + 5)  # may be either
        await life.settled()
        kept = {text: timestamp for timestamp, text in bot.signal.sent}
        bot.signal.happened.clear()
        life.confirm(kept["private"], kept["to all"])
        life.confirm(kept["to all"], person=BOB)
        await life.happened()
    assert bot.signal.deleted == [(PRIVATE, START_MS + 5)]


async def test_a_copy_that_alone_is_confirmed_stays(bot: Bot) -> None:
    await leave(bot, "hello")
    async with bot.life() as life:
        await life.settled()
        bot.signal.happened.clear()
        life.confirm(START_MS + 5)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(SOON_SECONDS):
                await bot.signal.happened.wait()
    assert bot.signal.deleted == []


async def test_after_two_kills_all_copies_but_one_are_deleted(bot: Bot) -> None:
    await leave(bot, "hello")
    async with bot.life() as life:
        await life.settled()
        ((second, _),) = bot.signal.sent
    # Killed before it was marked.
    bot.query("UPDATE outbox SET state = 'waiting', signal_timestamp = NULL, text = 'hello'")
    async with bot.life() as life:
        await life.settled()
        kept = bot.signal.sent[-1][0]
        bot.signal.happened.clear()
        life.confirm(START_MS + 5, second, kept)
        await life.happened()
        async with asyncio.timeout(WAIT_SECONDS):
            while len(bot.signal.deleted) < 2:
                await life.happened()
    assert [at for _, at in bot.signal.deleted] == [START_MS + 5, second]
    assert bot.timestamps() == [kept]


async def test_an_edit_that_was_sent_twice_is_not_deleted_and_goes_by_the_first(bot: Bot) -> None:
    async with bot.store() as store:
        (first,) = await answered(store, "wrong")
        await store.outbox.mark_sent(first, START_MS - 50_000)
        await answered_anew(store, "right")
    async with bot.life() as life:
        await life.settled()
        assert [text for _, text in bot.signal.sent] == ["right"]
        life.confirm(START_MS + 5)
        async with asyncio.timeout(WAIT_SECONDS):
            while (await life.store.doubts.resent(bot.now_ms))[0].timestamp != START_MS + 5:
                await life.store.upkeep.ping()
    assert bot.signal.deleted == []
    assert bot.timestamps()[-1] == START_MS + 5


async def test_a_day_later_a_copy_stays(bot: Bot) -> None:
    await leave(bot, "hello")
    async with bot.life() as life:
        await life.settled()
        bot.now_ms += 2 * A_DAY_MS
        assert await life.store.doubts.resent(bot.now_ms) == ()
        await life.store.upkeep.purge()


async def test_a_person_who_claims_too_much_takes_no_more_room(bot: Bot) -> None:
    await leave(bot, "hello")
    async with bot.life() as life:
        life.confirm(*range(START_MS + 6, START_MS + 5_000), person=BOB)
        life.confirm(START_MS + 5)
        await life.settled()
    assert bot.signal.sent == []
    assert len(bot.confirmations()) == MAX_CONFIRMED_BY_ONE + 1


@asynccontextmanager
async def sending_for_ever(bot: Bot) -> AsyncIterator[Doubts]:
    """Provide a process that is killed while an answer is on its way."""
    async with bot.store() as store:
        parts = await answered(store, "hello")
        never = asyncio.Event()

        class Slow(Signal):
            async def send(self, *_args: object, **_kwargs: object) -> int:
                self.happened.set()
                await never.wait()
                return 0

        slow = Slow()
        outbox = Outbox(slow, store)
        sending = asyncio.create_task(outbox.deliver(parts))
        await slow.happened.wait()
        yield Doubts(slow, store, outbox, reacts=lambda: False)
        sending.cancel()


async def test_an_early_receipt_is_kept_for_the_next_process(bot: Bot) -> None:
    now_ms = int(time() * 1_000)
    async with sending_for_ever(bot) as doubts:
        doubts.take(Receipt(ADA, (now_ms,)))
    assert bot.confirmations() == [(now_ms, ADA)]


async def test_that_a_message_was_taken_away_is_said_again_at_once(
    bot: Bot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doubts, "PROOF_SECONDS", 10 * WAIT_SECONDS)
    async with bot.store() as store:
        first, second = await answered(store, "one", "two")
        await store.outbox.mark_sent(first, START_MS - 50_000)
        await store.outbox.mark_sent(second, START_MS - 49_000)
        await answered_anew(store, "one")
    bot.query("DELETE FROM outbox WHERE kind = 'text' AND state = 'waiting'")
    async with bot.life() as life:
        await life.settled()
    assert bot.signal.deleted == [(PRIVATE, START_MS - 49_000)]


async def test_a_receipt_may_be_for_a_sign_of_progress_of_a_turn_that_was_killed(bot: Bot) -> None:
    await leave(bot, "to Ada")
    async with bot.store() as store:
        await begun(store)
    async with bot.life() as life:
        life.confirm(START_MS + 5)
        await life.settled()
    assert len(bot.signal.sent) == 1


async def test_a_receipt_may_be_for_an_earlier_sign_of_progress(bot: Bot) -> None:
    await leave(bot, "to Ada")
    async with bot.store() as store:
        turn = await begun(store)
        store.turns.record_progress(turn.id, START_MS + 5)
        store.turns.record_progress(turn.id, START_MS + 9)
        await store.upkeep.ping()
    async with bot.life() as life:
        life.confirm(START_MS + 5)
        await life.settled()
    assert len(bot.signal.sent) == 1


async def test_a_receipt_may_be_for_a_sign_of_progress_of_a_forgotten_turn(bot: Bot) -> None:
    await leave(bot, "to Ada")
    async with bot.store() as store:
        turn = await begun(store)
        notes = NotedSends(bot.signal, store)
        bot.signal.next_timestamp = START_MS + 4
        store.turns.record_progress(
            turn.id, await notes.send(ChatId.parse(GROUP), "Using calculate")
        )
        deletion = ReceivedMessage(
            "+49", BOB, 3, GROUP, "", START_MS, kind=ReceivedKind.DELETION,
            target_author=BOB, target_timestamp=2,
        )  # fmt: skip
        (accepted,) = await store.messages.accept([deletion])
        assert accepted is not None
        await store.messages.forget(accepted)
    assert bot.query("SELECT * FROM turns") == []
    bot.signal.sent.clear()
    async with bot.life() as life:
        life.confirm(START_MS + 5)
        await life.settled()
    assert len(bot.signal.sent) == 1


async def test_receipts_may_be_for_the_messages_of_long_questions(bot: Bot) -> None:
    await leave(bot, "to Ada")
    async with bot.store() as store:
        await begun(store)
        notes = NotedSends(bot.signal, store)
        bot.signal.next_timestamp = START_MS + 4
        parts = [await notes.send(ChatId.parse(GROUP), "part of a question") for _ in range(20)]
        await store.upkeep.ping()
    bot.signal.sent.clear()
    async with bot.life() as life:
        life.confirm(*parts)
        await life.settled()
    assert len(bot.signal.sent) == 1


async def test_what_may_be_a_message_of_a_killed_turn_is_not_deleted_as_a_copy(bot: Bot) -> None:
    await leave(bot, "to all", chat=GROUP)
    async with bot.store() as store:
        await begun(store)
    async with bot.life() as life:
        await life.settled()
        ((kept, _),) = bot.signal.sent
        life.confirm(START_MS + 5, kept)
        life.confirm(START_MS + 5, kept, person=BOB)
        bot.signal.happened.clear()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(bot.signal.happened.wait(), 2 * SOON_SECONDS)
    assert bot.signal.deleted == []


async def test_a_receipt_may_be_for_the_copy_of_a_message_that_was_forgotten(bot: Bot) -> None:
    await leave(bot, "to all", chat=GROUP)
    async with bot.store() as store:
        await answered(store, "to Ada, never sent", number=2)
        (found, _) = (await store.doubts.load(START_MS + 1_000, reaction_ms=None)).waiting
        await store.doubts.expect_copy(found)  # and then there is no connection until it is deleted
        deletion = ReceivedMessage(
            "+49", ADA, 3, GROUP, "", START_MS, kind=ReceivedKind.DELETION,
            target_author=ADA, target_timestamp=1,
        )  # fmt: skip
        (accepted,) = await store.messages.accept([deletion])
        assert accepted is not None
        await store.messages.forget(accepted)
    assert bot.query("SELECT chat FROM outbox") == [(PRIVATE,)]
    async with bot.life() as life:
        life.confirm(START_MS + 5)
        await life.settled()
    assert [text for _, text in bot.signal.sent] == ["to Ada, never sent"]


class Losing(Signal):
    """A Signal side that takes everything and does not answer the first send."""

    async def send(self, chat: ChatId, text: str, **more: Any) -> int:
        timestamp = await super().send(chat, text, **more)
        if len(self.sent) == 1:
            raise SignalTimeout("the reply was lost")
        return timestamp


async def test_a_receipt_may_be_for_an_earlier_try_of_a_message_that_is_marked(bot: Bot) -> None:
    bot.now_ms = int(time() * 1_000)
    async with bot.store() as store:
        await answered(store, "to Ada, never sent")
        to_all = await answered(store, "to all", number=2, chat=GROUP)
        phones = Losing(next_timestamp=bot.now_ms + 5)
        assert await Outbox(phones, store, policy=AT_ONCE).deliver(to_all)
    async with bot.life() as life:
        life.confirm(*(timestamp for timestamp, _ in phones.sent))
        await life.settled()
    assert [text for _, text in bot.signal.sent] == ["to Ada, never sent"]


async def test_any_of_several_tries_proves_an_answer(bot: Bot) -> None:
    bot.now_ms = int(time() * 1_000)
    async with bot.store() as store:
        (part,) = await answered(store, "hello")
        phones = Losing(next_timestamp=bot.now_ms + 5)
        with suppress(TimeoutError):
            async with asyncio.timeout(SOON_SECONDS):  # killed before the second try
                await Outbox(phones, store).deliver([part])
    async with bot.life() as life:
        life.confirm(phones.sent[0][0])
        await life.settled()
    assert bot.signal.sent == []


async def test_a_receipt_may_be_for_a_message_that_was_forgotten_on_its_way(bot: Bot) -> None:
    await leave(bot, "to Ada, never sent")
    async with bot.store() as store:
        (to_all,) = await answered(store, "to all", number=2, chat=GROUP)
        bot.query(f"DELETE FROM outbox WHERE id = {to_all.id}")
        await store.outbox.mark_sent(to_all, START_MS + 5)
    async with bot.life() as life:
        life.confirm(START_MS + 5)
        await life.settled()
    assert [text for _, text in bot.signal.sent] == ["to Ada, never sent"]


async def test_a_receipt_may_be_for_the_deletion_of_a_copy(bot: Bot) -> None:
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


async def test_of_several_copies_the_one_is_kept_that_can_be_no_other_message(bot: Bot) -> None:
    await leave(bot, "hello")
    async with bot.life() as life:
        await life.settled()
        ((second, _),) = bot.signal.sent
        await begun(life.store)
    bot.query("UPDATE outbox SET state = 'waiting', signal_timestamp = NULL, text = 'hello'")
    async with bot.life() as life:
        life.confirm(second)
        life.confirm(START_MS + 5)
        await life.settled()
    assert len(bot.signal.sent) == 1
    assert bot.timestamps() == [START_MS + 5]


async def test_until_there_is_a_connection_nothing_is_concluded(bot: Bot) -> None:
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


async def test_what_the_owner_sent_is_known_however_much_it_was(bot: Bot) -> None:
    await leave(bot, "hello")
    async with bot.life() as life:
        for timestamp in range(START_MS + 5, START_MS + 5 + 2 * MAX_CONFIRMED_BY_ONE):
            life.doubts.take(SentElsewhere(timestamp))
        life.confirm(START_MS + 4 + 2 * MAX_CONFIRMED_BY_ONE)
        await life.settled()
    assert len(bot.signal.sent) == 1


async def test_an_answer_that_is_deleted_meanwhile_is_not_sent_again(bot: Bot) -> None:
    async with bot.store() as store:
        (part,) = await answered(store, "hello")
    async with bot.life() as life:
        bot.query(f"DELETE FROM outbox WHERE id = {part.id}")
        await life.settled()
    assert bot.signal.sent == []


async def sent_before(bot: Bot, *, timestamp: int) -> None:
    """Have an answer sent, with a timestamp by signal-cli's clock."""
    async with bot.store() as store:
        (part,) = await answered(store, "earlier", number=0)
        await store.outbox.mark_sent(part, timestamp)


async def test_a_clock_of_signal_cli_that_is_behind_lets_an_answer_be_proven(bot: Bot) -> None:
    await sent_before(bot, timestamp=START_MS - 1_490)
    await leave(bot, "hello")
    async with bot.life() as life:
        life.confirm(START_MS - 1_495)
        await life.settled()
    assert bot.signal.sent == []


async def test_what_this_process_sends_by_a_clock_that_is_behind_proves_nothing(bot: Bot) -> None:
    await sent_before(bot, timestamp=START_MS - 1_490)
    await leave(bot, "hello")
    async with bot.life() as life:
        life.confirm(bot.now_ms - 1_400)
        await life.settled()
    assert len(bot.signal.sent) == 1


async def test_receipts_for_what_cannot_have_been_sent_yet_are_not_kept(bot: Bot) -> None:
    async with sending_for_ever(bot) as doubts:
        doubts.take(Receipt(ADA, (int(time() * 1_000) + 60_000,)))
    assert bot.confirmations() == []


async def test_early_receipts_of_a_person_have_a_bound(bot: Bot) -> None:
    async with sending_for_ever(bot) as doubts:
        now_ms = int(time() * 1_000)
        for _ in range(3):
            doubts.take(Receipt(ADA, tuple(range(now_ms, now_ms + 500))))
            doubts.take(Receipt(ADA, tuple(range(now_ms - 1_000, now_ms - 500))))
    assert len(bot.confirmations()) == MAX_CONFIRMED_BY_ONE


async def test_what_the_owner_sent_while_nothing_was_on_its_way_proves_nothing_later(
    bot: Bot,
) -> None:
    async with bot.store() as store:
        await answered(store, "hello")
        signal = bot.signal
        doubts = Doubts(signal, store, Outbox(signal, store), reacts=lambda: False)
        doubts.take(SentElsewhere(START_MS + 5))
    async with bot.life() as life:
        life.confirm(START_MS + 5)
        await life.settled()
    assert [text for _, text in bot.signal.sent] == ["hello"]


@pytest.mark.parametrize("is_set_back", [False, True])
async def test_a_send_is_looked_for_by_the_clock_of_the_machine_where_the_stores_was_ahead(
    tmp_path: Path, *, is_set_back: bool
) -> None:
    before_ms = int(time() * 1_000)
    async with open_store(tmp_path / "store.db", clock=lambda: time() + 7_200) as store:
        sent = await store.outbox.add_note(PRIVATE, "from the future")
        await store.outbox.mark_sent(sent, int(time() * 1_000) + 1)
        await store.outbox.add_note(PRIVATE, "on its way at the kill")
        store.doubts.confirm([(before_ms, ADA)])  # of a copy
        await store.upkeep.purge()
    killed_ms = int(time() * 1_000) + 1
    async with open_store(tmp_path / "store.db") as store:
        if is_set_back:
            await store.upkeep.set_back()
        (waiting,) = (found := await store.doubts.load(killed_ms, reaction_ms=None)).waiting
    assert before_ms <= waiting.since <= killed_ms <= waiting.until
    assert found.confirmed == ((before_ms, ADA),)
