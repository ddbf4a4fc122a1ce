"""Who runs on which processors while programs run.

Programs leave some processors to everybody else, and this process keeps to those meanwhile. That
programs are of the idle class is not enough: the kernel takes a processor on which nothing else
runs for a free one, and wakes threads there; yet where it shares processors out by session
(sched(7), "The autogroup feature"), programs give it back only at its next tick. A thread that
waits for the disk a few times waits for as many ticks.

Source: sched_setaffinity(2).
"""

import os
from collections.abc import Collection, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from sandbox.jail.watch import processes_of

MOST_KEPT: Final = 2
"""Processors that are left to this process, which has work for the event loop and for the disk."""


@dataclass(frozen=True, slots=True)
class Shares:
    """Processors by their numbers.

    Attributes:
        everybody: those that this process may use.
        kept: those of them that are left to it while programs run.
        programs: those that programs use; all of them where there is only one.
    """

    everybody: tuple[int, ...]
    kept: tuple[int, ...]
    programs: tuple[int, ...]

    @classmethod
    def of(cls, usable: Collection[int]) -> Self:
        """Return who gets which of these processors."""
        everybody = tuple(sorted(usable))
        kept = everybody[: min(MOST_KEPT, len(everybody) // 2)]
        return cls(everybody, kept or everybody, everybody[len(kept) :])


class Processors:
    """Shares out the processors of this process while programs run; on the event loop alone."""

    def __init__(self) -> None:
        self._programs = 0
        self._shares = Shares((), (), ())

    @property
    def of_programs(self) -> tuple[int, ...]:
        """Those that programs run on now, by their numbers."""
        return self._shares.programs

    @contextmanager
    def shared_out(self, threads: Executor) -> Iterator[None]:
        """Keep this process off the processors of programs.

        Args:
            threads: on which it looks for processes.
        """
        if not self._programs:
            self._shares = Shares.of(os.sched_getaffinity(0))
            _move(os.getpid(), self._shares.everybody, self._shares.kept)
        self._programs += 1
        try:
            yield
        finally:
            self._programs -= 1
            if not self._programs:
                kept, everybody = self._shares.kept, self._shares.everybody
                _move(os.getpid(), kept, everybody)
                threads.submit(_move_children, kept, everybody)


PROCESSORS: Final = Processors()
"""Of all jails: what one of them changes is this whole process's."""


def _move_children(kept: Collection[int], everybody: Collection[int]) -> None:
    """Let processes that this one has started meanwhile run everywhere again."""
    for process in processes_of(os.getpid()):
        if process != os.getpid():  # the next program may run already
            _move(process, kept, everybody)


def _move(process: int, old: Collection[int], new: Collection[int]) -> None:
    """Let those threads of a process that run on some processors run on others."""
    with suppress(OSError):  # the process has ended
        for entry in Path(f"/proc/{process}/task").iterdir():
            thread = int(entry.name)
            with suppress(OSError):  # it has ended, or a unit of systemd's forbids it
                if os.sched_getaffinity(thread) == set(old):
                    os.sched_setaffinity(thread, new)
