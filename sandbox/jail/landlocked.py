"""A jail without namespaces: Landlock for files, seccomp for all else, and limits.

This program runs beside the bot. It starts the program in a process group that it cannot leave,
waits for it, and ends the whole group when the program ends, when it is told so, or when the bot is
gone: then its standard input ends.

What it does not have of the other jail: processes and a network of its own. So the programs in it
may send no signals and open no sockets; they do see that there are other processes, by number.

Source: https://docs.kernel.org/userspace-api/landlock.html; setpgid(2), prctl(2).
"""

import ctypes
import json
import os
import resource
import select
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NoReturn

from sandbox import landlock, seccomp
from sandbox.jail.calls import ABSENT, PRETENDED, WITHOUT_NAMESPACES
from sandbox.jail.outside import OF_ETC, ROOTS, environment, limits
from sandbox.jail.program import PLACES, THE_SCRIPT, Bounds, Machine, Program
from sandbox.syscalls import architecture, checked, libc

NO_WALLS: Final = 113
"""Exit code: the walls cannot be raised here."""
NOT_FOUND: Final = 127
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 1, 4, 36, 38
_MANY_BYTES: Final = 4_096
_BY_SIGNAL: Final = 128


def command_line(
    program: Program, bounds: Bounds, machine: Machine, processors: Sequence[int], script: int
) -> list[str]:
    """Return what runs a program in a jail.

    Args:
        program: what is run.
        bounds: what it may take.
        machine: what it finds.
        processors: on which it runs, by their numbers.
        script: descriptor of the program's script; the only one that it is given but its outputs.
    """
    place = f"/proc/self/fd/{script}"
    said = {
        "command": [place if part is THE_SCRIPT else part for part in program.command],
        "folder": str(program.folder),
        "readable": ["/usr", *ROOTS, *OF_ETC, *map(str, machine.readable)],
        "variables": environment(machine, home=str(program.folder)),
        "script": script,
        "limited": limits(bounds),
        "processes": PLACES * bounds.processes,
        "processors": processors,
    }
    return [sys.executable, "-I", "-m", __name__, json.dumps(said)]


def _main() -> NoReturn:
    ended, tell = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(tell, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)  # so that whoever looks for processes finds them below it
    supervisor = os.getpid()
    child = os.fork()
    if not child:
        _become(**json.loads(sys.argv[1]), parent=supervisor)
    with suppress(OSError):  # it has done so itself, and is another program already
        os.setpgid(child, child)
    _prctl(_PR_SET_DUMPABLE, 0)
    os.close(1)  # else nobody would see that the programs have closed it
    os.close(2)
    status = None
    while status is None:
        told, _, _ = select.select([ended, 0], (), ())
        if 0 in told:
            break
        os.read(ended, _MANY_BYTES)
        status = _reaped(child)
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    if status is None:
        _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    os._exit(_BY_SIGNAL - code if code < 0 else code)


def _reaped(child: int) -> int | None:
    """Let go of all processes that have ended; return the status of one of them, if it has."""
    status = None
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            status = ended[1] if ended[0] == child else status
    return status


def _become(
    *,
    command: list[str],
    folder: str,
    readable: list[str],
    variables: dict[str, str],
    script: int,
    limited: dict[str, int],
    processes: int,
    processors: list[int],
    parent: int,
) -> NoReturn:
    """Raise the walls around this process and go on as the program."""
    try:
        for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # by Python, but not by programs
            signal.signal(ignored, signal.SIG_DFL)
        os.setpgid(0, 0)
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(NO_WALLS)
        _go_first_where_memory_runs_out()
        limited["nproc"] = _tasks() + processes
        with suppress(OSError):  # a unit of systemd's may forbid it
            os.sched_setaffinity(0, processors)
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.closerange(3, script)
        os.closerange(script + 1, os.sysconf("SC_OPEN_MAX"))
        os.set_inheritable(script, True)
        os.chdir(folder)
        _prctl(_PR_SET_NO_NEW_PRIVS, 1)
        landlock.install(folder=True, readable=readable)
        _load_filter()
        for name, limit in limited.items():
            _limit(getattr(resource, f"RLIMIT_{name.upper()}"), limit)
    except OSError:
        os._exit(NO_WALLS)
    try:
        os.execvpe(command[0], command, variables)  # noqa: S606 - there is nothing for a shell to read
    except OSError as error:
        os.write(2, f"{command[0]}: {error.strerror}\n".encode(errors="replace"))
        os._exit(NOT_FOUND)


def _go_first_where_memory_runs_out() -> None:
    _prctl(_PR_SET_DUMPABLE, 1)  # else this file is root's, where Python cannot be read
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def _tasks() -> int:
    """Return how many threads there are; the kernel counts those of a user, wherever they are."""
    tasks = 0
    for process in Path("/proc").glob("[0-9]*/task"):
        with suppress(OSError):  # it has ended
            tasks += process.stat().st_nlink - 2
    return tasks


def _limit(kind: int, wanted: int) -> None:
    hard = resource.getrlimit(kind)[1]
    limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(kind, (limit, limit))


def _load_filter() -> None:
    known = architecture()
    if known is None:
        raise OSError("no filter for this machine")
    seccomp.load(seccomp.program_for_programs(known, WITHOUT_NAMESPACES, ABSENT, PRETENDED))


def _prctl(option: int, value: int) -> None:
    checked(libc().prctl(option, ctypes.c_ulong(value), *(ctypes.c_ulong(0),) * 3), "prctl")


if __name__ == "__main__":
    _main()
