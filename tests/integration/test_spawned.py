"""signal-cli as a child of the bot: a program that behaves as signal-cli does, really started."""

import asyncio
import errno
import json
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
import structlog

from bot.backoff import Backoff
from bot.errors import SettingsError
from bot.observability.metrics import SIGNAL_CLI_RESTARTS
from bot.signal.errors import SignalUnavailable
from bot.signal.signal_daemon import DaemonTimeouts, SignalDaemon
from bot.signal.spawned import (
    SpawnedSignalCli,
    SpawnTimeouts,
    socket_path,
)
from bot.signal.transport import signal_health
from bot.signal.trouble import AccountTrouble
from conversation_store.models import ChatId
from tests.contract.harnesses import Receiver, in_background
from tests.fakes.signal_cli_program import (
    BROKEN,
    SAID,
    install,
    signs_of_life,
    starts,
    texts_sent,
)
from tests.fakes.signal_side import BOT

ROOT: Final = Path(__file__).parents[2]
SOON: Final = Backoff(0.02, 0.05)
BOUNDS: Final = DaemonTimeouts(backoff=SOON)

BOT_PROGRAM: Final = """
import asyncio, sys
from pathlib import Path
from bot.signal.spawned import SpawnedSignalCli
asyncio.run(SpawnedSignalCli(Path(sys.argv[1])).run())
"""


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A short path, because sockets need one; its `bin` is the PATH's first entry."""
    with tempfile.TemporaryDirectory(prefix="stb-") as name:
        monkeypatch.setenv("PATH", f"{name}/bin:{os.environ['PATH']}")
        yield Path(name)


async def until(happened: Callable[[], object]) -> None:
    """Wait for something that another process does."""
    while not happened():  # noqa: ASYNC110 - it tells nobody here
        await asyncio.sleep(0.02)


def alive(pid: int) -> bool:
    """Whether there is such a process that has not ended."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def never_gets_more_rights(pid: int) -> bool:
    return "\nNoNewPrivs:\t1\n" in Path(f"/proc/{pid}/status").read_text()


def notes(folder: Path) -> list[dict[str, Any]]:
    return starts(folder / "bin")


@asynccontextmanager
async def spawned(
    folder: Path, *, patience: SpawnTimeouts | None = None, **options: Any
) -> AsyncIterator[SpawnedSignalCli]:
    patience = replace(patience or SpawnTimeouts(), stop=1.0)
    signal_cli = SpawnedSignalCli(folder / "socket", backoff=SOON, patience=patience, **options)
    async with in_background(signal_cli.run()):
        yield signal_cli


async def answering(signal_cli: SpawnedSignalCli) -> None:
    messenger = SignalDaemon(signal_cli.url, BOT.number, bounds=BOUNDS)
    while True:
        try:
            await messenger.account_status()
        except SignalUnavailable:
            await asyncio.sleep(0.02)
        else:
            return


async def test_signal_cli_is_started_with_manual_receive_mode_on_a_socket_of_its_own(
    folder: Path,
) -> None:
    install(folder / "bin")
    async with spawned(folder, data_dir=folder / "data") as signal_cli:
        receiver = Receiver()
        messenger = SignalDaemon(signal_cli.url, BOT.number, bounds=BOUNDS)
        async with in_background(messenger.run(receiver.deliver)):
            await until(lambda: receiver.texts == [SAID])
        assert (folder / "socket").stat().st_mode & 0o077 == 0
        [start] = notes(folder)
        assert never_gets_more_rights(start["pid"])
    assert start["arguments"][1:] == [
        *("--config", str(folder / "data")),
        *("daemon", "--socket", str(folder / "socket")),
        *("--receive-mode", "manual", "--no-receive-stdout"),
    ]


async def test_signal_cli_never_sees_the_bot_s_secrets(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLM__API_KEY", "secret-key")
    install(folder / "bin")
    async with spawned(folder) as signal_cli:
        await answering(signal_cli)
    assert "secret-key" not in json.dumps(notes(folder))


async def test_nothing_that_signal_cli_prints_is_logged_but_that_it_ended(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    install(folder / "bin", "--broken")
    with structlog.testing.capture_logs() as logs:
        async with spawned(folder):
            await until(lambda: len(notes(folder)) >= 3)
    assert {entry["event"] for entry in logs} == {"signal_cli.ended"}
    assert {entry["code"] for entry in logs} == {BROKEN}
    assert [entry["attempt"] for entry in logs[:2]] == [1, 2]
    printed, complained = capfd.readouterr()
    assert SAID not in f"{logs}{printed}{complained}"


@pytest.mark.parametrize(
    ("options", "become"),
    [((), True), (("--stubborn",), True), ((), False)],
    ids=["polite", "stubborn", "bad script"],
)
async def test_signal_cli_ends_with_the_bot(
    folder: Path, options: tuple[str, ...], become: bool
) -> None:
    install(folder / "bin", *options, become=become)
    async with spawned(folder) as signal_cli:
        await answering(signal_cli)
    await until(lambda: not alive(notes(folder)[0]["pid"]))
    if become:
        assert (folder / "socket").exists() is bool(options)  # only who is asked can tidy up


@asynccontextmanager
async def bot_process(folder: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """Another process that has a signal-cli; killed at the end of the block."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", BOT_PROGRAM, str(folder / "socket"), cwd=ROOT
    )
    try:
        yield process
    finally:
        process.kill()
        await process.wait()


async def test_signal_cli_ends_in_order_when_the_bot_is_killed(folder: Path) -> None:
    install(folder / "bin")
    async with bot_process(folder):
        await until((folder / "socket").exists)
    [start] = notes(folder)
    await until(lambda: not alive(start["pid"]))
    assert not (folder / "socket").exists()


@pytest.mark.parametrize(
    ("options", "become"), [(("--stubborn",), True), ((), False)], ids=["stubborn", "bad script"]
)
async def test_signal_cli_of_a_killed_bot_ends_before_the_next_one_starts(
    folder: Path, options: tuple[str, ...], become: bool
) -> None:
    install(folder / "bin", *options, become=become)
    async with bot_process(folder):
        await until((folder / "socket").exists)
    assert alive(notes(folder)[0]["pid"])
    install(folder / "bin")
    async with spawned(folder) as signal_cli:
        await until(lambda: len(notes(folder)) == 2)
        assert not alive(notes(folder)[0]["pid"])
        await answering(signal_cli)


async def test_what_the_log_says_of_an_old_version_is_told_until_a_newer_one_runs(
    folder: Path,
) -> None:
    install(folder / "bin", "--outdated")
    with structlog.testing.capture_logs() as logs:
        async with spawned(folder) as signal_cli:
            messenger = SignalDaemon(signal_cli.url, BOT.number, bounds=BOUNDS)
            await until(lambda: signal_cli.trouble is AccountTrouble.OUTDATED)
            assert (await signal_health(messenger, signal_cli)).detail == AccountTrouble.OUTDATED
            install(folder / "bin")
            await answering(signal_cli)
            assert signal_cli.trouble is None
    assert SAID not in str(logs)
    assert "user +1" not in str(logs)


async def test_the_socket_file_of_a_killed_signal_cli_is_no_obstacle(folder: Path) -> None:
    install(folder / "bin")
    (folder / "socket").touch()
    async with spawned(folder) as signal_cli:
        await answering(signal_cli)
    assert len(notes(folder)) == 1


async def test_a_missing_signal_cli_is_the_operator_s_to_install(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(folder))
    with pytest.raises(SettingsError, match=r"SIGNAL__URL: .*signal-cli install"):
        await SpawnedSignalCli(folder / "socket").run()


def test_without_settings_the_folder_is_that_of_signal_cli(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", "/home/data")
    assert SpawnedSignalCli(Path("/socket")).folder == Path("/home/data/signal-cli")
    assert SpawnedSignalCli(Path("/socket"), data_dir=Path("/mine")).folder == Path("/mine")


def test_socket_is_in_the_state_directory_or_in_a_short_folder_of_the_store(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("STATE_DIRECTORY", "/var/lib/bot:/var/lib/other")
    assert socket_path(Path("data/store.db")) == Path("/var/lib/bot/signal-cli.sock")
    monkeypatch.delenv("STATE_DIRECTORY")
    longest = "/" + "a" * (107 - len("//signal-cli.sock"))
    assert len(str(socket_path(Path(longest) / "store.db"))) == 107
    with pytest.raises(SettingsError, match=r"STORE__PATH: .*too long"):
        socket_path(Path(longest + "a") / "store.db")


# One that hangs -----------------------------------------------------------------------------------


IMPATIENT: Final = SpawnTimeouts(sign_every=0.1, sign=0.5)


@pytest.mark.parametrize("become", [True, pytest.param(False, marks=pytest.mark.full)])
async def test_a_signal_cli_that_lives_and_does_not_answer_is_ended_and_started_again(
    folder: Path, become: bool
) -> None:
    install(folder / "bin", become=become)
    restarts = SIGNAL_CLI_RESTARTS.labels("silent")._value.get()
    with structlog.testing.capture_logs() as logs:
        async with spawned(folder, patience=IMPATIENT) as signal_cli:
            await answering(signal_cli)
            hanging = notes(folder)[0]["pid"]
            os.kill(hanging, signal.SIGSTOP)
            await until(lambda: signal_cli.silent)
            await until(lambda: len(notes(folder)) == 2)
            assert not alive(hanging)
            assert not signal_cli.silent
            await answering(signal_cli)
    assert [entry["event"] for entry in logs][:3] == [
        "signal_cli.silent",
        "signal_cli.hangs",
        "signal_cli.ended",
    ]
    assert SIGNAL_CLI_RESTARTS.labels("silent")._value.get() == restarts + 1


@pytest.mark.full
async def test_a_signal_cli_that_never_listens_is_started_again(folder: Path) -> None:
    install(folder / "bin", "--deaf")
    async with spawned(folder, patience=SpawnTimeouts(sign_every=0.1, start=1.0)):
        await until(lambda: len(notes(folder)) >= 2)
        assert not alive(notes(folder)[0]["pid"])


async def test_a_signal_cli_that_is_busy_or_not_read_is_left_alone(folder: Path) -> None:
    install(folder / "bin", "--busy")
    async with spawned(folder, patience=SpawnTimeouts(sign_every=0.1, sign=2.0)) as signal_cli:
        await answering(signal_cli)
        receiver = Receiver()
        messenger = SignalDaemon(signal_cli.url, BOT.number, bounds=BOUNDS)
        async with in_background(messenger.run(receiver.deliver)):
            await until(lambda: receiver.texts == [SAID])
            async with asyncio.TaskGroup() as sending:
                send = sending.create_task(messenger.send(ChatId.direct("+1555"), "slow"))
                await until(lambda: texts_sent(folder / "bin"))
                assert messenger._connection is not None
                messenger._connection.pause_reading()
                asked = signs_of_life(folder / "bin")
                await until(lambda: signs_of_life(folder / "bin") >= asked + 4)
                send.cancel()
        assert not signal_cli.silent
    assert len(notes(folder)) == 1


async def test_a_bot_without_descriptors_does_not_take_signal_cli_for_one_that_hangs(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = 0

    async def no_descriptors(*_: object) -> None:
        nonlocal refused
        refused += 1
        raise OSError(errno.EMFILE, "Too many open files")

    install(folder / "bin")
    monkeypatch.setattr(asyncio.get_running_loop(), "create_unix_connection", no_descriptors)
    with structlog.testing.capture_logs() as logs:
        async with spawned(folder, patience=SpawnTimeouts(sign_every=0.05, start=0.0)):
            await until(lambda: refused >= 5)
    assert logs == []
