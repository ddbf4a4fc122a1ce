"""`link` and `register` as an operator sees them: at a terminal, with Signal on loopback."""

import asyncio
import os
import re
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Final, Protocol

import pytest
import segno

from bot.cli.arguments import read_arguments
from bot.cli.basic_findings import Finding
from bot.cli.check import findings
from bot.cli.link import RESET, WHITE_ON_BLACK
from bot.cli.register import run_register
from bot.config.settings import Settings
from bot.signal.account import Profile
from bot.signal.errors import SignalUnavailable
from bot.signal.registration import Reason, RegistrationRefused, RestSetup
from bot.signal.spawned import START_SECONDS
from tests.e2e.daemon_process import daemon, environment, run_command
from tests.e2e.running_bot import running_bot, world
from tests.e2e.terminal import COLUMNS, ROWS, at_a_terminal
from tests.fakes.registering import (
    CAPTCHA,
    CODE,
    IO_ERROR,
    LINK_URI,
    OFFLINE,
    PIN,
    USER_ERROR,
    RegisteringSignalCli,
    Registrar,
)
from tests.fakes.registering_rest import RegisteringRestApi
from tests.fakes.signal_cli_program import SAID, install, starts, texts_sent
from tests.fakes.signal_side import BOT, STILL_LISTED
from tests.integration.test_spawned import alive, until
from tests.skipped_waits import run_without_waiting

PNG: Final = b"\x89PNG\r\n\x1a\n and more"
LINKED: Final = f"Linked: {BOT.number}."
REGISTERED: Final = f"Registered: {BOT.number}."


class Side(Protocol):
    registrar: Registrar

    @property
    def url(self) -> str: ...


Open = Callable[[Path], AbstractAsyncContextManager[Side]]
SIDES: Final[dict[str, Open]] = {
    "daemon": RegisteringSignalCli.open,
    "rest": RegisteringRestApi.open,
}
both_ways = pytest.mark.parametrize(
    "open_side",
    [
        pytest.param(side, id=name, marks=[pytest.mark.full] if name == "rest" else [])
        for name, side in SIDES.items()
    ],
)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short path, because sockets need one."""
    with tempfile.TemporaryDirectory(prefix="stb-") as name:
        yield Path(name)


# Linking


@both_ways
async def test_a_phone_that_scans_the_code_links_the_bot(open_side: Open, folder: Path) -> None:
    async with (
        open_side(folder / "socket") as side,
        at_a_terminal("link", url=side.url, folder=folder) as terminal,
    ):
        await terminal.reads("linked device of the Signal account")
        await terminal.reads("Linked devices")
        await terminal.reads(LINK_URI)
        await terminal.reads("Waiting for the phone")
        side.registrar.linked.set()
        await terminal.reads(LINKED)
        await terminal.reads(f"SIGNAL__PHONE_NUMBER={BOT.number}")
        assert await terminal.exit_code() == 0


def modules_on_screen(shown: str) -> list[list[int]]:
    """The code for a phone: dark modules as 1, two rows of them in each row of the screen."""
    pairs = {"█": (0, 0), "▀": (0, 1), "▄": (1, 0), " ": (1, 1)}
    found: list[list[int]] = []
    for row in re.findall(f"{re.escape(WHITE_ON_BLACK)}(.*?){re.escape(RESET)}", shown):
        upper_and_lower = [pairs[block] for block in row]
        found += [[upper for upper, _ in upper_and_lower], [lower for _, lower in upper_and_lower]]
    return found


async def test_the_code_comes_last_and_fits_24_rows_with_a_light_edge(folder: Path) -> None:
    async with (
        RegisteringSignalCli.open(folder / "socket") as side,
        at_a_terminal("link", url=side.url, folder=folder) as terminal,
    ):
        await terminal.reads(LINK_URI)
        await terminal.reads("Ctrl-C stops.")
        side.registrar.linked.set()
        await terminal.reads(LINKED)
    before, _, after = terminal.shown.rpartition(RESET)
    assert after.startswith(f"\r\n{LINKED}")
    assert LINK_URI not in before[before.index(WHITE_ON_BLACK) :]
    code = segno.make(LINK_URI, error="l", boost_error=False, micro=False)
    wanted = [list(row) for row in code.matrix_iter(border=3)]
    modules = modules_on_screen(terminal.shown)
    assert modules[: len(wanted)] == wanted
    assert len(modules) == len(wanted) + 1  # the last row of the screen is half empty
    assert (len(modules) / 2, len(modules[0])) <= (ROWS, COLUMNS)


async def test_a_screen_that_is_too_small_gets_a_link_that_stays_whole(folder: Path) -> None:
    async with (
        RegisteringSignalCli.open(folder / "socket") as side,
        at_a_terminal("link", url=side.url, folder=folder, columns=44, rows=60) as terminal,
    ):
        await terminal.reads("too small")
        await terminal.reads(f"\x1b]8;;{LINK_URI}\x1b\\{LINK_URI}\x1b]8;;\x1b\\")
        await terminal.reads("Waiting for the phone")
        assert modules_on_screen(terminal.shown) == []


async def test_expired_code_is_followed_by_a_new_one_five_times(folder: Path) -> None:
    async with RegisteringSignalCli.open(folder / "socket") as side:
        side.registrar.expiring = 1_000
        async with at_a_terminal("link", url=side.url, folder=folder) as terminal:
            await terminal.reads("expired")
            await terminal.reads(LINK_URI)
            await terminal.reads("Nobody scanned a code; nothing was linked.")
            assert await terminal.exit_code() == 1
        assert side.registrar.shown == 5


async def test_unscanned_code_expires_over_rest_too(folder: Path) -> None:
    async with (
        RegisteringRestApi.open(folder) as side,
        RestSetup.connect(side.url, link_seconds=0.05) as setup,
    ):
        uri = await setup.start_link("bot")
        with pytest.raises(RegistrationRefused) as refused:
            await setup.finish_link(uri, "bot")
        assert refused.value.reason is Reason.LINK_EXPIRED


async def test_ctrl_c_ends_linking_politely(folder: Path) -> None:
    async with (
        RegisteringSignalCli.open(folder / "socket") as side,
        at_a_terminal("link", url=side.url, folder=folder) as terminal,
    ):
        await terminal.reads("Waiting for the phone")
        terminal.presses_ctrl_c()
        await terminal.reads("nothing was linked")
        assert await terminal.exit_code() == 130
        assert "Traceback" not in terminal.shown


async def test_linking_starts_signal_cli_where_the_bot_would(folder: Path) -> None:
    programs = install(folder / "bin")
    async with at_a_terminal("link", url="spawn:", folder=folder, path=programs) as terminal:
        await terminal.reads("Starting signal-cli")
        await terminal.reads(LINKED)
        assert await terminal.exit_code() == 0
    assert len(starts(programs)) == 1
    assert not (folder / "signal-cli.sock").exists()


# Registering


@both_ways
async def test_a_number_is_registered_and_mistyped_answers_are_asked_for_again(
    open_side: Open, folder: Path
) -> None:
    async with open_side(folder / "socket") as side:
        side.registrar.wants_captcha = side.registrar.wants_pin = True
        async with at_a_terminal("register", BOT.number, url=side.url, folder=folder) as terminal:
            await terminal.reads("will be logged out")
            await terminal.reads("signalcaptchas.org/registration/generate.html")
            await terminal.answers("Paste the link here:", "signalcaptcha://old")
            await terminal.reads("did not take the captcha")
            await terminal.answers("Paste the link here:", CAPTCHA)
            await terminal.answers("The code:", "111111")
            await terminal.reads("did not take that code")
            await terminal.answers("The code:", "")
            await terminal.reads("only digits")
            await terminal.answers("The code:", "123-456")
            await terminal.reads("It ends in 167 hours")
            await terminal.answers("The PIN:", "0000")
            await terminal.reads("That is not the PIN. 9 tries are left.")
            await terminal.answers("The PIN:", PIN)
            await terminal.reads(REGISTERED)
            await terminal.reads(f"SIGNAL__PHONE_NUMBER={BOT.number}")
            assert await terminal.exit_code() == 0
        assert PIN not in terminal.shown
        assert side.registrar.asked[-1] == ("verify", {"code": CODE, "pin": PIN})


def in_seconds(seconds: float) -> str:
    next_attempt = round((time.time() + seconds) * 1_000)
    return f"Rate limit reached\nNext attempt may be tried at {next_attempt} (some day)"


@pytest.mark.parametrize(
    ("code", "words", "said"),
    [
        (-5, lambda: "Rate limit reached", "does not say how long to wait"),
        (-5, partial(in_seconds, 42 * 60), "takes the next one in 42 minutes."),
        (IO_ERROR, lambda: OFFLINE, "could not reach Signal"),
        *(
            pytest.param(*row, marks=pytest.mark.full)
            for row in (
                (-5, partial(in_seconds, 50), "takes the next one in a minute."),
                (IO_ERROR, lambda: "Failed to register: StatusCode: 499", Reason.OUTDATED[:60]),
                (
                    USER_ERROR,
                    lambda: (
                        "Failed to register: Invalid: Before requesting voice verification"
                        " you need to wait."
                    ),
                    "Signal calls only after an SMS was tried",
                ),
                (
                    IO_ERROR,
                    lambda: "Failed to register: [403] Authorization failed!",
                    Reason.REFUSED,
                ),
                (
                    USER_ERROR,
                    lambda: f'The user {BOT.number} already exists\nDelete "/x" before.',
                    Reason.ALREADY_HERE,
                ),
            )
        ),
    ],
)
async def test_refusals_of_signal_are_explained(
    code: int, words: Callable[[], str], said: str, folder: Path
) -> None:
    async with RegisteringSignalCli.open(folder / "socket") as side:
        side.registrar.refusals.append((code, words()))
        async with at_a_terminal("register", BOT.number, url=side.url, folder=folder) as terminal:
            await terminal.reads(said)
            assert await terminal.exit_code() == 1
        assert "Traceback" not in terminal.shown


async def test_a_captcha_that_the_terminal_cuts_can_be_an_argument(folder: Path) -> None:
    long_one = CAPTCHA + "x" * 5_000
    async with RegisteringSignalCli.open(folder / "socket") as side:
        side.registrar.wants_captcha = True
        async with at_a_terminal("register", BOT.number, url=side.url, folder=folder) as terminal:
            await terminal.answers("Paste the link here:", long_one)
            await terminal.reads("The terminal cut that")
            assert await terminal.exit_code() == 1
        arguments = ("register", "--voice", "--captcha", CAPTCHA)
        async with at_a_terminal(*arguments, url=side.url, folder=folder) as terminal:
            await terminal.answers("The bot's number", "+1 (555) 010-0000")
            await terminal.reads("Signal calls")
            await terminal.answers("The code:", CODE)
            await terminal.reads(REGISTERED)


@pytest.mark.long
async def test_unattended_register_takes_two_starts(folder: Path) -> None:
    """Like the service `register` of deploy/dstack-compose.yaml: unset variables are empty."""
    async with RegisteringSignalCli.open(folder / "socket") as side:
        side.registrar.wants_captcha = True

        async def start(captcha: str, code: str) -> tuple[int, str]:
            settings = {"SIGNAL__URL": side.url, "SIGNAL__PHONE_NUMBER": BOT.number}
            settings |= {"SIGNAL_CAPTCHA": captcha, "SIGNAL_CODE": code}
            ended, out, err = await run_command(
                ["register", "--unattended"], settings, folder=folder
            )
            return ended, out + err

        exit_code, output = await start("", "")
        assert (exit_code, Reason.CAPTCHA_NEEDED in output) == (1, True)
        exit_code, output = await start(CAPTCHA, "")
        assert (exit_code, "sends an SMS" in output) == (1, True)
        asked = len(side.registrar.asked)
        exit_code, output = await start(CAPTCHA, CODE)
        assert (exit_code, REGISTERED in output) == (0, True)
        assert side.registrar.asked[asked:] == [("verify", {"code": CODE, "pin": None})]


def test_unattended_register_waits_a_minute_for_signal_cli(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SIGNAL__URL", f"unix:{folder}/socket")

    async def start() -> None:
        with pytest.raises(SignalUnavailable):
            await run_register(read_arguments(["register", BOT.number, "--unattended"]))
        assert asyncio.get_running_loop().time() >= START_SECONDS

    run_without_waiting(start())


# The bot with an account


@pytest.mark.parametrize(
    "ending", [signal.SIGTERM, pytest.param(signal.SIGKILL, marks=pytest.mark.full)]
)
async def test_a_bot_with_a_signal_cli_of_its_own_answers_and_both_end_together(
    ending: signal.Signals,
) -> None:
    async with world() as here:
        programs = install(here.folder / "bin")
        settings = environment(here, SIGNAL__URL="spawn:", PATH=f"{programs}:{os.environ['PATH']}")
        async with daemon(settings, folder=here.folder) as running:
            await until(lambda: texts_sent(programs))
            running.send_signal(ending)
            assert await running.exit_code() in {0, -signal.SIGKILL}, running.stderr
        await until(lambda: not any(alive(start["pid"]) for start in starts(programs)))
        assert len(starts(programs)) == 1
        assert SAID not in "".join(running.stderr)
        assert texts_sent(programs)[0].startswith("answer to: ")


async def test_an_account_that_signal_has_dropped_is_registered_again(folder: Path) -> None:
    async with RegisteringSignalCli.open(folder / "socket") as side:
        side.registrar.registered = True
        await side.meets(STILL_LISTED)
        async with at_a_terminal("register", BOT.number, url=side.url, folder=folder) as terminal:
            await terminal.reads(Reason.DROPPED)
            await terminal.answers("The code:", CODE)
            await terminal.reads(REGISTERED)
            assert await terminal.exit_code() == 0
        assert ("register", {"voice": False, "reregister": True}) in side.registrar.asked
        async with at_a_terminal("register", BOT.number, url=side.url, folder=folder) as terminal:
            await terminal.reads("has that account already")
            assert await terminal.exit_code() == 1


async def test_people_see_the_profile_of_the_settings(folder: Path) -> None:
    picture = folder / "picture.png"
    picture.write_bytes(PNG)
    wanted = {"profile_name": "Tee", "profile_about": "I answer.", "profile_picture": picture}
    shown = Profile("Tee", "I answer.", PNG)
    async with world() as here:
        for bot in (wanted, {}):
            async with running_bot(here.settings(bot=bot)):
                await here.signal.until(lambda: here.signal.profile == shown)


async def checked(settings: Settings) -> dict[str, Finding]:
    return {finding.part: finding async for finding in findings(settings)}


async def test_check_looks_at_the_signal_cli_that_the_bot_would_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with world() as here:
        settings = here.settings(signal={"url": "spawn:"})
        programs = install(here.folder / "bin")
        monkeypatch.setenv("PATH", str(programs), prepend=os.pathsep)
        found = await checked(settings)
        assert found["signal"].words == "signal-cli 0.99.0 answers."
        assert "signal-tee-bot register" in found["account"].words
        assert not alive(starts(programs)[0]["pid"])
        install(programs, "--broken")
        assert "exit code 7" in (await checked(settings))["signal"].words
        monkeypatch.setenv("PATH", str(here.folder))
        missing = (await checked(settings))["signal"]
        assert (missing.verdict, "signal-cli install" in missing.words) == ("failed", True)
