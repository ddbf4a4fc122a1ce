"""The sign that something is being done: one message a turn, edited as tools start and end.

It says as well that the model makes the turn wait, and shows what helpers do, and the list that a
longer turn works off.

What is to be seen is only noted; a task of the turn's own shows the latest of it, so nothing waits
for Signal but the end of a turn, and that within a bound.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final

import structlog

from bot.chat.tool_signs import DONE, Ended, HelperSigns, ToolSigns
from bot.errors import SignalError
from bot.messaging.messenger import Sender
from conversation_store.models import ChatId

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
long, and for twice as long after each further edit: what changes often must not take all edits."""

MAX_HELPERS_SHOWN: Final = 8
"""The latest ones; others are counted."""

STILL_TRYING: Final = "The model does not answer yet. Still trying…"

Remember = Callable[[int], None]
"""Keeps the timestamp that the next edit has to name, in ms."""


class Progress:
    """The progress message of one turn. A failure to show it never harms the turn.

    Args:
        channel: where it is shown.
        chat: the turn's chat.
        timestamp: of the message, when a run before a restart has already sent it.
        remember: told the timestamp of what was sent last; what it raises ends the turn.
        edits: how often that run has edited it.
    """

    def __init__(
        self,
        channel: Sender,
        chat: ChatId,
        timestamp: int | None,
        *,
        remember: Remember,
        edits: int = 0,
    ) -> None:
        self._channel = channel
        self._chat = chat
        self._timestamp = timestamp
        self._remember = remember
        self._tools = ToolSigns()
        self._helpers: list[HelperSigns] = []
        self._list: tuple[str, ...] = ()
        self._details_shown: tuple[str, ...] = ()
        self._still_trying = False
        self._busy_since: float | None = None
        self._busy_seconds = 0.0
        self._edits = edits
        self._edits_kept = 0
        self._shown = ""
        self._shown_at = 0.0
        self._tools_shown = 0
        self._changed = asyncio.Event()
        self._over = False
        self._tasks: asyncio.TaskGroup | None = None
        self._showing: asyncio.Task[None] | None = None

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
        if self._tools and self._timestamp is not None:
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
        further = self._edits - MAX_EDITS_FOR_MARKS
        if self._details == self._details_shown or further < 0 or self._edits >= MAX_EDITS - 1:
            return None
        return self._shown_at + DETAIL_PAUSE_SECONDS * 2.0**further

    async def _keep_shown(self) -> None:
        while True:
            await self._something_to_show()
            if self._over:
                break
            if self._is_worth_an_edit():
                await self._show()
        is_news = self._timestamp is not None and self._text() not in ("", self._shown)
        if is_news and self._edits < MAX_EDITS - self._edits_kept:
            await self._show()

    def _is_worth_an_edit(self) -> bool:
        if self._text() in ("", self._shown):
            return False
        if self._timestamp is None:
            return True
        is_news = len(self._tools) > self._tools_shown or self._details_are_due
        limit = MAX_EDITS if is_news else MAX_EDITS_FOR_MARKS
        return self._edits < min(limit, MAX_EDITS - 1)

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
        self._edits += self._timestamp is not None
        try:
            async with asyncio.timeout(PROGRESS_SECONDS):
                timestamp = await self._channel.send(self._chat, text, replaces=self._timestamp)
        except (SignalError, TimeoutError) as error:
            log.info("progress.not_shown", reason=type(error).__name__)
            return
        self._timestamp, self._shown = timestamp, text
        self._tools_shown, self._details_shown = tools, details
        self._remember(timestamp)


def _now() -> float:
    return asyncio.get_running_loop().time()
