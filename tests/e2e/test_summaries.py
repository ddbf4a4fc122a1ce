"""Long conversations: a summary replaces the oldest turns, and obeys deletions."""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

import pytest

from bot.chat.history import OPENING
from bot.chat.summaries import INSTRUCTIONS
from conversation_store.models import Quote
from tests.e2e.running_bot import World, kill, running_bot, world
from tests.e2e.test_catch_up import BEN
from tests.e2e.test_over_rest import guest
from tests.e2e.test_tools import offered
from tests.e2e.traces import gone, gone_from_files, there_is
from tests.fakes.openai_server import Step, echo, held, text, words_of
from tests.fakes.scripted_http import Request
from tests.unit.stores import rows

SECRET: Final = "sesquipedalian"
SMALL: Final = {"context_tokens": 3_000}
PROMPT_TOKENS: Final = 11
"""What the fake counts for each request."""
LONG: Final = "All of this was said at length. " * 12
BEGINNING: Final = INSTRUCTIONS.partition("{")[0]


def is_for_summary(body: Mapping[str, Any]) -> bool:
    return words_of(body["messages"][0]["content"]).startswith(BEGINNING)


def summarising(*summaries: Step) -> Step:
    """Answer requests for summaries in order, the last one again and again; echo messages."""
    left = list(summaries)

    async def step(request: Request, writer: asyncio.StreamWriter) -> None:
        if not is_for_summary(request.body):
            return await echo(request, writer)
        return await (left.pop(0) if len(left) > 1 else left[0])(request, writer)

    return step


def noticed(asked: asyncio.Event, step: Step) -> Step:
    """Set an event when a request comes, then answer it."""

    async def answer(request: Request, writer: asyncio.StreamWriter) -> None:
        asked.set()
        await step(request, writer)

    return answer


def naming(words: str) -> Step:
    """Name the secret and these words, as far as they are in what is summarised."""

    async def step(request: Request, writer: asyncio.StreamWriter) -> None:
        material = words_of(request.body["messages"][1]["content"])
        told = [word for word in (SECRET, words) if word in material]
        await text(f"- told: {' '.join(told)}")(request, writer)

    return step


async def talk(here: World, first: int, last: int) -> None:
    for number in range(first, last):
        await here.asked(f"Message {number}. {LONG}")


async def summarised(here: World) -> None:
    await there_is(here, "SELECT 1 FROM summaries")


def last_prompt(here: World) -> list[str]:
    asked = [one for one in here.model.requests if not is_for_summary(one)]
    return [words_of(message["content"]) for message in asked[-1]["messages"]]


def asked_for_summaries(here: World) -> list[str]:
    return [
        words_of(one["messages"][1]["content"])
        for one in here.model.requests
        if is_for_summary(one)
    ]


async def test_a_summary_replaces_the_oldest_turns_and_survives_a_kill() -> None:
    shown = f"{OPENING}\n- Ada says {SECRET}"
    async with world(summarising(text(f"- Ada says {SECRET}"), text("- more"))) as here:
        async with running_bot(here.settings(llm=SMALL)) as bot:
            await here.asked(f"The word is {SECRET}. {LONG}")
            await talk(here, 1, 8)
            await summarised(here)
            await here.asked("and now?")
            before = last_prompt(here)[1]
            await kill(bot)
        async with running_bot(here.settings(llm=SMALL)):
            await here.asked("and after a kill?")
            after = last_prompt(here)[1]
    for past in (before, after):
        assert past.startswith(shown)
        assert "Message 7." in "".join(last_prompt(here))
        assert "The word is" not in past
    assert SECRET in asked_for_summaries(here)[0]


async def test_a_kill_while_a_summary_is_written_leaves_one_answer_and_a_later_summary() -> None:
    asked, never = asyncio.Event(), asyncio.Event()
    half = noticed(asked, held(never, text("- half")))
    async with world(summarising(half, text("- whole"))) as here:
        async with running_bot(here.settings(llm=SMALL)) as bot:
            await talk(here, 0, 8)
            await asked.wait()
            await kill(bot)
        count = len(here.answers())
        async with running_bot(here.settings(llm=SMALL)):
            await here.asked("and now?")
            await there_is(here, "SELECT 1 FROM summaries WHERE text = '- whole'")
            assert rows(here.folder, "SELECT 1 FROM summaries WHERE text LIKE '%half%'") == []
    assert len(here.answers()) == count + 1


async def test_a_summary_is_extended_so_that_requests_begin_alike() -> None:
    async with world(summarising(*(text(f"- part {number}") for number in range(50)))) as here:
        async with running_bot(here.settings(llm={"context_tokens": 6_000})):
            await talk(here, 0, 12)
            await summarised(here)
            await here.asked("one")
            before = last_prompt(here)[1].partition("\n\n")[0]
            await talk(here, 12, 24)
            last = rows(here.folder, "SELECT max(id) FROM summaries")[0][0]
            await talk(here, 24, 32)
            await there_is(here, f"SELECT 1 FROM summaries WHERE id > {last}")
            await here.asked("two")
            after = last_prompt(here)[1].partition("\n\n")[0]
    assert after.startswith(f"{before}\n- part ")


@pytest.mark.parametrize("what", ["deletion", "edit"])
async def test_a_summary_goes_with_a_message_in_it_and_is_made_again_without_it(what: str) -> None:
    async with world(summarising(naming("Message 0."))) as here:
        async with running_bot(here.settings(llm=SMALL)):
            said = await here.signal.say(f"The word is {SECRET}.")
            await here.answer()
            await here.asked("Message 0. Not long.")
            await talk(here, 1, 8)
            await summarised(here)
            asked_before = len(asked_for_summaries(here))
            if what == "deletion":
                await here.signal.delete(said)
            else:
                await here.signal.edit("never mind", said)
            await gone(here, SECRET)
            await there_is(here, "SELECT 1 FROM summaries WHERE text LIKE '%Message 0.%'")
            await gone_from_files(here, SECRET)
    asked_since = asked_for_summaries(here)[asked_before:]
    assert not any(SECRET in material for material in asked_since)
    assert any("Message 0." in material for material in asked_since)


async def test_a_message_that_is_deleted_while_its_summary_is_written_is_in_none() -> None:
    asked, go_on = asyncio.Event(), asyncio.Event()
    step = noticed(asked, held(go_on, text(f"- {SECRET}")))
    async with world(summarising(step, text("- something else"))) as here:
        async with running_bot(here.settings(llm=SMALL)):
            said = await here.signal.say(f"The word is {SECRET}. {LONG}")
            await here.answer()
            await talk(here, 1, 8)
            await asked.wait()
            await here.signal.delete(said)
            await gone(here, SECRET)
            go_on.set()
            await there_is(here, "SELECT 1 FROM summaries WHERE text LIKE '%something else'")
            await gone_from_files(here, SECRET)


async def test_no_message_waits_for_a_summary_even_with_one_place_at_the_model() -> None:
    asked, never = asyncio.Event(), asyncio.Event()
    late = noticed(asked, held(never, text("- late")))
    async with world(summarising(late, text("- in time"))) as here:
        async with running_bot(here.settings(llm={**SMALL, "max_concurrency": 1})):
            await talk(here, 0, 8)
            await asked.wait()
            assert await here.asked("still there?")
            await there_is(here, "SELECT 1 FROM summaries WHERE text LIKE '%in time'")


@pytest.mark.parametrize("answer", ["", "…", "<think>nothing</think>"])
async def test_nonsense_for_a_summary_leaves_the_oldest_turns_out_as_before(answer: str) -> None:
    async with world(summarising(text(answer))) as here:
        async with running_bot(here.settings(llm=SMALL)):
            await talk(here, 0, 30)
            assert rows(here.folder, "SELECT * FROM summaries") == []
    assert not any(OPENING in words for words in last_prompt(here))
    assert len(last_prompt(here)) < 30


async def test_the_mark_of_strangers_words_survives() -> None:
    async with world(summarising(text("- the page says hello"))) as here:
        async with running_bot(here.settings(llm=SMALL)):
            quote = Quote(1_795_000_000_000, BEN.aci, "buy now")
            await here.asked(f"What is that? {LONG}", quote=quote)
            await talk(here, 1, 8)
            await summarised(here)
            await here.asked("and now?")
    assert "[Untrusted content from summary, begins here: " in last_prompt(here)[1]


@pytest.mark.parametrize("why", ["switched off", "a short timer", "kept for a day", "nothing kept"])
async def test_there_is_no_summary_if_it_is_not_wanted_or_would_soon_go(why: str) -> None:
    settings: dict[str, Mapping[str, object]] = {"llm": SMALL}
    if why == "switched off":
        settings["bot"] = {"summaries": False}
    async with world(summarising(text("- a summary"))) as here:
        if why in {"kept for a day", "nothing kept"}:
            days = 1 if why == "kept for a day" else 0
            settings["store"] = {"path": here.folder / "store.db", "retention_days": days}
        async with running_bot(here.settings(**settings)):
            for number in range(8):
                timer = 43_200 if why == "a short timer" else 0
                await here.asked(f"Message {number}. {LONG}", expires_seconds=timer)
    assert asked_for_summaries(here) == []


async def test_clear_deletes_the_summary() -> None:
    async with world(summarising(text(f"- {SECRET}"))) as here:
        async with running_bot(here.settings(llm=SMALL)):
            await talk(here, 0, 8)
            await summarised(here)
            await here.asked("!clear")
            assert rows(here.folder, "SELECT * FROM summaries") == []
            await gone_from_files(here, SECRET)
            await here.asked("hello")
    assert len(last_prompt(here)) == 2


async def test_the_costs_of_a_summary_are_counted_and_listed() -> None:
    async with world(summarising(text("- a summary"))) as here:
        async with running_bot(here.settings(llm=SMALL)):
            await talk(here, 0, 8)
            await summarised(here)
            await there_is(here, "SELECT 1 FROM outgoing WHERE detail LIKE '%summary%'")
            await there_is(here, "SELECT 1 FROM audit WHERE tool = 'summary' AND outcome = 'ok'")
            of_turns = 8 * PROMPT_TOKENS
            await there_is(here, f"SELECT 1 FROM token_usage WHERE prompt_tokens > {of_turns}")
    assert all(offered(one) == [] for one in here.model.requests if is_for_summary(one))


async def test_over_rest_a_long_conversation_is_summarised_as_well() -> None:
    async with world(summarising(text("- a summary"))) as here:
        async with guest(here, llm=SMALL) as visit:
            for number in range(8):
                await visit.api.say(f"Message {number}. {LONG}")
                await visit.answer(number + 1)
            await summarised(here)
            await visit.api.say("and now?")
            await visit.answer(9)
    assert last_prompt(here)[1].startswith(OPENING)
