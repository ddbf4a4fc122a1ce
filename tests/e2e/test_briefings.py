"""The sentences of docs/ASSISTANT.md that set up a morning brief, and the one for quiet hours."""

import re
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final
from zoneinfo import ZoneInfo

import pytest

from tests.e2e.running_bot import kill, running_bot, world
from tests.e2e.test_reactions import TRANSPORTS, side
from tests.e2e.test_reminders import Wall, remind, schedule
from tests.e2e.test_tools import SEARCH, system_text
from tests.e2e.traces import there_is
from tests.fakes.brave import KEY, brave_api
from tests.fakes.open_meteo import open_meteo
from tests.fakes.openai_server import script, text, tool_calls, words_of

DOCUMENT: Final = (Path(__file__).parents[2] / "docs" / "ASSISTANT.md").read_text("utf-8")
SECTION: Final = DOCUMENT.partition("### Briefings and quiet hours")[2].partition("\n## ")[0]
BRIEFS: Final = re.findall(r"^\| (.+?) \| `(FREQ=.+?)` \|$", SECTION, re.MULTILINE)
BERLIN: Final = ZoneInfo("Europe/Berlin")
DAYS: Final = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")

COLLECT: Final = tool_calls(("get_weather", {"place": "Berlin"}), ("list_reminders", {}), SEARCH)


def first_date(sentence: str, rule: str) -> datetime:
    """Return the first time of a brief, in some days."""
    found = re.search(r"at (\d+)(?::(\d\d))?", sentence)
    assert found is not None
    weekday = re.search(r"BYDAY=(\w\w)", rule)
    day = datetime.now(BERLIN) + timedelta(days=2)
    while weekday is not None and DAYS[day.weekday()] != weekday[1]:
        day += timedelta(days=1)
    return day.replace(hour=int(found[1]), minute=int(found[2] or 0), second=0, microsecond=0)


def results_in(request: Any) -> str:
    """Return the results of tools in a request to the model."""
    return "\n".join(
        words_of(one["content"]) for one in request["messages"] if one["role"] == "tool"
    )


def test_the_document_has_three_briefs() -> None:
    assert len(BRIEFS) == 3


@TRANSPORTS
@pytest.mark.parametrize(("sentence", "rule"), BRIEFS)
async def test_sentence_sets_up_a_brief_through_a_kill(
    transport: str, sentence: str, rule: str
) -> None:
    wall, first = Wall(), first_date(sentence, rule)
    local = first.replace(tzinfo=None)
    steps = script(
        remind("Call mum", (local + timedelta(hours=4)).isoformat()), text("I will."),
        schedule(sentence, local.isoformat(), repeat=rule), text("Every time."),
        COLLECT, text("Cloudy; call mum; trains run."), COLLECT, text("Sunny; nothing; no news."),
    )  # fmt: skip
    async with AsyncExitStack() as stack:
        weather = await stack.enter_async_context(open_meteo())
        search = await stack.enter_async_context(brave_api())
        urls = weather.settings
        tools = {
            "web_search": {"api_key": KEY, "url": search.url},
            "weather": {"geocoding_url": urls.geocoding_url, "forecast_url": urls.forecast_url},
        }
        it = await stack.enter_async_context(side(transport, steps, tools=tools))

        async def has_said(words: str) -> None:
            await it.people.until(lambda: words in it.texts())

        async with running_bot(it.settings, clock=wall) as bot:
            await it.ready()
            await it.people.say("!timezone Berlin")
            await it.people.until(lambda: any("Berlin" in words for words in it.texts()))
            await it.people.say("remind me that day to call mum")
            await has_said("I will.")
            await it.people.say(sentence)
            await has_said("Every time.")
            await there_is(it.here, "SELECT 1 WHERE 2 = (SELECT count(*) FROM reminders)")
            await kill(bot)
        async with running_bot(it.settings, clock=wall):
            await it.ready()
            wall.pass_by(seconds=(first.astimezone(UTC).timestamp() - wall()) + 1)
            await has_said(f"⏰ {shown(sentence)}\n\nCloudy; call mum; trains run.")
            told = results_in(it.here.model.requests[-1])
            assert "°C" in told
            assert "Call mum" in told
            assert "[1]" in told
            wall.pass_by(days=1 if "SA" not in rule else 7)
            await has_said(f"⏰ {shown(sentence)}\n\nSunny; nothing; no news.")
    briefs = [words for words in it.texts() if words.startswith("⏰") and sentence[:20] in words]
    assert len(briefs) == 2


def shown(sentence: str) -> str:
    """Return a scheduled question as the first line of its answer has it."""
    return sentence if len(sentence) <= 80 else f"{sentence[:80]}…"


async def test_instructions_for_quiet_hours_reach_the_model_with_each_message() -> None:
    (instruction,) = re.findall(r"`(!instructions .+?)`", SECTION)
    async with world(text("At 7:00, then.")) as here, running_bot(here.settings()):
        await here.signal.say(instruction)
        await here.answer()
        await here.signal.say("remind me at 23:30 to call mum")
        await here.answer()
    assert instruction.removeprefix("!instructions ") in system_text(here.model.requests[-1])
