"""A person's next messages join the turn that runs: one answer takes all of them into account."""

import asyncio
from typing import Any, Final

import pytest

from bot.chat.joining import MAX_CANCELLED, MAX_JOINED_BYTES
from bot.chat.question_messages import OTHERS_WAIT
from bot.chat.turn import JOINED
from bot.commands.questions import HOW_TO_PLAN
from bot.signal.events import Person
from conversation_store.models import Quote
from tests.e2e.running_bot import World, running_bot, story, world
from tests.e2e.test_approvals import WRITE, notes, question, with_notes
from tests.e2e.test_workspace import CSV
from tests.e2e.traces import files_of, gone, rows_with, there
from tests.fakes.openai_server import Step, held, script, text, tool_calls
from tests.fakes.signal_side import ADA, Group

BEN: Final = Person(aci="0d1e2f30-0000-4000-8000-00000000000b", number="+4915200000002", name="Ben")
GROUP: Final = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
CALCULATE: Final = ("calculate", {"expression": "127*43"})
READS: Final = {"bot": {"read_receipts": True}}
SECRET: Final = "sesquipedalian"


async def write(here: World, words: str | None, *, author: Person = ADA, **more: Any) -> int:
    """Say something and wait until the bot has it in its queue."""
    timestamp = await here.signal.say(words, author=author, **more)
    await here.signal.until(lambda: (author.aci, (timestamp,)) in here.signal.receipts)
    return timestamp


def shown(here: World, request: int = -1) -> list[tuple[str, str]]:
    """Return the authors and words of a request, without the system message and the times."""
    messages = here.model.requests[request]["messages"][1:]
    return [(one["role"], str(one["content"] or "").rpartition(" UTC] ")[2]) for one in messages]


def asked(here: World, request: int = -1) -> list[str]:
    """Return the lines of the last message in a request, without the times."""
    last = here.model.requests[request]["messages"][-1]["content"]
    return [line.partition("] ")[2] for line in last.splitlines() if line]


def working(release: asyncio.Event, *then: Step) -> Step:
    """Call a tool; hold the next request, so that a message can come while the model writes."""
    return script(tool_calls(CALCULATE), held(release, text("5461.")), *then)


# While the model writes ---------------------------------------------------------------------------


async def test_three_quick_messages_get_one_answer() -> None:
    never = asyncio.Event()
    steps = script(held(never), held(never), text("384,400 km."), text("You are welcome."))
    async with story(steps) as here:
        await here.let_think("Hi")
        await here.let_think("one question", requests=2)
        answer = await here.answer_to("how far is the moon?")
        assert asked(here) == ["Hi", "one question", "how far is the moon?"]
        assert (answer.text, answer.quote) == ("384,400 km.", None)
        assert await here.asked("thanks") == "You are welcome."
    assert len(here.signal.sent) == 2
    assert asked(here) == ["thanks"]


async def test_message_joins_while_the_model_writes_after_its_tools() -> None:
    never = asyncio.Event()
    async with story(working(never, text("5461 apples."))) as here:
        await here.let_think("127*43?", requests=2)
        assert await here.asked("apples, I mean") == "5461 apples."
    roles = [role for role, _ in shown(here)]
    assert roles == ["user", "assistant", "tool", "user"]
    assert shown(here)[-1] == ("user", "apples, I mean")
    assert len(here.model.requests) == 3


async def test_message_after_the_last_cancelled_request_gets_its_own_turn() -> None:
    never, release = asyncio.Event(), asyncio.Event()
    steps = script(
        *[held(never)] * MAX_CANCELLED, held(release, text("First four.")), text("The fifth.")
    )
    async with story(steps, **READS) as here:
        for number in range(1, MAX_CANCELLED + 2):
            await here.let_think(f"piece {number}", requests=number)
        await write(here, "piece 5")
        release.set()
        assert (await here.answer()).text == "First four."
        assert (await here.answer()).text == "The fifth."
    pieces = [f"piece {number}" for number in range(1, 6)]
    assert (asked(here, -2), asked(here)) == (pieces[:4], pieces[4:])


async def test_usage_counts_cancelled_requests() -> None:
    never = asyncio.Event()
    async with story(script(text("Hello."), held(never), text("Both."))) as here:
        await here.asked("hello")
        assert "estimate" not in await here.asked("!usage")
        await here.let_think("one", requests=2)
        await here.asked("two")
        assert "estimate" in await here.asked("!usage")


async def test_tool_call_of_a_cancelled_request_does_not_run() -> None:
    release = asyncio.Event()
    steps = script(held(release, tool_calls(WRITE)), text("I did nothing."))
    async with story(steps, with_notes) as here:
        await here.let_think("note: buy milk")
        assert await here.asked("no, forget it") == "I did nothing."
        release.set()
    assert len(here.signal.sent) == 1


async def test_failure_of_a_cancelled_request_is_not_shown() -> None:
    never = asyncio.Event()
    async with story(script(held(never), text("Both.")), llm={"max_concurrency": 1}) as here:
        await here.let_think("one")
        assert await here.asked("two") == "Both."


# While tools run, and before the first request ----------------------------------------------------


async def test_message_in_a_group_joins_while_a_tool_waits_for_a_person() -> None:
    async with story(script(tool_calls(WRITE), text("Done.")), with_notes, **READS) as here:
        await question(here, "note: buy milk", group=GROUP, mention=True)
        assert await here.asked("the fresh one", group=GROUP, mention=True) == OTHERS_WAIT
        assert await here.asked("yes", group=GROUP, mention=True) == "Done."
        assert notes(here) == "buy milk\n"
    roles = [role for role, _ in shown(here)]
    assert roles == ["user", "assistant", "tool", "user"]
    last = here.told()
    assert last.startswith(JOINED)
    assert last.endswith("the fresh one")
    assert len(here.model.requests) == 2


async def test_messages_that_wait_join_before_the_first_request() -> None:
    release = asyncio.Event()
    async with world(script(held(release, text("His.")), text("Hers."))) as here:
        settings = here.settings(**READS, access={"groups": "always"})
        async with running_bot(settings):
            await here.let_think("mine", author=BEN, group=GROUP)
            for words in ("Hi", "how far is the moon?"):
                await here.signal.say(words, group=GROUP)
            await there(here, "moon")
            release.set()
            assert (await here.answer()).text == "His."
            answer = await here.answer()
    assert answer.text == "Hers."
    assert asked(here) == ["Ada: Hi", "Ada: how far is the moon?"]
    assert answer.quote is not None
    assert answer.quote.text == "how far is the moon?"


async def test_model_without_tool_calling_reads_the_message_with_the_results() -> None:
    never = asyncio.Event()
    call = text('{"tool": "calculate", "input": {"expression": "127*43"}}')
    async with story(
        script(call, held(never), text("5461 apples.")), llm={"tool_calling": "prompt"}
    ) as here:
        await here.let_think("127*43?", requests=2)
        assert await here.asked("apples, I mean") == "5461 apples."
    roles = [message["role"] for message in here.model.requests[-1]["messages"]]
    assert roles == ["system", "user", "assistant", "user"]
    last = here.model.requests[-1]["messages"][-1]["content"]
    assert "5461" in last
    assert last.endswith("apples, I mean")


# Messages that do not join -----------------------------------------------------------------------


@pytest.mark.parametrize("what", ["a command", "a file", "a long message"])
async def test_nothing_overtakes_a_message_that_does_not_join(what: str) -> None:
    release = asyncio.Event()
    async with story(script(held(release, text("5461."))), **READS) as here:
        await here.let_think("127*43?")
        match what:
            case "a command":
                await write(here, "!plan")
            case "a file":
                await write(here, "look", files=[CSV])
            case _:
                await write(here, "x" * (MAX_JOINED_BYTES + 1))
        await write(here, "apples, I mean")
        release.set()
        assert (await here.answer()).text == "5461."
        while not (await here.answer()).text.endswith("apples, I mean"):
            pass
    assert "apples" not in str(here.model.requests[0])


async def test_command_waits_for_the_answer_before_it() -> None:
    release = asyncio.Event()
    async with story(script(held(release, text("Hello."))), **READS) as here:
        await here.let_think("Hi")
        await write(here, "!plan")
        release.set()
        assert (await here.answer()).text == "Hello."
        assert (await here.answer()).text == HOW_TO_PLAN
    assert len(here.model.requests) == 1


async def test_only_the_asker_joins_in_a_group_and_only_by_addressing_the_bot() -> None:
    never, release = asyncio.Event(), asyncio.Event()
    steps = script(held(never), held(release, text("5461 apples.")), text("No pears."))
    async with world(steps) as here:
        here.signal.groups[GROUP] = Group(members={ADA.aci: ADA, BEN.aci: BEN})
        async with running_bot(here.settings(**READS)):
            await here.let_think("127*43?", group=GROUP, mention=True)
            await here.signal.say("nobody asked Ada", group=GROUP)
            await here.let_think("apples, I mean", group=GROUP, mention=True, requests=2)
            await here.signal.say("pears, I say", author=BEN, group=GROUP, mention=True)
            await there(here, "pears")
            release.set()
            assert (await here.answer()).text == "5461 apples."
            assert (await here.answer()).text == "No pears."
    joined = here.model.requests[1]["messages"][-1]["content"]
    assert "Ada: " in joined
    assert "apples, I mean" in joined
    assert not any(words in str(here.model.requests[1]) for words in ("pears", "nobody asked"))


async def test_answer_in_a_group_quotes_the_last_message_that_joined() -> None:
    never = asyncio.Event()
    async with story(script(held(never), text("384,400 km.")), access={"groups": "always"}) as here:
        await here.let_think("Hi", group=GROUP)
        question = await here.signal.say("how far is the moon?", group=GROUP)
        answer = await here.answer()
    assert answer.quote == Quote(question, ADA.aci, "how far is the moon?")


async def test_edit_of_an_answered_message_does_not_join() -> None:
    never, release = asyncio.Event(), asyncio.Event()
    steps = script(text("Sidney?"), held(release, text("Mild.")), text("Yes, it is."), held(never))
    async with story(steps) as here:
        question = await here.signal.say("Is Sidney nice?")
        old = await here.answer()
        await here.let_think("and in winter?", requests=2)
        await here.signal.edit("Is Sydney nice?", question)
        await there(here, "Sydney")
        release.set()
        assert (await here.answer()).text == "Mild."
        corrected = await here.answer()
    assert (corrected.text, corrected.replaces) == ("Yes, it is.", old.timestamp)
    assert asked(here) == ["Is Sydney nice?"]


# Stop, edits, deletions and timers ----------------------------------------------------------------


async def test_stop_ends_the_turn_with_the_messages_that_joined() -> None:
    never = asyncio.Event()
    async with story(script(held(never), held(never))) as here:
        await here.let_think("127*43?")
        await here.let_think(SECRET, requests=2)
        said = await here.asked("!stop")
        assert said == "Stopped. Other messages here that I will not answer: 1."
        assert (await here.asked("hello")).endswith("hello")
        assert not rows_with(here, SECRET)


async def test_message_after_a_stop_does_not_join_the_turn_that_it_ends() -> None:
    never = asyncio.Event()
    async with story(script(held(never))) as here:
        await here.let_think("never mind")
        for words in ("!stop", "how far is the moon?"):
            await here.signal.say(words)
        stopped, answer = sorted([(await here.answer()).text, (await here.answer()).text])
        assert stopped.startswith("Stopped.")
        assert answer.endswith("moon?")
    assert asked(here) == ["how far is the moon?"]


async def test_deletion_of_a_message_that_joined_leaves_the_question() -> None:
    never = asyncio.Event()
    steps = script(held(never), held(never), text("5461."))
    async with story(steps) as here:
        await here.let_think("127*43?")
        further = await here.let_think(SECRET, requests=2)
        await here.signal.delete(further)
        assert (await here.answer()).text == "5461."
        assert SECRET not in str(here.model.requests[2])
        assert SECRET.encode() not in files_of(here)


async def test_deletion_after_the_answer_deletes_the_whole_turn() -> None:
    never = asyncio.Event()
    async with story(script(held(never), text("5461 apples."))) as here:
        await here.let_think("127*43?")
        further = await here.signal.say(SECRET)
        await here.answer()
        await here.signal.delete(further)
        await here.asked("hello")
        assert "apples" not in str(here.model.requests[-1])
        assert SECRET.encode() not in files_of(here)


async def test_timer_of_a_message_that_joined_is_the_timer_of_the_turn() -> None:
    never = asyncio.Event()
    async with story(script(held(never), text("5461 apples."))) as here:
        await here.let_think("127*43?")
        await here.asked("apples, I mean", expires_seconds=2)
        await gone(here, "apples")
