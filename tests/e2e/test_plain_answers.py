"""Words that reply to nothing meet open questions, as people on a phone see it."""

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest

from bot.chat.meaning import ACCEPTED, ANSWERED, BELOW, CHANGES, NOT_LIKE_THIS, REFUSED
from bot.chat.prompt import STILL_ASKED
from bot.chat.question_messages import (
    HOW_TO_WRITE,
    ONE_NUMBER,
    OTHERS_WAIT,
    SAY_IT_TO_ME,
    STILL_OPEN,
    WHICH,
    YES_OR_NO,
)
from tests.e2e.running_bot import World, killed_bot, running_bot, story, world
from tests.e2e.test_approvals import NOTE, WRITE, notes, with_notes
from tests.e2e.test_conversation import BEN
from tests.e2e.test_plans import propose, proposed
from tests.e2e.test_questions import GROUP, ask, question, with_polls, wrote
from tests.e2e.traces import gone, there
from tests.fakes.openai_server import Step, held, script, text, tool_calls
from tests.fakes.signal_side import Sent

Asked = Callable[[World], Awaitable[Sent]]


def ask_openly(words: str = "What shall I paint?") -> Step:
    """The model's call of `ask_user` without options."""
    return tool_calls(("ask_user", {"question": words}))


# In a private chat, the next words answer the only open question


@pytest.mark.parametrize(
    ("step", "find", "said", "told_model"),
    [
        (tool_calls(WRITE), question, "oui, vas-y", "Written."),
        (tool_calls(WRITE), question, "Nein!", "Not run: the person said no."),
        (
            tool_calls(WRITE),
            question,
            "ja aber nur bis 20 uhr",
            NOT_LIKE_THIS.format(words=BELOW),
        ),
        (ask(), question, "2", "The person chose: Green"),
        (ask(), question, "number two", "The person chose: Green"),
        (ask(), question, "  BLUE. ", "The person chose: Blue"),
        (ask(), question, "hmm blue but w/o shine", wrote(BELOW)),
        (propose(), proposed, "sí", ACCEPTED),
        (propose(), proposed, "nein danke", REFUSED),
        (
            propose(),
            proposed,
            "no pancakes please, and 50€ not 60",
            CHANGES.format(words=BELOW),
        ),
        (propose(), proposed, "hm, maybe", CHANGES.format(words=BELOW)),
    ],
)
async def test_next_words_answer_the_only_open_question(
    step: Step, find: Asked, said: str, told_model: str
) -> None:
    async with story(script(step, text("All right.")), with_notes) as here:
        await here.signal.say("get milk")
        asked = await find(here)
        assert await here.asked(said) == "All right."
        assert notes(here) == ("buy milk\n" if told_model == "Written." else "")
    assert told_model in here.results()[-1]
    assert (BELOW in told_model) == here.told().endswith(said)
    assert here.answers() == [asked.text, "All right."]


@pytest.mark.parametrize(
    ("step", "said", "asked_back"),
    [
        (tool_calls(WRITE), "yes, no", YES_OR_NO),
        (tool_calls(WRITE), "thanks", YES_OR_NO),
        (ask(), "5", ONE_NUMBER.format(count=3)),
        (ask(), "1,3", ONE_NUMBER.format(count=3)),
    ],
)
async def test_bot_asks_back_if_the_answer_is_unclear(
    step: Step, said: str, asked_back: str
) -> None:
    async with story(script(step, text("All right.")), with_notes) as here:
        await question(here, "get milk")
        assert await here.asked(said) == asked_back
        assert await here.asked("no") == "All right."
        assert notes(here) == ""


async def test_words_instead_of_a_yes_survive_a_crash() -> None:
    said = "yes, but oat milk"
    think = held(asyncio.Event(), text("Never."))
    async with world(script(tool_calls(WRITE), think, text("Oat milk?"))) as here:
        async with killed_bot(with_notes(here)):
            await question(here, "get milk")
            await here.let_think(said, requests=2)
        async with running_bot(with_notes(here)):
            assert (await here.answer()).text == "Oat milk?"
        assert notes(here) == ""
    assert here.results() == [NOT_LIKE_THIS.format(words=BELOW)]
    assert here.told().endswith(said)


async def test_deleted_words_instead_of_a_yes_are_gone_with_their_turn() -> None:
    async with story(script(tool_calls(WRITE), text("All right.")), with_notes) as here:
        await question(here, "get milk")
        said = await here.signal.say("only my secret milk")
        assert (await here.answer()).text == "All right."
        await here.signal.delete(said)
        await gone(here, "my secret")


@pytest.mark.parametrize(
    ("step", "find", "is_question_of_model"),
    [(tool_calls(WRITE), question, False), (ask(), question, True), (propose(), proposed, True)],
    ids=["call", "choice", "plan"],
)
async def test_edited_answer_is_answered_as_it_reads_now(
    step: Step, find: Asked, is_question_of_model: bool
) -> None:
    think = held(asyncio.Event(), text("Never."))
    async with story(script(step, think, text("Pale it is.")), with_notes) as here:
        await here.signal.say("get milk")
        await find(here)
        said = await here.let_think("my secret pale one", requests=2)
        await here.signal.edit("a pale one", said)
        assert (await here.answer()).text == "Pale it is."
        await gone(here, "my secret")
    last = json.dumps(here.model.requests[-1]["messages"], ensure_ascii=False)
    if is_question_of_model:  # without its call, the model would not know what that answers
        assert "[in reply to your message: “" in here.told()
    assert "a pale one" in last
    assert "get milk" in last
    assert "my secret" not in last


@pytest.mark.parametrize("how", ["types", "replies"])
async def test_edited_choice_is_told_next_to_its_question(how: str) -> None:
    think = held(asyncio.Event(), text("Never."))
    async with story(script(ask(), think, text("Blue it is."))) as here:
        asked = await question(here, "paint it")
        quote = asked.timestamp if how == "replies" else None
        said = await here.let_think("the second one", requests=2, quote=quote)
        await here.signal.edit("the third one", said)
        assert (await here.answer()).text == "Blue it is."
        await here.signal.until(lambda: bool(here.signal.deleted))
        assert [at for _, at in here.signal.deleted] == [asked.timestamp]
    last = here.told()
    assert "paint it" in last
    assert last.endswith("message: “Which colour? / Red / Green / Blue”] the third one")
    assert "second" not in last


async def test_question_that_old_words_led_to_is_not_told_with_an_edited_answer() -> None:
    thinking = [held(asyncio.Event(), text("Never.")) for _ in range(2)]
    async with story(script(ask("Which secret?"), *thinking, text("Pale it is."))) as here:
        asked_for = await here.signal.say("paint my secret")
        await question(here)
        said = await here.let_think("a paler one", requests=2)
        await here.signal.edit("paint it", asked_for)
        await here.model.wait_for_requests(3)
        await here.signal.edit("a pale one", said)
        assert (await here.answer()).text == "Pale it is."
    last = json.dumps(here.model.requests[-1]["messages"])
    assert "a pale one" in last
    assert "secret" not in last


async def test_second_message_after_a_question_joins_the_turn_of_the_first() -> None:
    async with story(script(ask(), text("Blue it is."), text("Blue it is."))) as here:
        await question(here, "paint it")
        await here.signal.say("hmm blue")
        await here.signal.say("but w/o shine")
        assert (await here.answer()).text == "Blue it is."
        await here.signal.until(lambda: here.signal.undelivered == 0)
    last = json.dumps(here.model.requests[-1]["messages"], ensure_ascii=False)
    assert "hmm blue" in last
    assert "but w/o shine" in last


# Commands and files are no answers


async def test_command_or_file_leaves_a_question_open_and_the_model_is_told_of_it() -> None:
    steps = script(ask(), text("Nice."), text("Red it is."))
    async with story(steps) as here:
        await question(here, "paint it")
        assert "Answers in progress: 0" in await here.asked("!status")
        await here.signal.say("like this", files=[NOTE])
        assert {(await here.answer()).text for _ in range(2)} == {STILL_OPEN, "Nice."}
        told = here.model.requests[1]["messages"][-1]["content"]
        assert await here.asked("red") == "Red it is."
    assert STILL_ASKED.format(question="Which colour? / Red / Green / Blue") in told
    assert here.told() == "The person chose: Red"


async def test_turn_that_was_told_of_a_question_is_deleted_with_it() -> None:
    steps = script(ask("Which secret colour?"), text("Nice."))
    async with story(steps) as here:
        asked_for = await here.signal.say("paint it")
        await question(here)
        await here.signal.say("like this", files=[NOTE])
        assert {(await here.answer()).text for _ in range(2)} == {STILL_OPEN, "Nice."}
        await here.signal.delete(asked_for)
        await gone(here, "secret colour")


# In a group, words to the bot


@pytest.mark.parametrize(
    ("step", "said", "told_model"),
    [
        (tool_calls(WRITE), "yes", "Written."),
        (tool_calls(WRITE), "no thanks", "Not run: the person said no."),
        (ask(), "the second one", "The person chose: Green"),
        (ask(), "blue", "The person chose: Blue"),
    ],
)
async def test_mention_with_an_answer_counts_in_a_group(
    step: Step, said: str, told_model: str
) -> None:
    async with story(script(step, text("All right.")), with_notes) as here:
        await question(here, "get milk", group=GROUP, mention=True)
        assert await here.asked(said, group=GROUP, mention=True) == "All right."
    assert told_model in here.told()


async def test_mention_with_an_answer_counts_after_a_crash() -> None:
    async with world(script(tool_calls(WRITE), text("All right."))) as here:
        async with killed_bot(with_notes(here)):
            asked = await question(here, "get milk", group=GROUP, mention=True)
            await there(here, str(asked.timestamp))
        await here.signal.say("yes", group=GROUP, mention=True)
        async with running_bot(with_notes(here)):
            assert (await here.answer()).text == "All right."
        assert notes(here) == "buy milk\n"


async def test_yes_of_another_member_is_no_answer() -> None:
    async with story(script(ask(), text("Yes what?"), text("Red."))) as here:
        await question(here, "paint it", group=GROUP, mention=True)
        assert await here.asked("2", author=BEN, group=GROUP, mention=True) == "Yes what?"
        assert await here.asked("1", group=GROUP, mention=True) == "Red."
    assert here.told() == "The person chose: Red"


@pytest.mark.parametrize("groups", ["mention", "always"])
async def test_bare_yes_in_a_group_gets_one_hint(groups: str) -> None:
    access = {"policy": "open", "groups": groups}
    steps = script(tool_calls(WRITE), text("All right."), text("Yes."))
    async with world(steps) as here:
        async with running_bot(with_notes(here, access=access)):
            await question(here, "get milk", group=GROUP, mention=True)
            await here.signal.say("yes", author=BEN, group=GROUP)
            if groups == "always":
                assert (await here.answer()).text == OTHERS_WAIT
            await here.signal.say("hello all", group=GROUP)
            assert await here.asked("yes", group=GROUP) == SAY_IT_TO_ME
            await here.signal.say("yes", group=GROUP)
            assert notes(here) == ""
            assert await here.asked("yes", group=GROUP, mention=True) == "All right."
        assert notes(here) == "buy milk\n"


async def test_members_are_told_once_that_their_messages_wait_for_an_answer() -> None:
    async with story(script(tool_calls(WRITE), text("Done."), text("Sunny.")), with_notes) as here:
        asked = await question(here, "get milk", group=GROUP, mention=True)
        weather = "and the weather?"
        assert await here.asked(weather, author=BEN, group=GROUP, mention=True) == OTHERS_WAIT
        await here.signal.say("hello?", author=BEN, group=GROUP, mention=True)
        await here.signal.react("👍", asked.timestamp, group=GROUP)
        assert [(await here.answer()).text for _ in range(2)] == ["Done.", "Sunny."]


# A question without options


async def test_next_words_answer_a_question_without_options() -> None:
    async with story(script(ask_openly(), text("A pink wall it is."))) as here:
        asked = await question(here, "paint something")
        assert await here.asked("the wall, in pink") == "A pink wall it is."
    assert asked.text == f"❓ What shall I paint?\n\n{HOW_TO_WRITE}"
    assert here.results() == [ANSWERED.format(words=BELOW)]
    assert here.told().endswith("the wall, in pink")
    assert here.answers() == [asked.text, "A pink wall it is."]


async def test_question_without_options_waits_through_a_crash() -> None:
    async with world(script(ask_openly(), text("The wall."))) as here:
        async with killed_bot(here.settings()):
            await question(here, "paint something")
        async with running_bot(here.settings()):
            assert await here.asked("the wall") == "The wall."
    assert here.told().endswith("the wall")


async def test_thumb_does_not_answer_a_question_without_options() -> None:
    async with story(script(ask_openly(), text("The wall."))) as here:
        asked = await question(here, "paint something")
        await here.signal.react("👍", asked.timestamp)
        assert await here.asked("the wall") == "The wall."
    assert here.told().endswith("the wall")


async def test_free_words_have_to_be_a_reply_if_another_question_is_open() -> None:
    steps = script(ask(), ask_openly("How many?"), text("Hello."), text("Two."), text("Red."))
    async with story(steps) as here:
        colour = await question(here, "paint it")
        openly = await question(here, "and print it", files=[NOTE])
        await here.signal.say("hello there")
        said = [(await here.answer()).text for _ in range(2)]
        assert sorted(said) == ["Hello.", STILL_OPEN], said
        assert await here.asked("2") == WHICH
        assert await here.asked("2", quote=openly.timestamp) == "Two."
        assert here.told() == ANSWERED.format(words="2")
        assert await here.asked("1", quote=colour.timestamp) == "Red."
    assert here.told() == "The person chose: Red"


@pytest.mark.parametrize("how", ["mentions", "replies"])
async def test_in_a_group_words_of_the_asker_to_the_bot_answer_a_question_without_options(
    how: str,
) -> None:
    async with with_polls(script(ask_openly(), text("Hello."), text("The wall."))) as here:
        asked = await question(here, "paint something", group=GROUP, mention=True)
        await here.signal.say("the floor", group=GROUP)
        assert await here.asked("hi", author=BEN, group=GROUP, mention=True) == "Hello."
        to_bot = {"mention": True} if how == "mentions" else {"quote": asked.timestamp}
        assert await here.asked("the wall", group=GROUP, **to_bot) == "The wall."
    assert here.results()[0].startswith(ANSWERED.partition("{")[0])
    assert "the wall" in here.told()


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
    assert here.told().endswith("the floor")
    assert "secret" not in str(here.model.requests[-1])
