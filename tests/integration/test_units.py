"""The units of systemd, judged by its own programs."""

import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from tests.fakes.service_runner import DEPLOY, Unit
from tools.sandbox.jail.calls import WITHOUT_NAMESPACES

USERS: Final = ("signal-tee-bot", "signal-cli")
UNITS: Final = (*USERS, "signal-cli-alive")
MCP: Final = "mcp/mcp-notes@"
INTO_OTHERS: Final = frozenset(
    {"kcmp", "pidfd_getfd", "process_madvise", "process_vm_readv", "process_vm_writev", "ptrace"}
)
"""System calls that reach into another process."""
MAKES_A_JAIL: Final = frozenset(
    [
        "close_range",
        "landlock_create_ruleset",
        "landlock_restrict_self",
        "pidfd_open",
        "prctl",
        "prlimit64",
        "sched_setscheduler",
        "seccomp",
        "setpgid",
    ]
)
COMMAND_SECONDS: Final = 30.0

needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed"
)


def run(*command: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        env={"PATH": "/usr/local/bin:/usr/bin:/bin", **variables},
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS,
        check=False,
    )


@needs_systemd
def test_systemd_finds_units_well_written_and_locked_in(tmp_path: Path) -> None:
    """The threshold is ten times the exposure level that `systemd-analyze security` shows."""
    files = [*DEPLOY.glob("*.service"), *(DEPLOY / "mcp").iterdir()]
    for file in files:
        text = re.sub(r"/(opt|usr/local|usr)/\S*bin/\S+", "/bin/true", file.read_text())
        (tmp_path / file.name).write_text(text)
    copies = [tmp_path / file.name for file in files]
    options = ("--man=no", "--recursive-errors=no")
    verified = run("systemd-analyze", "verify", *options, *copies)
    assert verified.returncode == 0, verified.stderr
    assert not any(file.stem in verified.stderr for file in files)
    for name in (*UNITS, MCP):
        unit = DEPLOY / f"{name}.service"
        judged = run("systemd-analyze", "security", "--offline=true", "--threshold=15", unit)
        assert judged.returncode == 0, judged.stdout


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
def test_a_unit_s_processes_cannot_reach_into_others(name: str) -> None:
    allowed = allowed_calls(Unit.read(name, Path("/")).all("SystemCallFilter"))
    assert {"read", "clone3", "execve"} <= allowed
    assert not allowed & INTO_OTHERS


@needs_systemd
def test_the_units_system_calls_suffice_for_jails_and_their_programs() -> None:
    allowed = allowed_calls(Unit.read("signal-tee-bot", Path("/")).all("SystemCallFilter"))
    assert allowed >= MAKES_A_JAIL
    # C libraries call others instead (prlimit64), or programs do without.
    assert WITHOUT_NAMESPACES.keys() - allowed <= {"mincore", "setrlimit"}


def allowed_calls(filters: tuple[str, ...]) -> frozenset[str]:
    """Return the allowed system calls by the rules of systemd.exec(5), SystemCallFilter=."""
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
