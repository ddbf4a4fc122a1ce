"""Repetition in local time: daylight saving, odd dates, and hostile rules."""

import time
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from dateutil.rrule import rrulestr
from hypothesis import given, settings
from hypothesis import strategies as st

from tools.base import InvalidArguments
from tools.reminders import (
    Rule,
    first_of_series,
    instant,
    local_in,
    next_date,
    parse_at,
    parse_rule,
    require_gaps,
)

BERLIN = ZoneInfo("Europe/Berlin")
ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe"]


def series(local: str, rule: str, zone: ZoneInfo = BERLIN, *, at_most: int = 10) -> list[str]:
    """Return the dates of a series in local time, each computed from the one before.

    The alarm does the same: when a date has passed, it computes the next.
    """
    start = datetime.fromisoformat(local)
    date = next_date(start, parse_rule(rule, zone), zone, instant(start, zone) - timedelta(1))
    shown: list[str] = []
    while date is not None and len(shown) < at_most:
        shown.append(local_in(date.moment, zone).isoformat(" ", "minutes"))
        stored = parse_rule(str(date.rule))
        date = next_date(datetime.fromisoformat(date.local.isoformat()), stored, zone, date.moment)
    return shown


@pytest.mark.parametrize(
    ("start", "rule", "dates"),
    [
        ("2026-03-28 09:00", "FREQ=DAILY", ["2026-03-29 09:00", "2026-03-30 09:00"]),
        ("2026-03-28 02:30", "FREQ=DAILY", ["2026-03-29 03:30", "2026-03-30 02:30"]),
        ("2026-10-24 02:30", "FREQ=DAILY", ["2026-10-25 02:30", "2026-10-26 02:30"]),
        ("2026-03-29 01:30", "FREQ=HOURLY", ["2026-03-29 03:30", "2026-03-29 04:30"]),
    ],
    ids=["each day has its time", "a time is skipped", "a time comes twice", "an hour is skipped"],
)
def test_a_series_goes_on_in_local_time_when_the_clocks_change(
    start: str, rule: str, dates: list[str]
) -> None:
    assert series(start, rule, at_most=3) == [start, *dates]


def test_a_time_that_the_clocks_show_twice_is_the_first_of_the_two() -> None:
    twice = datetime(2026, 10, 25, 2, 30)  # noqa: DTZ001
    assert instant(twice, BERLIN) == datetime(2026, 10, 25, 0, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("rule", "dates"),
    [
        ("FREQ=MONTHLY;BYMONTHDAY=-1", ["2028-01-31", "2028-02-29", "2028-03-31", "2028-04-30"]),
        ("FREQ=MONTHLY;BYMONTHDAY=31", ["2028-01-31", "2028-03-31", "2028-05-31"]),
        ("FREQ=WEEKLY;INTERVAL=2;BYDAY=TU", ["2028-01-04", "2028-01-18", "2028-02-01"]),
        ("FREQ=MONTHLY;BYDAY=-1FR", ["2028-01-28", "2028-02-25", "2028-03-31"]),
        ("FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1", ["2028-01-31", "2028-02-29"]),
        ("FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=29", ["2028-02-29", "2032-02-29"]),
        ("FREQ=DAILY;COUNT=2", ["2028-01-03", "2028-01-04"]),
        ("FREQ=DAILY;UNTIL=20280105", ["2028-01-03", "2028-01-04", "2028-01-05"]),
        ("FREQ=DAILY;UNTIL=20280104T080000Z", ["2028-01-03", "2028-01-04"]),
        ("FREQ=DAILY;UNTIL=20280104T075959Z", ["2028-01-03"]),
        ("rrule: freq=weekly; byday=mo,we;", ["2028-01-03", "2028-01-05", "2028-01-10"]),
    ],
)
def test_common_rules_give_the_expected_days(rule: str, dates: list[str]) -> None:
    more = 1 if "COUNT" in rule or "UNTIL" in rule else 0
    found = series("2028-01-03T09:00", rule, at_most=len(dates) + more)
    assert found == [f"{date} 09:00" for date in dates]


@pytest.mark.parametrize(
    "rule",
    [
        "", "DAILY", "FREQ=SECONDLY", "FREQ=MINUTELY;INTERVAL=30", "FREQ=DAILY;FREQ=DAILY",
        "FREQ=DAILY;INTERVAL=0", "FREQ=DAILY;INTERVAL=99999999", "FREQ=DAILY;COUNT=0",
        "FREQ=DAILY;BYSECOND=1,2,3", "FREQ=YEARLY;BYEASTER=0", "FREQ=DAILY;UNTIL=soon",
        "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30", "FREQ=HOURLY;BYMONTH=2;BYMONTHDAY=30",
        "FREQ=DAILY;BYMONTH=13", "FREQ=HOURLY;BYSETPOS=200", "FREQ=HOURLY;INTERVAL=24;BYHOUR=3",
        "FREQ=DAILY;UNTIL=20200101", "FREQ=WEEKLY;BYDAY=XX", "FREQ=DAILY;" + "BYHOUR=1;" * 99,
        "FREQ=DAILY;BYHOUR=99", "FREQ=MONTHLY;BYMONTHDAY=0", "FREQ=MONTHLY;BYDAY=6MO",
        "FREQ=YEARLY;BYDAY=53MO;BYMONTH=3", "FREQ=DAILY;X=Y", "FREQ=DAILY=DAILY", "FREQ",
    ],
)  # fmt: skip
def test_invalid_rules_and_rules_without_dates_are_refused_quickly(rule: str) -> None:
    began = time.process_time()
    local = datetime(2028, 1, 3, 9, 30)  # noqa: DTZ001
    with pytest.raises(InvalidArguments) as refused:
        first_of_series(local, rule, BERLIN, instant(local, BERLIN), timedelta())
    assert time.process_time() - began < 5.0
    assert len(str(refused.value)) < 500


@pytest.mark.parametrize(
    "rule", ["FREQ=HOURLY;BYMINUTE=0,1", "FREQ=DAILY;BYHOUR=1,2;BYMINUTE=0,59", "FREQ=HOURLY"]
)
def test_dates_that_follow_each_other_too_closely_are_refused(rule: str) -> None:
    local = datetime(2028, 1, 3, 9)  # noqa: DTZ001
    with pytest.raises(InvalidArguments, match="every 90 minutes"):
        require_gaps(local, parse_rule(rule, BERLIN), timedelta(minutes=90))


rules = st.builds(
    ";".join,
    st.tuples(
        st.sampled_from(["FREQ=DAILY", "FREQ=WEEKLY", "FREQ=MONTHLY", "FREQ=YEARLY"]),
        st.integers(1, 5).map("INTERVAL={}".format),
    )
    | st.tuples(
        st.sampled_from(["FREQ=WEEKLY", "FREQ=MONTHLY"]),
        st.sampled_from(["BYDAY=TU", "BYDAY=MO,FR", "BYDAY=SU,TU,TH"]),
    )
    | st.tuples(
        st.just("FREQ=MONTHLY"),
        st.sampled_from(["BYMONTHDAY=-1", "BYMONTHDAY=1,15", "BYDAY=2WE", "BYDAY=-1SU"]),
    )
    | st.tuples(
        st.sampled_from(["FREQ=MONTHLY", "FREQ=YEARLY"]),
        st.just("BYDAY=MO,TU,WE,TH,FR"),
        st.sampled_from(["BYSETPOS=-1", "BYSETPOS=1", "BYSETPOS=2,-2"]),
    )
    | st.tuples(
        st.sampled_from(["FREQ=DAILY", "FREQ=WEEKLY"]),
        st.integers(1, 3).map("INTERVAL={}".format),
        st.sampled_from(["BYHOUR=7,19", "BYMONTH=3,10", "WKST=SU;BYDAY=SU,WE"]),
    )
    | st.tuples(st.just("FREQ=YEARLY"), st.sampled_from(["BYYEARDAY=1,-1", "BYWEEKNO=20"])),
)
starts = st.datetimes(datetime(2026, 1, 1), datetime(2040, 1, 1))  # noqa: DTZ001


@given(starts, rules, st.sampled_from(ZONES))
@settings(max_examples=60, deadline=None)
def test_step_by_step_a_series_has_the_dates_that_dateutil_gives_at_once(
    start: datetime, rule: str, zone_name: str
) -> None:
    start, zone = start.replace(second=0, microsecond=0, fold=0), ZoneInfo(zone_name)
    wanted = [date for date, _ in zip(rrulestr(rule, dtstart=start), range(8), strict=False)]
    found: list[datetime] = []
    date = next_date(start, parse_rule(rule, zone), zone, instant(start, zone) - timedelta(1))
    while date is not None and len(found) < len(wanted):
        found.append(date.local)
        date = next_date(date.local, date.rule, zone, date.moment)
    assert found == wanted
    moments = [instant(local, zone) for local in found]
    assert all(earlier < later for earlier, later in pairwise(moments))


@given(starts, rules, st.sampled_from(ZONES), st.integers(0, 200))
@settings(max_examples=40, deadline=None)
def test_after_any_pause_a_series_continues_at_its_next_future_date(
    start: datetime, rule: str, zone_name: str, days: int
) -> None:
    zone = ZoneInfo(zone_name)
    start = start.replace(second=0, microsecond=0, fold=0)
    now = instant(start, zone) + timedelta(days=days)
    found = next_date(start, parse_rule(rule, zone), zone, now)
    assert found is not None
    assert found.moment > now
    between = [
        date
        for date, _ in zip(rrulestr(rule, dtstart=start), range(1_000), strict=False)
        if date < found.local
    ]
    assert len(between) == found.passed
    assert all(instant(date, zone) <= now for date in between)


@given(st.text(max_size=60) | st.from_regex(r"FREQ=[A-Z]{5,7}(;[A-Z]{3,10}=[0-9A-Z,+-]{0,9}){0,4}"))
@settings(deadline=None)
def test_every_rule_of_a_model_is_accepted_or_refused(text: str) -> None:
    local = datetime(2028, 1, 3, 9, 30)  # noqa: DTZ001
    try:
        date = next_date(local, parse_rule(text, BERLIN), BERLIN, instant(local, BERLIN))
    except InvalidArguments:
        return
    assert date is None or isinstance(parse_rule(str(date.rule)), Rule)


@pytest.mark.parametrize(
    ("text", "offset"), [("2026-11-29T17:40 UTC", 0), ("2026-11-29T17:40 UTC+01:00", 1)]
)
def test_a_time_may_have_the_offset_of_a_message(text: str, offset: int) -> None:
    assert parse_at(text).utcoffset() == timedelta(hours=offset)


@pytest.mark.parametrize("text", ["tomorrow", "", "9:00", "2026-12-24", "20261224", "2026-13-01T1"])
def test_wrong_times_are_refused(text: str) -> None:
    with pytest.raises(InvalidArguments, match="ISO 8601"):
        parse_at(text)


@pytest.mark.parametrize(
    "rule",
    [
        "FREQ=HOURLY;BYMONTH=2;BYMONTHDAY=30",
        "FREQ=DAILY;INTERVAL=7;BYDAY=MO",
        "FREQ=WEEKLY;BYMONTH=4;BYMONTHDAY=31;BYHOUR=1,2,3",
        "FREQ=HOURLY;BYYEARDAY=366;BYMONTH=1",
    ],
)
def test_a_rule_without_dates_takes_hardly_any_time(rule: str) -> None:
    start = datetime(2026, 11, 27, 10)  # noqa: DTZ001
    began = time.process_time()
    assert next_date(start, parse_rule(rule), BERLIN, instant(start, BERLIN)) is None
    assert time.process_time() - began < 0.5


def test_dates_far_ahead_fall_on_the_right_days() -> None:
    assert series("2095-02-28 09:00", "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=29", at_most=2) == [
        "2096-02-29 09:00",
        "2104-02-29 09:00",
    ]
    assert series("2026-12-28 09:00", "FREQ=YEARLY;BYWEEKNO=53;BYDAY=MO", at_most=2) == [
        "2026-12-28 09:00",
        "2032-12-27 09:00",
    ]
