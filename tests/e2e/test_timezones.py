"""A person's time zone: in the prompt, at messages, in facts and in the date tool."""

import json
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from tests.e2e.running_bot import story
from tests.e2e.test_memory import remember
from tests.e2e.test_tools import system_text
from tests.fakes.openai_server import script, text, tool_calls
from tests.fakes.signal_side import ADA

FARTHEST = [
    ("Kiritimati", "Pacific/Kiritimati", "UTC+14:00"),
    ("Midway", "Pacific/Midway", "UTC-11:00"),
]


@pytest.mark.parametrize(("city", "zone", "offset"), FARTHEST)
async def test_today_is_the_day_where_the_person_is(city: str, zone: str, offset: str) -> None:
    async with story() as here:
        await here.asked(f"!timezone {city}")
        here.model.handler = script(
            remember(), tool_calls(("date_time", {"start": "today"})), text("It is.")
        )
        before = datetime.now(ZoneInfo(zone))
        await here.asked("Which day is today?")
        after = datetime.now(ZoneInfo(zone))
        await here.asked("Thanks.")
    days = {before.date(), after.date()}
    first, *_, last = here.model.requests
    assert f"Times are in {zone}, the person's time zone." in system_text(first)
    said = first["messages"][-1]["content"]
    assert any(said.startswith(f"[{day:%a} {day} ") for day in days)
    assert f" {offset}] Which day" in said
    assert any(f"{day} (" in json.dumps(last["messages"]) for day in days)
    assert any(f"({day}): " in system_text(last) for day in days)


async def test_a_zone_holds_for_the_other_calls_of_the_same_message() -> None:
    reminder = {"text": "Call your mother", "at": "2030-01-01T09:00"}
    calls = tool_calls(("remind", reminder), ("set_timezone", {"zone": "Wien"}))
    steps = [calls, tool_calls(("date_time", {"start": "now"})), text("Done.")]
    async with story(script(*steps)) as here:
        await here.asked("remind me at 9, I am in Vienna")
    assert "Europe/Vienna" in here.results()[-1]
    assert "09:00 (Europe/Vienna)" in here.results()[0]


async def test_without_a_zone_everything_is_in_utc() -> None:
    async with story() as here:
        await here.asked("Hello.")
    request = here.model.requests[0]
    assert "The person's time zone is not known" in system_text(request)
    assert request["messages"][-1]["content"].endswith(" UTC] Hello.")


@pytest.mark.parametrize(
    ("city", "zone"),
    [
        ("Mumbai", "Asia/Kolkata"),
        ("new delhi", "Asia/Kolkata"),
        ("Munich", "Europe/Berlin"),
        ("Frankfurt", "Europe/Berlin"),
        ("San Francisco", "America/Los_Angeles"),
        ("Kyoto", "Asia/Tokyo"),
        ("Guangzhou", "Asia/Shanghai"),
        ("Rio de Janeiro", "America/Sao_Paulo"),
        ("Cape Town", "Africa/Johannesburg"),
    ],
)
async def test_large_cities_are_known(city: str, zone: str) -> None:
    async with story() as here:
        assert zone in await here.asked(f"!timezone {city}", author=ADA)
