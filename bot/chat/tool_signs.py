"""Which tools run, or how they ended, on one line: of a turn, or of one of its helpers."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from tools.display import one_line

DONE: Final = "☑"
"""How a line of a list begins that is done."""

MAX_LINE_BYTES: Final = 90
"""Of a helper."""

MAX_TASK_BYTES: Final = 40
_CUT: Final = "…"


@dataclass(slots=True)
class _Tool:
    """What is to be seen of a tool: how many of its calls run, or how they ended."""

    running: int = 0
    failed: bool = False

    @property
    def mark(self) -> str:
        if self.running:
            return ""
        return " ✗" if self.failed else " ✓"


Ended = Iterable[tuple[str, bool]]
"""Names of tools, one for each call that has ended, and whether it did what it should."""


class ToolSigns:
    """The tools that were called, in the order in which they were first called."""

    def __init__(self) -> None:
        self._tools: dict[str, _Tool] = {}

    def __len__(self) -> int:
        return len(self._tools)

    def __str__(self) -> str:
        """Return their names, each with how it ended."""
        return ", ".join(f"{name}{tool.mark}" for name, tool in self._tools.items())

    @property
    def busy(self) -> bool:
        """Whether one of them runs."""
        return any(tool.running for tool in self._tools.values())

    def show(self, names: Iterable[str]) -> None:
        """Note that tools start; a name counts once for each of its calls."""
        for name in names:
            tool = self._tools.setdefault(name, _Tool())
            # A call that starts when no other of the tool runs is a new try.
            tool.failed = tool.failed and tool.running > 0
            tool.running += 1

    def finished(self, name: str, *, ok: bool) -> None:
        """Note that a call that was shown has ended."""
        tool = self._tools[name]
        tool.running -= 1
        tool.failed = tool.failed or not ok

    def show_again(self, ended: Ended) -> None:
        """Note how calls ended before a restart."""
        for name, ok in ended:
            self.show([name])
            self.finished(name, ok=ok)


class HelperSigns:
    """The line of one helper: what it works off, and the tools that it uses.

    Args:
        task: what it was told.
        changed: called whenever the line has changed.
    """

    def __init__(self, task: str, changed: Callable[[], None]) -> None:
        self._task = fitted(task[:MAX_LINE_BYTES], MAX_TASK_BYTES)
        self._changed = changed
        self._tools = ToolSigns()
        self._sign = "↳"

    def __str__(self) -> str:
        """Return the line; where it is too long, without the tools that were called first."""
        begin = f"{self._sign} {self._task}{': ' if self._tools else ''}"
        return begin + _ending_of(str(self._tools), MAX_LINE_BYTES - len(begin.encode()))

    def show(self, names: Iterable[str]) -> None:
        """Note that tools start."""
        self._tools.show(names)
        self._changed()

    def finished(self, name: str, *, ok: bool) -> None:
        """Note that a call that was shown has ended."""
        self._tools.finished(name, ok=ok)
        self._changed()

    def show_again(self, ended: Ended) -> None:
        """Note how calls ended before a restart."""
        self._tools.show_again(ended)
        self._changed()

    @contextmanager
    def working(self) -> Iterator[None]:
        """Show how the helper that works inside has ended, once it has."""
        ok = False
        try:
            yield
            ok = True
        finally:
            self.ended(ok=ok)

    def ended(self, *, ok: bool) -> None:
        """Note that the helper has ended."""
        self._sign = "↳ ✓" if ok else "↳ ✗"
        self._changed()


def fitted(text: str, most: int) -> str:
    """Return a text on one line in which nothing steers the display, cut to so many bytes."""
    encoded = one_line(text).encode(errors="replace")
    if len(encoded) <= most:
        return encoded.decode()
    return encoded[: most - len(_CUT.encode())].decode(errors="ignore") + _CUT


def _ending_of(text: str, most: int) -> str:
    """Return as much of the end of a text as fits into so many bytes."""
    encoded = text.encode(errors="replace")
    if len(encoded) <= most:
        return encoded.decode()
    return _CUT + encoded[len(_CUT.encode()) - most :].decode(errors="ignore")
