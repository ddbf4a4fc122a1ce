"""`!retry` answers the last question again and replaces the old answer."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Final

import pytest

from bot.commands.base import ONLY_ASKER
from bot.commands.models import NOTHING_TO_RETRY, UNKNOWN_MODEL
from bot.signal.events import Person
from conversation_store import changes
from tests.e2e.running_bot import World, killed_bot, running_bot, story, world
from tests.e2e.test_approvals import WRITE, notes, with_notes
from tests.e2e.test_models import settings_of, two_models
from tests.e2e.traces import files_of, rows_with, there_is
from tests.fakes.openai_server import echo, held, script, status, text, tool_calls
from tests.fakes.signal_side import ADA, Group

BEN: Final = Person(aci="0d1e2f30-0000-4000-8000-00000000000b", number="+4915200000002", name="Ben")
GROUP: Final = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
QUESTION: Final = "How high is Everest?"
OLD: Final = "antidisestablishmentarianism"
NEW: Final = "floccinaucinihilipilification"
CALCULATE: Final = ("calculate", {"expression": "977773*977777"})
PRODUCT: Final = "956043950621"


def shown(here: World, request: int = -1) -> list[str]:
    """The request to the model, without the system message."""
    return [str(message["content"]) for message in here.model.requests[request]["messages"][1:]]


async def test_a_new_answer_takes_the_old_ones_place_as_often_as_wanted() -> None:
    answers = [text(OLD), text("Another."), text(NEW), echo]
    async with story(script(text("Hi."), *answers)) as here:
        await here.answer_to("hello")
        first = await here.answer_to(QUESTION)
        second, third = [await here.answer_to("!retry") for _ in range(2)]
        assert [one.text for one in (first, second, third)] == [OLD, "Another.", NEW]
        assert [second.replaces, third.replaces] == [first.timestamp, second.timestamp]
        assert shown(here, 3) == shown(here, 2) == shown(here, 1)
        await here.answer_to("and K2?")
        earlier = shown(here)
        assert [QUESTION in words for words in earlier].count(True) == 1
        assert earlier[3] == NEW
        assert "!retry" not in str(earlier)
        assert not rows_with(here, OLD)
        assert OLD.encode() not in files_of(here)
        for _ in range(2):
            await here.answer_to("!undo")
        assert not rows_with(here, QUESTION)
        await here.signal.until(lambda: len(here.signal.deleted) == 2)
        assert third.timestamp in {timestamp for _, timestamp in here.signal.deleted}


async def test_another_model_answers_this_once() -> None:
    async with two_models() as (here, other):
        async with running_bot(settings_of(here, other)):
            await here.answer_to(QUESTION)
            assert await here.asked("!retry SECOND") == "I am the second."
            assert QUESTION in str(other.requests[-1]["messages"][-1])
            assert await here.asked("hello") == "I am the first."
            assert await here.asked("!retry third") == UNKNOWN_MODEL


async def test_retry_without_a_question_says_so() -> None:
    never = asyncio.Event()
    async with world(script(text("Hi."), held(never), echo)) as here:
        async with running_bot(here.settings()):
            assert await here.asked("!retry") == NOTHING_TO_RETRY
            await here.answer_to("hello")
            await here.let_think(QUESTION, requests=2)
            assert await here.asked("!stop") == "Stopped."
            assert await here.asked("!retry") == NOTHING_TO_RETRY
            await here.answer_to("hello")
            await here.answer_to("!clear")
            assert await here.asked("!retry") == NOTHING_TO_RETRY
        async with running_bot(here.settings(store={"retention_days": 0})):
            await here.answer_to(QUESTION)
            assert await here.asked("!retry") == NOTHING_TO_RETRY


async def test_old_answer_stays_if_the_model_fails() -> None:
    async with story(script(text(OLD), status(400), text(NEW), echo)) as here:
        old = await here.answer_to(QUESTION)
        sorry = await here.answer_to("!retry")
        assert (sorry.replaces, here.signal.deleted) == (None, [])
        assert rows_with(here, OLD)
        assert (await here.answer_to("!retry")).replaces == old.timestamp
        await here.answer_to("and K2?")
    assert sum(QUESTION in words for words in shown(here)) == 1


async def test_a_retry_that_is_stopped_leaves_the_old_answer() -> None:
    never = asyncio.Event()
    async with story(script(text(OLD), held(never), echo)) as here:
        old = await here.answer_to(QUESTION)
        await here.let_think("!retry", requests=2)
        assert await here.asked("!stop") == "Stopped."
        await here.answer_to("and K2?")
        assert OLD in shown(here)
        await here.answer_to("!undo")
        assert (await here.answer_to("!retry")).replaces == old.timestamp


async def test_the_model_is_told_which_calls_were_made_and_a_side_effect_asks_again() -> None:
    steps = script(tool_calls(WRITE), text("Done."), tool_calls(WRITE), text("Done again."))
    async with story(steps, with_notes) as here:
        await here.signal.say("note: buy milk")
        question = await here.signal.next_sent()
        assert await here.reacted("♾️", question.timestamp) == "Done."
        await here.signal.say("!retry")
        again = await here.signal.next_sent()
        assert again.text.startswith("❓ Run notes_write?")
        assert 'notes_write {"text": "buy milk"}' in shown(here)[0]
        assert "Written." not in str(shown(here, 2))
        assert await here.reacted("👎", again.timestamp) == "Done again."
        assert notes(here) == "buy milk\n"


async def test_deleting_the_question_forgets_all_answers_to_it() -> None:
    async with story(script(text(OLD), text(NEW), echo)) as here:
        question = await here.signal.say(QUESTION)
        await here.answer()
        await here.answer_to("!retry")
        await here.signal.delete(question)
        await here.answer_to("hello")
        for words in (QUESTION, OLD, NEW):
            assert not rows_with(here, words)
            assert words.encode() not in files_of(here)


async def test_editing_the_question_after_a_retry_edits_the_answer_that_stands() -> None:
    async with story(script(text(OLD), text(NEW), text("Better."))) as here:
        question = await here.signal.say("How hihg is Everest?")
        await here.answer()
        new = await here.answer_to("!retry")
        await here.signal.edit(QUESTION, question)
        better = await here.answer()
        assert (better.text, better.replaces) == ("Better.", new.timestamp)
        assert not rows_with(here, "hihg")
        assert not rows_with(here, NEW)


async def test_in_a_group_only_the_asker_and_admins_may_retry_a_question() -> None:
    async with story(access={"groups": "always"}) as here:
        here.signal.groups[GROUP] = Group(members={ADA.aci: ADA, BEN.aci: BEN})
        first = await here.answer_to(QUESTION, group=GROUP)
        refused = await here.answer_to("!retry", author=BEN, group=GROUP)
        assert refused.text == ONLY_ASKER
        second = await here.answer_to("!retry", group=GROUP)
        assert second.replaces == first.timestamp
        here.signal.groups[GROUP].admins.add(BEN.aci)
        third = await here.answer_to("!retry", author=BEN, group=GROUP)
        assert third.replaces == second.timestamp
        assert (await here.answer_to("!retry", group=GROUP)).replaces == third.timestamp


async def test_retry_by_an_admin_keeps_the_rights_of_the_asker() -> None:
    settings = {"access": {"groups": "always", "admins": BEN.aci}}
    async with story(**settings) as here:
        await here.answer_to(QUESTION, group=GROUP)
        await here.answer_to("!retry", author=BEN, group=GROUP)
        await here.answer_to(QUESTION, author=BEN, group=GROUP)
    offered = [
        {tool["function"]["name"] for tool in request["tools"]} for request in here.model.requests
    ]
    assert "read_file" not in offered[1]
    assert "read_file" in offered[2]


async def test_an_answer_that_signal_edits_no_more_is_followed_by_a_new_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(changes, "CHANGEABLE_MS", 0)
    async with story(script(text(OLD), text(NEW))) as here:
        await here.answer_to(QUESTION)
        new = await here.answer_to("!retry")
    assert (new.text, new.replaces) == (NEW, None)


async def test_a_retry_goes_on_after_a_kill_and_is_answered_once() -> None:
    never = asyncio.Event()
    steps = script(text(OLD), tool_calls(CALCULATE), held(never), text(NEW), echo)
    async with world(steps) as here:
        async with killed_bot(here.settings()):
            old = await here.answer_to(QUESTION)
            await here.let_think("!retry", requests=3)
        assert rows_with(here, OLD)
        async with running_bot(here.settings()):
            new = await here.answer()
            assert (new.text, new.replaces) == (NEW, old.timestamp)
            assert PRODUCT in shown(here)[-1]
            assert not rows_with(here, OLD)
            await here.answer_to("hello")
    assert len(here.model.requests) == 5


async def test_facts_and_reminders_of_the_first_answer_stay() -> None:
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    remind = ("remind", {"text": "plutonium", "at": tomorrow})
    remember = ("remember", {"text": "sesquipedalian"})
    steps = script(tool_calls(remind, remember), text(OLD), text(NEW))
    async with story(steps) as here:
        await here.answer_to("remind me, and remember")
        await here.answer_to("!retry")
        await there_is(here, "SELECT 1 FROM reminders WHERE text = 'plutonium'")
        await there_is(here, "SELECT 1 FROM facts WHERE text = 'sesquipedalian'")
        await here.answer_to("!undo")
        assert not rows_with(here, "plutonium")
        assert not rows_with(here, "sesquipedalian")
