"""What a person writes while tools run reaches the model before its next step."""

import asyncio
from typing import Any, Final

import pytest

from bot.dispatch.turns.steering import MAX_STEP_BYTES
from bot.messaging.events import Person
from tests.e2e.running_bot import World, kill, running_bot, world
from tests.e2e.test_approvals import WRITE, notes, with_notes
from tests.e2e.test_workspace import CSV
from tests.e2e.traces import files_of, gone, rows_with, there
from tests.fakes.openai_server import Step, held, script, text, tool_calls
from tests.fakes.signal_rest_api import NUMBER, SignalRestApi
from tests.fakes.signal_side import ADA, Group

BEN: Final = Person(aci="0d1e2f30-0000-4000-8000-00000000000b", number="+4915200000002", name="Ben")
GROUP: Final = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
CALCULATE: Final = ("calculate", {"expression": "127*43"})
READS: Final = {"bot": {"read_receipts": True, "settle_seconds": 0.0}}
SECRET: Final = "sesquipedalian"


async def write(here: World, words: str, *, author: Person = ADA, **more: Any) -> int:
    """Say something and wait until the bot has it in its mailbox."""
    timestamp = await here.signal.say(words, author=author, **more)
    await here.signal.until(lambda: (author.aci, (timestamp,)) in here.signal.receipts)
    return timestamp


def shown(here: World, request: int = -1) -> list[tuple[str, str]]:
    """Return who said what in a request, without the system message and the times."""
    messages = here.model.requests[request]["messages"][1:]
    return [(one["role"], str(one["content"] or "").rpartition(" UTC] ")[2]) for one in messages]


def at_work(release: asyncio.Event, *then: Step) -> Step:
    """Call a tool once released, then go on."""
    return script(held(release, tool_calls(CALCULATE)), *then)


async def test_what_is_written_while_a_tool_is_called_reaches_the_model_with_its_result() -> None:
    release = asyncio.Event()
    async with world(at_work(release, text("5461 apples."), text("Fine."))) as here:
        async with running_bot(here.settings(**READS)):
            await here.signal.say("127*43?")
            await here.model.wait_for_requests(1)
            await write(here, "apples, I mean")
            await write(here, "and be brief")
            release.set()
            assert (await here.answer()).text == "5461 apples."
            await here.signal.say("thanks")
            assert (await here.answer()).text == "Fine."
    assert len(here.model.requests) == 3
    first, second, third = (request["messages"] for request in here.model.requests)
    assert second[: len(first)] == first
    assert third[: len(second)] == second
    roles = [role for role, _ in shown(here, 1)]
    assert roles == ["user", "assistant", "tool", "assistant", "user"]
    assert "apples, I mean" in second[-1]["content"]
    assert shown(here, 1)[-1] == ("user", "and be brief")


async def test_without_steering_it_waits_for_an_answer_of_its_own() -> None:
    release = asyncio.Event()
    settings = {"bot": {**READS["bot"], "steering": False}}
    async with world(at_work(release, text("5461."), text("Apples."))) as here:
        async with running_bot(here.settings(**settings)):
            await here.signal.say("127*43?")
            await here.model.wait_for_requests(1)
            await write(here, "apples, I mean")
            release.set()
            assert (await here.answer()).text == "5461."
            assert (await here.answer()).text == "Apples."
    assert "apples" not in str(here.model.requests[1])


async def test_what_comes_while_the_model_writes_its_answer_is_a_turn_of_its_own() -> None:
    release = asyncio.Event()
    steps = script(tool_calls(CALCULATE), held(release, text("5461.")), text("Apples."))
    async with world(steps) as here, running_bot(here.settings(**READS)):
        await here.signal.say("127*43?")
        await here.model.wait_for_requests(2)
        await write(here, "apples, I mean")
        release.set()
        assert (await here.answer()).text == "5461."
        assert (await here.answer()).text == "Apples."


async def test_what_comes_last_reaches_the_model_also_when_no_more_calls_are_allowed() -> None:
    release = asyncio.Event()
    async with world(at_work(release, text("5461 apples."))) as here:
        async with running_bot(here.settings(**READS, tools={"max_tool_calls": 1})):
            await here.signal.say("127*43?")
            await here.model.wait_for_requests(1)
            await write(here, "apples, I mean")
            release.set()
            assert (await here.answer()).text == "5461 apples."
    assert shown(here)[-1] == ("user", "apples, I mean")


@pytest.mark.parametrize("what", ["!status", "a file", "much"])
async def test_nothing_overtakes_what_is_not_for_the_turn(what: str) -> None:
    release = asyncio.Event()
    async with world(at_work(release, text("5461."))) as here:
        async with running_bot(here.settings(**READS)):
            await here.signal.say("127*43?")
            await here.model.wait_for_requests(1)
            if what == "a file":
                await write(here, "look", files=[CSV])
            else:
                await write(here, what if what != "much" else "x" * (MAX_STEP_BYTES + 1))
            await write(here, "apples, I mean")
            release.set()
            assert (await here.answer()).text == "5461."
            while not (await here.answer()).text.endswith("apples, I mean"):
                pass
    assert "apples" not in str(here.model.requests[1])


async def test_in_a_group_the_asker_alone_steers_and_only_by_addressing_the_bot() -> None:
    release = asyncio.Event()
    async with world(at_work(release, text("5461 apples."))) as here:
        here.signal.groups[GROUP] = Group(members={ADA.aci: ADA, BEN.aci: BEN})
        async with running_bot(here.settings(**READS)):
            await here.signal.say("127*43?", group=GROUP, mention=True)
            await here.model.wait_for_requests(1)
            await here.signal.say("nobody asked Ada", group=GROUP)
            await here.signal.say("apples, I mean", group=GROUP, mention=True)
            await there(here, "apples")
            await here.signal.say("pears, I say", author=BEN, group=GROUP, mention=True)
            await there(here, "pears")
            release.set()
            assert (await here.answer()).text == "5461 apples."
            assert "pears" in (await here.answer()).text
    steered = here.model.requests[1]["messages"][-1]["content"]
    assert "Ada: " in steered
    assert "apples, I mean" in steered
    assert not any(words in str(here.model.requests[1]) for words in ("pears", "nobody asked"))


async def test_an_edit_of_what_steered_begins_the_turn_afresh_with_the_new_words() -> None:
    release, never = asyncio.Event(), asyncio.Event()
    steps = script(held(release, tool_calls(CALCULATE)), held(never), text("5461 pears."))
    async with world(steps) as here, running_bot(here.settings(**READS)):
        await here.signal.say("127*43?")
        await here.model.wait_for_requests(1)
        further = await write(here, f"{SECRET}, I mean")
        release.set()
        await here.model.wait_for_requests(2)
        await here.signal.edit("pears, I mean", further)
        assert (await here.answer()).text == "5461 pears."
        assert SECRET not in str(here.model.requests[2])
        asked = here.model.requests[2]["messages"][-1]["content"]
        assert "127*43?" in asked
        assert "pears, I mean" in asked
        assert not rows_with(here, SECRET)
    assert len(here.answers()) == 1


async def test_a_deletion_of_what_steered_leaves_the_question_to_be_answered() -> None:
    release, never = asyncio.Event(), asyncio.Event()
    steps = script(held(release, tool_calls(CALCULATE)), held(never), text("5461."))
    async with world(steps) as here, running_bot(here.settings(**READS)):
        await here.signal.say("127*43?")
        await here.model.wait_for_requests(1)
        further = await write(here, SECRET)
        release.set()
        await here.model.wait_for_requests(2)
        await here.signal.delete(further)
        assert (await here.answer()).text == "5461."
        assert SECRET not in str(here.model.requests[2])
        assert SECRET.encode() not in files_of(here)


async def test_a_deletion_of_the_question_leaves_what_steered_to_be_answered() -> None:
    release, never = asyncio.Event(), asyncio.Event()
    steps = script(held(release, tool_calls(CALCULATE)), held(never), text("Apples."))
    async with world(steps) as here, running_bot(here.settings(**READS)):
        question = await here.signal.say(SECRET)
        await here.model.wait_for_requests(1)
        await write(here, "apples, I mean")
        release.set()
        await here.model.wait_for_requests(2)
        await here.signal.delete(question)
        assert (await here.answer()).text == "Apples."
        assert shown(here) == [("user", "apples, I mean")]
        assert not rows_with(here, SECRET)


async def test_a_deletion_after_the_answer_takes_the_whole_turn_along() -> None:
    release = asyncio.Event()
    async with world(at_work(release, text("5461 apples."))) as here:
        async with running_bot(here.settings(**READS)):
            await here.signal.say("127*43?")
            await here.model.wait_for_requests(1)
            further = await write(here, SECRET)
            release.set()
            await here.answer()
            await here.signal.delete(further)
            await here.signal.say("hello")
            await here.answer()
            assert "apples" not in str(here.model.requests[-1])
            assert SECRET.encode() not in files_of(here)


async def test_stop_ends_the_turn_with_all_that_steered_it() -> None:
    release, never = asyncio.Event(), asyncio.Event()
    steps = script(held(release, tool_calls(CALCULATE)), held(never))
    async with world(steps) as here, running_bot(here.settings(**READS)):
        await here.signal.say("127*43?")
        await here.model.wait_for_requests(1)
        await write(here, SECRET)
        release.set()
        await here.model.wait_for_requests(2)
        await here.signal.say("!stop")
        said = (await here.answer()).text
        assert said == "Stopped. 1 more of your messages will not be answered."
        await here.signal.say("hello")
        assert (await here.answer()).text.endswith("hello")
        assert not rows_with(here, SECRET)


async def test_what_is_written_beside_the_answer_to_a_question_reaches_the_model() -> None:
    async with world(script(tool_calls(WRITE), text("Done."))) as here:
        async with running_bot(with_notes(here, **READS)):
            await here.signal.say("note: buy milk")
            await here.signal.next_sent()
            await write(here, "the fresh one")
            reminder = await here.signal.next_sent()
            assert "👍 or 👎" in reminder.text
            await here.signal.say("yes")
            assert (await here.answer()).text == "Done."
            assert notes(here) == "buy milk\n"
    roles = [role for role, _ in shown(here)]
    assert roles == ["user", "assistant", "tool", "assistant", "user"]
    assert shown(here)[-1] == ("user", "the fresh one")


async def test_a_kill_before_the_next_step_leaves_it_to_join_after_the_start() -> None:
    steps = script(tool_calls(WRITE), text("5461 apples."))
    async with world(steps) as here:
        async with running_bot(with_notes(here, **READS)) as bot:
            await here.signal.say("note: buy milk")
            question = await here.signal.next_sent()
            await write(here, "apples, I mean")
            await kill(bot)
        async with running_bot(with_notes(here, **READS)):
            await here.signal.react("👍", question.timestamp)
            while (answer := await here.answer()).text != "5461 apples.":
                assert "👍 or 👎" in answer.text
            await here.signal.say("!status")
            await here.answer()
            assert notes(here) == "buy milk\n"
    assert shown(here)[-1] == ("user", "apples, I mean")
    assert len(here.model.requests) == 2


async def test_a_kill_after_it_joined_leaves_one_answer_to_all() -> None:
    release, never = asyncio.Event(), asyncio.Event()
    steps = script(held(release, tool_calls(CALCULATE)), held(never), text("5461 apples."))
    async with world(steps) as here:
        async with running_bot(here.settings(**READS)) as bot:
            await here.signal.say("127*43?")
            await here.model.wait_for_requests(1)
            await write(here, "apples, I mean")
            release.set()
            await here.model.wait_for_requests(2)
            await kill(bot)
        async with running_bot(here.settings(**READS)):
            assert (await here.answer()).text == "5461 apples."
            await here.signal.say("hello")
            assert (await here.answer()).text.endswith("hello")
    before, after = here.model.requests[1]["messages"], here.model.requests[2]["messages"]
    assert before == after


async def test_a_timer_on_what_steered_is_one_on_the_turn() -> None:
    release = asyncio.Event()
    async with world(at_work(release, text("5461 apples."))) as here:
        async with running_bot(here.settings(**READS)):
            await here.signal.say("127*43?")
            await here.model.wait_for_requests(1)
            await write(here, "apples, I mean", expires_seconds=2)
            release.set()
            await here.answer()
            await gone(here, "apples")


async def test_over_the_rest_api_it_reaches_the_model_as_well() -> None:
    release = asyncio.Event()
    async with world(at_work(release, text("5461 apples."))) as here, SignalRestApi.listen() as api:
        settings = here.settings(**READS, signal={"url": api.url, "phone_number": NUMBER})
        async with running_bot(settings):
            await api.wait_for_receiver()
            await api.say("127*43?")
            await here.model.wait_for_requests(1)
            await api.say("apples, I mean")
            await there(here, "apples")
            release.set()
            await api.wait_until(lambda: "5461 apples." in [sent.text for sent in api.sent])
    assert shown(here)[-1] == ("user", "apples, I mean")


async def test_a_model_without_tool_calling_hears_it_with_the_results() -> None:
    release = asyncio.Event()
    call = text('{"tool": "calculate", "input": {"expression": "127*43"}}')
    async with world(script(held(release, call), text("5461 apples."))) as here:
        async with running_bot(here.settings(**READS, llm={"tool_calling": "prompt"})):
            await here.signal.say("127*43?")
            await here.model.wait_for_requests(1)
            await write(here, "apples, I mean")
            release.set()
            assert (await here.answer()).text == "5461 apples."
    roles = [message["role"] for message in here.model.requests[1]["messages"]]
    assert roles == ["system", "user", "assistant", "user"]
    last = here.model.requests[1]["messages"][-1]["content"]
    assert "5461" in last
    assert last.endswith("apples, I mean")
