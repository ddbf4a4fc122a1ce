"""A plain message meets an open question in a private chat, as a person on a phone sees it."""

from collections.abc import Awaitable, Callable

import pytest

from bot.chat.meaning import ACCEPTED, ANSWERED, REFUSED
from bot.chat.question_messages import (
    HOW_TO_WRITE,
    STILL_OPEN,
    WHICH,
    YES_NO_OR_CHANGES,
    YES_OR_NO,
)
from tests.e2e.running_bot import World, killed_bot, running_bot, story, world
from tests.e2e.test_approvals import WRITE, notes, with_notes
from tests.e2e.test_conversation import BEN
from tests.e2e.test_plans import propose, proposed
from tests.e2e.test_questions import GROUP, ask, question, with_polls
from tests.fakes.openai_server import Step, script, text, tool_calls
from tests.fakes.signal_side import Sent, SharedFile

NOTE = SharedFile("text/plain", b"like this", "note.txt")

Asked = Callable[[World], Awaitable[Sent]]


def ask_openly(words: str = "What shall I paint?") -> Step:
    """The model's call of `ask_user` without options."""
    return tool_calls(("ask_user", {"question": words}))


# A number, the words of an option, yes or no read as an answer


@pytest.mark.parametrize(
    ("step", "find", "said", "told_model"),
    [
        (tool_calls(WRITE), question, "oui, vas-y", "Written."),
        (tool_calls(WRITE), question, "Nein!", "Not run: the person said no."),
        (ask(), question, "2", "The person chose: Green"),
        (ask(), question, "the answer is blue", None),
        (ask(), question, "Blue, please", None),
        (ask(), question, "  BLUE. ", "The person chose: Blue"),
        (propose(), proposed, "sí", ACCEPTED),
        (propose(), proposed, "nein danke", REFUSED),
    ],
)
async def test_plain_message_answers_the_only_open_question_if_it_reads_as_an_answer(
    step: Step, find: Asked, said: str, told_model: str | None
) -> None:
    async with story(script(step, text("All right.")), with_notes) as here:
        await here.signal.say("get milk")
        asked = await find(here)
        first = await here.answer_to(said)
        if told_model is None:
            assert {first.text, (await here.answer()).text} == {STILL_OPEN, "All right."}
            assert here.told().endswith(said)
            return
        assert first.text == "All right."
    assert here.told().startswith(told_model) or told_model in here.told()
    assert here.answers() == [asked.text, "All right."]


@pytest.mark.parametrize(
    ("step", "find", "said", "asked_back"),
    [
        (tool_calls(WRITE), question, "yes and no", YES_OR_NO),
        (propose(), proposed, "hm, maybe", YES_NO_OR_CHANGES),
    ],
)
async def test_bot_asks_back_if_a_plain_message_is_unclear(
    step: Step, find: Asked, said: str, asked_back: str
) -> None:
    async with story(script(step, text("All right.")), with_notes) as here:
        await here.signal.say("get milk")
        await find(here)
        assert await here.asked(said) == asked_back
        assert await here.asked("no") == "All right."
        assert notes(here) == ""


# Other words


@pytest.mark.parametrize(
    ("step", "find", "answer", "told_model"),
    [
        (ask(), question, "green", "The person chose: Green"),
        (propose(), proposed, "yes", ACCEPTED),
    ],
)
async def test_message_gets_its_own_turn_while_a_question_of_the_model_stays_open(
    step: Step, find: Asked, answer: str, told_model: str
) -> None:
    async with story(script(step, text("Sunny."), text("Windy."), text("Done."))) as here:
        await here.signal.say("paint it")
        await find(here)
        await here.signal.say("and the weather?")
        assert {(await here.answer()).text for _ in range(2)} == {STILL_OPEN, "Sunny."}
        await here.signal.say("and tomorrow?")  # the bot reminds once
        assert (await here.answer()).text == "Windy."
        assert await here.asked(answer) == "Done."
    assert here.told() == told_model


# A question without options


async def test_next_words_answer_a_question_without_options() -> None:
    async with story(script(ask_openly(), text("A pink wall it is."))) as here:
        asked = await question(here, "paint something")
        assert await here.asked("the wall, in pink") == "A pink wall it is."
    assert asked.text == f"❓ What shall I paint?\n\n{HOW_TO_WRITE}"
    assert here.told() == ANSWERED.format(words="the wall, in pink")
    assert here.answers() == [asked.text, "A pink wall it is."]


async def test_question_without_options_waits_through_a_crash() -> None:
    async with world(script(ask_openly(), text("The wall."))) as here:
        async with killed_bot(here.settings()):
            await question(here, "paint something")
        async with running_bot(here.settings()):
            assert await here.asked("the wall") == "The wall."
    assert here.told() == ANSWERED.format(words="the wall")


async def test_command_file_or_thumb_does_not_answer_a_question_without_options() -> None:
    async with story(script(ask_openly(), text("Nice."), text("The wall."))) as here:
        asked = await question(here, "paint something")
        assert "Answers in progress: 0" in await here.asked("!status")
        await here.signal.react("👍", asked.timestamp)
        await here.signal.say("like this", files=[NOTE])
        assert {(await here.answer()).text for _ in range(2)} == {STILL_OPEN, "Nice."}
        assert await here.asked("the wall") == "The wall."
    assert here.told() == ANSWERED.format(words="the wall")


async def test_free_words_have_to_be_a_reply_if_another_question_is_open() -> None:
    steps = script(ask(), ask_openly("How many?"), text("Hello."), text("Two."), text("Red."))
    async with story(steps) as here:
        colour = await question(here, "paint it")
        openly = await question(here, "and print it")
        await here.signal.say("hello there")
        assert {(await here.answer()).text for _ in range(2)} == {STILL_OPEN, "Hello."}
        assert await here.asked("2") == WHICH
        assert await here.asked("2", quote=openly.timestamp) == "Two."
        assert here.told() == ANSWERED.format(words="2")
        assert await here.asked("1", quote=colour.timestamp) == "Red."
    assert here.told() == "The person chose: Red"


async def test_in_a_group_only_a_reply_answers_a_question_without_options() -> None:
    async with with_polls(script(ask_openly(), text("Hello."), text("The wall."))) as here:
        asked = await question(here, "paint something", group=GROUP, mention=True)
        await here.signal.say("the floor", author=BEN, group=GROUP)
        assert await here.asked("hi", group=GROUP, mention=True) == "Hello."
        assert await here.asked("the wall", group=GROUP, quote=asked.timestamp) == "The wall."
    assert here.told() == ANSWERED.format(words="the wall")


@pytest.mark.parametrize("how", ["edit", "deletion"])
async def test_free_words_are_taken_back_like_any_answer(how: str) -> None:
    steps = script(ask_openly(), ask("Which wall?", ["North", "South"]), ask_openly(), text("Ok."))
    async with story(steps) as here:
        await question(here, "paint something")
        reply = await here.signal.say("my secret wall")
        await question(here)
        if how == "edit":
            await here.signal.edit("well", reply)
        else:
            await here.signal.delete(reply)
        await question(here)
        assert await here.asked("the floor") == "Ok."
    assert here.told() == ANSWERED.format(words="the floor")
    assert "secret" not in str(here.model.requests[-1])
