"""The model is asked while the person may still be writing; nobody sees anything of it."""

import asyncio

from bot.messaging.events import Person
from tests.e2e.running_bot import World, kill, running_bot, world
from tests.fakes.openai_server import echo, held, script, status, text, tool_calls
from tests.fakes.signal_people import SharedFile
from tests.fakes.signal_side import ADA

BEN = Person(aci="0d1e2f30-0000-4000-8000-00000000000b", number="+4915200000002", name="Ben")
LONG = {"settle_seconds": 20.0}
SHORT = {"settle_seconds": 0.2}
CALCULATE = ("calculate", {"expression": "127*43"})


def asked(here: World, number: int = -1) -> list[str]:
    """What the model was asked in a request, line by line, without the times."""
    last = here.model.requests[number]["messages"][-1]["content"]
    return [line.partition("] ")[2] for line in last.splitlines()]


async def finish(here: World) -> None:
    """End the person's words at once: a command waits behind them."""
    await here.signal.say("!help")


async def test_the_model_is_asked_before_the_person_has_certainly_finished() -> None:
    async with world(script(text("Here I am."))) as here:
        async with running_bot(here.settings(bot=LONG)):
            await here.signal.say("Are you there?")
            await here.model.wait_for_requests(1)
            assert here.signal.sent == []
            await finish(here)
            assert (await here.answer()).text == "Here I am."
            await here.answer()
    assert len(here.model.requests) == 1


async def test_an_answer_to_half_of_the_words_is_thrown_away() -> None:
    async with world(script(text("Hi!"), echo)) as here:
        async with running_bot(here.settings(bot=LONG)):
            await here.signal.say("Hi")
            await here.model.wait_for_requests(1)
            await here.signal.say("how far is the moon?")
            await here.model.wait_for_requests(2)
            await finish(here)
            assert (await here.answer()).text.endswith("how far is the moon?")
            await here.answer()
            await here.signal.say("thanks")
            await finish(here)
            await here.answer()
    assert asked(here, 0) == ["Hi"]
    assert asked(here, 1) == ["Hi", "how far is the moon?"]
    assert "Hi!" not in str(here.model.requests[2])


async def test_a_request_that_the_person_overtakes_is_broken_off() -> None:
    never = asyncio.Event()
    async with world(script(held(never), text("Both."))) as here:
        async with running_bot(here.settings(bot=SHORT | {"settle_seconds": 1.0})):
            await here.signal.say("one")
            await here.model.wait_for_requests(1)
            await here.signal.say("two")
            assert (await here.answer()).text == "Both."
    assert asked(here) == ["one", "two"]
    assert len(here.signal.sent) == 1


async def test_for_one_turn_the_model_is_asked_early_a_few_times_at_most() -> None:
    async with world() as here:
        async with running_bot(here.settings(bot=LONG)):
            for number in range(1, 4):
                await here.signal.say(f"piece {number}")
                await here.model.wait_for_requests(number)
            await here.signal.say("piece 4")
            await finish(here)
            await here.answer()
            await here.answer()
    assert asked(here) == [f"piece {number}" for number in range(1, 5)]
    assert len(here.model.requests) == 4


async def test_no_tool_runs_for_half_of_the_words() -> None:
    steps = script(tool_calls(CALCULATE), tool_calls(CALCULATE), text("5461."))
    async with world(steps) as here:
        async with running_bot(here.settings(bot=LONG)):
            await here.signal.say("What is 127*43?")
            await here.model.wait_for_requests(1)
            await here.signal.say("quickly")
            await here.model.wait_for_requests(2)
            assert here.signal.sent == []
            await finish(here)
            assert (await here.answer()).text == "5461."
            await here.answer()
    results = [m["content"] for m in here.model.requests[2]["messages"] if m["role"] == "tool"]
    assert results == ["5461"]


async def test_what_goes_wrong_early_is_said_only_if_it_goes_wrong_again() -> None:
    async with world(script(status(401), status(401), status(401), text("Here I am."))) as here:
        async with running_bot(here.settings(bot=LONG)):
            await here.signal.say("hello")
            await here.model.wait_for_requests(1)
            assert here.signal.sent == []
            await finish(here)
            assert "refuses my access" in (await here.answer()).text
            await here.answer()
            await here.signal.say("hello again")
            await here.model.wait_for_requests(3)
            await finish(here)
            assert (await here.answer()).text == "Here I am."
            await here.answer()
    assert len(here.model.requests) == 4


async def test_what_goes_wrong_with_half_of_the_words_is_not_said() -> None:
    async with world(script(status(401), text("Both."))) as here:
        async with running_bot(here.settings(bot=LONG)):
            await here.signal.say("one")
            await here.model.wait_for_requests(1)
            await here.signal.say("two")
            await here.model.wait_for_requests(2)
            await finish(here)
            assert (await here.answer()).text == "Both."
            await here.answer()


async def test_an_edit_of_what_was_asked_early_is_what_is_answered() -> None:
    async with world(script(text("old"), echo)) as here:
        async with running_bot(here.settings(bot=LONG)):
            question = await here.signal.say("Is Sidney nice?")
            await here.model.wait_for_requests(1)
            await here.signal.edit("Is Sydney nice?", question)
            await here.model.wait_for_requests(2)
            await finish(here)
            assert (await here.answer()).text.endswith("Is Sydney nice?")
            await here.answer()


async def test_a_message_that_was_asked_about_early_and_deleted_gets_no_answer() -> None:
    async with world(script(text("old"))) as here:
        async with running_bot(here.settings(bot=LONG)):
            question = await here.signal.say("forget this")
            await here.model.wait_for_requests(1)
            await here.signal.delete(question)
            await here.signal.say("and this?")
            await here.model.wait_for_requests(2)
            await finish(here)
            assert (await here.answer()).text.endswith("and this?")
            await here.answer()
    assert "forget this" not in str(here.model.requests[1])


async def test_after_a_kill_words_that_were_asked_about_early_are_answered_once() -> None:
    never = asyncio.Event()
    async with world(script(held(never))) as here:
        async with running_bot(here.settings(bot=LONG)) as bot:
            await here.signal.say("hello")
            await here.model.wait_for_requests(1)
            await kill(bot)
        async with running_bot(here.settings(bot=SHORT)):
            assert (await here.answer()).text.endswith("hello")
            await here.signal.say("!status")
            await here.answer()
    assert len(here.signal.sent) == 2


async def test_files_are_read_once_the_person_has_finished() -> None:
    async with world() as here, running_bot(here.settings(bot=LONG)):
        await here.signal.say("read this", files=[SharedFile("text/plain", b"words", "a.txt")])
        await here.signal.until(lambda: len(here.signal.typing) > 0)
        await here.signal.say("!status")
        await here.answer()
        await here.answer()
    assert len(here.model.requests) == 1


async def test_who_may_still_be_writing_takes_no_place_from_whoever_has_finished() -> None:
    release = asyncio.Event()
    async with world(script(held(release, text("Yours.")))) as here:
        settings = here.settings(bot=LONG, llm={"max_concurrency": 1})
        async with running_bot(settings):
            await here.signal.say("Where am I?", author=BEN)
            await here.model.wait_for_requests(1)
            await here.signal.say("!help", author=BEN)
            await here.signal.say("hello")
            await here.signal.until(lambda: ADA.aci in str(here.signal.typing))
            await finish(here)
            release.set()
            answers = [(await here.answer()).text for _ in range(4)]
    assert "Yours." in answers
    assert len(here.model.requests) == 2
