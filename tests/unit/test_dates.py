"""Answers and refusals of the calendar."""

from datetime import UTC, datetime
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.base import InvalidArguments
from tools.dates import answer

NOW: Final = datetime(2026, 11, 22, 14, 30, 59, tzinfo=UTC)


def told(start: str = "now", add: str = "", until: str = "", zone: str = "UTC") -> str:
    return answer(start, add, until, zone, NOW)


@pytest.mark.parametrize(
    ("start", "add", "shown"),
    [
        ("2026-11-22", "6 weeks", "2027-01-03 (Sunday)"),
        ("today", "", "2026-11-22 (Sunday)"),
        ("Today", "-1 day", "2026-11-21 (Saturday)"),
        ("now", "95 minutes", "2026-11-22 16:05 (Sunday)"),
        ("2026-01-31", "1 month", "2026-02-28 (Saturday)"),
        ("2024-02-29", "+1 Year", "2025-02-28 (Friday)"),
        ("2026-12-24", "36h", "2026-12-25 12:00 (Friday)"),
        ("2026-12-24", "1 year, 2 months and 3 days - 1d", "2028-02-26 (Saturday)"),
        ("2026-12-24T14:30", "90 min", "2026-12-24 16:00 (Thursday)"),
        ("2026-12-24T14:30+02:00", "", "2026-12-24 12:30 (Thursday)"),
        ("0999-01-01", "", "0999-01-01 (Tuesday)"),
    ],
)
def test_date_is_shifted_as_the_calendar_says(start: str, add: str, shown: str) -> None:
    assert told(start, add) == shown


def test_dates_are_those_of_the_zone() -> None:
    assert told("today", zone="Pacific/Apia") == "2026-11-23 (Monday)"
    assert told("now", "1 min", zone="Tokyo") == "2026-11-22 23:31 (Sunday)"
    assert told("2026-12-24T14:30+01:00", zone="Tokyo") == "2026-12-24 22:30 (Thursday)"
    assert told("now", until="2026-11-23T10:00", zone="Tokyo").startswith("From 2026-11-22 23:30")
    assert told(until="2026-11-25", zone="Tokyo").endswith(": 3 days")
    assert told("tomorrow") == "2026-11-23 (Monday)"
    assert told(zone="Tokyo").startswith("Sunday, 22 November 2026, 23:30:59 in Asia/Tokyo")


@pytest.mark.parametrize(
    "add", ["soon", "1", "days", "1 fortnight", "1 day 2", "1.5 days", "1e3 d"]
)
def test_unknown_amounts_are_refused_with_the_known_units(add: str) -> None:
    with pytest.raises(InvalidArguments, match="years, months, weeks"):
        told("today", add)


@pytest.mark.parametrize(
    ("start", "end", "counted"),
    [
        ("2026-01-01", "today", "325 days = 46 weeks 3 days = 10 months 21 days"),
        ("today", "2026-01-01", "-325 days = -46 weeks 3 days = -10 months 21 days"),
        ("2026-11-20", "2026-11-22", "2 days"),
        ("2026-11-22", "2026-11-22", "0 days"),
        ("2024-02-29", "2026-02-28", "730 days = 104 weeks 2 days = 2 years"),
        ("2026-11-22T09:00", "2026-11-22T17:45", "0 days 8 h 45 min = 8 h 45 min"),
        ("2026-11-21T09:00", "now", "1 day 5 h 30 min = 29 h 30 min"),
    ],
)
def test_the_time_between_two_dates_is_counted(start: str, end: str, counted: str) -> None:
    assert told(start, until=end).partition(": ")[2] == counted


def test_both_dates_are_shown_with_their_weekdays() -> None:
    said = told("2026-01-01", until="2026-01-02")
    assert said == "From 2026-01-01 (Thursday) to 2026-01-02 (Friday): 1 day"


@pytest.mark.parametrize(
    "text", ["-", "24.12.2026", "2026-02-30", "next week", "2026-12-24T25:00", "9" * 40, "\x00"]
)
def test_wrong_date_is_refused_with_the_expected_form(text: str) -> None:
    with pytest.raises(InvalidArguments, match="is no date: send today, now, YYYY-MM-DD"):
        told(text)
    with pytest.raises(InvalidArguments, match="is no date"):
        told("today", until=text)


@pytest.mark.parametrize(
    ("start", "add"),
    [
        ("9999-12-31", "1 day"),
        ("0001-01-01", "-1 day"),
        ("today", "10000000 years"),
        ("now", "-99999999 hours"),
        ("today", "99999999 weeks 99999999 weeks"),
        ("0001-01-01T00:00+14:00", ""),
    ],
)
def test_dates_outside_the_calendar_are_refused(start: str, add: str) -> None:
    with pytest.raises(InvalidArguments, match="the years 1 to 9999"):
        told(start, add)


@given(st.text(max_size=40), st.text(max_size=100), st.text(max_size=40))
def test_any_texts_end_in_an_answer_or_a_sentence(start: str, add: str, end: str) -> None:
    try:
        said = told(start, add, end)
    except InvalidArguments as error:
        said = str(error)
    assert said
