"""The conversation store through its front door, on a real file."""

import asyncio
import sqlite3
import stat
from contextlib import AbstractAsyncContextManager, closing
from dataclasses import replace
from pathlib import Path

import apsw
import pytest

from conversation_store.backup import backup
from conversation_store.connections import Session, StoreFailed, StoreLocked, StoreUnreadable
from conversation_store.database import open_database
from conversation_store.models import (
    DAY_MS,
    AcceptedMessage,
    Attachment,
    AuditEntry,
    ChatId,
    Message,
    NewExchange,
    OutgoingMessage,
    ReceivedMessage,
    Role,
    StoredTurn,
    ToolCall,
    TurnEnd,
)
from conversation_store.schema import APPLICATION_ID
from conversation_store.store import ConversationStore, open_store

CALL = ToolCall("call_1", "calculate", '{"expression": "127*43"}')

ADA = ChatId.parse("direct:ada")
BOB = ChatId.parse("direct:bob")


def received(timestamp: int, text: str = "hello", chat: ChatId = ADA) -> ReceivedMessage:
    return ReceivedMessage(
        account="+4915100000000",
        author="ada",
        timestamp=timestamp,
        chat=chat,
        text=text,
        received_at=1_795_291_728_387 + timestamp,
        author_name="Ada",
    )


def audit_entry(turn: StoredTurn) -> AuditEntry:
    return AuditEntry(1, ADA, "ada", turn.id, "calculate", "00" * 32, "ok", 3)


async def accept_one(
    store: ConversationStore, timestamp: int, text: str = "hello", chat: ChatId = ADA
) -> AcceptedMessage:
    (accepted,) = await store.messages.accept([received(timestamp, text, chat)])
    assert accepted is not None
    return accepted


async def answer_one(
    store: ConversationStore,
    timestamp: int,
    question: str = "q",
    answer: str = "a",
    chat: ChatId = ADA,
) -> tuple[OutgoingMessage, ...]:
    accepted = await accept_one(store, timestamp, question, chat)
    turn = store.turns.begin([accepted], question)
    return await store.turns.finish(
        turn,
        TurnEnd("answered", answer),
        [answer],
    )


def store_at(
    folder: Path, *, key: str | None = None, retention_days: int = 30
) -> AbstractAsyncContextManager[ConversationStore]:
    return open_store(folder / "data" / "store.db", key=key, retention_days=retention_days)


async def test_a_duplicate_of_a_message_is_accepted_once(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        first = await store.messages.accept([received(1), received(2), received(1)])
        again = await store.messages.accept([received(2), received(3)])
    assert [accepted is not None for accepted in first] == [True, True, False]
    assert [accepted is not None for accepted in again] == [False, True]


async def test_the_same_timestamp_of_another_author_is_no_duplicate(tmp_path: Path) -> None:
    bob = ReceivedMessage("+49", "bob", 1, BOB, "hi", 5)
    async with store_at(tmp_path) as store:
        assert all(await store.messages.accept([received(1), bob]))


async def test_an_accepted_message_is_unfinished_until_it_is_answered(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        accepted = await accept_one(store, 1)
    async with store_at(tmp_path) as store:
        assert await store.messages.unfinished() == (accepted,)
        await store.turns.answer(accepted, ["pong"], outcome="command")
        assert await store.messages.unfinished() == ()


async def test_a_stored_answer_is_unfinished_until_it_is_marked_as_sent(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        outgoing = await answer_one(store, 1)
    async with store_at(tmp_path) as store:
        assert await store.outbox.unfinished() == outgoing
        await store.outbox.mark_failed(outgoing[0], give_up=False)
        (again,) = await store.outbox.unfinished()
        assert again.attempts == 1
        await store.outbox.mark_sent(again, 99)
        assert await store.outbox.unfinished() == ()


async def test_a_sent_answer_leaves_no_text_in_the_outbox_and_a_given_up_one_does(
    tmp_path: Path,
) -> None:
    async with store_at(tmp_path) as store:
        (sent,) = await answer_one(store, 1, answer="sent words")
        (lost,) = await answer_one(store, 2, answer="lost words")
        await store.outbox.mark_sent(sent, 99)
        await store.outbox.mark_failed(lost, give_up=True)
        assert await store.outbox.unfinished() == ()
    with sqlite3.connect(tmp_path / "data" / "store.db") as plain:
        rows = plain.execute("SELECT state, text FROM outbox ORDER BY id").fetchall()
        bodies = plain.execute("SELECT DISTINCT body FROM inbox").fetchall()
    plain.close()
    assert rows == [("sent", None), ("given_up", "lost words")]
    assert bodies == [(None,)]


async def test_a_message_cannot_be_answered_twice(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        accepted = await accept_one(store, 1)
        await store.turns.answer(accepted, ["one"], outcome="command")
        with pytest.raises(apsw.ConstraintError):
            await store.turns.answer(accepted, ["two"], outcome="command")


async def test_write_happens_even_if_its_caller_is_cancelled(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        (outgoing,) = await answer_one(store, 1)
        marking = asyncio.create_task(store.outbox.mark_sent(outgoing, 5))
        await asyncio.sleep(0)
        marking.cancel()
        await asyncio.wait({marking})
        assert marking.cancelled()
    async with store_at(tmp_path) as store:
        assert await store.outbox.unfinished() == ()


async def test_failing_write_leaves_its_batch_intact(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        accepted = await accept_one(store, 1)
        await store.turns.answer(accepted, ["one"], outcome="command")
        results = await asyncio.gather(
            store.messages.accept([received(2)]),
            store.turns.answer(accepted, ["two"], outcome="command"),
            store.messages.accept([received(3)]),
            return_exceptions=True,
        )
        assert [type(result) for result in results] == [tuple, apsw.ConstraintError, tuple]
        assert len(await store.messages.unfinished()) == 2


async def test_turn_continues_after_a_crash_with_the_results_of_its_calls(tmp_path: Path) -> None:
    two = ToolCall("call_2", "calculate", "{}")
    asked = Message(Role.ASSISTANT, None, (CALL, two))
    async with store_at(tmp_path) as store:
        accepted = await accept_one(store, 1)
        turn = store.turns.begin([accepted], "What is 127*43?")
        store.turns.record_calls(turn.id, asked)
        await store.turns.record_result("call_1", "5461", audit_entry(turn))
        for timestamp in (75, 76, 77):
            store.turns.record_progress(turn.id, timestamp)
    async with store_at(tmp_path) as store:
        (waiting,) = await store.messages.unfinished()
        resumed = await store.turns.resume(waiting)
    assert waiting == replace(accepted, begun=True)
    assert resumed == StoredTurn(
        id=accepted.id,
        attempts=2,
        messages=(
            Message(Role.USER, "What is 127*43?"),
            asked,
            Message(Role.TOOL, "5461", tool_call_id="call_1"),
            Message(Role.TOOL, None, tool_call_id="call_2"),
        ),
        progress_timestamp=77,
        progress_edits=2,
    )


async def test_history_has_the_whole_turns_that_the_model_saw(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        accepted = await accept_one(store, 1)
        turn = store.turns.begin([accepted], "What is 127*43?")
        store.turns.record_calls(turn.id, Message(Role.ASSISTANT, "hm", (CALL,)))
        await store.turns.record_result("call_1", "5461", audit_entry(turn))
        await store.turns.finish(
            turn,
            TurnEnd("answered", "It is 5461."),
            ["It is 5461."],
        )
        running = await accept_one(store, 2)
        store.turns.begin([running], "half")
        assert (await store.turns.history(ADA, max_bytes=10_000)).turns == (
            (
                Message(Role.USER, "What is 127*43?"),
                Message(Role.ASSISTANT, "hm", (CALL,)),
                Message(Role.TOOL, "5461", tool_call_id="call_1"),
                Message(Role.ASSISTANT, "It is 5461."),
            ),
        )


async def test_history_is_cut_at_a_turn_that_does_not_fit(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        for number in range(5):
            await answer_one(store, number, question=f"q{number}" + "x" * 98, answer="y" * 100)
        turns = (await store.turns.history(ADA, max_bytes=500)).turns
        assert [turn[0].content for turn in turns] == ["q3" + "x" * 98, "q4" + "x" * 98]
        assert (await store.turns.history(ADA, max_bytes=100)).turns == ()
        assert (
            await store.turns.history(ChatId.parse("direct:nobody"), max_bytes=10_000)
        ).turns == ()


async def test_a_failed_turn_closes_its_open_calls_and_stays_in_history(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        accepted = await accept_one(store, 1)
        turn = store.turns.begin([accepted], "q")
        store.turns.record_calls(turn.id, Message(Role.ASSISTANT, None, (CALL,)))
        await store.turns.finish(
            turn,
            TurnEnd("failed", "The model cannot be reached."),
            ["The model cannot be reached."],
        )
        ((_, _, result, answer),) = (await store.turns.history(ADA, max_bytes=10_000)).turns
    assert result.content is not None
    assert "cut off" in result.content
    assert answer.content == "The model cannot be reached."


async def test_a_stopped_message_leaves_nothing_to_do_and_no_history(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        running, waiting = await accept_one(store, 1), await accept_one(store, 2)
        store.turns.begin([running], "secret plan")
        await store.changes.stop([running.id, waiting.id])
        assert await store.messages.unfinished() == ()
        assert (await store.turns.history(ADA, max_bytes=10_000)).turns == ()
    assert b"secret plan" not in (tmp_path / "data" / "store.db").read_bytes()


async def test_clearing_forgets_one_chat_alone(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        await answer_one(store, 1)
        await answer_one(store, 2)
        await answer_one(store, 3, chat=BOB)
        assert await store.turns.clear(ADA) == 2
        assert (await store.turns.history(ADA, max_bytes=10_000)).turns == ()
        assert len((await store.turns.history(BOB, max_bytes=10_000)).turns) == 1


async def test_clearing_forgets_answers_that_could_not_be_sent(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        for number, chat in enumerate((ADA, BOB)):
            (outgoing,) = await answer_one(store, number, answer=f"words for {chat}", chat=chat)
            await store.outbox.mark_failed(outgoing, give_up=True)
        await store.turns.clear(ADA)
    content = (tmp_path / "data" / "store.db").read_bytes()
    assert b"words for direct:bob" in content
    assert b"words for direct:ada" not in content


async def test_a_message_after_a_purge_does_not_get_the_id_of_a_forgotten_one(
    tmp_path: Path,
) -> None:
    async with store_at(tmp_path) as store:
        await answer_one(store, 1)
        await store.upkeep.purge(4_000_000_000_000)
        assert len(await answer_one(store, 2)) == 1


async def test_retention_deletes_old_turns_and_keeps_waiting_messages(tmp_path: Path) -> None:
    async with store_at(tmp_path, retention_days=30) as store:
        await answer_one(store, 1)
        waiting = await accept_one(store, 2)
        now = 4_000_000_000_000
        assert await store.upkeep.purge(now - 1) == 1
        assert await store.messages.unfinished() == (waiting,)
        assert len(await store.outbox.unfinished()) == 1


async def test_a_duplicate_is_still_known_after_a_short_retention(tmp_path: Path) -> None:
    async with store_at(tmp_path, retention_days=1) as store:
        await answer_one(store, 1)
        await store.upkeep.purge(received(1).received_at + 20 * DAY_MS)
        assert await store.messages.accept([received(1)]) == (None,)


async def test_retention_zero_keeps_nothing_past_the_turn(tmp_path: Path) -> None:
    async with store_at(tmp_path, retention_days=0) as store:
        (outgoing,) = await answer_one(store, 1, "quiet question", "quiet answer")
        assert (await store.turns.history(ADA, max_bytes=10_000)).turns == ()
        await store.outbox.mark_sent(outgoing, 5)
    content = (tmp_path / "data" / "store.db").read_bytes()
    assert b"quiet" not in content


async def test_an_encrypted_store_opens_with_its_key_alone(tmp_path: Path) -> None:
    async with store_at(tmp_path, key="it's a secret") as store:
        await answer_one(store, 1, answer="plain words")
    for path in (tmp_path / "data").iterdir():
        assert b"plain words" not in path.read_bytes()
        assert b"SQLite format" not in path.read_bytes()
    for wrong in (None, "another"):
        with pytest.raises(StoreUnreadable):
            async with store_at(tmp_path, key=wrong):
                pass
    async with store_at(tmp_path, key="it's a secret") as store:
        assert len((await store.turns.history(ADA, max_bytes=1000)).turns) == 1


async def test_a_backup_is_taken_while_the_bot_writes_and_opens_with_the_same_key(
    tmp_path: Path,
) -> None:
    target = tmp_path / "copy" / "store.db"
    target.parent.mkdir()
    async with store_at(tmp_path, key="k") as store:
        await answer_one(store, 1, answer="before")
        await asyncio.gather(
            asyncio.to_thread(backup, tmp_path / "data" / "store.db", "k", target),
            *(accept_one(store, number) for number in range(2, 50)),
        )
        with pytest.raises(StoreFailed, match="exists already"):
            backup(tmp_path / "data" / "store.db", "k", target)
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert b"before" not in target.read_bytes()
    async with open_store(target, key="k") as copy:
        ((_, answer),) = (await copy.turns.history(ADA, max_bytes=1000)).turns
        assert answer.content == "before"


async def test_a_backup_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    async with store_at(tmp_path):
        pass
    store = tmp_path / "data" / "store.db"
    with pytest.raises(StoreFailed, match="No such file or directory"):
        backup(store, None, tmp_path / "missing" / "copy.db")
    with pytest.raises(StoreFailed, match="Not a directory"):
        backup(store, None, store / "copy.db")
    with pytest.raises(StoreUnreadable):
        backup(store, "no key of its", tmp_path / "copy.db")
    assert not (tmp_path / "copy.db").exists()
    assert not (tmp_path / "copy.db.partial").exists()


async def test_only_one_process_writes_a_store(tmp_path: Path) -> None:
    async with store_at(tmp_path):
        with pytest.raises(StoreLocked):
            async with store_at(tmp_path):
                pass


async def test_the_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        await accept_one(store, 1)
        for path in (tmp_path / "data").iterdir():
            assert stat.S_IMODE(path.stat().st_mode) == 0o600, path.name
    assert stat.S_IMODE((tmp_path / "data").stat().st_mode) == 0o700


async def test_a_store_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "data" / "store.db"
    path.parent.mkdir()

    def from_the_future(db: Session) -> None:
        db.run(f"PRAGMA application_id = {APPLICATION_ID}")
        db.run("PRAGMA user_version = 99")

    async with open_database(path, None, prepare=from_the_future):
        pass
    with pytest.raises(StoreUnreadable, match="update the bot"):
        async with store_at(tmp_path):
            pass


async def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "store.db").write_bytes(b"no database" * 1000)
    with pytest.raises(StoreUnreadable):
        async with store_at(tmp_path):
            pass


async def test_a_turn_that_a_bug_has_ended_leaves_no_half_history_and_no_text(
    tmp_path: Path,
) -> None:
    async with store_at(tmp_path) as store:
        accepted = await accept_one(store, 1)
        store.turns.begin([accepted], "secret plan")
        await store.turns.answer(accepted, ["Something went wrong."], outcome="bug")
        assert (await store.turns.history(ADA, max_bytes=10_000)).turns == ()
        assert await store.upkeep.purge(4_000_000_000_000) == 1
    assert b"secret plan" not in (tmp_path / "data" / "store.db").read_bytes()


EXCHANGES = [NewExchange(f"chatcmpl-{number}", f"{number}a" * 32, "bb" * 32) for number in range(3)]


async def answered_with(
    store: ConversationStore, timestamp: int, *exchanged: NewExchange
) -> AcceptedMessage:
    accepted = await accept_one(store, timestamp)
    turn = store.turns.begin([accepted], "hello")
    store.turns.record_calls(turn.id, Message(Role.ASSISTANT, None, (CALL,)), exchanged[:1])
    (answer,) = await store.turns.finish(
        turn,
        TurnEnd("answered", "hi", exchanged[1:]),
        ("hi",),
    )
    await store.outbox.mark_sent(answer, 1)
    return accepted


async def test_the_file_of_an_answer_is_forgotten_once_it_is_sent(tmp_path: Path) -> None:
    async with open_store(tmp_path / "s.db") as store:
        accepted = await accept_one(store, 1)
        secret = Attachment("proof.json", "application/json", b"what-was-proven" * 100)
        (part,) = await store.turns.answer(
            accepted, ("x",), outcome="command", attachments=[secret]
        )
        await store.outbox.mark_sent(part, 7)
    with closing(sqlite3.connect(tmp_path / "s.db")) as database:
        assert database.execute("SELECT * FROM attachments").fetchall() == []


async def test_exchanges_of_a_turn_wait_until_it_is_over_and_are_settled_once(
    tmp_path: Path,
) -> None:
    async with open_store(tmp_path / "s.db") as store:
        accepted = await accept_one(store, 1)
        turn = store.turns.begin([accepted], "hello")
        calling = Message(Role.ASSISTANT, None, (CALL,))
        store.turns.record_calls(turn.id, calling, EXCHANGES[:1])
        assert await store.exchanges.unchecked(10) == ()
        await answered_with(store, 2, *EXCHANGES)
        waiting = await store.exchanges.unchecked(10)
        assert [one.completion_id for one in waiting] == [f"chatcmpl-{n}" for n in range(3)]
        for one in waiting:
            await store.exchanges.settle(one, "proven", kind="gateway", message="Fine.")
        assert await store.exchanges.unchecked(10) == ()
        await store.exchanges.settle(waiting[0], "wrong", kind="", message="No.")
        shown = await store.exchanges.of_last_answer(ADA)
        assert [(one.state, one.kind, one.message) for one in shown] == [
            ("proven", "gateway", "Fine.")
        ] * 3


async def test_another_chat_is_shown_no_exchanges(tmp_path: Path) -> None:
    async with open_store(tmp_path / "s.db") as store:
        await answered_with(store, 1, *EXCHANGES)
        assert await store.exchanges.of_last_answer(BOB) == ()


async def test_a_question_that_has_no_answer_yet_does_not_hide_the_last_answer(
    tmp_path: Path,
) -> None:
    async with open_store(tmp_path / "s.db") as store:
        await answered_with(store, 1, *EXCHANGES[:1])
        store.turns.begin([await accept_one(store, 2)], "hello")
        [shown] = await store.exchanges.of_last_answer(ADA)
        assert shown.completion_id == EXCHANGES[0].completion_id


async def test_a_wrong_signature_is_warned_about_once_a_turn_behind_its_answer(
    tmp_path: Path,
) -> None:
    async with open_store(tmp_path / "s.db") as store:
        await answered_with(store, 1, *EXCHANGES)
        sent = [
            [
                part.text
                for part in await store.exchanges.settle(
                    one, "wrong", kind="gateway", message="No.", warning="Careful, {}!".format
                )
            ]
            for one in await store.exchanges.unchecked(10)
        ]
        assert sent == [["Careful, direct:ada!"], [], []]
        assert [part.text for part in await store.outbox.unfinished()] == ["Careful, direct:ada!"]


async def test_forgotten_turns_lose_their_exchanges(tmp_path: Path) -> None:
    async with open_store(tmp_path / "s.db") as store:
        await answered_with(store, 1, *EXCHANGES)
        await store.turns.clear(ADA)
        assert await store.exchanges.unchecked(10) == ()
        stopped = await accept_one(store, 2)
        turn = store.turns.begin([stopped], "hello")
        calling = Message(Role.ASSISTANT, None, (CALL,))
        store.turns.record_calls(turn.id, calling, EXCHANGES[:1])
        await store.changes.stop((stopped.id,))
        assert await store.exchanges.unchecked(10) == ()


async def test_a_proof_of_an_exchange_that_was_forgotten_settles_no_later_one(
    tmp_path: Path,
) -> None:
    async with open_store(tmp_path / "s.db") as store:
        await answered_with(store, 1, *EXCHANGES[:1])
        [forgotten] = await store.exchanges.unchecked(10)
        await store.turns.clear(ADA)
        await answered_with(store, 2, *EXCHANGES[1:2])
        waiting = await store.exchanges.unchecked(10)
        await store.exchanges.settle(forgotten, "proven", kind="", message="Fine.")
        assert await store.exchanges.unchecked(10) == waiting
    assert [one.completion_id for one in waiting] == [EXCHANGES[1].completion_id]


async def test_without_retention_an_exchange_lives_until_it_is_checked(tmp_path: Path) -> None:
    async with open_store(tmp_path / "s.db", retention_days=0) as store:
        await answered_with(store, 1, *EXCHANGES[:2])
        first, second = await store.exchanges.unchecked(10)
        await store.exchanges.settle(first, "proven", kind="", message="")
        await store.upkeep.purge()
        assert await store.exchanges.unchecked(10) == (second,)
        assert await store.exchanges.of_last_answer(ADA) == ()
        warning = await store.exchanges.settle(
            second, "wrong", kind="", message="", warning="Careful, {}!".format
        )
        assert [part.chat for part in warning] == ["direct:ada"]
