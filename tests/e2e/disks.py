"""Disks that a test may fill, and have turn read-only: mounted for it alone.

Not everybody may mount: whoever uses one of these skips with the reason that is given.
"""

import os
import shutil
import subprocess
import time
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
    """This machine does not let us, or lacks a program for it; the text says which."""


@dataclass(frozen=True, slots=True)
class Disk:
    """A mounted file system.

    Attributes:
        folder: where it is mounted.
        device: the block device that it is on; empty without one.
    """

    folder: Path
    device: str = ""

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

    def turn_read_only(self) -> None:
        """Let the kernel meet an error in the file system and protect it from any more writing."""
        self._trigger.write_text("1")

    @property
    def can_turn_read_only(self) -> bool:
        """Whether the kernel offers it."""
        return os.access(self._trigger, os.W_OK)

    @property
    def _trigger(self) -> Path:
        return Path(f"/sys/fs/ext4/{Path(self.device).name}/trigger_fs_error")


@contextmanager
def memory_disk(folder: Path, size_bytes: int = SMALL_BYTES) -> Iterator[Disk]:
    """Mount a disk in memory.

    Raises:
        CannotMount: not here.
    """
    with _mounted(folder, "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs"):
        yield Disk(folder)


@contextmanager
def image_disk(folder: Path, image: Path) -> Iterator[Disk]:
    """Mount the ext4 file system in a file, which is made, or repaired where it was left broken.

    Raises:
        CannotMount: not here.
    """
    if image.exists():
        _run("e2fsck", "-p", "-f", image, fine=(0, 1))
    else:
        with image.open("wb") as file:
            file.truncate(SMALL_BYTES)
        _run("mkfs.ext4", "-q", image)
    with _mounted(folder, "-t", "ext4", "-o", "loop,errors=remount-ro", image):
        disk = Disk(folder, _device_of(folder))
        if not disk.can_turn_read_only:
            raise CannotMount("this kernel turns no file system read-only on request")
        yield disk
    _wait_until_free(disk.device)


@contextmanager
def _mounted(folder: Path, *arguments: str | Path) -> Iterator[None]:
    folder.mkdir(exist_ok=True)
    _run("mount", *arguments, folder)
    try:
        yield
    finally:
        _run("umount", folder)


def _wait_until_free(device: str) -> None:
    """Wait until no process has the file system any more.

    A sandbox that outlives its bot by a moment has it mounted in a namespace of its own; whoever
    mounts the same image meanwhile gets the same file system, read-only as it is.
    """
    backing_file = Path(f"/sys/block/{Path(device).name}/loop/backing_file")
    give_up_at = time.monotonic() + COMMAND_SECONDS
    while backing_file.exists() and time.monotonic() < give_up_at:
        pass
    assert not backing_file.exists(), "the file system is still in use"


def _device_of(folder: Path) -> str:
    mounts = (line.split() for line in Path("/proc/self/mounts").read_text().splitlines())
    return next(device for device, where, *_ in mounts if where == str(folder))


def _run(program: str, *arguments: str | Path, fine: tuple[int, ...] = (0,)) -> None:
    found = shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    if found is None:
        raise CannotMount(f"there is no {program} here")
    done = subprocess.run(
        [found, *arguments], capture_output=True, text=True, check=False, timeout=COMMAND_SECONDS
    )
    if done.returncode not in fine:
        raise CannotMount(f"{program} is refused here: {done.stderr.strip()}")


@contextmanager
def mounted(disk: AbstractContextManager[Disk]) -> Iterator[Disk]:
    """Enter it, or skip where nobody may mount."""
    try:
        with disk as there:
            yield there
    except CannotMount as reason:
        pytest.skip(str(reason))
