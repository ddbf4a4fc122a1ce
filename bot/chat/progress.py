"""The sign that something is being done: one message a turn, edited as tools start and end.

It also says that the model makes the turn wait, and shows helpers and the list of a longer turn.

Methods only note a change. A task of the turn shows the latest state, so only the end of a turn
waits for Signal, with a bound.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import KW_ONLY, dataclass, field
from typing import Final

import structlog

from bot.errors import SignalError
from bot.signal.messenger import Sender
from conversation_store.models import ChatId
from tools.display import one_line

log = structlog.get_logger()

PROGRESS_SECONDS: Final = 5.0
"""A progress message that takes longer is not worth waiting for."""

MAX_EDITS: Final = 10
"""Signal lets a message be edited so often; the last time is kept for how everything ended."""

MAX_EDITS_FOR_MARKS: Final = 5
"""After so many edits, that a tool has ended is shown together with the next one that starts."""

LONG_CALL_SECONDS: Final = 15.0
"""A tool that runs for so long is said to be running, and again after twice that time."""

DETAIL_PAUSE_SECONDS: Final = 15.0
"""Once `MAX_EDITS_FOR_MARKS` are used, changes of the list and of helpers are collected for so
long, and for twice as long after each further edit. Frequent changes must not use up all edits."""

MAX_HELPERS_SHOWN: Final = 8
"""The latest ones; others are counted."""

STILL_TRYING: Final = "The model does not answer yet. Still trying…"

DONE: Final = "☑"
"""How a line of a list begins that is done."""

MAX_LINE_BYTES: Final = 90
"""Of a helper."""

MAX_TASK_BYTES: Final = 40
_CUT: Final = "…"

Remember = Callable[[int], None]
"""Keeps the timestamp that the next edit has to name, in ms."""


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


@dataclass(eq=False, repr=False, slots=True)
class Progress:
    """The progress message of one turn. A failure to show it never harms the turn.

    Attributes:
        timestamp: of the progress message, if a run before a restart has sent it.
        remember: called with the timestamp of each message sent; its errors end the turn.
        edits: how often that run has edited the message.
    """

    channel: Sender
    chat: ChatId
    timestamp: int | None
    _: KW_ONLY
    remember: Remember
    edits: int = 0
    _tools: ToolSigns = field(default_factory=ToolSigns, init=False)
    _helpers: list[HelperSigns] = field(default_factory=list, init=False)
    _list: tuple[str, ...] = field(default=(), init=False)
    _details_shown: tuple[str, ...] = field(default=(), init=False)
    _still_trying: bool = field(default=False, init=False)
    _busy_since: float | None = field(default=None, init=False)
    _busy_seconds: float = field(default=0.0, init=False)
    _edits_kept: int = field(default=0, init=False)
    _shown: str = field(default="", init=False)
    _shown_at: float = field(default=0.0, init=False)
    _tools_shown: int = field(default=0, init=False)
    _changed: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _over: bool = field(default=False, init=False)
    _tasks: asyncio.TaskGroup | None = field(default=None, init=False)
    _showing: asyncio.Task[None] | None = field(default=None, init=False)

    def show(self, names: Iterable[str]) -> None:
        """Note that tools start; a name counts once for each of its calls."""
        names = tuple(names)
        self._tools.show(names)
        if names:
            self._still_trying = False
            self._changed.set()
        self._note_busy()
        self._start_showing()

    def finished(self, name: str, *, ok: bool) -> None:
        """Note that a call that was shown has ended."""
        self._tools.finished(name, ok=ok)
        self._note_busy()
        self._changed.set()

    def helper(self, task: str) -> HelperSigns:
        """Return the line of a new helper, which stands below the tools."""
        signs = HelperSigns(task, self._changed.set)
        self._helpers.append(signs)
        self._changed.set()
        return signs

    def show_again(self, ended: Ended) -> None:
        """Note how calls ended before a restart.

        That is no news: the message is edited for it only as long as it has been edited rarely, and
        none is sent.
        """
        self._tools.show_again(ended)
        self._tools_shown = len(self._tools)
        if self._tools and self.timestamp is not None:
            self._changed.set()
            self._start_showing()

    def show_list(self, lines: Sequence[str]) -> None:
        """Note the lines that stand below the tools from now on, in place of those before."""
        if tuple(lines) != self._list:
            self._list = tuple(lines)
            self._changed.set()
            self._start_showing()

    def keep_last_edit(self) -> None:
        """Leave an edit for a later run: this one ends, and its turn has not."""
        self._edits_kept = 1

    def still_trying(self) -> None:
        """Note that the model makes the turn wait, until the next tool starts."""
        self._still_trying = True
        self._changed.set()
        self._start_showing()

    def _start_showing(self) -> None:
        if self._tasks is not None and self._showing is None and not self._over:
            self._showing = self._tasks.create_task(self._keep_shown())

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Keep the message up to date inside, and show how everything ended when it is left.

        Raises:
            ExceptionGroup: what `remember` raised; what the inside raises comes out as it is.
        """
        failure: Exception | None = None
        async with asyncio.TaskGroup() as self._tasks:
            if self._list:  # of a run before a restart
                self._start_showing()
            try:
                yield
            except Exception as error:  # Raised below: the group would wrap it.
                failure = error
            self._over = True
            self._still_trying = self._still_trying and not self._tools
            self._changed.set()
            if self._showing is not None:
                await asyncio.wait([self._showing], timeout=PROGRESS_SECONDS)
                self._showing.cancel()
        if failure is not None:
            raise failure

    def _note_busy(self) -> None:
        """Note since when tools run without a pause."""
        if not self._tools.busy:
            self._busy_since = None
        elif self._busy_since is None:
            self._busy_since = _now()
        self._busy_seconds = 0.0

    async def _something_to_show(self) -> None:
        """Wait until something has changed, details may be shown, or a tool runs for long."""
        waits = [due for due in (self._next_sign_of_life, self._next_details) if due is not None]
        with suppress(TimeoutError):
            async with asyncio.timeout_at(min(waits, default=None)):
                await self._changed.wait()
        self._changed.clear()
        if self._next_sign_of_life is not None and _now() >= self._next_sign_of_life:
            self._busy_seconds = _now() - (self._busy_since or 0.0)

    @property
    def _next_sign_of_life(self) -> float | None:
        """When a tool that still runs is said to be running."""
        if self._busy_since is None:
            return None
        return self._busy_since + max(LONG_CALL_SECONDS, 2 * self._busy_seconds)

    @property
    def _next_details(self) -> float | None:
        """When changed details are shown; None where nothing is to be waited for."""
        further = self.edits - MAX_EDITS_FOR_MARKS
        if self._details == self._details_shown or further < 0 or self.edits >= MAX_EDITS - 1:
            return None
        return self._shown_at + DETAIL_PAUSE_SECONDS * 2.0**further

    async def _keep_shown(self) -> None:
        while True:
            await self._something_to_show()
            if self._over:
                break
            if self._is_worth_an_edit():
                await self._show()
        is_news = self.timestamp is not None and self._text() not in ("", self._shown)
        if is_news and self.edits < MAX_EDITS - self._edits_kept:
            await self._show()

    def _is_worth_an_edit(self) -> bool:
        if self._text() in ("", self._shown):
            return False
        if self.timestamp is None:
            return True
        is_news = len(self._tools) > self._tools_shown or self._details_are_due
        limit = MAX_EDITS if is_news else MAX_EDITS_FOR_MARKS
        return self.edits < min(limit, MAX_EDITS - 1)

    @property
    def _details_are_due(self) -> bool:
        return self._next_details is not None and _now() >= self._next_details

    @property
    def _details(self) -> tuple[str, ...]:
        """The lines below the tools."""
        unseen = max(0, len(self._helpers) - MAX_HELPERS_SHOWN)
        more = (f"↳ +{unseen}",) if unseen else ()
        return (*more, *map(str, self._helpers[unseen:]), *self._list)

    def _text(self) -> str:
        long = f" ({self._busy_seconds:.0f} s)" if self._busy_seconds else ""
        running = f"…{long}" if self._tools.busy else ""
        using = f"Using {self._tools}{running}" if self._tools else ""
        waiting = STILL_TRYING if self._still_trying else ""
        said = "\n".join(filter(None, (using, waiting))) or self._done
        return "\n".join((f"🔧 {said}", *self._details)) if said else ""

    @property
    def _done(self) -> str:
        """How much of the list is done, as `1/3`; empty without one."""
        done = sum(line.startswith(DONE) for line in self._list)
        return f"{done}/{len(self._list)}" if self._list else ""

    async def _show(self) -> None:
        """Send or edit the message; on trouble the next change tries again."""
        text, tools, details = self._text(), len(self._tools), self._details
        self._shown_at = _now()
        self.edits += self.timestamp is not None
        try:
            async with asyncio.timeout(PROGRESS_SECONDS):
                timestamp = await self.channel.send(self.chat, text, replaces=self.timestamp)
        except (SignalError, TimeoutError) as error:
            log.info("progress.not_shown", reason=type(error).__name__)
            return
        self.timestamp, self._shown = timestamp, text
        self._tools_shown, self._details_shown = tools, details
        self.remember(timestamp)


def _now() -> float:
    return asyncio.get_running_loop().time()


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
