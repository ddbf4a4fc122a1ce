"""The progress message of a turn, edited as tools start and end.

It also shows helpers, the list of a longer turn, and that the model does not answer yet.

Methods only note a change. A task of the turn shows the latest state, so only the end of a turn
waits for Signal, and only for a limited time.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import KW_ONLY, dataclass, field
from typing import Final

import structlog

from bot.signal.errors import SignalError, SignalTimeout
from bot.signal.messenger import Sender
from conversation_store.models import ChatId
from tools.display import one_line

log = structlog.get_logger()

PROGRESS_SECONDS: Final = 5.0
"""Longest wait for the progress message at the end of a turn."""

MAX_EDITS: Final = 10
"""Signal's limit of edits of a message; the last one is kept for the end of the turn."""

EDITS_AT_ONCE: Final = 6
PAUSE_SECONDS: Final = 15.0
"""Pause before the next edit after `EDITS_AT_ONCE` edits; it doubles with each further edit.
Otherwise frequent changes would use up all edits."""

LONG_CALL_SECONDS: Final = 15.0
"""The message names the seconds of a tool that runs this long, and again after twice as long."""

MAX_HELPERS_SHOWN: Final = 8
"""The latest helpers have a line each; the others are counted."""

STILL_TRYING: Final = "The model does not answer yet. Still trying…"
TOOK_LONG: Final = "The model took longer than usual."
"""Replaces that text at the end of a turn without tools."""

DONE: Final = "☑"
"""Sign of a list item that is done."""

MAX_LINE_BYTES: Final = 90
"""Length of a helper's line."""

MAX_TASK_BYTES: Final = 40
_CUT: Final = "…"

Ended = Iterable[tuple[str, bool]]
"""Calls that have ended: the tool of each, and whether it succeeded."""


class _News:
    """Signals changes to the task that shows the message; the first change starts the task.

    Most turns show nothing, so they need no task.
    """

    def __init__(self) -> None:
        self.arrived = asyncio.Event()
        self.start: Callable[[], object] | None = None

    def set(self) -> None:
        self.arrived.set()
        if self.start is not None:
            start, self.start = self.start, None
            start()


class ToolSigns:
    """The called tools of a turn or of one of its helpers, in the order of their first calls.

    At least one call has been running since `busy_since` (loop time); None if none runs.
    """

    def __init__(self, changed: _News, task: str = "") -> None:
        self.calls = 0
        self.busy_since: float | None = None
        self._changed = changed
        self._task = fitted(task[:MAX_LINE_BYTES], MAX_TASK_BYTES) if task else ""
        self._sign = "↳"
        self._running: Counter[str] = Counter()
        self._failed: dict[str, bool] = {}

    def __len__(self) -> int:
        return len(self._failed)

    def __str__(self) -> str:
        marks = {
            name: "" if self._running[name] else " ✗" if failed else " ✓"
            for name, failed in self._failed.items()
        }
        return ", ".join(f"{name}{mark}" for name, mark in marks.items())

    def line(self) -> str:
        """Return the line of a helper, without the first tools if it is too long."""
        begin = f"{self._sign} {self._task}{': ' if len(self) else ''}"
        return begin + _ending_of(str(self), MAX_LINE_BYTES - len(begin.encode()))

    def show(self, name: str) -> None:
        """Note that a call of a tool starts."""
        self._failed.setdefault(name, True)
        self._running[name] += 1
        self.calls += 1
        if self.busy_since is None:
            self.busy_since = _now()
        self._changed.set()

    def finished(self, name: str, *, ok: bool) -> None:
        """Note that a call that was shown has ended."""
        self._running[name] -= 1
        self._failed[name] &= not ok
        if not self._running.total():
            self.busy_since = None
        self._changed.set()

    def show_again(self, ended: Ended) -> None:
        """Note how calls ended before a restart."""
        for name, ok in ended:
            self.show(name)
            self.finished(name, ok=ok)

    def stop(self) -> None:
        """Note that the calls that still ran were stopped."""
        for name in [*self._running.elements()]:
            self.finished(name, ok=False)

    def ended(self, *, ok: bool) -> None:
        """Note that the helper has ended."""
        self._sign = "↳ ✓" if ok else "↳ ✗"
        self._changed.set()


@dataclass(eq=False, repr=False, slots=True)
class Progress:
    """The progress message of one turn. A failure to show it never harms the turn.

    Attributes:
        timestamp: of the message, if the turn sent it before a restart, with so many `edits`.
        remember: called with the timestamp of each message sent, in ms; the next edit has to name
            it. Its errors end the turn.
        say: translates a sentence for the chat.
    """

    channel: Sender
    chat: ChatId
    timestamp: int | None
    _: KW_ONLY
    remember: Callable[[int], None]
    edits: int = 0
    say: Callable[[str], str] = str
    tools: ToolSigns = field(init=False)
    _helpers: list[ToolSigns] = field(default_factory=list, init=False)
    _list: tuple[str, ...] = field(default=(), init=False)
    _waits_after: int | None = field(default=None, init=False)
    _calls_before: int = field(default=0, init=False)
    _busy_seconds: float = field(default=0.0, init=False)
    _edits_kept: int = field(default=0, init=False)
    _shown: str = field(default="", init=False)
    _tried: str = field(default="", init=False)
    _tried_at: float = field(default=0.0, init=False)
    _changed: _News = field(default_factory=_News, init=False)
    _over: bool = field(default=False, init=False)
    _is_in_doubt: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        # Not a method of this object: a turn in a reference cycle keeps its history for long.
        self.tools = ToolSigns(self._changed)
        if self.timestamp is not None:
            self._changed.set()  # what it shows may have been true before the restart only

    def helper(self, task: str) -> ToolSigns:
        """Return the line of a new helper, below the tools."""
        signs = ToolSigns(self._changed, task)
        self._helpers.append(signs)
        self._changed.set()
        return signs

    def show_again(self, ended: Ended) -> None:
        """Note how calls ended before a restart; do not send a message for that alone."""
        self.tools.show_again(ended)
        self._calls_before = self.tools.calls

    def show_list(self, lines: Sequence[str]) -> None:
        """Replace the lines below the tools."""
        if tuple(lines) != self._list:
            self._list = tuple(lines)
            self._changed.set()

    def keep_last_edit(self) -> None:
        """Save an edit for a later run of the turn, which is not over yet."""
        self._edits_kept = 1

    def still_trying(self) -> None:
        """Note that the model does not answer yet, until the next tool starts."""
        self._waits_after = self.tools.calls
        self._changed.set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Keep the message up to date inside the block; show at the end how everything ended.

        Raises:
            ExceptionGroup: `remember` failed; errors inside the block are raised as they are.
        """
        failure: Exception | None = None
        async with asyncio.TaskGroup() as tasks:
            showing: list[asyncio.Task[None]] = []
            self._changed.start = lambda: showing.append(tasks.create_task(self._keep_shown()))
            if self._changed.arrived.is_set():
                self._changed.set()
            try:
                yield
            except Exception as error:  # Raised below: the group would wrap it.
                failure = error
            finally:
                self._changed.start = None
            self._end()
            if showing:
                self._changed.set()
                await asyncio.wait(showing, timeout=PROGRESS_SECONDS)
                showing[0].cancel()
        if failure is not None:
            raise failure

    async def show_stopped(self) -> None:
        """Show that no tool runs any more: `!stop` has ended the turn."""
        self.tools.stop()
        self._end()
        if self.timestamp is not None and self.edits < MAX_EDITS:
            await self._show()

    def _end(self) -> None:
        self._over = True
        self._waits_after = None

    async def _something_to_show(self) -> None:
        """Wait until something has changed, an edit is allowed, or a tool has run for long."""
        waits = [] if (due := self._next_edit) is None else [due]
        if self.tools.busy_since is not None:
            waits.append(self.tools.busy_since + max(LONG_CALL_SECONDS, 2 * self._busy_seconds))
        with suppress(TimeoutError):
            async with asyncio.timeout_at(min(waits, default=None)):
                await self._changed.arrived.wait()
        self._changed.arrived.clear()
        busy_since = self.tools.busy_since
        seconds = 0.0 if busy_since is None else _now() - busy_since
        self._busy_seconds = seconds if seconds >= LONG_CALL_SECONDS else 0.0

    @property
    def _next_edit(self) -> float | None:
        """Time of the next edit for collected changes; None without any."""
        further = self.edits - EDITS_AT_ONCE
        if self._text() in ("", self._tried) or further < 0 or self.edits >= MAX_EDITS - 1:
            return None
        return self._tried_at + PAUSE_SECONDS * 2.0**further

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
        if self.timestamp is None and self._is_in_doubt:
            return False  # a second message would stand next to one that may have arrived
        if self.timestamp is None:
            return self.tools.calls > self._calls_before or self._waits or bool(self._list)
        if self.edits < EDITS_AT_ONCE:
            return True
        return self._next_edit is not None and _now() >= self._next_edit

    @property
    def _waits(self) -> bool:
        return self._waits_after == self.tools.calls

    def _text(self) -> str:
        long = f" ({self._busy_seconds:.0f} s)" if self._busy_seconds else ""
        running = f"…{long}" if self.tools.busy_since is not None else ""
        using = f"Using {self.tools}{running}" if len(self.tools) else ""
        said = "\n".join(filter(None, (using, self.say(STILL_TRYING) if self._waits else "")))
        if not said and self._list:
            said = f"{sum(line.startswith(DONE) for line in self._list)}/{len(self._list)}"
        if not said and self._over:
            said = self.say(TOOK_LONG)
        unseen = max(0, len(self._helpers) - MAX_HELPERS_SHOWN)
        more = (f"↳ +{unseen}",) if unseen else ()
        details = (*more, *(helper.line() for helper in self._helpers[unseen:]), *self._list)
        return "\n".join((f"🔧 {said}", *details)) if said else ""

    async def _show(self) -> None:
        """Send or edit the message; unless it may have arrived, the next change tries again."""
        text = self._tried = self._text()
        self._tried_at = _now()
        self.edits += self.timestamp is not None
        try:
            async with asyncio.timeout(PROGRESS_SECONDS):
                timestamp = await self.channel.send(self.chat, text, replaces=self.timestamp)
        except (SignalError, TimeoutError) as error:
            log.info("progress.not_shown", reason=type(error).__name__)
            self._is_in_doubt = isinstance(error, SignalTimeout | TimeoutError)
            return
        self.timestamp, self._shown = timestamp, text
        self.remember(timestamp)


def _now() -> float:
    return asyncio.get_running_loop().time()


def fitted(text: str, most: int) -> str:
    """Return a text on one line, without control characters, cut to so many bytes."""
    encoded = one_line(text).encode(errors="replace")
    if len(encoded) <= most:
        return encoded.decode()
    return encoded[: most - len(_CUT.encode())].decode(errors="ignore") + _CUT


def _ending_of(text: str, most: int) -> str:
    """Return the end of a text that fits into so many bytes."""
    encoded = text.encode(errors="replace")
    if len(encoded) <= most:
        return encoded.decode()
    return _CUT + encoded[len(_CUT.encode()) - most :].decode(errors="ignore")
