"""Private disks of a test, which may fill them and mount them read-only.

Mounting needs rights: without them, these helpers skip the test with the reason.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

FILLER_BYTES: Final = 64 * 1024
SMALL_BYTES: Final = 8 * 1024 * 1024
COMMAND_SECONDS: Final = 20.0


class CannotMount(Exception):
    """Mounting is not allowed here, or a program for it is missing; the text says which."""


@dataclass(frozen=True, slots=True)
class Disk:
    """A file system that is mounted at a folder."""

    folder: Path

    def fill(self) -> None:
        """Leave not one byte."""
        with (self.folder / "filler").open("ab", buffering=0) as filler, suppress(OSError):
            while True:
                filler.write(bytes(FILLER_BYTES))

    def make_room(self) -> None:
        """Give back what `fill` took."""
        (self.folder / "filler").unlink()

    def forbid_writing(self) -> None:
        """Mount it again, read only."""
        _run("mount", "-o", "remount,ro", self.folder)


@contextmanager
def memory_disk(folder: Path, size_bytes: int = SMALL_BYTES) -> Iterator[Disk]:
    """Mount a disk in memory.

    Raises:
        CannotMount: this machine does not allow it.
    """
    with _mounted(folder, "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs"):
        yield Disk(folder)


@contextmanager
def _mounted(folder: Path, *arguments: str | Path) -> Iterator[None]:
    folder.mkdir(exist_ok=True)
    _run("mount", *arguments, folder)
    try:
        yield
    finally:
        _run("umount", folder)


def _run(program: str, *arguments: str | Path) -> None:
    found = shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    if found is None:
        raise CannotMount(f"there is no {program} here")
    done = subprocess.run(
        [found, *arguments], capture_output=True, text=True, check=False, timeout=COMMAND_SECONDS
    )
    if done.returncode != 0:
        raise CannotMount(f"{program} is refused here: {done.stderr.strip()}")


@contextmanager
def mounted(disk: AbstractContextManager[Disk]) -> Iterator[Disk]:
    """Enter it, or skip the test if mounting is not allowed."""
    try:
        with disk as there:
            yield there
    except CannotMount as reason:
        pytest.skip(str(reason))
