"""Helpers in the store: each has a conversation of its own, which is its turn's in all else."""

import asyncio
import tempfile
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from conversation_store.models import (
    AuditEntry,
    Image,
    Message,
    Role,
    StoredTurn,
    ToolCall,
)
from conversation_store.store import ConversationStore
from tests.unit.stores import (
    ADA,
    MAY_RUN,
    accept,
    deletion_of,
    finish,
    is_left,
    received,
    rows,
    store_at,
)

IDS = ("call_0", "call_1", "call_2")
"""Endpoints number the calls of every conversation alike."""

DELEGATES = tuple(ToolCall(id_, "delegate", "{}") for id_ in IDS)


async def begun(store: ConversationStore, timestamp: int = 1) -> StoredTurn:
    """Return a turn that has asked for three helpers."""
    turn = store.turns.begin([await accept(store, received(timestamp))], "question")
    asked = Message(Role.ASSISTANT, None, DELEGATES)
    store.turns.record_calls(turn.id, asked)
    opened = [Message(Role.TOOL, None, tool_call_id=id_) for id_ in IDS]
    return replace(turn, messages=(*turn.messages, asked, *opened))


async def record(
    store: ConversationStore,
    turn: StoredTurn,
    call_id: str,
    result: str,
    *,
    helper: int | None = None,
    images: tuple[Image, ...] = (),
) -> None:
    entry = AuditEntry(1, ADA, "ada", turn.id, "calculate", "00" * 32, "ok", 3)
    await store.turns.record_result(call_id, result, entry, helper=helper, images=images)


async def test_helper_begins_with_its_task_and_continues_from_the_store(
    tmp_path: Path,
) -> None:
    image = Image("image/png", b"a chart")
    async with store_at(tmp_path) as store:
        turn = await begun(store)
        first = await store.turns.begin_helper(turn.id, "call_0", "add")
        second = await store.turns.begin_helper(turn.id, "call_1", "look")
        assert first is not None
        assert second is not None
        assert first.messages == (Message(Role.USER, "add"),)
        asked = Message(Role.ASSISTANT, None, (ToolCall("call_0", "calculate", "{}"),))
        store.turns.record_calls(turn.id, asked, helper=first.id)
        await record(store, turn, "call_0", "5461", helper=first.id, images=(image,))
    async with store_at(tmp_path) as store:
        again = await store.turns.begin_helper(turn.id, "call_0", "another task")
        other = await store.turns.begin_helper(turn.id, "call_1", "look")
        assert again is not None
        assert again.id == first.id
        result = Message(Role.TOOL, "5461", tool_call_id="call_0", images=(image,))
        assert again.messages == (Message(Role.USER, "add"), asked, result)
        assert other == second


async def test_a_call_that_is_not_open_has_no_helper(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        turn = await begun(store)
        await record(store, turn, "call_0", "done")
        assert await store.turns.begin_helper(turn.id, "call_0", "add") is None
        assert await store.turns.begin_helper(turn.id, "call_9", "add") is None
        assert await store.turns.begin_helper(turn.id + 1, "call_1", "add") is None


async def test_a_yes_is_for_the_call_of_one_helper_though_all_calls_have_one_id(
    tmp_path: Path,
) -> None:
    async with store_at(tmp_path) as store:
        turn = await begun(store)
        asked = Message(Role.ASSISTANT, None, (ToolCall("call_0", "write", "{}"),))
        approvals = []
        for call_id in IDS[:2]:
            helper = await store.turns.begin_helper(turn.id, call_id, "write")
            assert helper is not None
            store.turns.record_calls(turn.id, asked, helper=helper.id)
            stored = await store.questions.find_or_open(
                turn.id, "call_0", MAY_RUN, helper=helper.id
            )
            assert stored is not None
            approvals.append((helper.id, stored.id))
        (first, approval), (second, other) = approvals
        assert approval != other
        await store.questions.answer(approval, "yes")
        await store.questions.begin(turn.id, "call_0", second)
        await store.questions.begin(turn.id, "call_0", first)
        await store.upkeep.ping()
        states = dict(rows(tmp_path, "SELECT id, state FROM questions"))
    assert states == {approval: "begun", other: "open"}


async def test_a_turn_that_ends_leaves_no_call_of_a_helper_open(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        turn = await begun(store)
        helper = await store.turns.begin_helper(turn.id, "call_0", "write")
        assert helper is not None
        asked = Message(Role.ASSISTANT, None, (ToolCall("call_0", "write", "{}"),))
        store.turns.record_calls(turn.id, asked, helper=helper.id)
        await store.questions.find_or_open(turn.id, "call_0", MAY_RUN, helper=helper.id)
        await finish(store, turn)
        open_calls = rows(
            tmp_path, "SELECT 1 FROM messages WHERE role = 'tool' AND content IS NULL"
        )
        states = rows(tmp_path, "SELECT state, answer FROM questions")
    assert open_calls == []
    assert states == [("answered", "silence")]


async def test_images_of_helpers_take_no_place_in_the_history(tmp_path: Path) -> None:
    shown = Image("image/png", b"of the person")
    async with store_at(tmp_path) as store:
        accepted = await accept(store, received(1))
        turn = store.turns.begin([accepted], "look", images=[shown])
        store.turns.record_calls(turn.id, Message(Role.ASSISTANT, None, DELEGATES))
        helper = await store.turns.begin_helper(turn.id, "call_0", "look")
        assert helper is not None
        assert helper.messages[0].images == ()
        for number in range(5):
            call = ToolCall(f"call_{number}", "read_file", "{}")
            store.turns.record_calls(
                turn.id, Message(Role.ASSISTANT, None, (call,)), helper=helper.id
            )
            image = Image("image/png", b"%d" % number)
            await record(store, turn, call.id, "an image", helper=helper.id, images=(image,))
        await finish(store, turn)
        (past,) = (await store.turns.history(ADA, max_bytes=10_000)).turns
    assert past[0].images == (shown,)
    assert not any(message.images for message in past[1:])


class Conversation:
    """A conversation of a turn or of a helper, kept beside the store."""

    def __init__(self, messages: tuple[Message, ...], helper: int | None) -> None:
        self.messages = list(messages)
        self.helper = helper

    async def step(
        self, store: ConversationStore, turn: StoredTurn, words: str, random: Random
    ) -> None:
        """Give an open call its result, or ask for further ones."""
        own = [
            place
            for place, one in enumerate(self.messages)
            if one.role is Role.TOOL and one.content is None and one.tool_call_id not in IDS
        ]
        if own:
            place = random.choice(own)
            call_id = self.messages[place].tool_call_id
            assert call_id is not None
            await record(store, turn, call_id, words, helper=self.helper)
            self.messages[place] = replace(self.messages[place], content=words)
            return
        round_ = sum(one.role is Role.ASSISTANT for one in self.messages)
        calls = tuple(
            ToolCall(f"round_{round_}_{number}", "calculate", words)
            for number in range(random.randint(1, 3))
        )
        asked = Message(Role.ASSISTANT, None, calls)
        store.turns.record_calls(turn.id, asked, helper=self.helper)
        self.messages += [asked, *(Message(Role.TOOL, None, tool_call_id=c.id) for c in calls)]


@pytest.mark.parametrize("seed", range(10))
def test_however_steps_interleave_each_conversation_stays_its_own(seed: int) -> None:
    random = Random(seed)

    async def scenario(folder: Path) -> None:
        async with store_at(folder) as store:
            turn = await begun(store)
            conversations = [Conversation(turn.messages, None)]
            for call_id in IDS:
                helper = await store.turns.begin_helper(turn.id, call_id, f"task of {call_id}")
                assert helper is not None
                conversations.append(Conversation(helper.messages, helper.id))
            for number in range(60):
                await random.choice(conversations).step(store, turn, f"word-{number}", random)
            of_turn, *of_helpers = conversations
            await store.upkeep.ping()
            resumed = await store.turns.find(turn.id)
            assert resumed is not None
            assert list(resumed.messages) == of_turn.messages
            for call_id, conversation in zip(IDS, of_helpers, strict=True):
                again = await store.turns.begin_helper(turn.id, call_id, "again")
                assert again is not None
                assert list(again.messages) == conversation.messages
            await finish(store, turn)
            ((*past, _),) = (await store.turns.history(ADA, max_bytes=1_000_000)).turns
            assert [one.tool_calls for one in past] == [one.tool_calls for one in of_turn.messages]
            (deletion,) = await store.messages.accept([deletion_of(1, 2)])
            assert deletion is not None
            await store.changes.forget(deletion)
        assert not is_left(folder, "word-")
        assert not is_left(folder, "task of")

    with tempfile.TemporaryDirectory(prefix="stb-") as folder:
        asyncio.run(scenario(Path(folder)))
