"""What is run in a jail, within which bounds, and what came of it."""

import socket
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final

PLACES: Final = 4
"""Programs that run at the same time."""
THE_SCRIPT: Final = "the script"
"""Stands in a command for the path of the script; compared as an object."""


Network = Callable[[socket.socket], Awaitable[None]]
"""Serves those who connect to a listening socket, until it is cancelled."""


@dataclass(frozen=True, slots=True)
class Program:
    """A program to run.

    Attributes:
        command: the program and its arguments; THE_SCRIPT stands for the path of the
            script.
        folder: the only place where it may write.
        readable: folders that it may read besides, by their names; it sees them as `/shared/NAME`.
            A jail without namespaces has none of them.
        script: a text that it reads, such as a shell's or Python's; kept out of lists of
            processes.
        network: a proxy, which is all that it reaches; its variables name it. None: it reaches
            nothing. A jail without namespaces has none.
    """

    command: tuple[str, ...]
    folder: Path
    script: str = field(default="", repr=False)
    readable: Mapping[str, Path] = field(default_factory=dict)
    network: Network | None = None


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


class Stopped(StrEnum):
    """Why a program was ended from outside."""

    TIME = "time"
    MEMORY = "memory"
    PROCESSES = "processes"
    DISK = "disk"
    FILES = "files"
    ROOM = "room"


@dataclass(frozen=True, slots=True)
class Ended:
    """How a program ended.

    Attributes:
        exit_code: its own; 128 and the number of a signal that ended it.
        output: what it wrote to its standard output, cut in the middle.
        errors: the same of its standard error.
        stopped: why it was ended from outside; None: it ended by itself.
    """

    exit_code: int
    output: str = field(repr=False)
    errors: str = field(repr=False)
    stopped: Stopped | None = None


@dataclass(frozen=True, slots=True)
class Machine:
    """What programs find on this machine beside their folder.

    Attributes:
        readable: folders and files that they may read and run.
        path: where the shell looks for programs.
        variables: of the environment, beyond the few that every program needs.
    """

    readable: tuple[Path, ...]
    path: str
    variables: Mapping[str, str] = field(default_factory=dict)
