"""Helpers in the store: each has its own conversation, which otherwise belongs to its turn."""

import asyncio
import tempfile
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from conversation_store.models import AuditEntry, Image, Message, Role, StoredTurn, ToolCall
from conversation_store.store import ConversationStore
from tests.unit.stores import ADA, begin, finish, forget, is_left, received, store_at

IDS = ("call_0", "call_1", "call_2")
"""Endpoints number the calls of every conversation alike."""

DELEGATES = tuple(ToolCall(id_, "delegate", "{}") for id_ in IDS)
SHOWN = Image("image/png", b"of the person")


async def begun(store: ConversationStore) -> StoredTurn:
    """Return a turn that has asked for three helpers."""
    turn = await begin(store, received(1), images=[SHOWN])
    asked = Message(Role.ASSISTANT, None, DELEGATES)
    await store.turns.record_calls(turn.id, asked)
    opened = [Message(Role.TOOL, None, tool_call_id=id_) for id_ in IDS]
    return replace(turn, messages=(*turn.messages, asked, *opened))


async def helper_of(
    store: ConversationStore, turn: StoredTurn, call_id: str, task: str = "write"
) -> tuple[int, tuple[Message, ...]]:
    helper = await store.turns.begin_helper(turn.id, call_id, task)
    assert helper is not None
    return helper.id, helper.messages


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


async def test_a_call_that_is_not_open_has_no_helper(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        turn = await begun(store)
        await record(store, turn, "call_0", "done")
        for turn_id, call_id in ((turn.id, "call_0"), (turn.id, "call_9"), (turn.id + 1, "call_1")):
            assert await store.turns.begin_helper(turn_id, call_id, "add") is None


class Conversation:
    """The test's own copy of the conversation of a turn or a helper."""

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
        await store.turns.record_calls(turn.id, asked, helper=self.helper)
        self.messages += [asked, *(Message(Role.TOOL, None, tool_call_id=c.id) for c in calls)]


@pytest.mark.parametrize("seed", range(5))
def test_however_steps_interleave_each_conversation_stays_its_own(seed: int) -> None:
    random = Random(seed)

    async def scenario(folder: Path) -> None:
        async with store_at(folder) as store:
            turn = await begun(store)
            of_turn, of_helpers = Conversation(turn.messages, None), []
            for call_id in IDS:
                helper, messages = await helper_of(store, turn, call_id, f"task of {call_id}")
                of_helpers.append(Conversation(messages, helper))
            for number in range(60):
                conversation = random.choice([of_turn, *of_helpers])
                await conversation.step(store, turn, f"word-{number}", random)
            await store.upkeep.ping()
            resumed = await store.turns.find(turn.id)
            assert resumed is not None
            assert list(resumed.messages) == of_turn.messages
            for call_id, conversation in zip(IDS, of_helpers, strict=True):
                _, messages = await helper_of(store, turn, call_id)
                assert list(messages) == conversation.messages
            await finish(store, turn)
            ((*past, _),) = (await store.turns.history(ADA, max_bytes=1_000_000)).turns
            assert [one.tool_calls for one in past] == [one.tool_calls for one in of_turn.messages]
            await forget(store, 1, 2)
        assert not is_left(folder, "word-")
        assert not is_left(folder, "task of")

    with tempfile.TemporaryDirectory(prefix="stb-") as folder:
        asyncio.run(scenario(Path(folder)))
