"""The words of a reminder, or of a scheduled question, go with the message that asked for it."""

import pytest

from conversation_store.models import Quote
from tests.e2e.running_bot import World, running_bot, world
from tests.e2e.test_reminders import PILLS_AT, SECRET, at, remind, schedule
from tests.e2e.traces import gone, gone_from_files, there, there_is
from tests.fakes.openai_server import Step, script, text, tool_calls
from tests.fakes.signal_side import BOT

LIST = tool_calls(("list_reminders", {}))
WORDS = f"Take the {SECRET}"


async def asked(here: World, words: str) -> int:
    """Say something, wait for its answer, and return when it was said."""
    timestamp = await here.signal.say(words)
    await here.answer()
    return timestamp


async def take_back(here: World, source: int, *, is_edited: bool) -> None:
    if is_edited:
        await here.signal.edit("never mind", source)
        await here.answer()
    else:
        await here.signal.delete(source)


async def without_words(here: World) -> None:
    await gone(here, SECRET)
    await gone_from_files(here, SECRET)


@pytest.mark.parametrize("is_edited", [False, True])
async def test_a_question_that_was_asked_goes_with_its_source(is_edited: bool) -> None:
    steps = script(
        schedule(f"What is a {SECRET}?", at()), text("I will."), text(f"A {SECRET} is a word."),
        text("Never mind then."),
    )  # fmt: skip
    async with world(steps) as here, running_bot(here.settings()):
        source = await asked(here, "ask yourself then")
        assert SECRET in (await here.answer()).text
        await there(here, SECRET)
        await take_back(here, source, is_edited=is_edited)
        await without_words(here)


@pytest.mark.parametrize("is_edited", [False, True])
async def test_other_turns_lose_a_reminder_with_its_source(
    is_edited: bool,
) -> None:
    steps = script(remind(WORDS, PILLS_AT + "Z"), text("I will."), LIST, text(f"You have: {WORDS}"),
                   text("Never mind then."))  # fmt: skip
    async with world(steps) as here, running_bot(here.settings()):
        source = await asked(here, "remind me of the pills")
        await asked(here, "what do I have?")
        await there(here, SECRET)
        await take_back(here, source, is_edited=is_edited)
        await without_words(here)


async def test_a_reminder_that_another_turn_moved_goes_with_its_source() -> None:
    cancel: Step = tool_calls(("cancel_reminder", {"number": 1}))
    steps = script(remind(WORDS, PILLS_AT + "Z"), text("I will."), cancel,
                   remind(WORDS, "2071-01-01T09:00Z"), text("Moved."))  # fmt: skip
    async with world(steps) as here, running_bot(here.settings()):
        source = await asked(here, "remind me of the pills")
        await asked(here, "a year later")
        await there(here, SECRET)
        await take_back(here, source, is_edited=False)
        await without_words(here)


async def test_a_reply_to_a_reminder_goes_with_the_source_of_the_reminder() -> None:
    steps = script(remind(WORDS, at()), text("I will."), remind(WORDS, PILLS_AT + "Z"),
                   text("Moved."))  # fmt: skip
    async with world(steps) as here, running_bot(here.settings()):
        source = await asked(here, "remind me of the pills")
        said = await here.answer()
        assert said.text == f"⏰ {WORDS}"
        await there_is(here, "SELECT 1 FROM outbox WHERE inbox_id IS NULL AND state = 'sent'")
        await here.signal.say("later", quote=Quote(said.timestamp, BOT.aci or "", said.text))
        await here.answer()
        await there(here, SECRET)
        await take_back(here, source, is_edited=False)
        await without_words(here)


async def test_reminder_of_another_turn_stays_when_one_is_taken_back() -> None:
    steps = script(remind(WORDS, PILLS_AT + "Z"), text("I will."),
                   remind("Call the dentist", PILLS_AT + "Z"), text("I will."))  # fmt: skip
    async with world(steps) as here, running_bot(here.settings()):
        source = await asked(here, "remind me of the pills")
        await asked(here, "remind me: call the dentist")
        await take_back(here, source, is_edited=False)
        await without_words(here)
        await here.signal.say("!reminders")
        assert "Call the dentist" in (await here.answer()).text


async def test_an_answer_anew_to_a_scheduled_question_goes_with_its_source() -> None:
    steps = script(schedule(f"What is a {SECRET}?", at()), text("I will."), text("A word."),
                   text(f"A {SECRET} is a long word."))  # fmt: skip
    async with world(steps) as here, running_bot(here.settings()):
        source = await asked(here, "ask yourself then")
        await here.answer()
        await asked(here, "!retry")
        await there(here, SECRET)
        await take_back(here, source, is_edited=False)
        await without_words(here)
