"""The units of systemd, run as far as a machine goes on which systemd does not run."""

import asyncio
import json
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Final

import pytest

from conversation_store.connections import StoreError
from conversation_store.store import open_store
from tests.e2e.running_bot import World, world
from tests.fakes import signal_cli_program
from tests.fakes.openai_server import Step, echo, held, script, text, tool_calls
from tests.fakes.service_runner import (
    DEPLOY,
    Service,
    Unit,
    descendants,
    environment_of,
    running_service,
)
from tests.fakes.signal_side import BOT
from tests.integration.test_signal_cli_alive import install_impatient
from tests.integration.test_spawned import until
from tools.sandbox.jail.calls import WITHOUT_NAMESPACES

WATCHDOG_SECONDS: Final = 4.0
API_KEY: Final = "sk-not-to-be-seen"
STORE_KEY: Final = "a key that nobody may see"
USERS: Final = ("signal-tee-bot", "signal-cli")
UNITS: Final = (*USERS, "signal-cli-alive")
MCP: Final = "mcp/mcp-notes@"
INTO_OTHERS: Final = frozenset(
    {"kcmp", "pidfd_getfd", "process_madvise", "process_vm_readv", "process_vm_writev", "ptrace"}
)
"""System calls that reach into another process."""
COMMAND_SECONDS: Final = 15.0

needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed"
)


def lay_out(here: World, **settings: str) -> None:
    """Lay a world's folder out as a server's root, with the settings that are delivered."""
    root = here.folder
    program = root / "opt/signal-tee-bot/bin/signal-tee-bot"
    program.parent.mkdir(parents=True)
    program.symlink_to(Path(sys.executable).with_name("signal-tee-bot"))
    for folder in ("etc/signal-tee-bot", "etc/credstore", "run", "var/lib/signal-tee-bot"):
        (root / folder).mkdir(parents=True)
    delivered = (DEPLOY / "settings.env").read_text()
    placed = delivered.replace("=/var/", f"={root}/var/").replace("unix:/run/", f"unix:{root}/run/")
    own = {
        "SIGNAL__PHONE_NUMBER": BOT.number,
        "LLM__BASE_URL": here.model.base_url,
        "LLM__MODEL": "fake",
        "ACCESS__POLICY": "open",
        "ATTESTATION__DSTACK_SOCKET": str(root / "no-dstack.sock"),
        "HEALTH__LISTEN": "",
        **settings,
    }
    lines = [f'{name}="{value}"' for name, value in own.items()]
    (root / "etc/signal-tee-bot/.env").write_text("\n".join([placed, *lines]))


def write_secret(here: World, name: str, value: str) -> None:
    """Put a secret where the unit takes it from."""
    (here.folder / f"etc/credstore/signal-tee-bot.{name}").write_text(f"{value}\n")


@asynccontextmanager
async def bot_service(
    handler: Step = echo, *, watchdog_seconds: float | None = None, **settings: str
) -> AsyncIterator[tuple[World, Service]]:
    """Run the bot's unit between a Signal side and a model."""
    async with world(handler) as here:
        lay_out(here, SIGNAL__URL=f"unix:{here.signal.path}", **settings)
        async with running_service(
            "signal-tee-bot", here.folder, watchdog_seconds=watchdog_seconds
        ) as service:
            yield here, service


# The bot ------------------------------------------------------------------------------------------


async def test_once_it_is_ready_the_bot_answers_and_its_status_says_that_it_is_connected() -> None:
    async with bot_service() as (here, service):
        await service.ready()
        await here.signal.say("hello")
        assert (await here.answer()).text.endswith("hello")
        await service.notify.until(lambda: service.notify.statuses[-1:] != [])
        await service.notify.until(lambda: service.notify.statuses[-1].startswith("Connected"))
        assert await service.stop() == "success"
        assert all(json.loads(line)["event"] for line in service.stderr)


@pytest.mark.full
async def test_a_bot_that_cannot_have_its_store_is_never_ready_and_tries_again() -> None:
    async with world() as here:
        lay_out(here)
        (here.folder / "var/lib/signal-tee-bot/conversations.db").mkdir()
        async with running_service("signal-tee-bot", here.folder) as service:
            assert await service.ended(times=2) == "exit-code"
            assert service.notify.lines == []


@pytest.mark.full
async def test_told_to_stop_it_says_so_ends_well_and_is_not_started_again() -> None:
    async with bot_service() as (_, service):
        await service.ready()
        assert await service.stop() == "success"
        assert service.heard[-1] == "STOPPING=1"
        assert len(service.pids) == 1


async def test_told_to_reload_it_reads_its_settings_anew_and_is_ready_again() -> None:
    async with bot_service() as (here, service):
        await service.ready()
        with (here.folder / "etc/signal-tee-bot/.env").open("a") as settings:
            settings.write("\nLOG__LEVEL=debug\n")
        await service.reload()
        await service.notify.line("READY=1", times=2)
        said = [line for line in service.heard if not line.startswith("STATUS=")]
        ready, reloading, since, again = said
        assert (ready, reloading, again) == ("READY=1", "RELOADING=1", "READY=1")
        assert since.startswith("MONOTONIC_USEC=")
        assert await service.stop() == "success"
        assert any("settings.reloaded" in line for line in service.stderr)
        assert len(service.pids) == 1


@pytest.mark.full
async def test_wrong_settings_are_said_and_do_not_have_it_started_again() -> None:
    async with bot_service(ACCESS__POLICY="everybody") as (_, service):
        assert await service.ended() == "exit-code"
        assert any(line.startswith("ACCESS__POLICY") for line in service.stderr)
        assert await service.stop() == "exit-code"
        assert len(service.pids) == 1


@pytest.mark.full
async def test_killed_it_is_started_again_and_answers_what_it_was_at() -> None:
    async with bot_service(script(text("Here I am."))) as (here, service):
        await service.ready()
        service.send_signal(signal.SIGKILL)
        assert await service.ended() == "signal"
        await here.signal.say("hello")
        await service.ready(start=2)
        assert (await here.answer()).text == "Here I am."


@pytest.mark.full
async def test_a_bot_that_hangs_is_ended_by_the_watchdog_says_where_and_answers_once() -> None:
    never = asyncio.Event()
    async with bot_service(
        script(held(never), text("Here I am.")), watchdog_seconds=WATCHDOG_SECONDS
    ) as (here, service):
        await service.notify.line("WATCHDOG=1", times=2)
        await here.signal.say("hello")
        await here.model.wait_for_requests(1)
        service.send_signal(signal.SIGSTOP)
        assert await service.ended() == "watchdog"
        await service.ready(start=2)
        assert (await here.answer()).text == "Here I am."
        assert await service.stop() == "success"
        assert here.answers() == ["Here I am."]
        assert "Fatal Python error: Aborted" in service.stderr
        statuses = [(said.pid, line) for said in service.notify.said for line in said.lines]
        statuses = [(pid, line) for pid, line in statuses if line.startswith("STATUS=")]
        assert all(before != after for before, after in pairwise(statuses))


async def test_secrets_reach_the_bot_and_no_child_of_it() -> None:
    calculate = tool_calls(("calculate", {"expression": "127*43"}))
    command = f"{sys.executable} -m tests.fakes.mcp_notes notes"
    async with world(script(calculate, text("5461"))) as here:
        lay_out(here, SIGNAL__URL=f"unix:{here.signal.path}", MCP__SERVERS__NOTES__COMMAND=command)
        write_secret(here, "llm__api_key", API_KEY)
        write_secret(here, "store__key", STORE_KEY)
        async with running_service(
            "signal-tee-bot", here.folder, watchdog_seconds=WATCHDOG_SECONDS
        ) as service:
            await service.ready()
            await here.signal.say("hello")
            assert (await here.answer()).text == "5461"
            assert here.model.received[-1].headers["authorization"] == f"Bearer {API_KEY}"
            children = list(descendants(service.pids[-1]))
            assert len(children) >= 2  # a sandbox and the server
            for child in children:
                environment = environment_of(child)
                assert not any(
                    word in environment
                    for word in (b"NOTIFY_", b"WATCHDOG_", b"CREDENTIALS_", b"sk-not", b"a key")
                )
            assert await service.stop() == "success"
        store = here.folder / "var/lib/signal-tee-bot/conversations.db"
        assert stat.S_IMODE(store.stat().st_mode) == 0o600
        with pytest.raises(StoreError, match="the key does not fit"):
            async with open_store(store):
                pass
        async with open_store(store, key=STORE_KEY):
            pass


# signal-cli ---------------------------------------------------------------------------------------


async def test_signal_cli_starts_over_the_socket_of_a_killed_one_and_the_bot_finds_it() -> None:
    async with world() as here:
        lay_out(here)
        programs = here.folder / "opt/signal-cli/bin"
        programs.parent.mkdir()
        signal_cli_program.install(programs)
        left_over = here.folder / "run/signal-cli/socket"
        left_over.parent.mkdir()
        left_over.touch()
        async with (
            running_service("signal-cli", here.folder) as signal_cli,
            running_service("signal-tee-bot", here.folder) as bot,
        ):
            await bot.notify.until(lambda: "Connected" in "".join(bot.notify.statuses))
            (start,) = signal_cli_program.starts(programs)
            assert "--config" in start["arguments"]
            assert stat.S_IMODE(left_over.stat().st_mode) == 0o770
            signal_cli.send_signal(signal.SIGKILL)
            assert await signal_cli.ended() == "signal"


@pytest.mark.full
async def test_a_signal_cli_that_hangs_is_started_again_and_the_bot_finds_it() -> None:
    async with world() as here:
        lay_out(here)
        programs = here.folder / "opt/signal-cli/bin"
        (here.folder / "usr/local/bin").mkdir(parents=True)
        (here.folder / "run/signal-cli").mkdir()
        programs.parent.mkdir()
        signal_cli_program.install(programs)
        install_impatient(here.folder / "usr/local/bin")
        async with (
            running_service("signal-cli", here.folder) as signal_cli,
            running_service("signal-cli-alive", here.folder) as alive,
            running_service("signal-tee-bot", here.folder) as bot,
        ):
            await bot.notify.until(lambda: "Connected" in "".join(bot.notify.statuses))
            signal_cli.send_signal(signal.SIGSTOP)
            assert await signal_cli.ended() == "signal"
            # Each start has a message that waited at Signal.
            await until(lambda: len(signal_cli_program.texts_sent(programs)) == 2)
            assert len(signal_cli.pids) == 2
            assert len(alive.pids) == 1


# The files themselves -----------------------------------------------------------------------------


def run(*command: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        command,
        env={"PATH": "/usr/local/bin:/usr/bin:/bin", **variables},
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS,
        check=False,
    )


@needs_systemd
@pytest.mark.parametrize("name", UNITS)
def test_systemd_finds_nothing_wrong_with_a_unit(name: str, tmp_path: Path) -> None:
    for unit in UNITS:
        text = (DEPLOY / f"{unit}.service").read_text()
        placed = text.replace("/opt/signal-tee-bot/bin/signal-tee-bot", "/bin/true")
        placed = placed.replace("/opt/signal-cli/bin/signal-cli", "/bin/true")
        placed = placed.replace("/usr/local/bin/signal-cli-alive", "/bin/true")
        (tmp_path / f"{unit}.service").write_text(placed)
    options = ("--man=no", "--recursive-errors=no")
    verified = run("systemd-analyze", "verify", *options, tmp_path / f"{name}.service")
    assert verified.returncode == 0, verified.stderr
    assert name not in verified.stderr


@needs_systemd
def test_systemd_finds_nothing_wrong_with_the_service_of_an_mcp_server(tmp_path: Path) -> None:
    for file in (DEPLOY / "mcp").iterdir():
        (tmp_path / file.name).write_text(file.read_text().replace("/usr/bin/npx", "/bin/true"))
    verified = run("systemd-analyze", "verify", "--man=no", *tmp_path.iterdir())
    assert verified.returncode == 0, verified.stderr
    assert "mcp-notes" not in verified.stderr


def test_an_mcp_server_of_its_own_has_another_user_and_only_the_bot_reaches_it() -> None:
    service = Unit.read(MCP, Path("/"))
    assert service.one("DynamicUser") == "yes"
    assert service.one("User") not in USERS
    assert (service.one("StandardInput"), service.one("StandardOutput")) == ("socket", "socket")
    assert service.one("StandardError") == "null"
    opened = (DEPLOY / "mcp/mcp-notes.socket").read_text().splitlines()
    user = Unit.read("signal-tee-bot", Path("/")).one("User")
    assert {"Accept=yes", f"SocketUser={user}", "SocketMode=0600"} <= set(opened)


@needs_systemd
@pytest.mark.parametrize("name", [*UNITS, MCP])
def test_a_unit_is_locked_in(name: str) -> None:
    """The threshold is ten times the exposure level that `systemd-analyze security` shows."""
    unit = DEPLOY / f"{name}.service"
    judged = run("systemd-analyze", "security", "--offline=true", "--threshold=15", unit)
    assert judged.returncode == 0, judged.stdout


def test_the_bot_can_change_no_control_group() -> None:
    unit = Unit.read("signal-tee-bot", Path("/"))
    assert unit.one("ProtectControlGroups") == "yes"
    assert not [path for path in unit.all("ReadWritePaths") if "cgroup" in path]


@needs_systemd
@pytest.mark.parametrize("name", [*UNITS, MCP])
def test_a_unit_s_processes_cannot_reach_into_others(name: str) -> None:
    allowed = allowed_calls(Unit.read(name, Path("/")).all("SystemCallFilter"))
    assert {"read", "clone3", "execve"} <= allowed
    assert not allowed & INTO_OTHERS
    locks = {"landlock_create_ruleset", "landlock_restrict_self", "seccomp"}
    assert name != "signal-tee-bot" or locks <= allowed  # by which sandboxes lock themselves in


@needs_systemd
def test_the_bots_unit_allows_what_a_jail_is_made_of_and_what_programs_in_it_may_do() -> None:
    allowed = allowed_calls(Unit.read("signal-tee-bot", Path("/")).all("SystemCallFilter"))
    makes = {
        "close_range",
        "pidfd_open",
        "prctl",
        "prlimit64",
        "sched_setscheduler",
        "setpgid",
    }
    assert not makes - allowed
    # Of these, C libraries use others (prlimit64), or programs do without.
    assert WITHOUT_NAMESPACES.keys() - allowed <= {"mincore", "setrlimit"}


def allowed_calls(filters: tuple[str, ...]) -> frozenset[str]:
    """Return what is left of system calls by systemd.exec(5), SystemCallFilter=."""
    allowed: frozenset[str] = frozenset()
    for one in filters:
        named = frozenset[str]().union(*(calls_of(word) for word in one.lstrip("~").split()))
        allowed = allowed - named if one.startswith("~") else allowed | named
    return allowed


@cache
def calls_of(word: str) -> frozenset[str]:
    if not word.startswith("@"):
        return frozenset({word})
    listed = run("systemd-analyze", "syscall-filter", word).stdout.splitlines()
    members = (line.strip() for line in listed if line.startswith(" ") and "#" not in line)
    return frozenset[str]().union(*(calls_of(member) for member in members))


@pytest.mark.skipif(shutil.which("systemd-sysusers") is None, reason="systemd is not installed")
def test_the_bots_user_is_in_the_group_that_reaches_signal_cli(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    made = run("systemd-sysusers", f"--root={tmp_path}", DEPLOY / "sysusers.d/signal-tee-bot.conf")
    if made.returncode != 0:
        pytest.skip(f"users cannot be made here: {made.stderr}")
    groups = (tmp_path / "etc/group").read_text().splitlines()
    assert [line for line in groups if line.endswith(":signal-tee-bot")] == [
        line for line in groups if line.startswith("signal-cli:")
    ]
    users = (tmp_path / "etc/passwd").read_text()
    for name in USERS:
        assert Unit.read(name, tmp_path).one("User") == name
        assert f"\n{name}:" in f"\n{users}"


def test_a_command_runs_as_the_service_does_with_its_secrets_and_arguments(tmp_path: Path) -> None:
    store = tmp_path / "credstore"
    store.mkdir()
    for name in ("signal-tee-bot.store__key", "another-service.key"):
        (store / name).touch()
    script = tmp_path / "signal-tee-bot"
    script.write_text(
        (DEPLOY / "signal-tee-bot").read_text().replace("/etc/credstore/", f"{store}/")
    )
    played = tmp_path / "systemd-run"
    played.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    played.chmod(0o700)
    said = run("sh", script, "backup", "a b.db", PATH=f"{tmp_path}:/usr/bin:/bin")
    assert (said.returncode, said.stderr) == (0, "")
    *options, program, command, file = said.stdout.splitlines()
    assert (program, command, file) == (
        "/opt/signal-tee-bot/bin/signal-tee-bot",
        "backup",
        "a b.db",
    )
    secrets = [option for option in options if "LoadCredential" in option]
    assert secrets == [f"--property=LoadCredential=store__key:{store}/signal-tee-bot.store__key"]
    unit = Unit.read("signal-tee-bot", tmp_path)
    assert f"--uid={unit.one('User')}" in options
    assert f"--working-directory={unit.one('WorkingDirectory')}" in options
    for name in ("UMask", "RestrictNamespaces"):
        assert f"--property={name}={unit.one(name)}" in options
