"""Local time in a zone, and names of zones."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from tools.base import Caller, InvalidArguments
from tools.dates import date_time, time_in
from tools.schema import tool_from

WINTER = datetime(2026, 11, 22, 13, 5, 33, tzinfo=UTC)
SUMMER = datetime(2026, 7, 1, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("zone", "now", "words"),
    [
        (
            "Europe/Berlin",
            WINTER,
            "Sunday, 22 November 2026, 14:05:33 in Europe/Berlin (UTC+01:00). ISO 8601: 2026",
        ),
        ("Europe/Berlin", SUMMER, "14:00:00 in Europe/Berlin (UTC+02:00)"),
        ("Asia/Kathmandu", SUMMER, "(UTC+05:45)"),
        # Ireland's winter time is a negative daylight saving time in the database.
        ("Europe/Dublin", SUMMER, "(UTC+01:00)"),
        ("Europe/Dublin", WINTER, "(UTC)"),
        ("Europe/Berlin", datetime(2026, 3, 29, 0, 59, 59, tzinfo=UTC), "01:59:59"),
        ("Europe/Berlin", datetime(2026, 3, 29, 1, 0, 0, tzinfo=UTC), "03:00:00"),
        ("Pacific/Apia", WINTER, "Monday, 23 November 2026, 02:05:33"),
    ],
)
def test_offsets_are_those_of_the_zone(zone: str, now: datetime, words: str) -> None:
    assert words in time_in(zone, now)


@pytest.mark.parametrize(
    ("said", "zone"),
    [
        ("utc", "UTC"),
        ("", "UTC"),
        ("  europe/berlin ", "Europe/Berlin"),
        ("America/New York", "America/New_York"),
        ("new york", "America/New_York"),
        ("tokyo", "Asia/Tokyo"),
        ("São Paulo", "America/Sao_Paulo"),
        ("port-au-prince", "America/Port-au-Prince"),
        ("Buenos Aires", "America/Argentina/Buenos_Aires"),
        ("est5edt", "EST5EDT"),
        ("Etc/GMT+2", "Etc/GMT+2"),
    ],
)
def test_zones_are_found_as_people_write_them(said: str, zone: str) -> None:
    assert f" in {zone}" in time_in(said, WINTER)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("UTC+2", "15:05:33 in UTC+02:00. ISO"),
        ("gmt-5", "08:05:33 in UTC-05:00. ISO"),
        ("+05:30", "18:35:33 in UTC+05:30. ISO"),
        ("UTC +0530", "18:35:33 in UTC+05:30. ISO"),
        ("UTC\N{MINUS SIGN}3", "10:05:33 in UTC-03:00. ISO"),
        ("UTC+0", "13:05:33 in UTC. ISO"),
    ],
)
def test_offsets_need_no_zone(said: str, told: str) -> None:
    assert told in time_in(said, WINTER)


@pytest.mark.parametrize(
    ("said", "advice"),
    [
        ("Berln", "Similar: Europe/Berlin"),
        ("Europe/Munich", "send the iana name"),
        ("Portland", "America/Los_Angeles or America/New_York"),
        ("West", "Australia/West or Brazil/West"),
        ("UTC+15", "UTC-12 to UTC+14"),
        ("UTC+2:75", "There is no time zone"),
        ("../../etc/passwd", "There is no time zone"),
        ("localtime", "There is no time zone"),
        ("\0", "There is no time zone"),
    ],
)
def test_unknown_zone_is_answered_with_suggestions(said: str, advice: str) -> None:
    with pytest.raises(InvalidArguments) as refused:
        time_in(said, WINTER)
    assert advice.casefold() in str(refused.value).casefold()
    assert str(refused.value).endswith(".")


async def test_the_tool_tells_the_time_that_it_is() -> None:
    tool = tool_from(date_time)
    before = datetime.now(UTC).replace(microsecond=0)
    told = await tool.run(tool.parse(json.dumps({"zone": "Tokyo"})), Caller("someone"))
    after = datetime.now(UTC)
    assert isinstance(told, str)
    moment = datetime.fromisoformat(told.rpartition(" ")[2])
    assert before <= moment <= after
    assert moment.utcoffset() == timedelta(hours=9)


def test_a_zone_of_any_length_is_refused_before_it_is_looked_up() -> None:
    with pytest.raises(InvalidArguments):
        tool_from(date_time).parse(json.dumps({"zone": "x" * 65}))
