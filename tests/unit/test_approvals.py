"""What becomes of a question that nobody answers, that cannot be put, or that a restart cuts."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from bot.approvals.answers import Answer, Answers
from bot.approvals.asked import TOO_LATE, AskedQuestions
from bot.approvals.desk import CATCH_UP_SECONDS, ApprovalDesk, TurnApproval
from bot.approvals.questions import QuestionDesk
from bot.errors import SignalRejected, SignalUnavailable
from bot.language.languages import Languages
from bot.messaging.events import Person, Reaction
from bot.messaging.messenger import Poll
from bot.messaging.questions import GOES_ON
from conversation_store.models import (
    AcceptedMessage,
    ApprovalState,
    Attachment,
    ChatId,
    Message,
    ReceivedKind,
    ReceivedMessage,
    ReceivedQuote,
    Role,
    StyledText,
    StyleRange,
    ToolCall,
    TurnStatus,
    TurnUsage,
)
from conversation_store.store import ConversationStore, open_store
from tools.approval import Decision
from tools.base import Caller, Consent, ToolRequest

CHAT = ChatId.parse("direct:ada")
REQUEST = ToolRequest("call_1", "write", '{"text": "milk"}', Caller("ada"))


class Phone:
    """Takes questions, or fails to as told."""

    def __init__(self, *failures: Exception | None) -> None:
        self.texts: list[str] = []
        self.failures = list(failures)
        self.rang = asyncio.Event()

    async def send(
        self,
        chat: ChatId,
        text: str,
        *,
        styles: Sequence[StyleRange] = (),
        replaces: int | None = None,
        attachments: Sequence[Attachment] = (),
    ) -> int:
        failure = self.failures.pop(0) if self.failures else None
        if failure is not None:
            raise failure
        self.texts.append(text)
        self.rang.set()
        return 1_000 + len(self.texts)

    async def send_poll(self, chat: ChatId, poll: Poll) -> int:
        raise AssertionError("Approvals are no polls.")

    async def end_poll(self, chat: ChatId, timestamp: int) -> None:
        raise AssertionError("Approvals are no polls.")


def now() -> int:
    return time.time_ns() // 1_000_000


async def _unshown(_: str) -> tuple[StyledText, ...]:
    raise AssertionError("Nobody has a plan here.")


class Desk:
    """A desk for approvals, and what people answer there."""

    def __init__(
        self,
        store: ConversationStore,
        phone: Phone,
        *,
        patience: float = 20.0,
        catch_up: float = CATCH_UP_SECONDS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        asked = AskedQuestions(
            phone, is_admin=lambda _: False, languages=Languages(store), clock=clock
        )
        self._desk = ApprovalDesk(
            store=store,
            asked=asked,
            channel=phone,
            is_admin=lambda _: False,
            languages=Languages(store),
            patience_seconds=patience,
            catch_up_seconds=catch_up,
            clock=clock,
        )
        questions = QuestionDesk(
            store=store,
            asked=asked,
            languages=Languages(store),
            go_on=self._go_on,
            question_over=lambda: None,
            render=_unshown,
        )
        self._answers = Answers(asked, self._desk, questions)

    async def _go_on(self, turn_id: int) -> None:
        raise AssertionError("No turn waits for an answer of this desk.")

    async def resume(self) -> None:
        await self._answers.resume()

    def for_turn(self, accepted: AcceptedMessage, turn_id: int) -> TurnApproval:
        return self._desk.for_turn(accepted, turn_id)

    def answer_in(self, message: ReceivedMessage) -> Answer | None:
        return self._answers.answer_in(message)

    async def settle(self, accepted: AcceptedMessage, answer: Answer) -> str | None:
        return await self._answers.settle(accepted, answer)

    async def react(self, reaction: Reaction) -> None:
        await self._answers.react(reaction)


def desk_of(store: ConversationStore, phone: Phone, *, patience: float = 20.0) -> Desk:
    return Desk(store, phone, patience=patience)


@asynccontextmanager
async def open_call(
    path: Path, *requests: ToolRequest
) -> AsyncIterator[tuple[ConversationStore, AcceptedMessage]]:
    """Provide a store with a turn whose calls are open."""
    message = ReceivedMessage("+49", "ada", 1, CHAT, "note milk", now())
    async with open_store(path / "store.db") as store:
        (accepted,) = await store.messages.accept([message])
        assert accepted is not None
        turn = store.turns.begin([accepted], "note milk")
        calls = [
            ToolCall(request.call_id, request.tool, request.arguments)
            for request in requests or (REQUEST,)
        ]
        await store.turns.record_calls(turn.id, Message(Role.ASSISTANT, None, tuple(calls)))
        yield store, accepted


def reaction(emoji: str, target: int, *, author: str = "ada", timestamp: int = 1) -> Reaction:
    return Reaction(
        account="+49",
        chat=ChatId.parse(CHAT),
        author=Person(author),
        timestamp=timestamp,
        emoji=emoji,
        target_timestamp=target,
        removed=False,
    )


async def test_silence_is_no_and_stays_no(tmp_path: Path) -> None:
    async with open_call(tmp_path) as (store, accepted):
        phone = Phone()
        approval = desk_of(store, phone, patience=0.05).for_turn(accepted, accepted.id)
        assert await approval.ask(REQUEST, "Write?") is Decision.SILENCE
        assert await approval.ask(REQUEST, "Write?") is Decision.SILENCE
    assert len(phone.texts) == 1


async def test_a_question_that_signal_refuses_counts_as_not_asked(tmp_path: Path) -> None:
    async with open_call(tmp_path) as (store, accepted):
        desk = desk_of(store, Phone(SignalRejected("no such group")))
        decision = await desk.for_turn(accepted, accepted.id).ask(REQUEST, "Write?")
    assert decision is Decision.NOT_ASKED


async def test_a_question_is_put_again_until_there_is_a_connection(tmp_path: Path) -> None:
    async with open_call(tmp_path) as (store, accepted), asyncio.TaskGroup() as tasks:
        phone = Phone(SignalUnavailable("not connected"))
        desk = desk_of(store, phone)
        asking = tasks.create_task(desk.for_turn(accepted, accepted.id).ask(REQUEST, "Write?"))
        await phone.rang.wait()
        await desk.react(reaction("👍", 1_001))
        assert await asking is Decision.YES


async def test_without_a_connection_for_all_the_time_nobody_was_asked(tmp_path: Path) -> None:
    async with open_call(tmp_path) as (store, accepted):
        phone = Phone(*(SignalUnavailable("not connected") for _ in range(9)))
        desk = desk_of(store, phone, patience=0.05)
        decision = await desk.for_turn(accepted, accepted.id).ask(REQUEST, "Write?")
    assert decision is Decision.NOT_ASKED


@pytest.mark.parametrize("by", ["reaction", "reply"])
async def test_always_counts_as_meant_also_before_the_turn_goes_on_after_a_restart(
    tmp_path: Path, by: str
) -> None:
    consent = Consent(covers=("write",), version="1")
    request = replace(REQUEST, consent=consent)
    async with open_call(tmp_path) as (store, accepted):
        before = desk_of(store, Phone()).for_turn(accepted, accepted.id)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await before.ask(request, "Write?")
        desk = desk_of(store, Phone())
        await desk.resume()
        if by == "reaction":
            await desk.react(reaction("♾️", 1_001))
        else:
            reply = replace(yes_to(accepted), text="always")
            answer = desk.answer_in(reply)
            assert answer is not None
            assert await desk.settle(replace(accepted, message=reply), answer) is None
        assert await store.grants.cover(CHAT, consent.covers, consent.version)
        assert await desk.for_turn(accepted, accepted.id).ask(request, "Write?") is Decision.YES


async def test_the_messages_of_two_questions_do_not_mix(tmp_path: Path) -> None:
    other = replace(REQUEST, call_id="call_2")
    async with open_call(tmp_path, REQUEST, other) as (store, accepted):
        phone = Phone()
        approval = desk_of(store, phone, patience=0.5).for_turn(accepted, accepted.id)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(approval.ask(REQUEST, "a" * 4_000))
            tasks.create_task(approval.ask(other, "b" * 4_000))
    asked_about = [text.split("\n")[1].removeprefix(GOES_ON).lstrip()[0] for text in phone.texts]
    assert asked_about == ["a"] * 3 + ["b"] * 3


async def test_a_question_of_which_one_message_is_refused_is_not_asked(tmp_path: Path) -> None:
    async with open_call(tmp_path) as (store, accepted):
        phone = Phone(None, SignalRejected("no such group"))
        desk = desk_of(store, phone)
        decision = await desk.for_turn(accepted, accepted.id).ask(REQUEST, "a" * 4_000)
        assert await store.approvals.waiting() == ()
    assert decision is Decision.NOT_ASKED


async def test_only_the_last_message_of_a_question_can_be_answered(tmp_path: Path) -> None:
    async with open_call(tmp_path) as (store, accepted), asyncio.TaskGroup() as tasks:
        phone = Phone()
        desk = desk_of(store, phone)
        approval = desk.for_turn(accepted, accepted.id)
        asking = tasks.create_task(approval.ask(REQUEST, "a" * 4_000))
        while len(phone.texts) < 3:
            await phone.rang.wait()
            phone.rang.clear()
        for part in (1_001, 1_002):
            await desk.react(reaction("👍", part))
            quoting = ReceivedQuote(part, None, by_bot=True, text="")
            reply = replace(accepted.message, text="yes", timestamp=now(), quote=quoting)
            assert desk.answer_in(reply) is None
        await desk.react(reaction("👎", 1_003))
        assert await asking is Decision.NO


async def test_a_plain_yes_between_two_messages_of_another_question_answers_neither(
    tmp_path: Path,
) -> None:
    other = replace(REQUEST, call_id="call_2")
    async with open_call(tmp_path, REQUEST, other) as (store, accepted):
        phone = Phone(None, None, SignalUnavailable("not connected"))
        desk = desk_of(store, phone)
        approval = desk.for_turn(accepted, accepted.id)
        async with asyncio.TaskGroup() as tasks:
            asking = tasks.create_task(approval.ask(REQUEST, "Write?"))
            await phone.rang.wait()
            also = tasks.create_task(approval.ask(other, "b" * 4_000))
            while len(phone.texts) < 2:
                phone.rang.clear()
                await phone.rang.wait()
            assert desk.answer_in(yes_to(accepted)) is None
            while len(phone.texts) < 4:
                phone.rang.clear()
                await phone.rang.wait()
            await desk.react(reaction("👎", 1_001))
            await desk.react(reaction("👍", 1_004))
            assert (await asking, await also) == (Decision.NO, Decision.YES)


async def test_a_strangers_reaction_decides_nothing(tmp_path: Path) -> None:
    async with open_call(tmp_path) as (store, accepted), asyncio.TaskGroup() as tasks:
        phone = Phone()
        desk = desk_of(store, phone)
        asking = tasks.create_task(desk.for_turn(accepted, accepted.id).ask(REQUEST, "Write?"))
        await phone.rang.wait()
        await desk.react(reaction("👍", 1_001, author="eve"))
        await desk.react(reaction("👎", 1_001))
        assert await asking is Decision.NO


@pytest.mark.parametrize(
    "other", [replace(REQUEST, tool="pay"), replace(REQUEST, arguments='{"text": "wine"}')]
)
async def test_the_answer_counts_for_the_very_call_that_was_asked_about(
    tmp_path: Path, other: ToolRequest
) -> None:
    async with open_call(tmp_path) as (store, accepted):
        approval = desk_of(store, Phone()).for_turn(accepted, accepted.id)
        stored = await approval.stored(REQUEST, "Write?")
        assert stored is not None
        await store.approvals.decide(stored.id, ApprovalState.YES, by="ada")
        assert await approval.ask(other, "Write?") is Decision.NOT_ASKED
        assert await approval.ask(REQUEST, "Write?") is Decision.YES


async def test_an_answer_from_a_phone_whose_clock_is_ahead_is_in_time(tmp_path: Path) -> None:
    async with open_call(tmp_path) as (store, accepted), asyncio.TaskGroup() as tasks:
        phone = Phone()
        desk = desk_of(store, phone)
        approval = desk.for_turn(accepted, accepted.id)
        asking = tasks.create_task(approval.ask(REQUEST, "Write?"))
        await phone.rang.wait()
        await desk.react(reaction("👍", 1_001, timestamp=now() + 3_600_000))
        assert await asking is Decision.YES


def yes_to(accepted: AcceptedMessage) -> ReceivedMessage:
    """A plain yes that is written now."""
    return replace(accepted.message, timestamp=now(), received_at=now(), text="yes")


async def test_only_what_was_written_after_the_question_answers_it(tmp_path: Path) -> None:
    async with open_call(tmp_path) as (store, accepted):
        await asked_before_a_restart(store, accepted)
        desk = desk_of(store, Phone(), patience=300.0)
        await desk.resume()
        yes = yes_to(accepted)
        quoting = replace(yes, quote=ReceivedQuote(1_001, None, by_bot=True))
        assert desk.answer_in(yes) is not None
        assert desk.answer_in(quoting) is not None
        for said in (yes, quoting):
            waited = replace(said, text="why?").after(said)
            assert waited.text == "yes"
            assert desk.answer_in(waited) is None
            assert desk.answer_in(replace(said, kind=ReceivedKind.EDIT)) is None
        before = now() - 60_000
        assert desk.answer_in(replace(yes, timestamp=1_000)) is None
        # By a phone whose clock is ahead it was written later than it came.
        assert desk.answer_in(replace(yes, received_at=before)) is None


async def asked_before_a_restart(store: ConversationStore, accepted: AcceptedMessage) -> None:
    """Leave a question in the store as a crash would, put now, to be answered in 5 minutes."""
    approval = (
        await desk_of(store, Phone()).for_turn(accepted, accepted.id).stored(REQUEST, "Write?")
    )
    assert approval is not None
    await store.approvals.mark_asked(approval.id, 1_001, now() + 300_000)


@pytest.mark.parametrize(("late", "decision"), [(False, Decision.YES), (True, Decision.SILENCE)])
async def test_after_a_restart_an_answer_that_was_given_in_time_counts_and_a_later_one_does_not(
    tmp_path: Path, late: bool, decision: Decision
) -> None:
    async with open_call(tmp_path) as (store, accepted), asyncio.TaskGroup() as tasks:
        await asked_before_a_restart(store, accepted)
        phone = Phone()
        desk = Desk(store, phone, patience=300.0, catch_up=0.5, clock=lambda: time.time() + 600)
        await desk.resume()
        approval = desk.for_turn(accepted, accepted.id)
        asking = tasks.create_task(approval.ask(REQUEST, "Write?"))
        for _ in range(2):  # the store answers in order: now somebody waits for an answer
            await approval.stored(REQUEST, "Write?")
        await desk.react(reaction("👍", 1_001, timestamp=now() + (590_000 if late else 1_000)))
        assert await asking is decision
        assert phone.texts == []


async def test_after_a_restart_a_yes_counts_for_the_words_that_were_asked(tmp_path: Path) -> None:
    async with open_call(tmp_path) as (store, accepted):
        await asked_before_a_restart(store, accepted)
        (waiting,) = await store.approvals.waiting()
        await store.approvals.decide(waiting.id, ApprovalState.YES, by="ada")
        approval = desk_of(store, Phone()).for_turn(accepted, accepted.id)
        assert await approval.ask(REQUEST, "Delete everything?") is Decision.NOT_ASKED
        assert await approval.ask(REQUEST, "Write?") is Decision.YES


async def test_a_yes_to_a_question_whose_turn_has_ended_is_not_passed_over_in_silence(
    tmp_path: Path,
) -> None:
    async with open_call(tmp_path) as (store, accepted):
        await asked_before_a_restart(store, accepted)
        desk = desk_of(store, Phone(), patience=300.0)
        await desk.resume()
        await store.turns.answer(accepted, ("The tool is gone. Shall I try again?",), outcome="ok")
        (said,) = await store.messages.accept([yes_to(accepted)])
        assert said is not None
        answer = desk.answer_in(said.message)
        assert answer is not None
        assert await desk.settle(said, answer) == TOO_LATE


async def test_a_turn_that_ends_takes_no_more_answers(tmp_path: Path) -> None:
    async with open_call(tmp_path) as (store, accepted):
        await asked_before_a_restart(store, accepted)
        assert len(await store.approvals.waiting()) == 1
        await store.turns.answer(accepted, ("Something went wrong.",), outcome="bug")
        assert await store.approvals.waiting() == ()


async def test_the_end_of_a_turn_closes_no_question_of_another(tmp_path: Path) -> None:
    async with open_call(tmp_path) as (store, accepted):
        await asked_before_a_restart(store, accepted)
        (other,) = await store.messages.accept([replace(accepted.message, timestamp=2)])
        assert other is not None
        await store.turns.finish(
            store.turns.begin([other], "hello"),
            state=TurnStatus.ANSWERED,
            answer="Hello.",
            parts=["Hello."],
            model="m",
            usage=TurnUsage(),
        )
        assert len(await store.approvals.waiting()) == 1
