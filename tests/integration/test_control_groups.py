"""Control groups of jails, as far as this machine has some; and what holds where it has none."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from sandbox.jail.control_groups import ControlGroup, ControlGroups, Controller
from sandbox.jail.jail import Jail, Kind
from sandbox.jail.program import THE_SCRIPT, Bounds, Ended, Program, Stopped
from sandbox.jail.watch import processes_of
from tests.integration.test_jail import HOGS, KINDS
from tests.integration.test_spawned import until
from tools.commands.machine import this_machine

MEGABYTE = 2**20


async def groups_here() -> ControlGroups:
    """Return what makes groups, where this machine lets it."""
    groups = await ControlGroups.open()
    if groups is None:
        pytest.skip("no control group was handed over here")
    return groups


async def no_groups() -> None:
    return None


class Kept:
    """Makes groups and remembers them."""

    def __init__(self, groups: ControlGroups) -> None:
        self._groups = groups
        self.controllers = groups.controllers
        self.made: list[ControlGroup] = []

    def make(self, bounds: Bounds) -> ControlGroup:
        self.made.append(self._groups.make(bounds))
        return self.made[-1]


def jail_in(groups: Kept, kind: Kind) -> Jail:
    async def opened() -> ControlGroups | None:
        return groups  # type: ignore[return-value]

    return Jail(this_machine(), [kind], opened)


def own_children() -> list[int]:
    return [process for process in processes_of(os.getpid()) if process != os.getpid()]


@KINDS
async def test_all_that_a_command_starts_is_in_its_group_which_is_gone_at_its_end(
    tmp_path: Path, kind: Kind
) -> None:
    groups = Kept(await groups_here())
    script = "(setsid sleep 60 &) ; sleep 60 & touch begun; wait"
    jail = jail_in(groups, kind)
    running = asyncio.create_task(jail.run(Program(("sh", THE_SCRIPT), tmp_path, script), Bounds()))
    await until((tmp_path / "begun").exists)
    group = groups.made[-1]
    await until(lambda: set(own_children()) <= set(group.processes()))
    assert len(list(group.processes())) >= 3
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not any(made.path.exists() for made in groups.made)
    assert own_children() == []


@KINDS
@pytest.mark.parametrize("milliseconds", [0, 2, 5, 10, 20])
async def test_a_start_that_is_given_up_leaves_no_group(
    tmp_path: Path, kind: Kind, milliseconds: int
) -> None:
    groups = Kept(await groups_here())
    jail = jail_in(groups, kind)
    await jail.kind(tmp_path)
    program = Program(("sh", THE_SCRIPT), tmp_path, "sleep 60")
    running = asyncio.create_task(jail.run(program, Bounds()))
    await asyncio.wait({running}, timeout=milliseconds / 1_000)
    running.cancel()
    await asyncio.wait({running})
    assert not any(made.path.exists() for made in groups.made)
    assert own_children() == []


BOT_THAT_IS_KILLED = """
import asyncio, os, signal, sys
from subprocess import DEVNULL
from sandbox.jail.control_groups import ControlGroups
from sandbox.jail.program import Bounds

async def main():
    group = (await ControlGroups.open()).make(Bounds())
    await asyncio.create_subprocess_exec(*group.entering(["sleep", "60"]), stdout=DEVNULL)
    while not list(group.processes()):
        await asyncio.sleep(0.01)
    print(group.path, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


def there(*paths: Path) -> list[Path]:
    return [path for path in paths if path.exists()]


async def test_what_a_killed_bot_leaves_is_ended_and_removed_by_the_next_one() -> None:
    groups = await groups_here()
    in_use = groups.make(Bounds())
    killed = await asyncio.create_subprocess_exec(
        sys.executable, "-c", BOT_THAT_IS_KILLED, stdout=asyncio.subprocess.PIPE
    )
    assert killed.stdout is not None
    left = Path((await killed.stdout.readline()).decode().strip())
    assert await killed.wait() == -9
    assert await ControlGroups.open()
    assert there(left, in_use.path) == [in_use.path]
    await in_use.remove()
    assert there(left, in_use.path) == []


def in_a_folder(tmp_path: Path, *controllers: Controller) -> ControlGroup:
    """Return a group in a plain folder, whose files nobody reads but the test."""
    return ControlGroups(tmp_path, frozenset(controllers)).make(
        Bounds(memory_bytes=64 * MEGABYTE, processes=32)
    )


def written(group: ControlGroup) -> dict[str, str]:
    return {file.name: file.read_text().strip() for file in group.path.iterdir()}


def test_the_kernel_is_told_the_bounds_of_the_controllers_that_are_there(tmp_path: Path) -> None:
    assert written(in_a_folder(tmp_path)) == {}
    assert written(in_a_folder(tmp_path, Controller.PIDS)) == {"pids.max": "35"}
    assert written(in_a_folder(tmp_path, *Controller)) == {
        "cpu.weight": "1",
        "memory.max": str(64 * MEGABYTE),
        "memory.oom.group": "1",
        "pids.max": "35",
    }


@pytest.mark.parametrize(
    ("file", "events", "exceeded"),
    [
        ("memory.events", "low 0\nmax 3\noom 0\noom_kill 0\n", None),
        ("memory.events", "low 0\nmax 9\noom 1\noom_kill 2\noom_group_kill 1\n", Stopped.MEMORY),
        ("pids.events", "max 0\n", None),
        ("pids.events", "max 1\n", Stopped.PROCESSES),
        ("other", "", None),
    ],
)
def test_what_the_kernel_has_refused_is_the_reason_of_an_end(
    tmp_path: Path, file: str, events: str, exceeded: Stopped | None
) -> None:
    group = in_a_folder(tmp_path)
    (group.path / file).write_text(events)
    assert group.exceeded() is exceeded


async def run_without(kind: Kind, folder: Path, script: str, **bounds: float) -> Ended:
    program = Program(("sh", THE_SCRIPT), folder, script)
    jail = Jail(this_machine(), [kind], no_groups)
    return await jail.run(program, Bounds(**{"seconds": 10.0, **bounds}))  # type: ignore[arg-type]


@pytest.mark.full
@KINDS
@pytest.mark.parametrize("hog", HOGS)
async def test_without_groups_who_takes_too_much_is_ended_as_well(
    tmp_path: Path, kind: Kind, hog: str
) -> None:
    script, bounds, stopped = HOGS[hog]
    async with asyncio.timeout(8):
        ended = await run_without(kind, tmp_path, script, **bounds)  # type: ignore[arg-type]
    assert ended.stopped in (stopped, None if hog == "processes" else stopped)
    assert own_children() == []


@KINDS
@pytest.mark.parametrize(
    "milliseconds",
    [10, *(pytest.param(one, marks=pytest.mark.full) for one in range(0, 30, 2) if one != 10)],
)
async def test_without_groups_a_start_that_is_given_up_is_ended_whole_as_well(
    tmp_path: Path, kind: Kind, milliseconds: int
) -> None:
    jail = Jail(this_machine(), [kind], no_groups)
    await jail.kind(tmp_path)
    program = Program(("sh", THE_SCRIPT), tmp_path, "sleep 60")
    running = asyncio.create_task(jail.run(program, Bounds()))
    await asyncio.wait({running}, timeout=milliseconds / 1_000)
    running.cancel()
    await asyncio.wait({running})
    await asyncio.to_thread(nobody_works_in, tmp_path)


def nobody_works_in(folder: Path) -> None:
    """Look for processes whose own folder this is, also where their parents have ended."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            mounts = (process / "mountinfo").read_text()
            own = (process / "cwd").readlink()
        except OSError:
            continue
        assert str(folder) not in mounts
        assert own != folder


@KINDS
async def test_without_groups_nothing_outlives_a_command_either(tmp_path: Path, kind: Kind) -> None:
    script = "(sleep 60 &) ; setsid sleep 60 & nohup sleep 60 & echo"
    async with asyncio.timeout(5):
        ended = await run_without(kind, tmp_path, script)
    assert (ended.exit_code, ended.stopped) == (0, None)
    assert own_children() == []


@KINDS
async def test_where_no_group_can_be_made_any_more_commands_run_without(
    tmp_path: Path, kind: Kind
) -> None:
    async def gone() -> ControlGroups:
        return ControlGroups(tmp_path / "gone", frozenset(Controller))

    program = Program(("sh", THE_SCRIPT), tmp_path, "echo hello")
    ended = await Jail(this_machine(), [kind], gone).run(program, Bounds())
    assert ended == Ended(0, "hello\n", "")
