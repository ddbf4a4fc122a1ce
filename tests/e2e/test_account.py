"""`link` and `register` as an operator meets them: at a terminal, with Signal on loopback."""

import asyncio
import os
import re
import signal
import sys
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
from bot.cli.link import RESET, WHITE_ON_BLACK, drawn
from bot.cli.register import run_register
from bot.config.settings import Settings
from bot.signal.account import Profile
from bot.signal.errors import SignalUnavailable
from bot.signal.registration import Reason, RegistrationRefused, RestSetup
from bot.signal.spawned import START_SECONDS
from tests.e2e.daemon_process import daemon, environment
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
from tests.fakes.signal_side import BOT
from tests.skipped_waits import run_without_waiting

PNG: Final = b"\x89PNG\r\n\x1a\n and more"
LINKED: Final = f"Linked: {BOT.number}."
REGISTERED: Final = f"Registered: {BOT.number}."


class Side(Protocol):
    """A Signal side without the account."""

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


def edged(link: str, border: int) -> list[list[int]]:
    """Return the modules of a link's code with so many light ones on each side."""
    code = segno.make(link, error="l", boost_error=False, micro=False)
    return [list(row) for row in code.matrix_iter(border=border)]


@pytest.mark.parametrize(("rows", "border"), [(24, 3), pytest.param(60, 4, marks=pytest.mark.full)])
async def test_the_code_comes_last_and_fits_the_screen_with_a_light_edge(
    rows: int, border: int, folder: Path
) -> None:
    async with (
        RegisteringSignalCli.open(folder / "socket") as side,
        at_a_terminal("link", url=side.url, folder=folder, rows=rows) as terminal,
    ):
        await terminal.reads(LINK_URI)
        await terminal.reads("Ctrl-C stops.")
        side.registrar.linked.set()
        await terminal.reads(LINKED)
    before, _, after = terminal.shown.rpartition(RESET)
    assert after.startswith(f"\r\n{LINKED}")
    assert LINK_URI not in before[before.index(WHITE_ON_BLACK) :]
    wanted = edged(LINK_URI, border)
    modules = modules_on_screen(terminal.shown)
    assert modules[: len(wanted)] == wanted
    assert len(modules) == len(wanted) + 1  # the last row of the screen is half empty
    assert (len(modules) / 2, len(modules[0])) <= (rows, COLUMNS)


def test_instructions_stand_next_to_the_code_if_there_is_room() -> None:
    beside = " ".join(row.rpartition(RESET)[2].strip() for row in drawn(LINK_URI, COLUMNS, ROWS))
    assert "Settings → Linked devices → Link new device." in beside
    assert all(row.endswith(RESET) for row in drawn(LINK_URI, 60, ROWS))


def test_the_longest_link_that_signal_makes_fits_24_rows() -> None:
    longest = LINK_URI + "&capabilities=backup4"
    assert len(longest) > 110
    assert 0 < len(drawn(longest, COLUMNS, ROWS)) <= ROWS


@pytest.mark.parametrize(
    ("columns", "rows"), [(44, 60), pytest.param(80, 22, marks=pytest.mark.full)]
)
async def test_a_screen_that_is_too_small_gets_a_link_that_stays_whole(
    columns: int, rows: int, folder: Path
) -> None:
    async with (
        RegisteringSignalCli.open(folder / "socket") as side,
        at_a_terminal("link", url=side.url, folder=folder, columns=columns, rows=rows) as terminal,
    ):
        await terminal.reads("too small")
        await terminal.reads(f"\x1b]8;;{LINK_URI}\x1b\\{LINK_URI}\x1b]8;;\x1b\\")
        await terminal.reads("Waiting for the phone")
        assert modules_on_screen(terminal.shown) == []


@pytest.mark.full
@pytest.mark.parametrize("command", [("link",), ("register", BOT.number)])
async def test_all_words_are_wrapped_to_the_screen(command: tuple[str, ...], folder: Path) -> None:
    async with RegisteringSignalCli.open(folder / "socket") as side:
        side.registrar.wants_captcha = True
        side.registrar.expiring = 1_000
        async with at_a_terminal(*command, url=side.url, folder=folder, columns=44) as terminal:
            if command == ("link",):
                await terminal.reads("Nobody scanned a code; nothing was linked.")
            else:
                await terminal.answers("Paste the link here:", "signalcaptcha://old")
                await terminal.answers("Paste the link here:", CAPTCHA)
                await terminal.answers("The code:", CODE)
                await terminal.reads("docs/SIGNAL.md.")
    too_long = [
        line
        for line in terminal.shown.splitlines()
        if len(line) > 44 and not re.search(r"sgnl://|https://|signalcaptcha://", line)
    ]
    assert too_long == []


async def test_a_code_that_expired_is_followed_by_a_new_one(folder: Path) -> None:
    async with RegisteringSignalCli.open(folder / "socket") as side:
        side.registrar.expiring = 1
        async with at_a_terminal("link", url=side.url, folder=folder) as terminal:
            await terminal.reads("expired")
            await terminal.reads(LINK_URI)
            side.registrar.linked.set()
            await terminal.reads(LINKED)
            assert await terminal.exit_code() == 0


async def test_linking_ends_after_five_unscanned_codes(folder: Path) -> None:
    async with RegisteringSignalCli.open(folder / "socket") as side:
        side.registrar.expiring = 1_000
        async with at_a_terminal("link", url=side.url, folder=folder) as terminal:
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


async def test_linking_uses_the_signal_cli_of_a_bot_that_runs(folder: Path) -> None:
    programs = install(folder / "bin")
    async with RegisteringSignalCli.open(folder / "signal-cli.sock") as side:
        side.registrar.linked.set()
        async with at_a_terminal("link", url="spawn:", folder=folder, path=programs) as terminal:
            await terminal.reads(LINKED)
    assert starts(programs) == []


async def test_a_signal_cli_that_ends_at_once_is_no_riddle(folder: Path) -> None:
    programs = install(folder / "bin", "--broken")
    async with at_a_terminal("link", url="spawn:", folder=folder, path=programs) as terminal:
        await terminal.reads("signal-cli ended with exit code 7")
        await terminal.reads("Java")
        assert await terminal.exit_code() == 1


@pytest.mark.parametrize(
    ("command", "url"),
    [
        (("link",), "unix:/nowhere/socket"),
        pytest.param(("link",), "http://127.0.0.1:9", marks=pytest.mark.full),
        pytest.param(("register", BOT.number), "tcp://127.0.0.1:9", marks=pytest.mark.full),
    ],
)
async def test_missing_server_is_reported_in_one_line(
    command: tuple[str, ...], url: str, folder: Path
) -> None:
    async with at_a_terminal(*command, url=url, folder=folder) as terminal:
        await terminal.reads("cannot be reached. See SIGNAL__URL.")
        assert await terminal.exit_code() == 1
        assert "Traceback" not in terminal.shown


async def test_an_account_that_is_linked_already_stays_as_it_is(folder: Path) -> None:
    async with RegisteringSignalCli.open(folder / "socket") as side:
        side.registrar.refusals.append(
            (USER_ERROR, f'The user {BOT.number} already exists\nDelete "/x" before trying again.')
        )
        async with at_a_terminal("link", url=side.url, folder=folder) as terminal:
            await terminal.reads(Reason.ALREADY_HERE)
            assert await terminal.exit_code() == 1


# Registering


@both_ways
async def test_a_number_is_registered_with_captcha_code_and_pin(
    open_side: Open, folder: Path
) -> None:
    async with open_side(folder / "socket") as side:
        side.registrar.wants_captcha = side.registrar.wants_pin = True
        async with at_a_terminal("register", BOT.number, url=side.url, folder=folder) as terminal:
            await terminal.reads("will be logged out")
            await terminal.reads("signalcaptchas.org/registration/generate.html")
            await terminal.answers("Paste the link here:", CAPTCHA)
            await terminal.answers("The code:", "123-456")
            await terminal.reads("It ends in 167 hours")
            await terminal.answers("The PIN:", PIN)
            await terminal.reads(REGISTERED)
            await terminal.reads(f"SIGNAL__PHONE_NUMBER={BOT.number}")
            assert await terminal.exit_code() == 0
        assert PIN not in terminal.shown
        assert side.registrar.asked[-1] == ("verify", {"code": CODE, "pin": PIN})


async def test_a_number_is_registered_as_phones_show_it(folder: Path) -> None:
    async with RegisteringSignalCli.open(folder / "socket") as side:
        shown = ("+1", "(555)", "010-0000")
        async with at_a_terminal("register", *shown, url=side.url, folder=folder) as terminal:
            await terminal.answers("The code:", CODE)
            await terminal.reads(f"SIGNAL__PHONE_NUMBER={BOT.number}")


async def test_the_number_is_asked_for_where_it_is_not_given(folder: Path) -> None:
    async with (
        RegisteringSignalCli.open(folder / "socket") as side,
        at_a_terminal("register", "--voice", url=side.url, folder=folder) as terminal,
    ):
        await terminal.answers("The bot's number", BOT.number)
        await terminal.reads("Signal calls")
        await terminal.answers("The code:", CODE)
        await terminal.reads(REGISTERED)
        assert side.registrar.asked[0] == ("register", {"voice": True})


async def test_invalid_number_is_a_wrong_setting(folder: Path) -> None:
    async with at_a_terminal(
        "register", "0151 12345", url="unix:/nowhere", folder=folder
    ) as terminal:
        await terminal.reads("SIGNAL__PHONE_NUMBER: must be a number in international form")
        assert await terminal.exit_code() == 2


@both_ways
async def test_mistyped_answer_is_asked_again(open_side: Open, folder: Path) -> None:
    async with open_side(folder / "socket") as side:
        side.registrar.wants_captcha = side.registrar.wants_pin = True
        async with at_a_terminal("register", BOT.number, url=side.url, folder=folder) as terminal:
            await terminal.answers("Paste the link here:", "signalcaptcha://old")
            await terminal.reads("did not take the captcha")
            await terminal.answers("Paste the link here:", CAPTCHA)
            await terminal.answers("The code:", "111111")
            await terminal.reads("did not take that code")
            await terminal.answers("The code:", "")
            await terminal.reads("made of digits")
            await terminal.answers("The code:", CODE)
            await terminal.answers("The PIN:", "0000")
            await terminal.reads("That is not the PIN. 9 tries are left.")
            await terminal.answers("The PIN:", PIN)
            await terminal.reads(REGISTERED)


async def test_three_wrong_codes_are_enough(folder: Path) -> None:
    async with (
        RegisteringSignalCli.open(folder / "socket") as side,
        at_a_terminal("register", BOT.number, url=side.url, folder=folder) as terminal,
    ):
        for _ in range(3):
            await terminal.answers("The code:", "000000")
        await terminal.reads("Three codes were wrong")
        assert await terminal.exit_code() == 1


@pytest.mark.full
@pytest.mark.parametrize(
    ("code", "words", "said"),
    [
        (-5, "Rate limit reached", "does not say how long to wait"),
        (IO_ERROR, OFFLINE, "could not reach Signal"),
        (IO_ERROR, "Failed to register: StatusCode: 499", Reason.OUTDATED[:60]),
        (
            USER_ERROR,
            "Failed to register: Invalid: Before requesting voice verification you need to wait.",
            "Signal calls only after an SMS was tried",
        ),
        (IO_ERROR, "Failed to register: [403] Authorization failed!", Reason.REFUSED),
    ],
)
async def test_refusals_of_signal_are_explained(
    code: int, words: str, said: str, folder: Path
) -> None:
    async with RegisteringSignalCli.open(folder / "socket") as side:
        side.registrar.refusals.append((code, words))
        async with at_a_terminal("register", BOT.number, url=side.url, folder=folder) as terminal:
            await terminal.reads(said)
            assert await terminal.exit_code() == 1
        assert "Traceback" not in terminal.shown


@pytest.mark.parametrize(("seconds", "wait"), [(42 * 60, "42 minutes"), (50, "a minute")])
async def test_a_rate_limit_with_a_time_says_how_many_minutes(
    seconds: int, wait: str, folder: Path
) -> None:
    next_attempt = round((time.time() + seconds) * 1_000)
    words = f"Rate limit reached\nNext attempt may be tried at {next_attempt} (some day)"
    async with RegisteringSignalCli.open(folder / "socket") as side:
        side.registrar.refusals.append((-5, words))
        async with at_a_terminal("register", BOT.number, url=side.url, folder=folder) as terminal:
            await terminal.reads(f"takes the next one in {wait}.")


async def test_a_number_that_is_registered_here_is_left_alone(folder: Path) -> None:
    async with RegisteringSignalCli.open(folder / "socket") as side:
        side.registrar.registered = True
        async with at_a_terminal("register", BOT.number, url=side.url, folder=folder) as terminal:
            await terminal.reads(Reason.ALREADY_HERE)
        assert side.registrar.asked == []


async def test_a_captcha_that_the_terminal_cuts_can_be_an_argument(folder: Path) -> None:
    long_one = CAPTCHA + "x" * 5_000
    async with RegisteringSignalCli.open(folder / "socket") as side:
        side.registrar.wants_captcha = True
        async with at_a_terminal("register", BOT.number, url=side.url, folder=folder) as terminal:
            await terminal.answers("Paste the link here:", long_one)
            await terminal.reads("The terminal cut that")
            assert await terminal.exit_code() == 1
        arguments = ("register", BOT.number, "--captcha", CAPTCHA)
        async with at_a_terminal(*arguments, url=side.url, folder=folder) as terminal:
            await terminal.answers("The code:", CODE)
            await terminal.reads(REGISTERED)


async def test_ctrl_c_ends_registering_politely_while_it_asks(folder: Path) -> None:
    async with (
        RegisteringSignalCli.open(folder / "socket") as side,
        at_a_terminal("register", BOT.number, url=side.url, folder=folder) as terminal,
    ):
        await terminal.reads("The code:")
        terminal.presses_ctrl_c()
        await terminal.reads("the number is not registered")
        assert await terminal.exit_code() == 130


@pytest.mark.full
async def test_answers_may_come_from_a_pipe(folder: Path) -> None:
    async with RegisteringSignalCli.open(folder / "socket") as side:
        output, code = await piped(f"{CODE}\n", url=side.url, folder=folder)
        assert (REGISTERED in output, code) == (True, 0)
        side.registrar.registered = False
        output, code = await piped("", url=side.url, folder=folder)
        assert ("input ended" in output, code) == (True, 1)


async def test_a_code_that_was_sent_before_can_be_an_argument(folder: Path) -> None:
    async with RegisteringSignalCli.open(folder / "socket") as side:
        arguments = ("register", BOT.number, "--code", "123-456")
        async with at_a_terminal(*arguments, url=side.url, folder=folder) as terminal:
            await terminal.reads(REGISTERED)
            assert await terminal.exit_code() == 0
        assert side.registrar.asked == [("verify", {"code": CODE, "pin": None})]


async def test_unattended_register_takes_two_starts(
    folder: Path,
) -> None:
    """As the service `register` of deploy/dstack-compose.yaml is started: unset is empty."""
    async with RegisteringSignalCli.open(folder / "socket") as side:
        side.registrar.wants_captcha = True

        async def start(captcha: str, code: str) -> tuple[str, int | None]:
            return await ended(
                "",
                "--unattended",
                folder=folder,
                SIGNAL__URL=side.url,
                SIGNAL__PHONE_NUMBER=BOT.number,
                SIGNAL_CAPTCHA=captcha,
                SIGNAL_CODE=code,
            )

        output, exit_code = await start("", "")
        assert (Reason.CAPTCHA_NEEDED in output, exit_code) == (True, 1)
        output, exit_code = await start(CAPTCHA, "")
        assert ("sends an SMS" in output, exit_code) == (True, 1)
        asked = len(side.registrar.asked)
        output, exit_code = await start(CAPTCHA, CODE)
        assert (REGISTERED in output, exit_code) == (True, 0)
        assert side.registrar.asked[asked:] == [("verify", {"code": CODE, "pin": None})]
        assert (await start("", ""))[1] == 0
        assert len(side.registrar.asked) == asked + 1


def test_unattended_register_waits_a_minute_for_signal_cli(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SIGNAL__URL", f"unix:{folder}/socket")

    async def start() -> None:
        with pytest.raises(SignalUnavailable):
            await run_register(read_arguments(["register", BOT.number, "--unattended"]))
        assert asyncio.get_running_loop().time() >= START_SECONDS

    run_without_waiting(start())


async def piped(answers: str, *arguments: str, url: str, folder: Path) -> tuple[str, int | None]:
    return await ended(answers, BOT.number, *arguments, folder=folder, SIGNAL__URL=url)


async def ended(
    answers: str, *arguments: str, folder: Path, **variables: str
) -> tuple[str, int | None]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bot", "register", *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        cwd=folder,
        env={"PATH": os.environ["PATH"], **variables},
    )  # fmt: skip
    output, _ = await process.communicate(answers.encode())
    return output.decode(), process.returncode


# The bot with an account


def alive(pid: int) -> bool:
    """Whether there is such a process that has not ended."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


async def until(happened: Callable[[], object]) -> None:
    """Wait for something that another process does."""
    while not happened():  # noqa: ASYNC110 - it tells nobody here
        await asyncio.sleep(0.02)


@pytest.mark.parametrize(
    "ending", [signal.SIGTERM, pytest.param(signal.SIGKILL, marks=pytest.mark.full)]
)
async def test_a_bot_with_a_signal_cli_of_its_own_answers_and_both_end_together(
    ending: signal.Signals,
) -> None:
    async with world() as here:
        programs = install(here.folder / "bin")
        settings = environment(here, SIGNAL__URL="spawn:", PATH=f"{programs}:{os.environ['PATH']}")
        for number in (1, 2):
            async with daemon(settings, folder=here.folder) as running:
                await until(partial(has_sent, programs, number))
                running.send_signal(ending)
                assert await running.exit_code() in {0, -signal.SIGKILL}, running.stderr
            if ending is signal.SIGKILL:
                await until(partial(none_alive, programs))
            assert none_alive(programs)
            assert len(starts(programs)) == number
            assert SAID not in "".join(running.stderr)
        assert all(text.startswith("answer to: ") for text in texts_sent(programs))


def has_sent(programs: Path, texts: int) -> bool:
    return len(texts_sent(programs)) >= texts


def none_alive(programs: Path) -> bool:
    return not any(alive(start["pid"]) for start in starts(programs))


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
        assert found["signal"].words == "signal-cli 0.13.19 answers."
        assert "signal-tee-bot register" in found["account"].words
        assert not alive(starts(programs)[0]["pid"])
        install(programs, "--broken")
        assert "exit code 7" in (await checked(settings))["signal"].words
        monkeypatch.setenv("PATH", str(here.folder))
        missing = (await checked(settings))["signal"]
        assert (missing.verdict, "PATH" in missing.words) == ("failed", True)
