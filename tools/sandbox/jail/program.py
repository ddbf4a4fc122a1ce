"""Programs in jails: their bounds, the part of this machine that they see, and their ends."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

PLACES: Final = 4
"""Programs that run at the same time."""
SHARE: Final = 2
"""Programs of one person that run at the same time."""
THE_SCRIPT: Final = "the script"
"""Stands in a command for the path of the script; compared as an object."""
DESCRIPTORS: Final = 256
ADDRESSES_PER_BYTE: Final = 16
"""Libraries reserve far more addresses than they ever use memory."""
ROOTS: Final = ("/bin", "/sbin", "/lib", "/lib32", "/lib64")
OF_ETC: Final = (
    *("/etc/alternatives", "/etc/ca-certificates", "/etc/fonts", "/etc/ld.so.cache"),
    *("/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/localtime", "/etc/mime.types"),
    *("/etc/ssl/certs", "/etc/ssl/openssl.cnf"),
)
"""Files that programs read; the rest of /etc describes the machine."""
_VARIABLES: Final = {
    # Libraries for numbers would start a thread for each processor, and reserve memory for each.
    **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"),
    "NUMEXPR_NUM_THREADS": "1",
    # If home is the workspace, one command could leave there what each later Python runs first.
    "PYTHONNOUSERSITE": "1",
    "MPLBACKEND": "Agg",
}


@dataclass(frozen=True, slots=True)
class Program:
    """A program to run.

    Attributes:
        command: the program and its arguments; THE_SCRIPT stands for the path of the script.
        folder: the only place that it may write.
        script: a text that it reads, such as a shell's or Python's; not in lists of processes.
        readable: further folders to read, by their names. Programs see them as `/shared/NAME`, in a
            jail with namespaces.
    """

    command: tuple[str, ...]
    folder: Path
    script: str = field(default="", repr=False)
    readable: Mapping[str, Path] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much a program may take, with all that it starts.

    Attributes:
        seconds: by the clock.
        memory_bytes: of all its processes together.
        processes: at the same time, threads among them.
        file_bytes: of each file that it writes.
        output_bytes: kept of each of its two outputs.
    """

    seconds: float = 30.0
    memory_bytes: int = 512 * 2**20
    processes: int = 64
    file_bytes: int = 200 * 2**20
    output_bytes: int = 50_000

    def of_each_process(self) -> dict[str, int]:
        """Return the limits of each process, by their names in prlimit(1) and setrlimit(2)."""
        return {
            "cpu": int(self.seconds) + 1,
            "data": self.memory_bytes,
            "as": self.memory_bytes * ADDRESSES_PER_BYTE,
            "fsize": self.file_bytes,
            "nofile": DESCRIPTORS,
            "core": 0,
        }


Stopped = Literal["time", "memory", "processes", "disk", "files", "room"]
"""Why a program was ended from outside."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a program ended. Its outputs are cut in the middle.

    Attributes:
        exit_code: its own, or 128 plus the number of the signal that ended it.
        stopped: why it was ended from outside; None: it ended by itself.
    """

    exit_code: int
    output: str = field(repr=False)
    errors: str = field(repr=False)
    stopped: Stopped | None = None


READABLE: Final = tuple(
    dict.fromkeys(Path(prefix).resolve() for prefix in (sys.prefix, sys.base_prefix))
)
"""The bot's Python and packages, which programs may read and run, but not its own files."""
SEARCH_PATH: Final = f"{Path(sys.executable).parent.resolve()}:/usr/local/bin:/usr/bin:/bin"


def environment(home: str) -> dict[str, str]:
    """Return the variables of a program; it sees none of the bot's."""
    return {"HOME": home, "LANG": "C.UTF-8", "PATH": SEARCH_PATH, **_VARIABLES}
