"""A jail with namespaces of its own, made by bubblewrap.

It hides other processes and the network. Programs can read the system, write one folder, and use a
little memory as /tmp. Nothing in it outlives the process outside.

Source: bwrap(1), choom(1), prlimit(1), timeout(1), chrt(1).
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from tools.sandbox.jail.program import OF_ETC, ROOTS, THE_SCRIPT, Bounds, Program, environment

FIRST_TO_GO: Final = ("choom", "--adjust", "1000", "--")
"""If memory runs out, the kernel ends programs in jails before it ends the bot."""
IDLE: Final = ("chrt", "--idle", "0")
"""Programs give way to everything else. The jail itself does not, since it has to end thousands of
processes at once."""
ALONE_SECONDS: Final = 1.0
"""This long after a program's time limit, the jail ends by itself. The process outside may have
been killed before the jail had asked the kernel to end with it."""
FOLDER: Final = "/chat-workspace"
"""Place of a program's folder. The name must hide no checkout or Python that programs read."""
SHARED: Final = "/shared"
SCRIPT: Final = "/run/script"
USER: Final = "1000"
TEMPORARY_BYTES: Final = 64 * 2**20
"""Size of /tmp, and of /dev/shm."""
PEOPLE: Final = f"user:x:{USER}:{USER}::/tmp:/bin/sh\n".encode()
"""The list of users that programs find."""
_OF_PROC: Final = (
    *("config.gz", "kallsyms", "kcore", "key-users", "keys", "kmsg", "kpagecgroup", "kpagecount"),
    *("kpageflags", "latency_stats", "sched_debug", "slabinfo", "sysrq-trigger", "timer_list"),
    *("vmallocinfo",),
)
"""Hidden files: they tell of the kernel, and could be read if the bot is root."""


def command_line(
    program: Program, bounds: Bounds, readable: Sequence[Path], descriptors: Sequence[int]
) -> list[str]:
    """Return the command that runs a program in a jail.

    Args:
        readable: files and folders that it may read besides the system's.
        descriptors: of the script, of the filter of system calls, and of the list of users.
    """
    script, calls, people = descriptors
    limits = bounds.of_each_process()
    del limits["fsize"]  # bubblewrap could not write what it needs
    read_besides = [path for path in readable if not path.is_relative_to("/usr")]
    return [
        *FIRST_TO_GO,
        *("prlimit", *(f"--{name}={limit}" for name, limit in limits.items()), "--", "bwrap"),
        *("--unshare-user", "--unshare-all", "--disable-userns"),
        *("--uid", USER, "--gid", USER, "--cap-drop", "ALL", "--hostname", "workspace"),
        *("--new-session", "--die-with-parent", "--clearenv"),
        *_system(),
        *("--proc", "/proc", *_hidden(), "--remount-ro", "/proc"),
        *("--dev", "/dev", "--remount-ro", "/dev"),
        *("--size", str(TEMPORARY_BYTES), "--tmpfs", "/dev/shm"),  # noqa: S108 - inside the jail
        *("--size", str(TEMPORARY_BYTES), "--tmpfs", "/tmp"),  # noqa: S108 - inside the jail
        # After these, since it may lie below any of them, such as a Python below /tmp.
        *(part for path in read_besides for part in ("--ro-bind", str(path), str(path))),
        *("--ro-bind-data", str(people), "/etc/passwd"),
        *("--ro-bind-data", str(script), SCRIPT),
        # Not in the workspace, where a link of that name could lead elsewhere.
        *(
            part
            for name, path in program.readable.items()
            for part in ("--ro-bind", str(path), f"{SHARED}/{name}")
        ),
        *("--bind", str(program.folder), FOLDER, "--chdir", FOLDER, "--remount-ro", "/"),
        *(
            part
            for variable in environment(home="/tmp").items()  # noqa: S108 - as above
            for part in ("--setenv", *variable)
        ),
        *("--seccomp", str(calls), "--"),
        # In the jail: outside, its processes would be counted together with all of the bot's.
        *("prlimit", f"--nproc={bounds.processes + 1}", f"--fsize={bounds.file_bytes}", "--"),
        *("timeout", "--signal=KILL", f"{bounds.seconds + ALONE_SECONDS}"),
        *IDLE,
        *(SCRIPT if part is THE_SCRIPT else part for part in program.command),
    ]


def _system() -> Iterator[str]:
    yield from ("--ro-bind", "/usr", "/usr")
    for root in map(Path, ROOTS):
        if root.is_symlink():
            yield from ("--symlink", str(root.readlink()), str(root))
        else:
            yield from ("--ro-bind-try", str(root), str(root))
    for name in OF_ETC:
        yield from ("--ro-bind-try", name, name)


def _hidden() -> Iterator[str]:
    for name in _OF_PROC:
        if Path("/proc", name).exists():
            yield from ("--ro-bind", "/dev/null", f"/proc/{name}")
