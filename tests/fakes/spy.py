"""Every way for a program to look into another process of its own user.

python -m tests.fakes.spy PID FILE [COMMAND ...]     writes a report, then becomes the command
"""

import ctypes
import errno
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Final

REFUSED: Final = frozenset({errno.EPERM, errno.EACCES, errno.ESRCH, errno.ENOENT})
"""ESRCH and ENOENT: a process that is hidden altogether."""

MAPPED_PAGE: Final = 4096
PTRACE_ATTACH: Final = 16
PTRACE_DETACH: Final = 17
WALL: Final = 0x40000000
PIDFD_GETFD: Final = 438
PROCESS_MADVISE: Final = 440
MADV_COLD: Final = 20
FILES: Final = (
    *("auxv", "environ", "io", "maps", "mem", "pagemap", "smaps", "stack", "syscall"),
    *("task/{pid}/environ", "task/{pid}/mem"),
)
FOLDERS: Final = ("fdinfo", "map_files")
LINKS: Final = ("cwd", "exe", "fd/1", "root", "task/{pid}/fd/1")

_libc: Final = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)


class _Vector(ctypes.Structure):
    """struct iovec of readv(2)."""

    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


@dataclass(frozen=True, slots=True)
class Report:
    """Findings of a spy.

    Attributes:
        succeeded: deeds that were not refused.
        refused: deeds that were.
        environment: its own.
        descriptors: targets of its inherited descriptors, without the standard streams.
        command_line: of the process it looked at; every user may read it.
    """

    succeeded: list[str]
    refused: list[str]
    environment: dict[str, str]
    descriptors: list[str]
    command_line: str


def spy_on(pid: int) -> Report:
    """Try everything at a process."""
    descriptors = list(_inherited_descriptors())
    succeeded: list[str] = []
    refused: list[str] = []
    for name, deed in _deeds(pid):
        (refused if _is_refused(deed) else succeeded).append(name)
    command_line = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    return Report(succeeded, refused, dict(os.environ), descriptors, command_line)


def read_report(file: Path) -> Report | None:
    """Return a report once it is there."""
    return Report(**json.loads(file.read_text())) if file.exists() else None


def _is_refused(deed: Callable[[], object]) -> bool:
    try:
        deed()
    except OSError as error:
        return error.errno in REFUSED
    return False


def _deeds(pid: int) -> Iterator[tuple[str, Callable[[], object]]]:
    folder = Path(f"/proc/{pid}")
    for name in FILES:
        yield name, partial(_read, folder / name.format(pid=pid))
    for name in FOLDERS:
        yield name, partial(os.listdir, folder / name)
    for name in LINKS:
        yield name, partial(os.readlink, folder / name.format(pid=pid))
    yield "mem for writing", lambda: os.close(os.open(folder / "mem", os.O_RDWR))
    yield "process_vm_readv", partial(_transfer, _libc.process_vm_readv, pid)
    yield "process_vm_writev", partial(_transfer, _libc.process_vm_writev, pid)
    yield "process_madvise", partial(_advise, pid)
    yield "pidfd_getfd", lambda: os.close(_call(PIDFD_GETFD, os.pidfd_open(pid), 1, 0))
    yield "ptrace", partial(_trace, pid)


def _read(file: Path) -> None:
    with file.open("rb") as stream:
        if file.name != "mem":  # no memory is mapped at address 0
            stream.read(MAPPED_PAGE)


def _transfer(call: Callable[..., int], pid: int) -> None:
    buffer = ctypes.create_string_buffer(8)
    here = _Vector(ctypes.addressof(buffer), len(buffer))
    there = _Vector(MAPPED_PAGE, len(buffer))
    _checked(call(pid, ctypes.byref(here), 1, ctypes.byref(there), 1, 0))


def _advise(pid: int) -> None:
    there = _Vector(MAPPED_PAGE, MAPPED_PAGE)
    _call(PROCESS_MADVISE, os.pidfd_open(pid), ctypes.byref(there), 1, MADV_COLD, 0)


def _trace(pid: int) -> None:
    _checked(_libc.ptrace(PTRACE_ATTACH, pid, None, None))
    os.waitpid(pid, WALL)
    _libc.ptrace(PTRACE_DETACH, pid, None, None)


def _call(number: int, *arguments: object) -> int:
    return _checked(_libc.syscall(number, *arguments))


def _checked(result: int) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), "refused")
    return result


def _inherited_descriptors() -> Iterator[str]:
    for entry in Path("/proc/self/fd").iterdir():
        if int(entry.name) > 2:
            with suppress(FileNotFoundError):  # the one by which the folder was listed
                yield os.readlink(entry)  # noqa: PTH115 - it need not be a path


def main() -> None:
    pid, file, *command = sys.argv[1:]
    written = Path(file).with_suffix(".part")
    written.write_text(json.dumps(asdict(spy_on(int(pid) or os.getppid()))))
    written.rename(file)
    if command:
        os.execv(command[0], command)


if __name__ == "__main__":
    main()
