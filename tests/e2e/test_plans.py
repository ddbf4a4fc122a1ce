"""A plan before any action: the rules until it is accepted, and the effects of answers."""

import json
from typing import Any, Final

import pytest

from bot.chat.meaning import ACCEPTED, CHANGES, REFUSED
from bot.chat.plan import LAST_ROUND, PLAN_FACTOR, PLANNING
from bot.chat.question_messages import WHICH
from bot.commands.questions import HOW_TO_PLAN
from tests.e2e.running_bot import World, kill, killed_bot, running_bot, story, world
from tests.e2e.test_approvals import NOTE, WRITE, notes, with_notes
from tests.e2e.test_questions import ask, question
from tests.e2e.test_reminders import at, schedule
from tests.e2e.traces import there
from tests.fakes.openai_server import Step, script, text, tool_calls
from tests.fakes.scripted_http import Body
from tests.fakes.signal_side import Sent

PLAN: Final = "1. **Look** at the list\n2. Buy milk"


def propose(plan: str = PLAN) -> Step:
    """The model's call of `propose_plan`."""
    return tool_calls(("propose_plan", {"plan": plan}))


async def proposed(here: World, words: str | None = None, **more: Any) -> Sent:
    """Say something, if given, and return the bot's plan, whose turn waits by now."""
    if words is not None:
        await here.signal.say(words, **more)
    sent = await here.answer()
    assert "This is my plan." in sent.text, sent.text
    await there(here, str(sent.timestamp))
    return sent


def offered(request: Body) -> set[str]:
    """Return the names of the tools in a request."""
    return {tool["function"]["name"] for tool in request["tools"]}


@pytest.mark.parametrize("word", ["👍", "yes", "Sure, go ahead!"])
async def test_a_plan_is_carried_out_once_it_is_accepted_and_side_effects_still_ask(
    word: str,
) -> None:
    steps = script(tool_calls(("notes_read", {})), propose(), tool_calls(WRITE), text("Bought."))
    async with story(steps, with_notes) as here:
        plan = await proposed(here, "!plan get milk")
        if word == "👍":
            await here.signal.react(word, plan.timestamp)
        else:
            await here.signal.say(word)
        asked = await here.answer()
        assert asked.text.startswith("❓ Run notes_write?")
        assert await here.reacted("👍", asked.timestamp) == "Bought."
        assert notes(here) == "buy milk\n"
    first, _, accepted, _ = here.model.requests
    assert first["messages"][-1]["content"].endswith(f"get milk\n{PLANNING}")
    assert "!plan" not in json.dumps(first["messages"])
    assert "notes_read" in offered(first)
    assert "notes_write" not in offered(first)
    assert accepted["messages"][-1]["content"] == ACCEPTED
    assert "notes_write" in offered(accepted)
    assert plan.text.startswith("1. Look at the list\n2. Buy milk\n\nThis is my plan.")
    assert [style.style for style in plan.styles] == ["BOLD"]


async def test_plan_in_the_middle_of_a_sentence_is_not_a_command() -> None:
    async with story(script(text("It makes a plan first."))) as here:
        assert await here.asked("What does !plan do?") == "It makes a plan first."
    words = here.model.requests[0]["messages"][-1]["content"]
    assert words.endswith("What does !plan do?")


async def test_changing_tools_do_not_exist_before_the_plan_is_accepted() -> None:
    async with story(script(tool_calls(WRITE), propose(), text("Dropped.")), with_notes) as here:
        plan = await proposed(here, "!plan get milk")
        assert await here.reacted("👎", plan.timestamp) == "Dropped."
        assert notes(here) == ""
    assert "There is no tool named 'notes_write'" in json.dumps(here.model.requests[1]["messages"])
    assert here.told() == REFUSED
    assert "notes_write" not in offered(here.model.requests[2])


async def test_a_reply_in_words_changes_the_plan_which_is_proposed_again() -> None:
    async with story(
        script(propose(), propose("1. Buy oat milk"), text("Bought.")), with_notes
    ) as here:
        plan = await proposed(here, "!plan get milk")
        again = await proposed(here, "yes, but oat milk", quote=plan.timestamp)
        assert "oat milk" in again.text
        assert await here.asked("yes", quote=again.timestamp) == "Bought."
    changes = here.model.requests[1]["messages"][-1]["content"]
    assert changes == CHANGES.format(words="yes, but oat milk")


async def test_a_plan_waits_through_a_crash_and_its_mode_with_it() -> None:
    steps = script(propose(), tool_calls(WRITE), propose("1. Other"), text("Dropped."))
    async with world(steps) as here:
        async with killed_bot(with_notes(here)):
            plan = await proposed(here, "!plan get milk")
        async with running_bot(with_notes(here)):
            await here.signal.say("not like this", quote=plan.timestamp)
            assert await here.asked("no", quote=(await proposed(here)).timestamp) == "Dropped."
        assert notes(here) == ""
    assert [text for text in here.answers() if "1. Look" in text] == [plan.text]


async def test_the_model_may_propose_a_plan_by_itself_and_nothing_is_kept_from_it() -> None:
    async with story(script(propose(), text("Done.")), with_notes) as here:
        plan = await proposed(here, "get milk")
        assert await here.reacted("👍", plan.timestamp) == "Done."
    assert all("notes_write" in offered(request) for request in here.model.requests)


async def test_plan_alone_says_how_it_is_used_and_a_plain_answer_needs_no_plan() -> None:
    async with story(script(text("It is 3."))) as here:
        assert await here.asked("!plan") == HOW_TO_PLAN
        assert await here.asked("!plan how many?") == "It is 3."


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("part", [0, 1])
async def test_any_message_of_a_long_plan_may_be_answered(restarts: bool, part: int) -> None:
    plan = "\n\n".join(f"{number}. {'step ' * 60}" for number in range(1, 11))
    async with world(script(propose(plan), text("Done."))) as here:
        async with running_bot(here.settings()) as bot:
            parts = [await here.answer_to("!plan a lot"), await proposed(here)]
            if restarts:
                await kill(bot)
            else:
                assert await here.reacted("👍", parts[part].timestamp) == "Done."
        if restarts:
            async with running_bot(here.settings()):
                assert await here.reacted("👍", parts[part].timestamp) == "Done."
    assert here.told() == ACCEPTED


async def test_an_accepted_plan_may_call_tools_ten_times_as_often() -> None:
    look = tool_calls(("calculate", {"expression": "1+1"}))
    steps = script(propose(), *[look] * (PLAN_FACTOR - 1), text("Done."))
    async with story(steps, tools={"max_tool_calls": 1}) as here:
        await here.signal.react("👍", (await proposed(here, "!plan count")).timestamp)
        assert (await here.answer()).text == "Done."
    assert here.results() == [ACCEPTED, *["2"] * (PLAN_FACTOR - 2), f"2{LAST_ROUND}"]
    assert here.model.requests[-1]["tool_choice"] == "none"


async def test_a_plain_yes_that_fits_a_plan_and_a_call_is_asked_back() -> None:
    steps = script(propose(), tool_calls(WRITE), text("Noted."), text("Done."))
    async with story(steps, with_notes) as here:
        plan = await proposed(here, "get milk")
        await here.signal.say("and note: buy milk", files=[NOTE])
        said = [await here.answer(), await here.answer()]
        call = max(said, key=lambda sent: sent.text.startswith("❓ Run"))
        assert await here.asked("yes") == WHICH
        assert notes(here) == ""
        assert await here.reacted("👍", call.timestamp) == "Noted."
        assert await here.asked("yes", quote=plan.timestamp) == "Done."
    assert here.told() == ACCEPTED


async def test_a_model_without_tool_calling_plans_as_well() -> None:
    call = json.dumps({"tool": "propose_plan", "input": {"plan": PLAN}})
    async with story(
        script(text(call), text("Done.")), with_notes, llm={"tool_calling": "prompt"}
    ) as here:
        await here.signal.react("👍", (await proposed(here, "!plan get milk")).timestamp)
        assert (await here.answer()).text == "Done."
    before, after = (request["messages"][0]["content"] for request in here.model.requests)
    assert "- notes_write:" not in before
    assert "- notes_write:" in after


async def test_undo_takes_back_all_messages_of_a_plan() -> None:
    plan = "\n\n".join(f"{number}. {'step ' * 60}" for number in range(1, 11))
    async with story(script(propose(plan), text("Done."))) as here:
        parts = [await here.answer_to("a lot"), await proposed(here)]
        assert await here.reacted("👍", parts[1].timestamp) == "Done."
        await here.signal.say("!undo")
        shown = {(sent.chat, sent.timestamp) for sent in parts}
        await here.signal.until(lambda: shown <= set(here.signal.deleted))


async def test_a_scheduled_question_may_ask_a_person_and_is_never_in_plan_mode() -> None:
    steps = script(schedule("!plan the day", at()), text("I will."), ask(), text("Green."))
    async with world(steps) as here:
        async with running_bot(here.settings()):
            assert await here.asked("plan my day then") == "I will."
            await question(here)
        async with running_bot(here.settings()):
            assert await here.asked("2") == "⏰ !plan the day\n\nGreen."
    assert PLANNING not in json.dumps(here.model.requests[-1]["messages"])
