"""What the calendar tools answer, and what they refuse."""

from datetime import UTC, datetime
from typing import Any, Final

import pytest
from dateutil.relativedelta import relativedelta
from hypothesis import given
from hypothesis import strategies as st

from tools.dates import difference, shifted
from tools.errors import InvalidArguments

NOW: Final = datetime(2026, 11, 22, 14, 30, 59, tzinfo=UTC)


def shift(start: str, **amounts: Any) -> str:
    return shifted(start, relativedelta(**amounts), NOW)


@pytest.mark.parametrize(
    ("start", "amounts", "answer"),
    [
        ("2026-11-22", {"weeks": 6}, "2027-01-03 (Sunday)"),
        ("today", {}, "2026-11-22 (Sunday)"),
        ("Today", {"days": -1}, "2026-11-21 (Saturday)"),
        ("now", {"minutes": 95}, "2026-11-22 16:05 (Sunday)"),
        ("2026-01-31", {"months": 1}, "2026-02-28 (Saturday)"),
        ("2024-02-29", {"years": 1}, "2025-02-28 (Friday)"),
        ("2026-12-24", {"hours": 36}, "2026-12-25 12:00 (Friday)"),
        ("2026-12-24T14:30", {"minutes": 90}, "2026-12-24 16:00 (Thursday)"),
        ("2026-12-24T14:30+02:00", {}, "2026-12-24 12:30 (Thursday)"),
        ("0999-01-01", {}, "0999-01-01 (Tuesday)"),
    ],
)
def test_a_date_is_shifted_as_the_calendar_says(
    start: str, amounts: dict[str, int], answer: str
) -> None:
    assert shift(start, **amounts) == answer


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
    assert difference(start, end, NOW).partition(": ")[2] == counted


def test_both_dates_are_said_with_their_weekdays() -> None:
    said = difference("2026-01-01", "2026-01-02", NOW)
    assert said == "From 2026-01-01 (Thursday) to 2026-01-02 (Friday): 1 day"


@pytest.mark.parametrize(
    "text", ["", "24.12.2026", "2026-02-30", "tomorrow", "2026-12-24T25:00", "9" * 40, "\x00"]
)
def test_what_is_no_date_is_refused_with_what_to_send(text: str) -> None:
    with pytest.raises(InvalidArguments, match="is no date: send today, now, YYYY-MM-DD"):
        shift(text)
    with pytest.raises(InvalidArguments, match="is no date"):
        difference("today", text, NOW)


@pytest.mark.parametrize(
    ("start", "amounts"),
    [
        ("9999-12-31", {"days": 1}),
        ("0001-01-01", {"days": -1}),
        ("today", {"years": 10_000_000}),
        ("now", {"hours": -10_000_000 * 24}),
        ("0001-01-01T00:00+14:00", {}),
    ],
)
def test_what_leaves_the_calendar_is_refused(start: str, amounts: dict[str, int]) -> None:
    with pytest.raises(InvalidArguments, match="the years 1 to 9999"):
        shift(start, **amounts)


@given(st.text(max_size=40), st.text(max_size=40))
def test_any_two_texts_end_in_an_answer_or_a_sentence(start: str, end: str) -> None:
    try:
        said = difference(start, end, NOW)
    except InvalidArguments as error:
        said = str(error)
    assert said
