"""A jail without namespaces: Landlock for files, seccomp for all else, and limits.

Run as a program, this module is a supervisor next to the bot. It starts the program in a process
group that the program cannot leave. It ends the whole group when the program ends, or when its
standard input ends: the bot closes it, or has ended.

Unlike in the other jail, programs share processes and network with the machine. So they may send no
signals and open no sockets. They do see that there are other processes, by number.

Source: https://docs.kernel.org/userspace-api/landlock.html; setpgid(2), prctl(2).
"""

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

from tools.sandbox import landlock, seccomp
from tools.sandbox.jail.calls import ABSENT, PRETENDED, WITHOUT_NAMESPACES
from tools.sandbox.jail.program import (
    OF_ETC,
    PLACES,
    ROOTS,
    THE_SCRIPT,
    Bounds,
    Program,
    environment,
)
from tools.sandbox.limits import limit
from tools.sandbox.syscalls import architecture, prctl

NO_WALLS: Final = 113
"""Exit code: the walls cannot be raised here."""
NOT_FOUND: Final = 127
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 1, 4, 36, 38
_MANY_BYTES: Final = 4_096
_BY_SIGNAL: Final = 128


def command_line(
    program: Program, bounds: Bounds, readable: Sequence[Path], descriptors: Sequence[int]
) -> list[str]:
    """Return the command that runs a program in a jail.

    Args:
        readable: files and folders that it may read and run besides the system's.
        descriptors: of the script; the program gets only this one and its outputs.
    """
    (script,) = descriptors
    place = f"/proc/self/fd/{script}"
    said = {
        "command": [place if part is THE_SCRIPT else part for part in program.command],
        "folder": str(program.folder),
        "readable": ["/usr", *ROOTS, *OF_ETC, *map(str, readable)],
        "variables": environment(home=str(program.folder)),
        "script": script,
        "limits": bounds.of_each_process(),
        "processes": PLACES * bounds.processes,
    }
    return [sys.executable, "-I", "-m", __name__, json.dumps(said)]


def _main() -> NoReturn:
    ended, tell = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(tell, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    prctl(_PR_SET_CHILD_SUBREAPER, 1)  # so that processes without parents are found below this one
    supervisor = os.getpid()
    child = os.fork()
    if not child:
        _become(**json.loads(sys.argv[1]), parent=supervisor)
    with suppress(OSError):  # it has done so itself, and is another program already
        os.setpgid(child, child)
    prctl(_PR_SET_DUMPABLE, 0)
    os.close(1)  # otherwise the bot would not see that the programs have closed it
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
    """Collect all processes that have ended; return the status of one of them if it has."""
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
    limits: dict[str, int],
    processes: int,
    parent: int,
) -> NoReturn:
    """Raise the walls around this process and become the program."""
    try:
        for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, programs do not
            signal.signal(ignored, signal.SIG_DFL)
        os.setpgid(0, 0)
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(NO_WALLS)
        prctl(_PR_SET_DUMPABLE, 1)  # if Python is not readable, root would own the file below
        with suppress(OSError):  # if memory runs out, the kernel ends programs before the bot
            Path("/proc/self/oom_score_adj").write_text("1000")
        limits["nproc"] = _tasks() + processes
        with suppress(OSError):  # a unit of systemd's may forbid it
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.closerange(3, script)
        os.closerange(script + 1, os.sysconf("SC_OPEN_MAX"))
        os.set_inheritable(script, True)
        os.chdir(folder)
        prctl(_PR_SET_NO_NEW_PRIVS, 1)
        landlock.install(folder=True, readable=readable)
        calls = seccomp.program(
            architecture(), WITHOUT_NAMESPACES, absent=ABSENT, pretended=PRETENDED, kills=False
        )
        seccomp.load(calls)
        for name, wanted in limits.items():
            limit(getattr(resource, f"RLIMIT_{name.upper()}"), wanted)
    except OSError:
        os._exit(NO_WALLS)
    try:
        os.execvpe(command[0], command, variables)  # noqa: S606 - there is nothing for a shell to read
    except OSError as error:
        os.write(2, f"{command[0]}: {error.strerror}\n".encode(errors="replace"))
        os._exit(NOT_FOUND)


def _tasks() -> int:
    """Return how many threads run here; the kernel's limit counts all threads of a user."""
    tasks = 0
    for process in Path("/proc").glob("[0-9]*/task"):
        with suppress(OSError):  # it has ended
            tasks += process.stat().st_nlink - 2
    return tasks


if __name__ == "__main__":
    _main()
