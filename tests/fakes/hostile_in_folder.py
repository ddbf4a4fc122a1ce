"""A worker that was taken over and tries to get out of its folder; each request names a deed.

A deed that works is answered with "done".
"""

import ctypes
import os
import struct
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from tests.fakes.hostile_worker import FATAL, HERE, call
from tools.sandbox.child import serve
from tools.sandbox.syscalls import open_below

INSIDE: Final = "inside.txt"
OUTSIDE: Final = "/etc/passwd"
UP: Final = "../../../../../../etc/passwd"
PARENT: Final = os.getppid()
RENAME: Final = 38 if os.uname().machine == "aarch64" else 264


def open_freely(path: str, flags: int = os.O_RDONLY) -> str:
    """Open a path as this filter allows it, without asking the kernel to keep it inside."""
    how = struct.pack("=QQQ", flags, 0o600 if flags & os.O_CREAT else 0, 0)
    call(437, HERE, os.fsencode(path), how, len(how))
    return "done"


def read_below(path: str) -> str:
    descriptor = open_below(HERE, path, os.O_RDONLY)
    return "done" if os.read(descriptor, 10) else "empty"


def move(source: str, target: str) -> str:
    return call(RENAME, HERE, os.fsencode(source), HERE, os.fsencode(target))


def work() -> str:
    """Do everything that an honest worker needs."""
    folder = open_below(HERE, ".", os.O_RDONLY | os.O_DIRECTORY)
    os.mkdir("new", dir_fd=folder)
    descriptor = open_below(folder, "new/file", os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode=0o600)
    os.write(descriptor, b"words")
    os.fsync(descriptor)
    os.ftruncate(descriptor, 1)
    os.close(descriptor)
    os.rename("new/file", "moved", src_dir_fd=folder, dst_dir_fd=folder)
    assert "moved" in os.listdir(folder)  # noqa: PTH208 - a descriptor
    os.unlink("moved", dir_fd=folder)
    os.rmdir("new", dir_fd=folder)
    return read_below(INSIDE)


def write_too_much() -> str:
    descriptor = open_below(HERE, "large", os.O_WRONLY | os.O_CREAT, mode=0o600)
    while True:
        os.write(descriptor, bytes(65_536))


ROOT_OF_PROCESS: Final = "/proc/self/root"

INSIDE_ALONE: Final[Mapping[str, Callable[[], str]]] = {
    "a path from the root": partial(open_freely, OUTSIDE),
    "a path upwards": partial(open_freely, UP),
    "a link": partial(open_freely, "link"),
    "a link, kept inside": partial(read_below, "link"),
    "a path upwards, kept inside": partial(read_below, UP),
    "the root of a process": partial(open_freely, f"{ROOT_OF_PROCESS}/etc/passwd"),
    "the bot's environment": partial(open_freely, f"/proc/{PARENT}/environ"),
    "a file beside the folder": partial(open_freely, "../beside.txt"),
    "make a file in a temporary folder": partial(
        open_freely,
        "/tmp/signal-tee-bot-was-here",
        os.O_WRONLY | os.O_CREAT,
    ),
    "open as the C library does": partial(os.open, INSIDE, os.O_RDONLY),  # type: ignore[dict-item]
    "a file larger than allowed": write_too_much,
}
UPWARDS: Final[Mapping[str, Callable[[], str]]] = {
    "make a file beside the folder": partial(open_freely, "../new", os.O_WRONLY | os.O_CREAT),
    "move a file out": partial(move, INSIDE, "../inside.txt"),
}
"""Where the folder is the root, upwards leads to itself."""

ENDS_IT: Final[Mapping[str, Callable[[], str]]] = {
    "a link of its own": partial(os.symlink, OUTSIDE, "mine"),  # type: ignore[dict-item]
    "a FIFO": partial(os.mkfifo, "fifo"),  # type: ignore[dict-item]
    "a mode": partial(os.chmod, INSIDE, 0o4755),  # type: ignore[dict-item]
    "an owner": partial(os.chown, INSIDE, 0, 0),  # type: ignore[dict-item]
    "another present folder": partial(os.chdir, "/"),  # type: ignore[dict-item]
    "another root": partial(os.chroot, "."),  # type: ignore[dict-item]
    **{
        name: FATAL[name] for name in ("socket AF_UNIX", "fork", "execve", "ptrace", "kill the bot")
    },
}
DEEDS: Final = {"work": work, **INSIDE_ALONE, **UPWARDS, **ENDS_IT}


def do(deed: str) -> str:
    DEEDS[deed]()
    return "done"


if __name__ == "__main__":
    ctypes.CDLL(None)
    serve(do)
