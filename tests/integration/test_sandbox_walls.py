"""Workers that try to break out: each deed fails or ends the worker, and is logged."""

import asyncio
import json
import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace

import pytest
from structlog.testing import capture_logs
from structlog.typing import EventDict

from benchmarks.loop_stall import stalls
from tests.fakes.hostile_worker import ARM, FATAL, REFUSED, X86_ONLY
from tests.processes import end_of
from tools.sandbox import pool
from tools.sandbox.errors import SandboxBug, WorkError, WorkLost, WorkTimeout
from tools.sandbox.limits import Limits
from tools.sandbox.pool import Sandbox

AS_THE_BOTS_USER = "tests.fakes.hostile_worker"
AS_NOBODY = "tests.fakes.hostile_nobody"
USERS = [
    AS_THE_BOTS_USER,
    pytest.param(
        AS_NOBODY,
        marks=pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user"),
    ),
]
SMALL = Limits(memory_bytes=128 * 2**20)
HASTY = Limits(memory_bytes=128 * 2**20, call_seconds=0.5)
END_THE_PROCESS = [*FATAL, *([] if ARM else X86_ONLY)]
MAX_STALL_SECONDS = 0.1
WORST = [
    "close and connect",
    "socket AF_UNIX",
    "fork",
    "execve",
    "kill the bot",
    "ptrace",
    "process_vm_readv",
    "pidfd_open",
    "thread",
    "io_uring_setup",
]


async def failure_of(sandbox: Sandbox, deed: str) -> Exception:
    """Return how a deed ended; it must not have worked."""
    try:
        done = await sandbox.call(deed)
    except (SandboxBug, WorkError) as error:
        return error
    pytest.fail(f"{deed}: {done}")


def events(logs: Iterable[EventDict]) -> Iterator[tuple[str, str]]:
    for log in logs:
        if log["log_level"] in {"warning", "error"}:
            yield log["event"], log.get("error", "")


@pytest.mark.parametrize("user", USERS)
async def test_harmless_attempts_of_libraries_fail_and_are_logged(user: str) -> None:
    async with Sandbox(user, SMALL) as sandbox:
        pid = await sandbox.call("pid")
        for deed in REFUSED:
            with capture_logs() as logs:
                assert isinstance(await failure_of(sandbox, deed), SandboxBug), deed
            [(event, error)] = events(logs)
            assert event == "sandbox.bug"
            assert error in {"PermissionError", "OSError"}, deed
        assert await sandbox.call("pid") == pid


async def test_without_walls_the_same_deeds_work() -> None:
    deeds = [
        "open /etc/passwd as Python does",
        "openat",
        "the bot's environment",
        "read what a library left open",
        "a path below a descriptor",
        "map a file",
        "socket AF_INET",
        "socket AF_UNIX",
        "memfd_create",
        "fork",
        "thread",
        "kill the bot",
        "process_vm_readv",
        "pidfd_open",
        "ITIMER_PROF",
        "map memory to run",
    ]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", AS_THE_BOTS_USER, "without-walls", *deeds),
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate()
    assert output.split() == [b"done"] * len(deeds)


@pytest.mark.parametrize(
    ("user", "deeds"),
    [
        (AS_THE_BOTS_USER, WORST),
        *(
            pytest.param(user, END_THE_PROCESS, marks=pytest.mark.full)
            for user in (AS_THE_BOTS_USER, AS_NOBODY)
        ),
    ],
)
async def test_hostile_system_calls_end_the_worker_at_once_and_are_logged(
    user: str, deeds: list[str]
) -> None:
    if user == AS_NOBODY and os.geteuid() != 0:
        pytest.skip("only root can become another user")
    async with Sandbox(user, SMALL) as sandbox:
        for deed in deeds:
            with capture_logs() as logs:
                assert "tried to break out" in str(await failure_of(sandbox, deed)), deed
            assert list(events(logs)) == [("sandbox.escape_stopped", "")], deed
        assert (await sandbox.call("pid")).isdigit()


async def test_a_worker_that_aborts_is_lost_and_no_attacker() -> None:
    async with Sandbox(AS_THE_BOTS_USER, SMALL) as sandbox:
        with capture_logs() as logs:
            assert isinstance(await failure_of(sandbox, "abort"), WorkLost)
        assert list(events(logs)) == [("sandbox.worker_lost", "")] * 2
        assert (await sandbox.call("pid")).isdigit()


@pytest.mark.parametrize("deed", ["hang behind blocked signals", "storm of timers"])
async def test_a_worker_that_outlasts_signals_is_stopped(deed: str) -> None:
    async with Sandbox(AS_THE_BOTS_USER, HASTY) as sandbox:
        with capture_logs() as logs:
            assert isinstance(await failure_of(sandbox, deed), WorkTimeout)
        assert list(events(logs)) == [("sandbox.worker_stopped", "")]
        assert (await sandbox.call("pid")).isdigit()


@pytest.mark.parametrize(
    "deed", ["gigabytes", "lines without end", "announce gigabytes", "use what is not there"]
)
async def test_a_worker_that_babbles_or_crashes_is_replaced(deed: str) -> None:
    async with Sandbox(AS_THE_BOTS_USER, SMALL) as sandbox:
        with capture_logs() as logs:
            assert "ended before it was done" in str(await failure_of(sandbox, deed))
        assert list(events(logs)) == [("sandbox.worker_lost", "")] * 2
        assert (await sandbox.call("pid")).isdigit()


async def test_a_reply_that_is_hard_to_parse_does_not_stop_the_event_loop() -> None:
    large = Limits(call_seconds=5, line_bytes=32 * 2**20, reply_bytes=32 * 2**20)
    async with Sandbox(AS_THE_BOTS_USER, large) as sandbox, stalls() as longest:
        assert isinstance(await failure_of(sandbox, "brackets"), WorkError)
    assert longest.seconds < MAX_STALL_SECONDS


async def test_all_memory_there_is_stays_out_of_reach() -> None:
    async with Sandbox(AS_THE_BOTS_USER, SMALL) as sandbox:
        assert "more memory than it may have" in str(await failure_of(sandbox, "all memory"))
        assert isinstance(await failure_of(sandbox, "map more than there is"), SandboxBug)
        assert (await sandbox.call("pid")).isdigit()


async def test_replies_written_ahead_of_time_are_not_taken_for_those_of_the_next_calls() -> None:
    async with Sandbox(AS_THE_BOTS_USER, SMALL) as sandbox:
        with capture_logs():
            assert isinstance(await failure_of(sandbox, "answer twice"), WorkError)
        async with asyncio.TaskGroup() as calls:
            answers = [calls.create_task(sandbox.call("pid")) for _ in range(4)]
        assert all(answer.result().isdigit() for answer in answers)


async def test_calls_that_hang_in_every_worker_cost_the_next_one_only_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pool, "QUEUE_SECONDS", 0.3)
    async with Sandbox(AS_THE_BOTS_USER, HASTY) as sandbox:
        await asyncio.gather(sandbox.call("pid"), sandbox.call("pid"))  # both are warm
        async with asyncio.TaskGroup() as calls:
            for _ in range(2):
                calls.create_task(failure_of(sandbox, "hang behind blocked signals"))
            honest = calls.create_task(sandbox.call("pid"))
        assert honest.result().isdigit()


async def test_a_worker_that_stays_although_it_is_idle_is_ended() -> None:
    async with Sandbox(AS_THE_BOTS_USER, replace(SMALL, idle_seconds=0.05)) as sandbox:
        pid = await sandbox.call("linger")
        await end_of(int(pid))
        assert await sandbox.call("pid") != pid


@pytest.mark.parametrize("deed", ["name a bug by a text", "name a place by a text"])
async def test_worker_cannot_write_requests_into_the_log(deed: str) -> None:
    async with Sandbox(AS_THE_BOTS_USER, SMALL) as sandbox:
        with capture_logs() as logs:
            await failure_of(sandbox, deed)
        assert list(events(logs))
        assert "Eve" not in str(logs)
        assert (await sandbox.call("pid")).isdigit()


async def on_a_machine_without(
    walls: str, demand: str, deeds: Iterable[str]
) -> dict[str, list[str]]:
    """Return the answers of a sandbox there, and the walls that the log calls missing."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.fakes.lacking_machine", walls),
        *(sys.executable, "-m", "tests.fakes.sandbox_caller", demand, AS_THE_BOTS_USER, *deeds),
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate()
    answer: dict[str, list[str]] = json.loads(output)
    return answer


@pytest.mark.parametrize("missing", ["seccomp", "seccomp!"])
async def test_required_walls_without_seccomp_run_no_sandbox(missing: str) -> None:
    answer = await on_a_machine_without(missing, "required", ["pid", "openat"])
    for refusal in answer["outcomes"]:
        assert refusal.startswith("ToolUnavailable: This needs a sandbox, and this machine cannot")
        assert refusal.endswith("it lacks seccomp (SANDBOX=required).")
    assert answer["logged"] == ["seccomp"]


async def test_seccomp_alone_is_enough_where_walls_are_required() -> None:
    deeds = ["pid", "openat", "kill the bot", "pid", "pid"]
    answer = await on_a_machine_without("Landlock,namespaces", "required", deeds)
    first, opened, killed, second, third = answer["outcomes"]
    assert first.isdigit()
    assert opened == "SandboxBug: "
    assert "tried to break out" in killed
    assert second == third != first
    assert answer["logged"] == ["Landlock", "namespaces"]


BY_NUMBER = ["kill the bot", "ptrace", "process_vm_readv", "pidfd_open"]
BY_DESCRIPTOR = ["openat", "the bot's environment", "socket AF_INET", "memfd_create"]
OTHERS = ["setpgid", "mount", "sethostname"]


@pytest.mark.parametrize(
    ("walls", "deeds", "logged"),
    [
        ("seccomp", [*BY_DESCRIPTOR, *BY_NUMBER, *OTHERS], "seccomp"),
        ("seccomp,Landlock", BY_NUMBER, "Landlock, seccomp"),
    ],
)
async def test_without_seccomp_other_walls_keep_all_else_out_of_reach(
    walls: str, deeds: list[str], logged: str
) -> None:
    answer = await on_a_machine_without(walls, "available", deeds)
    assert answer["outcomes"] == ["SandboxBug: "] * len(deeds)
    assert answer["logged"] == [logged]


async def test_without_seccomp_a_worker_that_leaves_its_group_and_its_parent_is_ended() -> None:
    deed = "leave its group and its parent"
    answer = await on_a_machine_without("seccomp", "available", [deed, "pid"])
    [first, second] = answer["outcomes"]
    assert first == second
