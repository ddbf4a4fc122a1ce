"""The view of a person on Signal."""

import asyncio
import gc
import json
import re
from itertools import pairwise

from prometheus_client import generate_latest

from bot.app import build
from bot.chat.plan import CALLS_PER_ROUND, LAST_ROUND, MAX_FREE_MISTAKES, OVER_LIMIT, REPEATED
from bot.chat.presence import TYPING_AFTER_SECONDS
from bot.commands.questions import HOW_TO_PLAN
from bot.foundation import Start
from bot.signal.events import Person
from conversation_store.models import ChatId, StyleRange, TextStyle
from tests.e2e.minds import results_in
from tests.e2e.running_bot import story, world
from tests.fakes.openai_server import script, text, tool_calls
from tests.fakes.signal_side import ADA

BEN = Person(aci="0d1e2f30-0000-4000-8000-00000000000b", number="+4915200000002", name="Ben")
CALCULATE = ("calculate", {"expression": "127*43"})
ADD = ("calculate", {"expression": "1+1"})
ONE_ROUND = {"max_tool_calls": 1}


async def test_a_message_gets_one_answer() -> None:
    async with story() as here:
        answer = await here.answer_to("hello")
    assert answer.text.startswith("answer to: ")
    assert answer.text.endswith("hello")
    assert len(here.signal.sent) == 1


async def test_progress_is_shown_while_a_tool_runs_and_then_one_answer_comes() -> None:
    async with story(script(tool_calls(CALCULATE), text("It is 5461."))) as here:
        answer = await here.answer_to("What is 127*43?")
    assert here.shown() == "🔧 Using calculate ✓"
    assert [sent.text for sent in here.signal.sent][-1] == "It is 5461."
    assert answer.replaces is None
    tool_message = here.model.requests[1]["messages"][-1]
    assert (tool_message["role"], tool_message["content"]) == ("tool", "5461")


async def test_further_tools_extend_the_same_progress_message() -> None:
    unknown: tuple[str, dict[str, object]] = ("no_such_tool", {})
    clock: tuple[str, dict[str, object]] = ("date_time", {})
    steps = script(tool_calls(CALCULATE), tool_calls(CALCULATE, unknown, clock), text("Done."))
    async with story(steps) as here:
        await here.asked("Work")
    first, *others = (sent for sent in here.signal.sent if sent.text.startswith("🔧"))
    assert (first.text, first.replaces) == ("🔧 Using calculate…", None)
    for earlier, later in pairwise((first, *others)):
        assert later.replaces == earlier.timestamp
    assert here.shown() == "🔧 Using calculate ✓, date_time ✓"


async def test_after_the_last_round_of_calls_the_model_must_answer_in_words() -> None:
    rounds = [tool_calls(CALCULATE, ADD), tool_calls(CALCULATE)]
    async with story(script(*rounds, text("Enough.")), tools={"max_tool_calls": 2}) as here:
        assert await here.asked("Work") == "Enough."
    _, middle, last = here.model.requests
    assert "you have 2 rounds of calls" in middle["messages"][0]["content"]
    assert last["tools"] == middle["tools"]
    assert last["tool_choice"] == "none"
    assert results_in(middle) == ["5461", "2"]
    assert results_in(last) == ["5461", "2", f"5461{LAST_ROUND}"]


async def test_a_round_with_too_many_calls_is_the_last_one() -> None:
    calls = [("calculate", {"expression": f"{number}+0"}) for number in range(CALLS_PER_ROUND + 1)]
    async with story(script(tool_calls(*calls), text("Enough.")), tools=ONE_ROUND) as here:
        assert await here.asked("Work") == "Enough."
    *ran, last, refused = here.results()
    assert (last, refused) == (f"{CALLS_PER_ROUND - 1}{LAST_ROUND}", OVER_LIMIT)
    assert ran == [*map(str, range(CALLS_PER_ROUND - 1))]


async def test_equal_calls_of_one_message_run_once() -> None:
    async with story(script(tool_calls(CALCULATE, ADD, CALCULATE), text("Done."))) as here:
        await here.asked("Work")
        shown = here.shown()
    assert here.results() == ["5461", "2", REPEATED]
    assert shown == "🔧 Using calculate ✓"


async def test_the_last_round_is_named_also_before_a_repeated_call() -> None:
    calls = tool_calls(CALCULATE, CALCULATE)
    async with story(script(calls, text("Done.")), tools=ONE_ROUND) as here:
        await here.asked("Work")
    assert here.results() == [f"5461{LAST_ROUND}", REPEATED]


async def test_the_first_calls_with_a_wrong_name_or_wrong_arguments_cost_nothing() -> None:
    slips = [("calculator", {}), ("calculate", {"sum": "1"}), ("calculate", {})]
    steps = [*(tool_calls(slip) for slip in slips), tool_calls(CALCULATE), text("Done.")]
    async with story(script(*steps), tools=ONE_ROUND) as here:
        assert await here.asked("Work") == "Done."
    assert here.results()[-1] == f"5461{LAST_ROUND}"
    assert not any(LAST_ROUND in result for result in here.results()[:-1])


async def test_further_wrong_calls_use_up_the_rounds() -> None:
    steps = [tool_calls(("calculator", {}))] * (MAX_FREE_MISTAKES + 1)
    async with story(script(*steps, text("Sorry.")), tools=ONE_ROUND) as here:
        assert await here.asked("Work") == "Sorry."
    assert here.model.requests[-1]["tool_choice"] == "none"


async def test_invented_tool_names_are_no_metric_labels_even_beyond_the_limit() -> None:
    calls = tool_calls(CALCULATE, ("xyzzy_beyond", {}))
    async with story(script(calls, text("Enough.")), tools={"max_tool_calls": 1}) as here:
        assert await here.asked("Work") == "Enough."
    assert "xyzzy_beyond" in json.dumps(here.model.requests[1])
    assert b"xyzzy_beyond" not in generate_latest()


async def test_no_tools_are_offered_when_none_are_allowed() -> None:
    async with story(tools={"max_tool_calls": 0}) as here:
        await here.asked("hello")
        assert "no tools" in await here.asked("!tools")
    request = here.model.requests[0]
    assert "tools" not in request
    assert "calculate" not in request["messages"][0]["content"]


async def test_the_model_is_shown_the_conversation_with_its_tool_calls() -> None:
    steps = script(tool_calls(CALCULATE), text("It is 5461."), text("As I said."))
    async with story(steps) as here:
        await here.asked("What is 127*43?")
        await here.asked("Sure?")
    first, second, third = (request["messages"] for request in here.model.requests)
    assert second[: len(first)] == first
    assert third[: len(second)] == second
    assert [message["role"] for message in third] == [
        "system", "user", "assistant", "tool", "assistant", "user",
    ]  # fmt: skip
    assert third[4]["content"] == "It is 5461."


async def test_an_empty_answer_is_asked_for_once_more_then_said_plainly() -> None:
    async with story(script(text(""), text("At last."), text(""), text(" \n"))) as here:
        assert await here.asked("one") == "At last."
        assert "even when asked again" in await here.asked("two")
    assert len(here.model.requests) == 4


async def test_a_long_answer_comes_in_parts_that_belong_together() -> None:
    long = "\n\n".join(f"Paragraph {number}. " + "word " * 100 for number in range(12))
    async with story(script(text(long))) as here:
        await here.signal.say("tell me")
        await here.signal.say("!plan")
        await here.signal.wait_for(lambda sent: sent.text == HOW_TO_PLAN)
    parts = here.answers()[:-1]
    assert len(parts) > 2
    assert all(len(part.encode()) <= 2_000 for part in parts)
    assert "".join(" ".join(parts).split()) == "".join(long.split())


async def test_markdown_of_the_model_is_shown_as_styles_also_where_the_answer_is_split() -> None:
    long = "\n\n".join(f"{'word ' * 100}and **👋 {number}** again." for number in range(8))
    async with story(script(text("It is **bold**, 2*3*4."), text(long))) as here:
        short = await here.answer_to("tell me")
        await here.signal.say("tell me more")
        await here.signal.say("!plan")
        await here.signal.wait_for(lambda sent: sent.text == HOW_TO_PLAN)
    assert short.text == "It is bold, 2*3*4."
    assert short.styles == (StyleRange(6, 4, TextStyle.BOLD),)
    parts = here.signal.sent[1:-1]
    assert len(parts) > 1
    bold = [
        part.text.encode("utf-16-le")[2 * one.start : 2 * (one.start + one.length)]
        for part in parts
        for one in part.styles
    ]
    assert [words.decode("utf-16-le") for words in bold] == [f"👋 {number}" for number in range(8)]


async def test_a_file_that_signal_does_not_give_is_asked_for_again() -> None:
    async with story() as here:
        await here.signal.push(
            {
                "account": here.signal.account.number,
                "envelope": {
                    "sourceUuid": ADA.aci,
                    "timestamp": 5,
                    "dataMessage": {
                        "timestamp": 5,
                        "message": None,
                        "attachments": [{"contentType": "image/jpeg", "id": "x.jpg"}],
                    },
                },
            }
        )
        assert "Please send it again" in (await here.answer()).text
    assert here.model.requests == []


async def test_mention_without_words_is_asked_for_its_question() -> None:
    async with story() as here:
        assert (await here.asked("", group="Z3JvdXA=", mention=True)).startswith("Yes?")
    assert here.model.requests == []


async def test_in_a_group_a_command_of_the_bot_needs_no_mention() -> None:
    async with story() as here:
        assert (await here.asked("!help", group="Z3JvdXA=")).startswith("Write to me")
        for others in ("!weather", "!helpme", "?help", "! help"):
            await here.signal.say(others, group="Z3JvdXA=")
        assert (await here.asked("!status", group="Z3JvdXA=")).startswith("signal-tee-bot")
        assert len(here.signal.sent) == 2
    assert here.model.requests == []


async def test_each_message_carries_its_time_and_in_a_group_its_author() -> None:
    async with story() as here:
        await here.asked("in private")
        await here.asked("in the group", group="Z3JvdXA=", mention=True)
    private, group = (request["messages"][-1]["content"] for request in here.model.requests)
    assert re.match(r"\[\w{3} 20", private)
    assert private.endswith(" UTC] in private")
    assert group.endswith(f" UTC] {ADA.name}: in the group")


async def test_the_prompt_claims_no_enclave_where_there_is_none() -> None:
    async with story() as here:
        await here.asked("hello")
        assert "does not run in a trusted execution environment" in await here.asked("!verify")
    system = here.model.requests[0]["messages"][0]["content"]
    assert "You do not run in a trusted execution environment" in system


async def test_answered_turns_are_freed_at_once() -> None:
    turns = 20
    async with story() as here:
        try:
            for turn in range(turns):
                here.model.handler = script(tool_calls(CALCULATE), text("It is 5461."))
                await here.asked(f"What is 127*43? ({turn})")
                if turn == 0:  # the first turn loads modules, which does not count
                    gc.collect()
                    gc.disable()
            left_over = gc.collect()
        finally:
            gc.enable()
    # Each turn in a reference cycle would leave its whole history.
    assert left_over < turns


async def test_closed_bot_shows_no_typing_afterwards() -> None:
    troubles: list[str] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: troubles.append(context["message"]))
    async with world() as here:
        async with build(Start(here.settings())) as bot:
            bot.presence.noticed(ChatId.direct(ADA.aci), ADA.aci, 1, received_at=1)
        await asyncio.sleep(2 * TYPING_AFTER_SECONDS)
    assert troubles == []


async def test_the_time_of_a_message_at_the_beginning_of_an_answer_is_not_shown() -> None:
    async with story(script(text("[Sun 2026-11-29 17:30 UTC+01:00] I am fine."))) as here:
        assert await here.asked("how are you?") == "I am fine."
