"""`!undo` takes back the last question with everything derived from it."""

import asyncio
from contextlib import AsyncExitStack
from typing import Final

import pytest

from bot.commands.base import CANNOT_TELL, ONLY_ASKER
from bot.commands.models import NOTHING_TO_RETRY
from bot.commands.questions import NOTHING_TO_UNDO, UNDONE, UNDONE_HERE
from bot.signal.events import Person
from conversation_store import changes
from tests.e2e.running_bot import World, kill, killed_bot, running_bot, story, world
from tests.e2e.traces import files_of, gone, rows_with, there
from tests.fakes.openai_server import echo, held, script, text, tool_calls
from tests.fakes.signal_side import ADA, Group, Sent

BEN: Final = Person(aci="0d1e2f30-0000-4000-8000-00000000000b", number="+4915200000002", name="Ben")
GROUP: Final = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
SECRET: Final = "sesquipedalian"
ANSWER: Final = "antidisestablishmentarianism"
CALCULATE: Final = ("calculate", {"expression": "977773*977777"})
PRODUCT: Final = "956043950621"


async def test_a_question_taken_back_leaves_the_store_and_the_phones_with_its_answer() -> None:
    async with story(script(tool_calls(CALCULATE), text(f"{ANSWER} {PRODUCT}"))) as here:
        answer = await here.answer_to(f"{SECRET}: how much?")
        assert await here.asked("!undo") == UNDONE
        await here.signal.until(lambda: len(here.signal.deleted) == 2)
        progress = [one for one in here.signal.sent if one.text.startswith("🔧")]
        deleted = {timestamp for _, timestamp in here.signal.deleted}
        assert deleted == {answer.timestamp, progress[-1].timestamp}
        for words in (SECRET, ANSWER, PRODUCT, "977773"):
            assert not rows_with(here, words)
            assert words.encode() not in files_of(here)
        await here.asked("hello")
    shown = str(here.model.requests[-1]["messages"][1:])
    assert SECRET not in shown
    assert ANSWER not in shown


async def test_each_undo_takes_back_one_question_more_until_there_is_none() -> None:
    async with story() as here:
        for words in ("one", "two", "three"):
            await here.asked(words)
        assert await here.asked("!undo") == UNDONE
        assert await here.asked("!undo") == UNDONE
        await here.asked("four")
        shown = str(here.model.requests[-1]["messages"][1:])
        assert "one" in shown
        assert not any(words in shown for words in ("two", "three"))
        for _ in range(2):
            assert await here.asked("!undo") == UNDONE
        assert await here.asked("!undo") == NOTHING_TO_UNDO
        await here.signal.until(lambda: len(here.signal.deleted) == 4)


async def let_wait(here: World) -> Sent:
    """Answer a question while another one waits for its person; return the open one."""
    choice = {"question": "Which wall?", "options": ["North", "South"]}
    here.model.handler = script(text(ANSWER), tool_calls(("ask_user", choice)), text("Else."))
    await here.asked("how high is it?")
    question = await here.answer_to(f"{SECRET}: paint it")
    await there(here, str(question.timestamp))
    return question


@pytest.mark.parametrize("is_killed", [False, True])
async def test_a_question_that_waits_for_its_person_is_the_last_one(is_killed: bool) -> None:
    async with world() as here, AsyncExitStack() as bots:
        bot = await bots.enter_async_context(running_bot(here.settings()))
        question = await let_wait(here)
        if is_killed:
            await kill(bot)
            await bots.enter_async_context(running_bot(here.settings()))
        assert await here.asked("!retry") == NOTHING_TO_RETRY
        assert await here.asked("!undo") == UNDONE
        await here.signal.until(lambda: bool(here.signal.deleted))
        assert here.signal.deleted == [(question.chat, question.timestamp)]
        await gone(here, SECRET)
        assert rows_with(here, ANSWER)
        assert await here.asked("1") == "Else."
        assert SECRET not in str(here.model.requests[-1])
        assert await here.asked("!stop") == "There is nothing to stop."


async def test_undo_takes_back_joined_and_edited_messages_together() -> None:
    async with story() as here:
        question = await here.signal.say("first half")
        await here.asked("second half")
        await here.signal.edit("first part", question)
        answer = await here.answer()
        assert await here.asked("!undo") == UNDONE
        await here.signal.until(lambda: len(here.signal.deleted) == 1)
        assert here.signal.deleted[0][1] == answer.timestamp
        assert not any(rows_with(here, words) for words in ("first part", "second half"))
        assert await here.asked("!undo") == NOTHING_TO_UNDO


async def test_undo_waits_for_the_answer_that_it_takes_back_and_stop_does_not() -> None:
    release = asyncio.Event()
    async with story(script(held(release, text(ANSWER)))) as here:
        await here.let_think(SECRET)
        await here.signal.say("!undo")
        release.set()
        assert (await here.answer()).text == ANSWER
        assert (await here.answer()).text == UNDONE
        assert not rows_with(here, SECRET)


async def test_in_a_group_only_the_asker_and_admins_take_a_question_back() -> None:
    async with story(access={"groups": "always"}) as here:
        here.signal.groups[GROUP] = Group(members={ADA.aci: ADA, BEN.aci: BEN})
        await here.asked(SECRET, group=GROUP)
        assert await here.asked("!undo", author=BEN, group=GROUP) == ONLY_ASKER
        assert rows_with(here, SECRET)
        assert await here.asked("!undo", group=GROUP) == UNDONE
        await here.asked(SECRET, group=GROUP)
        here.signal.groups[GROUP].admins.add(BEN.aci)
        assert await here.asked("!undo", author=BEN, group=GROUP) == UNDONE
        assert not rows_with(here, SECRET)
        await here.asked(SECRET, group=GROUP)
        del here.signal.groups[GROUP]
        assert await here.asked("!undo", author=BEN, group=GROUP) in {ONLY_ASKER, CANNOT_TELL}
        assert rows_with(here, SECRET)


async def test_an_answer_too_old_to_delete_stays_and_undo_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(changes, "CHANGEABLE_MS", 0)
    monkeypatch.setattr("bot.commands.questions.CHANGEABLE_MS", 0)
    async with story() as here:
        await here.asked(SECRET)
        assert await here.asked("!undo") == UNDONE_HERE
        await here.asked("hello")
        assert not rows_with(here, SECRET)
    assert here.signal.deleted == []


async def test_after_a_stop_undo_takes_back_the_question_before() -> None:
    never = asyncio.Event()
    async with story(script(text(ANSWER), held(never))) as here:
        await here.asked(SECRET)
        await here.let_think("and now?", requests=2)
        assert await here.asked("!stop") == "Stopped."
        assert await here.asked("!undo") == UNDONE
        assert not rows_with(here, ANSWER)


async def test_next_start_deletes_an_undone_answer_after_a_kill() -> None:
    async with world(script(text(ANSWER), echo)) as here:
        async with killed_bot(here.settings()):
            answer = await here.answer_to(SECRET)
            reached = asyncio.Event()

            async def cut_off(_: object) -> None:
                reached.set()
                await asyncio.Event().wait()

            here.signal.on_send = cut_off
            await here.signal.say("!undo")
            await reached.wait()
        here.signal.on_send = None
        assert not rows_with(here, SECRET)
        async with running_bot(here.settings()):
            assert (await here.answer()).text == UNDONE
            await here.signal.until(lambda: len(here.signal.deleted) == 1)
            assert here.signal.deleted[0][1] == answer.timestamp
            assert await here.asked("!undo") == NOTHING_TO_UNDO
