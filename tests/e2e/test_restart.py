"""Survival of crashes at every stage, restarts, and shutdown under load."""

import asyncio
import json
from dataclasses import replace

import pytest

from bot.chat.joining import MAX_WAITING
from conversation_store.models import ChatId, ReceivedKind, ReceivedMessage
from conversation_store.store import open_store
from tests.e2e.running_bot import World, killed_bot, running_bot, world
from tests.e2e.stored import read_store
from tests.e2e.test_conversation import BEN, CALCULATE
from tests.e2e.traces import there_is
from tests.fakes.openai_server import held, script, text, tool_calls
from tests.fakes.signal_side import ADA, BOT


def received(text: str, timestamp: int) -> ReceivedMessage:
    """A message of Ada's, as the store takes it."""
    return ReceivedMessage(
        account=BOT.number,
        author=ADA.aci,
        timestamp=timestamp,
        chat=ChatId.parse(f"direct:{ADA.aci}"),
        text=text,
        received_at=timestamp,
    )


async def test_after_a_crash_the_sign_of_progress_still_says_how_earlier_calls_ended() -> None:
    never = asyncio.Event()
    steps = script(
        tool_calls(CALCULATE, ("calculate", {"expression": "1/0"})),
        tool_calls(("date_time", {})), held(never),
        tool_calls(("recall", {"query": ""})), text("It is 5461."),
    )  # fmt: skip
    async with world(steps) as here:
        async with killed_bot(here.settings()):
            await here.let_think("What is 127*43?", requests=3)
            before = "🔧 Using calculate ✓, date_time ✓"
            await here.signal.until(lambda: here.signal.sent[-1].text == before)
            shown = here.signal.sent[-1].timestamp
            await there_is(here, f"SELECT 1 FROM turns WHERE progress_timestamp = {shown}")
        async with running_bot(here.settings()):
            assert (await here.answer()).text == "It is 5461."
    assert here.shown() == f"{before}, recall ✓"
    signs = [sent for sent in here.signal.sent if sent.text.startswith("🔧")]
    assert [sign.replaces is None for sign in signs] == [True] + [False] * (len(signs) - 1)
    assert all("calculate" in sign.text for sign in signs)


async def test_a_stop_sent_during_downtime_stops_only_earlier_messages() -> None:
    never = asyncio.Event()
    async with world(held(never)) as here:
        async with killed_bot(here.settings()):
            await here.let_think("think")
        async with open_store(here.folder / "store.db") as store:
            assert all(await store.messages.accept([received("!stop", 7), received("after", 8)]))
        here.model.handler = text("Fine.")
        async with running_bot(here.settings()):
            answers = [(await here.answer()).text for _ in range(2)]
    assert sorted(answers, key=len) == ["Fine.", "There is nothing to stop."]
    assert len(here.model.requests) == 2


async def test_deletion_interrupted_by_a_crash_leaves_the_other_pieces() -> None:
    never = asyncio.Event()
    async with world(script(held(never))) as here:
        async with killed_bot(here.settings()):
            await here.signal.say("keep this")
            wrong = await here.let_think("forget this")
        async with open_store(here.folder / "store.db") as store:
            assert all(await store.messages.accept([about(wrong, "deletion")]))
        async with running_bot(here.settings()):
            answer = (await here.answer()).text
            await here.asked("!status")
    assert answer.endswith("keep this")
    assert len(here.answers()) == 2


async def test_an_edit_before_a_crash_takes_back_what_its_turn_remembered() -> None:
    never = asyncio.Event()
    steps = script(tool_calls(("remember", {"text": "the old flat"})), held(never), text("Fine."))
    async with world(steps) as here:
        async with killed_bot(here.settings()):
            wrong = await here.let_think("the old flat", requests=2)
        async with open_store(here.folder / "store.db") as store:
            assert all(await store.messages.accept([about(wrong, "edit", "the new flat")]))
        async with running_bot(here.settings()):
            assert (await here.answer()).text == "Fine."
    assert "the old flat" not in json.dumps(here.model.requests[-1]["messages"])


async def test_a_start_waits_for_no_room_however_much_there_is_to_go_on_with() -> None:
    never = asyncio.Event()
    waiting = [received(str(number), number) for number in range(MAX_WAITING + 1)]
    async with world(held(never)) as here:
        async with open_store(here.folder / "store.db") as store:
            edit = about(MAX_WAITING + 1, "edit", "of what never came")
            assert all(await store.messages.accept([*waiting, edit]))
        async with killed_bot(here.settings()):
            await here.model.wait_for_requests(1)


@pytest.mark.full
async def test_shutdown_stores_read_messages_also_with_full_queues() -> None:
    never = asyncio.Event()
    waiting = [received(str(number), number) for number in range(MAX_WAITING + 300)]
    async with world(held(never)) as here:
        async with open_store(here.folder / "store.db") as store:
            assert all(await store.messages.accept(waiting))
        async with running_bot(here.settings(), grace_seconds=0):
            await here.signal.until(lambda: here.signal.subscribed)
            for number in range(90):
                await here.signal.say(f"message {number}", author=BEN)
        kept = read_store(here.folder / "store.db")
    assert len(kept.outcomes) == len(waiting) + 90 - here.signal.undelivered


def about(timestamp: int, kind: ReceivedKind, text: str = "") -> ReceivedMessage:
    """An edit or a deletion of a message of Ada's, as the store takes it."""
    change = replace(received(text, timestamp + 1), kind=kind)
    return replace(change, target_author=ADA.aci, target_timestamp=timestamp)


async def test_a_shutdown_begins_nothing_new_and_the_next_start_does_it() -> None:
    release = asyncio.Event()
    async with world(held(release)) as here, asyncio.TaskGroup() as tasks:
        async with running_bot(here.settings()):
            await here.let_think("one")
            await here.signal.say("two")
            tasks.create_task(_release_when_unsubscribed(here, release))
        assert [answer[-3:] for answer in here.answers()] == ["one"]
        async with running_bot(here.settings()):
            await here.signal.wait_for(lambda sent: sent.text.endswith("two"))
    assert len(here.model.requests) == 2


async def _release_when_unsubscribed(here: World, release: asyncio.Event) -> None:
    await here.signal.until(lambda: not here.signal.subscribed)
    release.set()
