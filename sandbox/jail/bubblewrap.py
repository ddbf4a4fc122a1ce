"""A jail with namespaces of its own, made by bubblewrap.

There is no process of others in it and no network, but for the port of a proxy where a program is
given one. The system is there to be read, one folder to
be written, and a little memory as /tmp. Nothing in it outlives the process outside.

Source: bwrap(1), choom(1), prlimit(1), timeout(1), chrt(1).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sandbox.jail import proxy_port
from sandbox.jail.outside import OF_ETC, ROOTS, environment, limits
from sandbox.jail.program import THE_SCRIPT, Bounds, Machine, Program

BUBBLEWRAP: Final = "bwrap"
PRLIMIT: Final = "prlimit"
FIRST_TO_GO: Final = ("choom", "--adjust", "1000", "--")
"""Where memory runs out, the kernel takes programs in jails before it takes the bot."""
IDLE: Final = ("chrt", "--idle", "0")
"""Whoever waits for an answer comes before whoever waits for a command. The jail itself does not
wait: it has to end thousands of processes at once."""
TIMEOUT: Final = "timeout"
"""Ends a jail of which nobody knows: the process outside was killed before the jail had asked the
kernel to end with it."""
ALONE_SECONDS: Final = 1.0
FOLDER: Final = "/workspace"
SHARED: Final = "/shared"
SCRIPT: Final = "/run/script"
USER: Final = "1000"
TEMPORARY_BYTES: Final = 64 * 2**20
"""Of each of the two places in memory where programs keep what is of no use later."""
PROXY_PORT: Final = 3128
"""It is nobody else's: the jail's network is its own."""
_PROXY_VARIABLES: Final = ("http_proxy", "https_proxy", "all_proxy")
_OF_PROC: Final = (
    *("config.gz", "kallsyms", "kcore", "key-users", "keys", "kmsg", "kpagecgroup", "kpagecount"),
    *("kpageflags", "latency_stats", "sched_debug", "slabinfo", "sysrq-trigger", "timer_list"),
    *("vmallocinfo",),
)
"""What is hidden of it: it tells of the kernel, and only where the bot is root could it be read."""
_PEOPLE: Final = f"user:x:{USER}:{USER}::/tmp:/bin/sh\n"


@dataclass(frozen=True, slots=True)
class Files:
    """Descriptors of what bubblewrap reads.

    Attributes:
        calls: the filter of system calls.
        script: the program's own.
        people: a list of users.
        door: a socket, through which the port of a proxy is handed out; None: there is none.
    """

    calls: int
    script: int
    people: int
    door: int | None = None


def command_line(
    program: Program,
    bounds: Bounds,
    machine: Machine,
    processors: Sequence[int],
    files: Files,
) -> list[str]:
    """Return what runs a program in a jail.

    Args:
        program: what is run.
        bounds: what it may take.
        machine: what it finds.
        processors: on which it runs, by their numbers.
        files: what the jail is made of.
    """
    return [
        *FIRST_TO_GO,
        *("taskset", "--cpu-list", ",".join(map(str, processors))),
        *(
            PRLIMIT,
            *(f"--{name}={limit}" for name, limit in limits(bounds).items() if name != "fsize"),
            "--",
        ),
        BUBBLEWRAP,
        *("--unshare-user", "--unshare-all", "--disable-userns"),
        *("--uid", USER, "--gid", USER, "--cap-drop", "ALL", "--hostname", "workspace"),
        *("--new-session", "--die-with-parent", "--clearenv"),
        *_system(machine),
        *("--proc", "/proc", *_hidden(), "--remount-ro", "/proc"),
        *("--dev", "/dev", "--remount-ro", "/dev"),
        *("--size", str(TEMPORARY_BYTES), "--tmpfs", "/dev/shm"),  # noqa: S108 - inside the jail
        *("--size", str(TEMPORARY_BYTES), "--tmpfs", "/tmp"),  # noqa: S108 - inside the jail
        *("--ro-bind-data", str(files.people), "/etc/passwd"),
        *("--ro-bind-data", str(files.script), SCRIPT),
        *(part for name, path in program.readable.items() for part in _shared(name, path)),
        *("--bind", str(program.folder), FOLDER, "--chdir", FOLDER, "--remount-ro", "/"),
        *_environment(machine, proxy=files.door is not None),
        *("--seccomp", str(files.calls), "--"),
        # In the jail: outside, its processes would be counted together with all of the bot's.
        # Nor could bubblewrap write what it needs where no file may be written any more.
        *(PRLIMIT, f"--nproc={bounds.processes + 1}", f"--fsize={bounds.file_bytes}", "--"),
        *(TIMEOUT, "--signal=KILL", f"{bounds.seconds + ALONE_SECONDS}"),
        *(proxy_port.command_line(PROXY_PORT, files.door) if files.door is not None else ()),
        *IDLE,
        *(SCRIPT if part is THE_SCRIPT else part for part in program.command),
    ]


def people() -> bytes:
    """Return the list of users that programs in a jail find: whoever runs them."""
    return _PEOPLE.encode()


def _system(machine: Machine) -> Iterator[str]:
    yield from ("--ro-bind", "/usr", "/usr")
    for name in ROOTS:
        root = Path(name)
        if root.is_symlink():
            yield from ("--symlink", str(root.readlink()), str(root))
        else:
            yield from ("--ro-bind-try", str(root), str(root))
    for name in OF_ETC:
        yield from ("--ro-bind-try", name, name)
    for path in _beside_usr(machine.readable):
        yield from ("--ro-bind", str(path), str(path))


def _shared(name: str, path: Path) -> tuple[str, ...]:
    # Beside the workspace and not in it: what lies there could be a link that leads elsewhere.
    return ("--ro-bind", str(path), f"{SHARED}/{name}")


def _hidden() -> Iterator[str]:
    for name in _OF_PROC:
        if Path("/proc", name).exists():
            yield from ("--ro-bind", "/dev/null", f"/proc/{name}")


def _beside_usr(paths: Sequence[Path]) -> Iterator[Path]:
    return (path for path in paths if not path.is_relative_to("/usr"))


def _environment(machine: Machine, *, proxy: bool) -> Iterator[str]:
    variables = environment(machine, home="/tmp")  # noqa: S108 - inside the jail
    if proxy:
        address = f"http://{proxy_port.HOST}:{PROXY_PORT}"
        named = (*_PROXY_VARIABLES, *map(str.upper, _PROXY_VARIABLES))
        variables |= {**dict.fromkeys(named, address), "no_proxy": "localhost,127.0.0.1,::1"}
    for name, value in variables.items():
        yield from ("--setenv", name, value)
