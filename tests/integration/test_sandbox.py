"""Sandboxes that hang, swell, misbehave or die, without harm to the bot."""

import asyncio
import json
import os
import resource
import signal
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import monotonic

import pytest
from structlog.testing import capture_logs

from tests.executing import an_executor, often, run_call
from tests.fakes.sandbox_caller import descendants
from tests.processes import end_of
from tools.base import Caller, ToolRequest, ToolResult
from tools.catalog import open_tools
from tools.executor import ToolExecutor
from tools.sandbox.errors import SandboxBug, WorkError, WorkTimeout
from tools.sandbox.limits import LIFE_CPU_SECONDS, MEMORY_BYTES
from tools.sandbox.pool import CALL_SECONDS, Limits, Sandbox
from tools.settings import ToolsSettings

PROGRAM = "tests.fakes.sandbox_program"
LIMITS = {
    "AS": MEMORY_BYTES,
    "CORE": 0,
    "CPU": LIFE_CPU_SECONDS,
    "FSIZE": 0,
    "NOFILE": 0,
    "NPROC": 0,
}
BUSY_SECONDS = 20.0
"""How much longer a busy machine may take."""

ATTACKS = [
    "9**9**9",
    "factorial(10**8)",
    "round(5, -10^9)",
    "'a' * 10**12",
    "().__class__.__bases__[0].__subclasses__()",
    "__import__('os').system('id')",
    "(" * 100_000,
    "(" * 499 + "1" + ")" * 499,
    "1" * 10_000_000,
    "factorial(3000)*" * 60 + "1",
    "1e9**1e9 m",
    "10^999999999 m",
    "@import /etc/passwd",
    "5 m in __import__('os')",
    "nautical " * 110,
    "2026-01-01" + " + 9999999 years" * 50,
    "today " * 160,
]


async def calculate(executor: ToolExecutor, expression: str) -> ToolResult:
    return await called(executor, "calculate", expression=expression)


async def called(executor: ToolExecutor, tool: str, **arguments: object) -> ToolResult:
    return await run_call(
        executor,
        ToolRequest("call_1", tool, json.dumps(arguments), Caller("someone")),
    )


def limit_of(pid: int, name: str) -> int:
    """Return a limit that can no longer be raised."""
    soft, hard = resource.prlimit(pid, getattr(resource, f"RLIMIT_{name}"))
    assert soft == hard
    return soft


def descriptors_of(pid: int | str) -> set[str]:
    return {file.name for file in Path(f"/proc/{pid}/fd").iterdir()}


def inside(pid: str) -> int:
    """Return the process that works behind a worker's walls, as seen from here."""
    *_, last = descendants(int(pid))
    return last


def is_running(pid: str) -> bool:
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    return True


async def test_attacks_are_refused_in_time_while_another_calculation_goes_on() -> None:
    async with open_tools(ToolsSettings()) as registry:
        executor = an_executor(map(often, registry.tools))
        for attack in ATTACKS:
            started = monotonic()
            async with asyncio.TaskGroup() as chats:
                attacking = chats.create_task(calculate(executor, attack))
                honest = chats.create_task(calculate(executor, "127*43"))
            assert attacking.result().outcome in {"failed", "invalid"}, attack[:50]
            assert "process ended" not in attacking.result().content, attack[:50]
            assert honest.result().content == "5461"
            assert monotonic() - started < CALL_SECONDS + BUSY_SECONDS


@pytest.mark.parametrize(
    ("expression", "answer"),
    [
        ("1" + "+1" * 499, "500"),
        ("-" * 990 + "1", "1"),
        ("2" + "**1" * 40, "2"),
        ("max(" + "1," * 490 + "2)", "2"),
    ],
)
async def test_long_honest_calculations_are_done(expression: str, answer: str) -> None:
    async with open_tools(ToolsSettings()) as registry:
        result = await calculate(an_executor(map(often, registry.tools)), expression)
    assert result.content == answer


async def test_units_are_converted_in_a_sandbox_too() -> None:
    async with open_tools(ToolsSettings()) as registry:
        executor = an_executor(map(often, registry.tools))
        miles = await called(executor, "calculate", expression="5 km in miles")
        furlog = await called(executor, "calculate", expression="5 furlog to m")
        height = await called(executor, "calculate", expression=" 180 cm  in ft and in ")
        inches = await called(executor, "calculate", expression="convert 1,000.5 in in cm")
    assert miles.content == "5 km = 3.10685596119 mi"
    assert furlog.content.startswith("There is no unit 'furlog'.")
    assert height.content == "180 cm = 5 ft 10.8661417323 in"
    assert inches.content == "1000.5 in = 2541.27 cm"


async def test_dates_are_worked_out_with_the_clock_of_this_machine() -> None:
    async with open_tools(ToolsSettings()) as registry:
        executor = an_executor(map(often, registry.tools))
        later = await called(executor, "date_time", start="2026-11-22", add="6 weeks")
        today = await called(executor, "date_time", start="today")
        between = await called(executor, "date_time", start="2026-01-01", until="2026-01-03")
        wrong = await called(executor, "date_time", start="soon")
    now = datetime.now(UTC).date()
    assert later.content == "2027-01-03 (Sunday)"
    assert str(now) in today.content or str(now - timedelta(days=1)) in today.content
    assert between.content.endswith(": 2 days")
    assert "send today, now, YYYY-MM-DD" in wrong.content


@pytest.mark.parametrize("module", ["tools.calculator.tool", "tools.calculator.arithmetic"])
async def test_neither_the_bot_nor_arithmetic_loads_the_table_of_units(module: str) -> None:
    program = f"import sys, {module}; print('pint' in sys.modules, 'dateutil' in sys.modules)"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    assert output.split() == [b"False", b"False"]


async def test_a_thousand_calculations_at_once_are_all_done() -> None:
    async with open_tools(ToolsSettings()) as registry:
        executor = an_executor(map(often, registry.tools))
        async with asyncio.TaskGroup() as chats:
            calls = [chats.create_task(calculate(executor, f"{n} * 2")) for n in range(1_000)]
    assert [call.result().content for call in calls] == [str(n * 2) for n in range(1_000)]


async def test_hanging_call_is_stopped_and_delays_no_other_call() -> None:
    async with Sandbox(PROGRAM) as sandbox:
        async with asyncio.TaskGroup() as calls:
            hanging = calls.create_task(stopped(sandbox))
            for _ in range(50):
                await sandbox.call("pid")
            assert not hanging.done()
        assert CALL_SECONDS <= hanging.result() < CALL_SECONDS + BUSY_SECONDS
        await sandbox.call("pid")


async def stopped(sandbox: Sandbox) -> float:
    """Return the seconds after which a hanging call was stopped."""
    started = monotonic()
    with pytest.raises(WorkTimeout, match="took over 2 seconds"):
        await sandbox.call("hang")
    return monotonic() - started


async def test_the_inside_has_an_empty_environment_a_session_of_its_own_and_bounds() -> None:
    async with Sandbox(PROGRAM) as sandbox:
        assert set(json.loads(await sandbox.call("environment"))) <= {"LC_CTYPE"}
        pid = await sandbox.call("pid")
        for process in (int(pid), *descendants(int(pid))):
            assert os.getsid(process) == os.getpgid(process) == int(pid)
            assert {name: limit_of(process, name) for name in LIMITS} == LIMITS


async def test_worker_sees_no_other_process_and_ends_with_its_parent() -> None:
    async with Sandbox(PROGRAM) as sandbox:
        assert await sandbox.call("number inside") == "2"
        pid = await sandbox.call("pid")
        worker = inside(pid)
        os.kill(int(pid), signal.SIGKILL)
        await end_of(worker)
        assert await sandbox.call("pid") != pid


@pytest.mark.skipif(os.geteuid() != 0, reason="only root looks at another process's descriptors")
async def test_the_inside_has_two_pipes_and_no_other_descriptor() -> None:
    async with Sandbox(PROGRAM) as sandbox:
        pid = await sandbox.call("pid")
        assert descriptors_of(inside(pid)) == {"0", "1"}
        async with asyncio.timeout(30):
            while descriptors_of(pid):  # noqa: ASYNC110 - it closes its own a moment later
                await asyncio.sleep(0.01)


async def test_a_bug_inside_is_logged_by_its_type_and_place_without_its_text() -> None:
    async with Sandbox(PROGRAM) as sandbox:
        assert await sandbox.call("pid")
        with capture_logs() as logs, pytest.raises(SandboxBug) as bug:
            await sandbox.call("fail")
    assert str(bug.value) == ""
    assert [(log["event"], log["error"]) for log in logs] == [("sandbox.bug", "KeyError")]
    assert logs[0]["where"][-1].startswith("fail:")
    assert "1234567" not in str(logs)


async def test_expected_failures_inside_are_short_errors_outside() -> None:
    async with Sandbox(PROGRAM) as sandbox:
        with pytest.raises(WorkError, match=r"^No\.$"):
            await sandbox.call("refuse")
        with pytest.raises(WorkError, match="The result is too long"):
            await sandbox.call("long")
        with pytest.raises(WorkError) as complaint:
            await sandbox.call("refuse at length")
    assert len(str(complaint.value)) == 2_000


@pytest.mark.parametrize("deed", ["exit", "garbage"])
async def test_a_process_that_dies_or_babbles_is_replaced(deed: str) -> None:
    async with Sandbox(PROGRAM) as sandbox:
        pid = await sandbox.call("pid")
        with pytest.raises(WorkError, match="ended before it was done"):
            await sandbox.call(deed)
        assert await sandbox.call("pid") != pid
        assert not is_running(pid)


async def test_a_process_that_has_used_up_its_time_ends_itself_and_is_replaced() -> None:
    almost_nothing_left = Limits(call_seconds=LIFE_CPU_SECONDS - 0.4)
    async with Sandbox(PROGRAM, almost_nothing_left) as sandbox:
        pid = await sandbox.call("work hard")
        await end_of(int(pid))
        assert await sandbox.call("pid") != pid


async def test_a_process_gets_no_request_when_its_life_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Sandbox(PROGRAM) as sandbox:
        pid = await sandbox.call("pid")
        monkeypatch.setattr("tools.sandbox.pool.LIFE_SECONDS", 0.0)
        assert await sandbox.call("pid") != pid
        assert not is_running(pid)


async def test_a_process_killed_between_calls_is_replaced_unnoticed() -> None:
    async with Sandbox(PROGRAM) as sandbox:
        pid = await sandbox.call("pid")
        os.killpg(int(pid), signal.SIGKILL)
        assert await sandbox.call("pid") != pid


async def test_a_process_killed_during_a_call_is_replaced_and_the_call_answered() -> None:
    async with Sandbox(PROGRAM) as sandbox:
        pid = await sandbox.call("pid")
        os.killpg(int(pid), signal.SIGSTOP)  # so that the call is certainly under way
        async with asyncio.TaskGroup() as calls:
            call = calls.create_task(sandbox.call("pid"))
            await asyncio.sleep(0)
            os.killpg(int(pid), signal.SIGKILL)
        assert call.result() != pid


async def test_a_cancelled_call_leaves_no_process_behind() -> None:
    async with Sandbox(PROGRAM) as sandbox:
        pid = await sandbox.call("pid")
        async with asyncio.TaskGroup() as calls:
            call = calls.create_task(sandbox.call("hang"))
            await asyncio.sleep(0)
            call.cancel()
        assert not is_running(pid)
        assert await sandbox.call("pid") != pid


async def test_closing_ends_idle_stopped_and_busy_processes() -> None:
    async with asyncio.TaskGroup() as calls:
        async with Sandbox(PROGRAM) as sandbox:
            busy = await sandbox.call("pid")
            call = calls.create_task(interrupted(sandbox))
            await asyncio.sleep(0)
            stopped = await sandbox.call("pid")
            os.killpg(int(stopped), signal.SIGSTOP)
            assert busy != stopped
    assert call.done()
    assert not is_running(busy)
    assert not is_running(stopped)


async def interrupted(sandbox: Sandbox) -> None:
    with pytest.raises(WorkError, match="The program is stopping"):
        await sandbox.call("hang")


async def test_a_program_that_cannot_start_is_an_error_that_is_told() -> None:
    async with Sandbox("tests.fakes.there_is_no_such_program") as sandbox:
        with pytest.raises(WorkError, match="ended before it was done"):
            await sandbox.call("pid")


async def test_a_busy_process_does_not_outlive_a_bot_that_was_killed() -> None:
    owner = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.fakes.sandbox_owner", stderr=asyncio.subprocess.PIPE
    )
    assert owner.stderr is not None
    worker = os.pidfd_open(int(await owner.stderr.readline()))
    try:
        gone = asyncio.Event()
        asyncio.get_running_loop().add_reader(worker, gone.set)
        assert not gone.is_set()
        owner.kill()
        async with asyncio.timeout(30):
            await gone.wait()
        await owner.wait()
    finally:
        asyncio.get_running_loop().remove_reader(worker)
        os.close(worker)


async def test_each_sandbox_has_limits_of_its_own() -> None:
    limits = Limits(memory_bytes=300 * 2**20, call_seconds=0.2, reply_bytes=200_000)
    async with Sandbox(PROGRAM, limits) as sandbox:
        pid = int(await sandbox.call("pid"))
        assert limit_of(pid, "AS") == 300 * 2**20
        assert len(await sandbox.call("long")) == 100_000  # too long by default
        with pytest.raises(WorkError, match=r"took over 0\.2 seconds"):
            await sandbox.call("hang")
        with pytest.raises(WorkError, match="too long to be worked on"):
            await sandbox.call("x" * 200_000)
