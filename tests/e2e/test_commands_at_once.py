"""Commands that only read answer at once, in any state of their chat."""

import asyncio
import time
from typing import Final

import pytest

from bot.commands.memory import NO_REMINDERS, NOTHING
from bot.commands.questions import HOW_TO_PLAN
from conversation_store.store import open_store
from tests.e2e.running_bot import World, running_bot, story, world
from tests.e2e.test_approvals import WRITE, question, with_notes
from tests.e2e.test_restart import received
from tests.fakes.openai_server import held, script, status, text, tool_calls
from tests.fakes.signal_side import ADA

SECONDS: Final = 1.0
ANSWERS: Final = {
    "!help": "!stop: stop what I am doing here",
    "!status": "Model: fake",
    "!tools": "Do sums",
    "!reminders": NO_REMINDERS,
    "!memory": NOTHING,
    "!usage": "Today: 0 tokens.",
    "!files": "There are no files in this chat.",
    "!grants": "Nothing is allowed here permanently",
    "!model": "default (fake)",
    "!timezone": "I do not know your time zone.",
    "!instructions": "There are no instructions here.",
    "!language": "I speak English here",
}
SLOW: Final = frozenset({"!files"})
"""The first look at a folder starts a sandbox."""


async def all_answer(here: World) -> None:
    """Send each command and check its answer, and that it comes within a second."""
    for command, words in ANSWERS.items():
        began = time.monotonic()
        assert words in await here.asked(command)
        assert command in SLOW or time.monotonic() - began < SECONDS, command


async def test_reading_commands_answer_while_a_turn_runs() -> None:
    release = asyncio.Event()
    async with story(held(release, text("Done.")), access={"admins": ADA.aci}) as here:
        await here.let_think("a long story, please")
        await all_answer(here)
        release.set()
        assert (await here.answer()).text == "Done."


async def test_reading_commands_answer_while_the_model_is_down() -> None:
    async with story(status(503), access={"admins": ADA.aci}) as here:
        await here.let_think("hello")
        await all_answer(here)


async def test_reading_commands_answer_while_a_question_is_open() -> None:
    async with story(script(tool_calls(WRITE), text("Written.")), with_notes) as here:
        asked = await question(here, "write it down")
        assert await here.asked("!reminders") == NO_REMINDERS
        assert "Answers in progress: 1" in await here.asked("!status", quote=asked.timestamp)
        assert await here.reacted("👍", asked.timestamp) == "Written."


async def test_other_messages_keep_their_order_around_a_reading_command() -> None:
    release = asyncio.Event()
    async with story(script(held(release, text("First.")), text("Second."))) as here:
        await here.let_think("one")
        await here.signal.say("!plan")
        await here.signal.say("!help")
        assert "!stop" in await here.asked("two")
        release.set()
        answers = [(await here.answer()).text for _ in range(3)]
    assert answers == ["First.", HOW_TO_PLAN, "Second."]


@pytest.mark.parametrize("command", ["!memory forget 1", "!model default", "!retry", "!undo"])
async def test_commands_that_change_something_wait_for_the_turn_before_them(command: str) -> None:
    release = asyncio.Event()
    async with story(held(release, text("Done."))) as here:
        await here.let_think("a long story, please")
        await here.signal.say(command)
        assert (await here.asked("!usage")).startswith("Today")
        release.set()
        assert (await here.answer()).text == "Done."


async def test_stop_ends_no_reading_command_after_a_restart() -> None:
    async with world() as here:
        messages = [received("before", 6), received("!status", 7), received("!stop", 8)]
        async with open_store(here.folder / "store.db") as store:
            assert all(await store.messages.accept(messages))
        async with running_bot(here.settings()):
            await here.signal.until(lambda: len(here.answers()) == 2)
    beginnings = sorted(answer.split()[0] for answer in here.answers())
    assert beginnings == ["There", "signal-tee-bot"]


async def test_reading_commands_are_limited_per_minute() -> None:
    async with story(access={"messages_per_minute": 2}) as here:
        for _ in range(4):
            await here.signal.say("!help")
        await here.signal.say("!stop")
        answers = [(await here.answer()).text for _ in range(4)]
    assert sum(answer.startswith("Write to me") for answer in answers) == 2
    assert answers[-1] == "There is nothing to stop."
