"""What a calculation with dates means and what is refused, on a Sunday in November."""

import time
from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox.errors import WorkError
from tools.calculator.dates import calculate_dates

NOW = datetime(2026, 11, 22, 10, 30, 15, tzinfo=UTC)
TODAY = "; today is 2026-11-22 (UTC)"
MAX_SECONDS = 1.0
MAX_CHARACTERS = 500


def calculate(text: str) -> str:
    return calculate_dates(text, NOW)


@pytest.mark.parametrize(
    ("expression", "answer"),
    [
        ("2026-11-22 + 6 weeks", "2027-01-03 (Sunday)"),
        ("2026-11-22 - 40 days", "2026-10-13 (Tuesday)"),
        ("3 months after 31 January 2026", "2026-04-30 (Thursday)"),
        ("1 month before March 31, 2026", "2026-02-28 (Saturday)"),
        ("2024-02-29 + 1 year", "2025-02-28 (Friday)"),
        ("2026-11-22 + 1 year, 2 months and 3 days", "2028-01-25 (Tuesday)"),
        ("2026-11-22 + 1 month - 2 days + 3 h", "2026-12-20 03:00 (Sunday)"),
        ("12.03.2026 + 10 days", "2026-03-22 (Sunday)"),
        ("2026-11-22 14:30 + 95 min", "2026-11-22 16:05 (Sunday)"),
        ("2026-11-22T14:30 + 2 days", "2026-11-24 14:30 (Tuesday)"),
        ("2026-11-22 + 36 h", "2026-11-23 12:00 (Monday)"),
        ("2026-11-22 00:00 + 90 s", "2026-11-22 00:01:30 (Sunday)"),
    ],
)
def test_time_is_added_to_and_taken_from_dates(expression: str, answer: str) -> None:
    assert calculate(expression) == answer


@pytest.mark.parametrize(
    ("expression", "answer"),
    [
        (
            "days between 2026-01-01 and 2026-12-24",
            "357 days (51 weeks; 11 months 23 days)",
        ),
        ("2026-12-24 - 2026-11-22", "32 days (4 weeks 4 days; 1 month 2 days)"),
        ("2026-11-22 − 2026-12-24", "-32 days (4 weeks 4 days; 1 month 2 days)"),  # noqa: RUF001
        ("how many days from 24 December 2026 to 2027-01-06?", "13 days (1 week 6 days)"),
        ("hours between 2026-01-01 and 2026-01-03", "48 hours"),
        ("2026-12-24 17:00 - 2026-11-22 08:30", "32 days 8 h 30 min"),
        ("2026-11-22 - 2026-11-22", "0 days"),
        (
            "working days between 2026-11-21 and 2026-11-30",
            (
                "6 working days (Monday to Friday from 2026-11-21 to 2026-11-30, both included; "
                "holidays are not known here)"
            ),
        ),
    ],
)
def test_the_time_between_two_dates_is_counted(expression: str, answer: str) -> None:
    assert calculate(expression) == answer


@pytest.mark.parametrize(
    ("expression", "answer"),
    [
        ("weekday of 2026-12-24", "2026-12-24 (Thursday)"),
        ("what day is 24 December 2026?", "2026-12-24 (Thursday)"),
        ("Dec 24, 2026", "2026-12-24 (Thursday)"),
        ("1st of May 2027", "2027-05-01 (Saturday)"),
        ("25/12/2026", "2026-12-25 (Friday)"),
        ("12/25/2026", "2026-12-25 (Friday)"),
    ],
)
def test_a_date_is_said_with_its_weekday(expression: str, answer: str) -> None:
    assert calculate(expression) == answer


@pytest.mark.parametrize(
    ("expression", "answer"),
    [
        ("14:30 + 95 min", "16:05"),
        ("14:30 + 12 h", "02:30, 1 day later"),
        ("1:15 - 90 min", "23:45, 1 day earlier"),
        ("2:30 pm + 45 min", "15:15"),
        ("12:05 am + 5 min", "00:10"),
        ("9:15 to 17:45", "8 h 30 min"),
        ("9:15 - 17:45", "8 h 30 min"),
        ("17:45 - 9:15", "8 h 30 min"),
        ("22:00 to 6:30", "8 h 30 min (over midnight)"),
        ("hours from 9:15 to 17:45", "8.5 hours"),
    ],
)
def test_times_of_day_are_calculated_with(expression: str, answer: str) -> None:
    assert calculate(expression) == answer


@pytest.mark.parametrize(
    ("expression", "answer"),
    [
        ("today", "2026-11-22 (Sunday)"),
        ("tomorrow", "2026-11-23 (Monday)"),
        ("now", "2026-11-22 10:30 (Sunday)"),
        ("next Friday", "2026-11-27 (Friday)"),
        ("next Sunday", "2026-11-29 (Sunday)"),
        ("last Sunday", "2026-11-15 (Sunday)"),
        ("last Saturday", "2026-11-21 (Saturday)"),
        ("6 weeks from today", "2027-01-03 (Sunday)"),
        ("3 weeks ago", "2026-11-01 (Sunday)"),
        ("2 h ago", "2026-11-22 08:30 (Sunday)"),
        ("days until 2026-12-24", "32 days (4 weeks 4 days; 1 month 2 days)"),
        ("years since 1990-05-17", "13338 days (1905 weeks 3 days; 36 years 6 months 5 days)"),
        ("time until 17:45", "7 h 15 min"),
        ("time until 9:30", "23 h (over midnight)"),
    ],
)
def test_relative_words_count_from_today_and_say_so(expression: str, answer: str) -> None:
    assert calculate(expression) == answer + TODAY


@pytest.mark.parametrize(
    ("expression", "hint"),
    [
        ("03/04/2026", "can be read in two ways: write it as YYYY-MM-DD"),
        ("days until 24 December", "Say the year of 24 December too."),
        ("2026-02-30", "There is no day 2026-02-30 in the calendar."),
        ("2026-13-01 + 1 day", "There is no day 2026-13-01"),
        ("0000-01-01", "There is no day"),
        ("25:00 + 5 min", "There is no time of day 25:00."),
        ("2026-11-22 + 1.5 months", "Parts of months have no fixed length"),
        ("14:30 - 2026-12-24", "say the date of both"),
        ("9999-12-31 + 1 day", "years 1 to 9999"),
        ("2026-11-22 - 3000 years", "years 1 to 9999"),
        ("2026-11-22 + 9999999 years", "years 1 to 9999"),
        ("9999999 weeks ago", "years 1 to 9999"),
        ("2026-11-22 + 5", "cannot be read"),
        ("2026-11-22 + 5 km", "cannot be read"),
        ("2026-11-22 * 2", "cannot be read"),
    ],
)
def test_what_has_no_answer_is_said_in_a_sentence(expression: str, hint: str) -> None:
    with pytest.raises(WorkError, match=r".+\.$") as refusal:
        calculate(expression)
    assert hint in str(refusal.value)


@pytest.mark.parametrize(
    "attack",
    [
        "2026-01-01 + " + "9" * 900 + " days",
        "2026-01-01" + " + 9999999 years" * 50,
        "2026-01-01" + " + 1 d" * 160 + " x",
        "2026-01-01 + " + "1 d " * 230 + "x",
        "1 d and " * 120 + "ago x",
        "how many days " * 60 + "until today",
        "2026-01-01 - " * 76 + "2026-01-01",
        "today " * 160,
        "may " * 240,
        "14:30" * 200,
        "2026-01-0\N{ARABIC-INDIC DIGIT ONE}",
        "__import__('os') today",
        "today\x00",
        "today; now",
        "2026-01-01" * 1_000_000,
    ],
)
def test_attacks_are_refused_in_a_sentence_and_at_once(attack: str) -> None:
    started = time.thread_time()
    with pytest.raises(WorkError) as refusal:
        calculate(attack)
    assert time.thread_time() - started < MAX_SECONDS
    assert 0 < len(str(refusal.value)) < MAX_CHARACTERS


@settings(derandomize=True, max_examples=400, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            [
                *("2026-12-24", "24 December 2026", "14:30", "3:15 pm", "today", "next friday"),
                *("03/04/2026", "24.12.2026", "31 may", "0001-01-01", "9999-12-31", "now"),
                *(" + ", " - ", " to ", " and ", " until ", " since ", "between ", "days ", "ago"),
                *("6 weeks", "1.5 h", "9999999 years", "95 min", "working days ", "weekday of "),
                *(" after ", " before ", " ", "5", "x"),
            ]
        ),
        max_size=7,
    ).map("".join)
)
def test_every_text_has_an_answer_or_a_sentence(text: str) -> None:
    try:
        answer = calculate(text)
    except WorkError as error:
        answer = str(error)
    assert 0 < len(answer) < MAX_CHARACTERS


@settings(derandomize=True, max_examples=200, deadline=None)
@given(st.dates(), st.integers(-100_000, 100_000))
def test_adding_days_agrees_with_the_calendar(start: date, days: int) -> None:
    text = f"{start.isoformat()} {'+' if days >= 0 else '-'} {abs(days)} days"
    try:
        end = start + timedelta(days=days)
    except OverflowError:
        with pytest.raises(WorkError, match="years 1 to 9999"):
            calculate(text)
    else:
        assert calculate(text).startswith(f"{end.isoformat()} ({end:%A})")
        assert calculate(f"{end.isoformat()} - {start.isoformat()}").startswith(f"{days} day")


@settings(derandomize=True, max_examples=100, deadline=None)
@given(st.dates(), st.integers(0, 800))
def test_working_days_agree_with_counting_them(start: date, length: int) -> None:
    days = [
        start + timedelta(days=n) for n in range(length + 1) if start.toordinal() + n < 3_652_060
    ]
    counted = sum(day.weekday() < 5 for day in days)
    answer = calculate(f"working days between {start.isoformat()} and {days[-1].isoformat()}")
    assert answer.startswith(f"{counted} working day")
