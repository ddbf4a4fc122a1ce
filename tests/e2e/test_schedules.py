"""Scheduled questions: answered like others, once, and stopped after failures."""

import asyncio

from bot.chat.alarm import STOPPED
from bot.chat.handler import MAX_TOKENS
from bot.commands.memory import NO_REMINDERS
from conversation_store.models import ChatId
from tests.e2e.running_bot import WAIT_SECONDS, World, killed_bot, running_bot, story, world
from tests.e2e.test_approvals import with_notes
from tests.e2e.test_conversation import BEN
from tests.e2e.test_reminders import GROUP, Wall, at, schedule
from tests.e2e.traces import gone, there_is
from tests.fakes.openai_server import chunk, held, script, sse, status, text, tool_calls
from tests.fakes.signal_side import ADA, Group

QUESTION = "How is the weather in Rome?"
TWO_ASKED = "SELECT 1 WHERE (SELECT count(*) FROM inbox WHERE kind = 'scheduled') = 2"
SUM = ("calculate", {"expression": "127*43"})


def asked_last(here: World) -> str:
    """Return the last thing that was said to the model as a person's."""
    messages = here.model.requests[-1]["messages"]
    return str([one["content"] for one in messages if one["role"] == "user"][-1])


async def test_scheduled_question_is_answered_with_tools_below_its_words() -> None:
    steps = script(schedule(QUESTION, at()), text("I will."), tool_calls(SUM), text("Sunny."))
    async with story(steps) as here:
        assert await here.asked("tell me then how the weather is") == "I will."
        answer = await here.answer()
        assert answer.text == f"⏰ {QUESTION}\n\nSunny."
        assert answer.quote is None
        assert "Nobody has written just now" in asked_last(here)
        assert asked_last(here).endswith(QUESTION)
        assert await here.asked("!reminders") == NO_REMINDERS


async def test_a_scheduled_question_is_no_command_and_no_answer_to_another_question() -> None:
    write = ("notes_write", {"text": "buy milk"})
    steps = script(
        tool_calls(("schedule", {"question": "yes", "at": at(0.5)}),
                   ("schedule", {"question": "!help", "at": at(0.5)})),
        text("I will."), tool_calls(write), text("Noted."), text("Yes what?"), text("Help whom?"),
    )  # fmt: skip
    async with story(steps, with_notes) as here:
        assert await here.asked("ask yourself two odd things") == "I will."
        asked = await here.answer_to("note: buy milk")
        assert asked.text.startswith("❓")
        await there_is(here, TWO_ASKED)
        await here.signal.react("👍", asked.timestamp)
        said = [(await here.answer()).text for _ in range(3)]
    assert said == ["Noted.", "⏰ yes\n\nYes what?", "⏰ !help\n\nHelp whom?"]


async def test_a_schedule_ends_after_three_failures_without_an_answer_between_them() -> None:
    wall = Wall()
    steps = script(
        tool_calls(("set_timezone", {"zone": "UTC"})),
        schedule(QUESTION, at(3_600), repeat="FREQ=HOURLY"),
        text("I will."),
    )
    async with world(steps) as here, running_bot(here.settings(), clock=wall):
        assert await here.asked("every hour, please") == "I will."
        wall.pass_by(hours=0.003)
        for said in ("The model", "The model", "Sunny.", "The model", "The model", "The model"):
            here.model.handler = text("Sunny.") if said == "Sunny." else status(401)
            wall.pass_by(hours=1)
            assert (await here.answer()).text.startswith(f"⏰ {QUESTION}\n\n{said}")
        assert (await here.answer()).text == f"⏰ {STOPPED}\n{QUESTION}"
        assert await here.asked("!reminders") == NO_REMINDERS
        wall.pass_by(hours=3)
        await here.asked("!reminders")
    assert sum(said.startswith(f"⏰ {QUESTION}") for said in here.answers()) == 6


async def test_scheduled_run_above_its_token_limit_answers_with_its_findings() -> None:
    usage = {"prompt_tokens": MAX_TOKENS, "completion_tokens": 1, "total_tokens": MAX_TOKENS + 1}
    function = {"name": "calculate", "arguments": '{"expression": "127*43"}'}
    call = {"index": 0, "id": "call_0", "type": "function", "function": function}
    costly = sse(
        chunk({"role": "assistant", "tool_calls": [call]}),
        chunk({}, finish_reason="tool_calls"),
        {**chunk({}), "choices": [], "usage": usage},
    )
    steps = script(schedule(QUESTION, at()), text("I will."), costly, text("Enough."))
    async with story(steps) as here:
        assert await here.asked("tell me then how the weather is") == "I will."
        assert (await here.answer()).text.endswith("Enough.")
        assert here.model.requests[-1].get("tool_choice") == "none"


async def test_in_a_group_the_answer_goes_to_the_group() -> None:
    steps = script(schedule(QUESTION, at()), text("I will."), text("Sunny."))
    async with story(steps) as here:
        here.signal.groups[GROUP] = Group(members={ADA.aci: ADA, BEN.aci: BEN})
        assert await here.asked("tell us then", group=GROUP, mention=True) == "I will."
        answer = await here.answer()
        assert answer.chat == ChatId.group(GROUP)
        assert answer.text == f"⏰ {QUESTION}\n\nSunny."
        assert f"{ADA.name}: [Nobody has written" in asked_last(here)


async def test_a_question_that_was_missed_is_asked_once_and_its_answer_says_for_when() -> None:
    wall = Wall()
    steps = script(schedule(QUESTION, at(3_600)), text("I will."), text("Sunny."))
    async with world(steps) as here:
        async with running_bot(here.settings(), clock=wall):
            assert await here.asked("in an hour, please") == "I will."
        wall.pass_by(hours=30)
        async with running_bot(here.settings(), clock=wall):
            said = (await here.answer()).text
    assert said.startswith(f"⏰ {QUESTION}\n(Late: this was for ")
    assert said.endswith(" UTC.)\n\nSunny.")


async def test_answer_to_a_scheduled_question_disappears_by_the_timer() -> None:
    steps = script(schedule("sesquipedalian", at()), text("I will."), text("Sunny."))
    async with story(steps) as here:
        assert await here.asked("please", expires_seconds=1) == "I will."
        assert (await here.answer()).text.endswith("Sunny.")
        await gone(here, "sesquipedalian")
        await gone(here, "Sunny")


async def test_stop_ends_a_scheduled_turn_like_any_other() -> None:
    never = asyncio.Event()
    steps = script(schedule(QUESTION, at()), text("I will."), held(never))
    async with story(steps) as here:
        assert await here.asked("please") == "I will."
        async with asyncio.timeout(WAIT_SECONDS):
            await here.model.wait_for_requests(3)
        assert await here.asked("!stop") == "Stopped."


async def test_a_scheduled_turn_may_ask_its_person_and_goes_on_with_the_answer() -> None:
    question = ("ask_user", {"question": "Rome or Paris?", "options": ["Rome", "Paris"]})
    steps = script(schedule(QUESTION, at()), text("I will."), tool_calls(question), text("Sunny."))
    async with world(steps) as here:
        async with killed_bot(here.settings()):
            assert await here.asked("please") == "I will."
            asked = await here.answer()
            assert "Rome or Paris?" in asked.text
            await there_is(
                here, f"SELECT 1 FROM questions WHERE signal_timestamp = {asked.timestamp}"
            )
        async with running_bot(here.settings()):
            assert await here.asked("Rome", quote=asked.timestamp) == f"⏰ {QUESTION}\n\nSunny."
