"""The life of the bot's account: an old signal-cli is refused and updated, the account is lost."""

import asyncio
import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from structlog.testing import capture_logs

from bot.backoff import Backoff
from bot.cli.check import findings
from bot.signal.releases import RELEASES
from bot.signal.trouble import AccountTrouble, trouble_in, trouble_of_missing
from tests.e2e.running_bot import World, killed_bot, running_bot, story, world
from tests.e2e.scraped import ANY_PORT, bot_with_health, readiness
from tests.e2e.test_reminders import Wall
from tests.fakes.openai_server import echo
from tests.fakes.scripted_http import held
from tests.fakes.signal_people import ADA
from tests.fakes.signal_side import BOT, DROPPED, OUTDATED, STILL_LISTED
from tests.integration.test_spawned import until

RELEASE: Final = RELEASES[0]


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at the account several times a second."""
    monkeypatch.setattr("bot.chat.caretaker.LOOK_SECONDS", 0.05)
    monkeypatch.setattr("bot.chat.caretaker.POLL_SECONDS", 0.02)
    monkeypatch.setattr("bot.chat.caretaker.AGAIN", Backoff(0.05, 0.1))
    monkeypatch.setattr("bot.signal.signal_daemon.ACCOUNT_LOOKS", Backoff(0.05, 0.1))


def set_day(wall: Wall, number: int) -> None:
    """Let it be noon, so many days after the release of signal-cli."""
    moment = datetime.combine(RELEASE.date, datetime.min.time(), UTC)
    moment += timedelta(days=number, hours=12)
    wall.ahead = (moment - datetime.now(UTC)).total_seconds()


def is_logged(log: Sequence[Any], event: str, times: int) -> bool:
    return [line["event"] for line in log].count(event) == times


async def is_ready(port: int, *expected: object) -> None:
    while (await readiness(port))["signal"] != expected:  # noqa: ASYNC110
        await asyncio.sleep(0.02)


def warnings(here: World) -> list[str]:
    return [sent.text for sent in here.signal.sent if "days old" in sent.text]


def answered(here: World) -> list[int]:
    """Return the days that answers name: quick messages join one answer."""
    told = "\n".join(sent.text for sent in here.signal.sent if "days old" not in sent.text)
    return [int(number) for number in re.findall(r"day (\d+)", told)]


@pytest.mark.long
async def test_a_hundred_days_of_an_account_lose_and_repeat_no_answer() -> None:
    wall = Wall()
    async with world() as here:
        here.signal.version = RELEASE.version
        settings = here.settings(access={"admins": ADA.aci})
        set_day(wall, 1)
        with capture_logs() as log:
            async with killed_bot(settings, clock=wall):
                await here.asked("day 1")
                for count, number in enumerate((60, 75, 81, 82), 1):
                    set_day(wall, number)
                    await until(partial(is_logged, log, "signal_cli.old", count))
                await here.signal.wait_for(lambda sent: "82 days old" in sent.text)
                assert [re.findall(r"is (\d+) days", told) for told in warnings(here)] == [
                    ["75"],
                    ["82"],
                ]
                # Signal refuses the version while the model thinks, and the bot is killed.
                thinks = asyncio.Event()
                here.model.handler = held(thinks, echo)
                await here.let_think("day 89", requests=2)
                await here.signal.meets(OUTDATED)
                thinks.set()
                await here.signal.say("day 90")
                await until(partial(is_logged, log, "signal.account_trouble", 1))
            set_day(wall, 92)
            async with killed_bot(settings, clock=wall):
                await until(partial(is_logged, log, "signal.account_trouble", 2))
                await here.signal.say("day 92")
        # An update brings everything back; then Signal drops the account, which is registered anew.
        here.signal.version = "99.0.0"
        await here.signal.meets("")
        with capture_logs() as log:
            async with running_bot(settings, clock=wall):
                await until(lambda: answered(here) == [1, 89, 90, 92])
                await here.signal.meets(DROPPED)
                await here.signal.say("day 97")
                await until(partial(is_logged, log, "signal.account_trouble", 1))
                set_day(wall, 100)
                await here.signal.say("day 100")
                await here.signal.meets("")
                await until(lambda: answered(here)[4:] == [97, 100])
                await here.signal.say("day 101")
                await until(lambda: answered(here)[-1] == 101)
        assert answered(here) == [1, 89, 90, 92, 97, 100, 101]


@pytest.mark.parametrize(
    ("fate", "trouble"),
    [
        (OUTDATED, AccountTrouble.OUTDATED),
        (DROPPED, AccountTrouble.ABSENT),
        (STILL_LISTED, AccountTrouble.DROPPED),
    ],
    ids=["outdated", "dropped", "still listed"],
)
async def test_a_trouble_is_said_by_ready_and_ends_with_the_account_back(
    fate: str, trouble: AccountTrouble
) -> None:
    async with world() as here:
        settings = here.settings(health={"listen": ANY_PORT}, access={"admins": ADA.aci})
        async with bot_with_health(settings) as port:
            await here.asked("before")
            await here.signal.meets(fate)
            await is_ready(port, False, trouble)
            await here.signal.say("meanwhile")
            await here.signal.meets("")
            await here.signal.wait_for(lambda sent: sent.text.endswith("meanwhile"))
            await is_ready(port, True, "Connected.")


async def test_the_age_is_told_to_operators_and_admins() -> None:
    wall = Wall()
    async with world() as here:
        here.signal.version = RELEASE.version
        set_day(wall, 30)
        settings = here.settings(access={"admins": ADA.aci})
        async with running_bot(settings, clock=wall):
            while "30 days old" not in (said := await here.asked("!status")):
                pass
            assert f"signal-cli {RELEASE.version} is 30 days old.\n" in said
            assert "Update it" not in said
            set_day(wall, 61)
            assert "Update it: signal-tee-bot signal-cli update" in await here.asked("!status")


async def test_the_age_is_told_by_check_and_ready() -> None:
    age = (datetime.now(UTC).date() - RELEASE.date).days
    told = f"signal-cli {RELEASE.version} is {age} days old."
    async with world() as here:
        here.signal.version = RELEASE.version
        settings = here.settings(health={"listen": ANY_PORT})
        [found] = [one async for one in findings(settings) if one.part == "signal"]
        assert told in found.words
        async with bot_with_health(settings) as port:
            while told not in (await readiness(port))["signal"][1]:  # noqa: ASYNC110
                await asyncio.sleep(0.02)


async def test_an_unknown_newer_version_has_no_age_and_no_warning() -> None:
    async with story(access={"admins": ADA.aci}) as here:
        while "signal-cli 0.99.0" not in (said := await here.asked("!status")):
            pass
        assert "days old" not in said


def account(folder: Path, **facts: object) -> Path:
    (folder / "data").mkdir()
    listed = {"accounts": [{"path": "123", "number": BOT.number}], "version": 2}
    (folder / "data" / "accounts.json").write_text(json.dumps(listed))
    (folder / "data" / "123").write_text(json.dumps(facts))
    return folder


@pytest.mark.parametrize(
    ("facts", "trouble"),
    [
        ({"registered": False, "deviceId": 1}, AccountTrouble.DROPPED),
        ({"registered": False, "deviceId": 3}, AccountTrouble.UNLINKED),
        ({"registered": True, "deviceId": 1}, AccountTrouble.UNCHECKED),
    ],
)
def test_files_of_signal_cli_tell_a_dropped_account_from_an_unlinked_device(
    facts: dict[str, object], trouble: AccountTrouble, tmp_path: Path
) -> None:
    assert trouble_of_missing(account(tmp_path, **facts), BOT.number) is trouble
    assert trouble_of_missing(tmp_path, "+4915200000000") is AccountTrouble.ABSENT


def test_without_readable_files_the_account_is_absent(tmp_path: Path) -> None:
    assert trouble_of_missing(None, BOT.number) is AccountTrouble.ABSENT
    assert trouble_of_missing(tmp_path, BOT.number) is AccountTrouble.ABSENT
    (account(tmp_path) / "data" / "123").write_text("[]")
    assert trouble_of_missing(tmp_path, BOT.number) is AccountTrouble.ABSENT


@pytest.mark.parametrize(
    ("words", "trouble"),
    [
        (
            "Failed to register: StatusCode: 499 (DeprecatedVersionException)",
            "OUTDATED",
        ),
        (
            "SendHelper - Failed to send message due to IO exception: StatusCode: 499",
            "OUTDATED",
        ),
        (
            "signal-cli version is too old for the Signal-Server, please update.",
            "OUTDATED",
        ),
        ("Error while checking account +4915: [403] Authorization failed!", "DROPPED"),
        ("Ignoring +4915: User is not registered. (NotRegisteredException)", None),
        ('{"error":"User +4915100000000 is not registered.\\n"}', "DROPPED"),
        ("The user User +4915100000001 is not registered.", None),
        ("User +4915100000000 is not registered.", "DROPPED"),
        (
            "org.signal.libsignal.net.DeviceDeregisteredException: device was",
            "DROPPED",
        ),
        ("Specified account does not exist", "DROPPED"),
        ("Failed to send message: Unregistered user +4915100000001", None),
        ("Connection closed unexpectedly, reconnecting in 51200 ms", None),
        ("Failed to send: [413] Rate limit exceeded", None),
    ],
)
def test_words_of_signal_cli_tell_what_is_wrong(words: str, trouble: str | None) -> None:
    assert trouble_in(words) is (None if trouble is None else AccountTrouble[trouble])
