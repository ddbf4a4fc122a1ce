"""Signs of life in a chat: typing, a reaction at once, a read receipt.

They are given in the background, within bounds, and without retries: failures are logged, and signs
above the bound are dropped. One task gives the signs of typing in a chat, so they keep their order.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import Any, Final

import structlog

from bot.backoff import set_within
from bot.observability.metrics import FIRST_SIGN_SECONDS
from bot.signal.errors import SignalError
from bot.signal.messenger import Messenger
from conversation_store.models import ChatId

log = structlog.get_logger()

TYPING_AFTER_SECONDS: Final = 0.3
"""An answer that comes sooner is its own sign of life."""

TYPING_REFRESH_SECONDS: Final = 10.0
"""Phones show typing for 15 seconds."""

TYPING_AGAIN_SECONDS: Final = 1.0
"""Pause after a message of the bot before typing is shown again; the answer may follow."""

OVERTAKING_SECONDS: Final = 1.0
"""An answer sent this soon after a sign of typing may reach the phone before it."""

SIGN_SECONDS: Final = 5.0
"""A sign that takes longer comes too late."""

MAX_IN_FLIGHT: Final = 32
"""Signs given at the same time; the bot drops further ones."""

MAX_CHATS: Final = 1_024
"""Chats with visible typing; above this, typing begins with the turn, not with the message."""

MAX_UNSIGNED_CHATS: Final = 20_000
MAX_UNSIGNED: Final = 100
"""Limits, in chats and in messages of a chat, of measuring waits for the first sign."""


@dataclass(slots=True)
class TypingTurn:
    """A turn that shows typing; on phones, its answer ends the typing by itself.

    Attributes:
        only_reacts: its answer is a reaction, which ends no typing.
    """

    answered: bool = False
    only_reacts: bool = False


@dataclass(eq=False, slots=True)
class _Typing:
    """Typing in a chat.

    Attributes:
        timer: starts to show it when due; None from then on.
        visible: phones show it; the bot's next message ends that.
        answered: the last turn that left, at `left_at` of the loop, had sent its answer.
        gone: the last turn has left, and none has come since.
        news: a message was sent, or the last turn has left.
    """

    timer: asyncio.TimerHandle | None
    turns: int = 0
    visible: bool = False
    answered: bool = False
    left_at: float = 0.0
    gone: bool = False
    news: asyncio.Event = field(default_factory=asyncio.Event)

    def leave(self, *, answered: bool) -> None:
        self.turns -= 1
        self.answered = answered
        self.left_at = asyncio.get_running_loop().time()
        self.gone = not self.turns
        if answered or not self.turns:
            self.visible = False
            self.news.set()

    async def next_sign(self) -> None:
        """Wait until typing is to be shown again, or the last turn has left."""
        if await set_within(self.news, TYPING_REFRESH_SECONDS):
            self.news.clear()
            if not self.gone:
                await set_within(self.news, TYPING_AGAIN_SECONDS)

    def must_end(self, shown_at: float) -> bool:
        """Whether the bot has to end typing, because phones may still show it."""
        overtaken = self.left_at - shown_at < OVERTAKING_SECONDS
        return self.gone and (overtaken or not self.answered)


@dataclass(eq=False, repr=False, slots=True)
class Presence:
    """Shows people that the bot has received their messages; settings may be changed."""

    messenger: Messenger
    _: KW_ONLY
    may_write: Callable[[ChatId], Awaitable[bool]]
    ack_reaction: str | None
    read_receipts: bool
    tasks: asyncio.TaskGroup
    clock: Callable[[], float] = time.time
    _running: set[asyncio.Task[None]] = field(default_factory=set, init=False)
    _typing: dict[ChatId, _Typing] = field(default_factory=dict, init=False)
    _unsigned: dict[ChatId, list[int]] = field(default_factory=dict, init=False)
    _in_flight: int = field(default=0, init=False)
    _cancelled: bool = field(default=False, init=False)

    def noticed(self, chat: ChatId, author: str, timestamp: int, *, received_at: int) -> None:
        """Start the signs for a message that will be answered; times are in ms."""
        if chat in self._unsigned or len(self._unsigned) < MAX_UNSIGNED_CHATS:
            unsigned = self._unsigned.setdefault(chat, [])
            if len(unsigned) < MAX_UNSIGNED:
                unsigned.append(received_at)
        if chat in self._typing and self._typing[chat].visible:
            self._observe_sign(chat)
        if chat not in self._typing and len(self._typing) < MAX_CHATS:
            self._begin_typing(chat)
        if self.ack_reaction is not None or self.read_receipts:
            self._start(self._acknowledge(chat, author, timestamp))

    @asynccontextmanager
    async def typing(self, chat: ChatId) -> AsyncIterator[TypingTurn]:
        """Show typing in a chat inside the block.

        Turns of the same chat count as one. Set `answered` on the yielded turn once its answer is
        sent; otherwise typing is taken back.
        """
        typing = self._typing.get(chat) or self._begin_typing(chat)
        typing.turns += 1
        typing.gone = False
        turn = TypingTurn()
        try:
            yield turn
        finally:
            typing.leave(answered=turn.answered and not turn.only_reacts)
            if turn.answered:
                self._observe_sign(chat)
            if not typing.turns and typing.timer is not None:
                typing.timer.cancel()
                del self._typing[chat]

    def message_sent(self, chat: ChatId) -> None:
        """Show typing again soon if the turn goes on, because a message ends it on phones."""
        self._observe_sign(chat)
        if chat in self._typing:
            self._typing[chat].visible = False
            self._typing[chat].news.set()

    def cancel(self) -> None:
        """Cancel all signs in progress, and give no more."""
        self._cancelled = True
        for typing in self._typing.values():
            if typing.timer is not None:
                typing.timer.cancel()
        for task in self._running:
            task.cancel()

    def _begin_typing(self, chat: ChatId) -> _Typing:
        loop = asyncio.get_running_loop()
        timer = loop.call_later(TYPING_AFTER_SECONDS, self._show_typing, chat)
        return self._typing.setdefault(chat, _Typing(timer))

    def _show_typing(self, chat: ChatId) -> None:
        typing = self._typing[chat]
        typing.timer = None
        self._start(self._keep_typing(chat, typing))

    def _start(self, signs: Coroutine[Any, Any, None]) -> None:
        if self._cancelled:
            signs.close()
            return
        task = self.tasks.create_task(signs)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _keep_typing(self, chat: ChatId, typing: _Typing) -> None:
        """Show typing as long as turns want it; without any, phones forget it by themselves."""
        clock = asyncio.get_running_loop().time
        try:
            while not typing.gone:
                show = self.messenger.show_typing
                typing.visible = await self._give(chat, partial(show, chat))
                if typing.visible:
                    self._observe_sign(chat)
                shown_at = clock()
                await typing.next_sign()
                if typing.must_end(shown_at):
                    await self._give(chat, partial(show, chat, stop=True))
                if not typing.turns:
                    return
        finally:
            del self._typing[chat]

    async def _acknowledge(self, chat: ChatId, author: str, timestamp: int) -> None:
        react, mark_read = self.messenger.react, self.messenger.mark_read
        if self.ack_reaction is not None:
            sign = partial(react, chat, self.ack_reaction, author=author, timestamp=timestamp)
            if await self._give(chat, sign):
                self._observe_sign(chat)
        # Only the author sees this, so it needs no right to write.
        if self.read_receipts and await self._give(None, partial(mark_read, author, [timestamp])):
            self._observe_sign(chat)

    def _observe_sign(self, chat: ChatId) -> None:
        """Observe how long the messages of a chat have waited for their first sign."""
        for received_at in self._unsigned.pop(chat, ()):
            FIRST_SIGN_SECONDS.observe(max(0.0, self.clock() - received_at / 1_000))

    async def _give(self, chat: ChatId | None, sign: Callable[[], Awaitable[None]]) -> bool:
        """Give a sign if there is room and the bot may write there; False if it failed."""
        if self._in_flight >= MAX_IN_FLIGHT:
            log.debug("presence.no_room")
            return False
        self._in_flight += 1
        try:
            async with asyncio.timeout(SIGN_SECONDS):
                if chat is None or not chat.is_group or await self.may_write(chat):
                    await sign()
        except (SignalError, TimeoutError) as error:
            log.info("presence.not_shown", reason=type(error).__name__)
            return False
        finally:
            self._in_flight -= 1
        return True
