"""Reminders and scheduled questions are forgotten with the message that asked for them."""

from collections.abc import Sequence

import pytest

from conversation_store.models import Quote
from tests.e2e.running_bot import World, running_bot, story, world
from tests.e2e.test_reminders import PILLS_AT, SECRET, Wall, at, remind, schedule
from tests.e2e.traces import gone, gone_from_files, there, there_is
from tests.fakes.openai_server import Step, script, text, tool_calls
from tests.fakes.signal_side import BOT

WORDS = f"Take the {SECRET}"
SET = (remind(WORDS, PILLS_AT + "Z"), text("I will."))


def scheduled() -> Sequence[Step]:
    """Return the model's steps for a question that is due soon after it is set."""
    return schedule(f"What is a {SECRET}?", at()), text("I will.")


async def asked(here: World, words: str) -> int:
    """Say something, wait for its answer, and return when it was said."""
    timestamp = await here.signal.say(words)
    await here.answer()
    return timestamp


async def without_words(here: World) -> None:
    await gone(here, SECRET)
    await gone_from_files(here, SECRET)


@pytest.mark.parametrize(
    ("is_scheduled", "steps", "then", "is_edited"),
    [
        (True, (text(f"A {SECRET} is a word."), text("Never mind.")), "", True),
        (True, (text("A word."), text(f"A {SECRET} is a long word.")), "!retry", False),
        (False, (tool_calls(("list_reminders", {})), text(f"You have: {WORDS}")), "list", False),
        (
            False,
            (tool_calls(("cancel_reminder", {"number": 1})), remind(WORDS, "2071-01-01T09:00Z"),
             text("Moved.")),
            "a year later", False,
        ),
    ],
    ids=["asked", "asked and answered anew", "told to another turn", "moved by another turn"],
)  # fmt: skip
async def test_words_of_a_reminder_go_with_its_source(
    is_scheduled: bool, steps: Sequence[Step], then: str, is_edited: bool
) -> None:
    first = scheduled() if is_scheduled else SET
    async with story(script(*first, *steps)) as here:
        source = await asked(here, "remind me")
        if is_scheduled:
            await here.answer()
        if then:
            await asked(here, then)
        await there(here, SECRET)
        if is_edited:
            await here.signal.edit("never mind", source)
            await here.answer()
        else:
            await here.signal.delete(source)
        await without_words(here)


async def test_a_reply_to_a_reminder_is_forgotten_with_its_source() -> None:
    wall = Wall()
    steps = (remind(WORDS, at(60)), text("I will."), remind(WORDS, PILLS_AT + "Z"), text("Moved."))
    async with world(script(*steps)) as here, running_bot(here.settings(), clock=wall):
        source = await asked(here, "remind me of the pills")
        wall.pass_by(seconds=61)
        said = await here.answer()
        assert said.text == f"⏰ {WORDS}"
        await there_is(here, "SELECT 1 FROM outbox WHERE inbox_id IS NULL AND state = 'sent'")
        await here.asked("later", quote=Quote(said.timestamp, BOT.aci or "", said.text))
        await there(here, SECRET)
        await here.signal.delete(source)
        await without_words(here)


async def test_reminder_of_another_turn_stays_when_one_is_taken_back() -> None:
    dentist = remind("Call the dentist", PILLS_AT + "Z")
    async with story(script(*SET, dentist, text("I will."))) as here:
        source = await asked(here, "remind me of the pills")
        await asked(here, "remind me: call the dentist")
        await here.signal.delete(source)
        await without_words(here)
        assert "Call the dentist" in await here.asked("!reminders")
