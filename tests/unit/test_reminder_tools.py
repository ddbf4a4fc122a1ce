"""Arguments for the tools of reminders: accepted, or refused in words, never a bug."""

import asyncio
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.chat.own_tools import reminders_of
from conversation_store.store import ConversationStore
from tests.unit.stores import ADA, accept, received, store_at
from tools.base import Caller, InvalidArguments, ToolError
from tools.reminders import (
    Reminders,
    cancel_reminder,
    list_reminders,
    parse_at,
    remind,
    set_timezone,
)

TURN = 1
NOW = datetime(2026, 11, 25, 22, 30, tzinfo=UTC)


async def my_reminders(store: ConversationStore, zone: str | None = "Europe/Berlin") -> Reminders:
    """Return the reminders of Ada, whose message is being answered."""
    asked = await accept(store, received(1))
    assert store.turns.begin([asked], "remind me").id == TURN
    if zone is not None:
        await store.reminders.set_zone("ada", zone, ())
    return calling(store, "call_0")


def calling(store: ConversationStore, call: str) -> Reminders:
    caller = Caller("ada", ADA, turn=TURN, call=call)
    return reminders_of(store.reminders, lambda: None, NOW.timestamp, caller)


async def test_the_model_is_told_when_it_comes_in_words_that_show_its_mistakes(
    tmp_path: Path,
) -> None:
    async with store_at(tmp_path) as store:
        mine = await my_reminders(store)
        said = await remind(mine, "Call mum", "2026-11-26T09:00")
        assert await remind(mine, "Call mum", "2026-11-26T09:00") == said  # after a crash
        assert len(await store.reminders.of("ada", ADA)) == 1
    assert said == (
        "Reminder 1 is set. It comes on Thursday, 26 November 2026, 09:00 (Europe/Berlin), in"
        " 9 h 30 min. It is now Wednesday, 25 November 2026, 23:30 (Europe/Berlin)."
    )


@pytest.mark.parametrize(
    ("at", "repeat", "why"),
    [
        ("2026-11-25T23:00", "", "has passed"),
        ("2026-11-26", "", "time of day"),
        ("2090-01-01T09:00", "", "50 years"),
        ("0001-01-01T00:00", "", "year 1"),
        ("9999-12-31T23:59:59-14:00", "", "year 9999"),
        ("2090-01-01T09:00", "FREQ=DAILY", "50 years"),
        ("2026-11-26T09:00", "FREQ=DAILY;BYHOUR=9;BYMINUTE=0,5", "every 15 minutes"),
        ("2026-11-26T09:00", "FREQ=DAILY;UNTIL=20261120", "no date"),
    ],
)
async def test_impossible_reminders_are_refused_in_words(
    at: str, repeat: str, why: str, tmp_path: Path
) -> None:
    async with store_at(tmp_path) as store:
        mine = await my_reminders(store)
        with pytest.raises(InvalidArguments, match=why):
            await remind(mine, "Call mum", at, repeat)
        assert await store.reminders.of("ada", ADA) == ()


async def test_a_moment_needs_no_zone_and_a_local_time_does(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        mine = await my_reminders(store, zone=None)
        assert "(UTC)" in await remind(mine, "Call mum", "2026-11-25T22:40+00:00")
        for at, repeat in (("2026-11-26T09:00", ""), ("2026-11-26T09:00Z", "FREQ=DAILY")):
            with pytest.raises(ToolError, match="city"):
                await remind(calling(store, at), "Call mum", at, repeat)
        assert "Asia/Tokyo" in await set_timezone(mine, "tokyo")
        assert "09:00 (Asia/Tokyo)" in await remind(
            calling(store, "later"), "Call mum", "2026-11-26T09:00"
        )
        with pytest.raises(InvalidArguments, match="offset"):
            await set_timezone(mine, "UTC+2")


times = st.one_of(
    st.text(max_size=40),
    st.datetimes().map(lambda at: at.isoformat()),
    st.datetimes(timezones=st.timezones()).map(lambda at: at.isoformat()[:40]),
    st.from_regex(
        r"\A20[0-9]{2}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9](Z|[+-][0-9]{2}:?00)?\Z"
    ),
)
rules = (
    st.just("")
    | st.text(max_size=60)
    | st.from_regex(
        r"\AFREQ=(HOURLY|DAILY|WEEKLY|MONTHLY|YEARLY)(;(BY[A-Z]{3,8}|INTERVAL|COUNT|UNTIL)=[0-9A-Z,-]{1,9}){0,3}\Z"
    )
)


zones = st.sampled_from(["UTC", "Asia/Kathmandu", "Pacific/Apia", "Africa/Monrovia"])


async def test_a_call_that_cancels_says_so_again_when_a_crash_repeats_it(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        mine = await my_reminders(store)
        await remind(mine, "Call mum", "2026-11-26T09:00")
        for _ in range(2):
            said = await cancel_reminder(calling(store, "call_1"), 1)
            assert said == "Number 1 is cancelled."
        with pytest.raises(ToolError, match="no number 1"):
            await cancel_reminder(calling(store, "call_2"), 1)


@given(st.lists(st.tuples(times, rules, zones), min_size=15, max_size=15))
@settings(max_examples=5, deadline=None)
def test_every_argument_of_a_model_is_accepted_or_refused(sent: list[tuple[str, str, str]]) -> None:
    async def send() -> None:
        with TemporaryDirectory(prefix="stb-") as folder:
            async with store_at(Path(folder)) as store:
                await my_reminders(store)
                for number, (at, repeat, zone) in enumerate(sent):
                    await store.reminders.set_zone("ada", zone, ())
                    mine = calling(store, f"call_{number}")
                    with suppress(ToolError):
                        await remind(mine, "Call mum", at, repeat)
                        await list_reminders(mine)
                    for one in await store.reminders.of("ada", ADA):
                        await store.reminders.cancel("ada", ADA, one.number)

    asyncio.run(send())


@pytest.mark.parametrize(
    ("at", "why"),
    [
        ("2027-02-31T10:00", "There is no such day or time."),
        ("2027-02-28T25:00", "There is no such day or time."),
        ("tomorrow at 9", "This is no time."),
    ],
)
def test_time_that_does_not_exist_is_refused_with_the_reason(at: str, why: str) -> None:
    with pytest.raises(InvalidArguments) as refusal:
        parse_at(at)
    assert str(refusal.value).startswith(why)
