"""Signs of life in a chat: typing, a reaction at once, a read receipt.

All of it happens in the background, within bounds, and none of it matters enough to be tried
again: a sign that fails is logged, and one for which there is no room is not given. The signs of
typing in a chat come from one task, so that none overtakes another.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Protocol

import structlog

from bot.dispatch.outgoing.first_signs import FirstSigns
from bot.errors import SignalError
from conversation_store.models import ChatId

log = structlog.get_logger()

TYPING_REFRESH_SECONDS: Final = 10.0
"""Phones show typing for 15 seconds."""

TYPING_AGAIN_SECONDS: Final = 1.0
"""How long after a message of the bot typing is shown again: the next may be the answer."""

OVERTAKING_SECONDS: Final = 1.0
"""An answer sent so soon after a sign of typing may be at the phone before it."""

SIGN_SECONDS: Final = 5.0
"""A sign that takes longer comes too late."""

MAX_IN_FLIGHT: Final = 32
"""Signs that are being given at the same time; further ones are not."""

MAX_CHATS: Final = 1_024
"""Chats that typing is shown in; where there are more, a message alone does not begin it."""


class PresenceChannel(Protocol):
    """Where signs of life are given. Implemented by every Messenger."""

    async def show_typing(self, chat: ChatId, *, stop: bool = False) -> None:
        """Let a chat see that an answer is being written, or no longer."""
        ...

    async def react(self, chat: ChatId, emoji: str, *, author: str, timestamp: int) -> None:
        """Put an emoji on somebody's message."""
        ...

    async def mark_read(self, person: str, timestamps: Sequence[int]) -> None:
        """Tell a person that messages were read."""
        ...


@dataclass(slots=True)
class TypingTurn:
    """A turn that typing is shown for.

    Attributes:
        answered: its last words are sent, which ends the typing on phones by itself.
    """

    answered: bool = False


@dataclass(eq=False, slots=True)
class _Typing:
    """That the bot types in a chat.

    Attributes:
        turns: how many turns want it.
        visible: phones show it; the bot's next message ends that.
        answered: the last turn that left had sent its answer.
        left_at: when that was, by the loop's clock.
        gone: the last turn has left.
        news: a message was sent, or the last turn has left.
    """

    turns: int = 0
    visible: bool = False
    answered: bool = False
    left_at: float = 0.0
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    news: asyncio.Event = field(default_factory=asyncio.Event)

    def enter(self) -> None:
        self.turns += 1
        self.gone.clear()

    def leave(self, *, answered: bool) -> None:
        self.turns -= 1
        self.answered = answered
        self.left_at = asyncio.get_running_loop().time()
        if not self.turns:
            self.gone.set()
        if answered or not self.turns:
            self.visible = False
            self.news.set()

    async def next_sign(self) -> None:
        """Wait until typing is to be shown again, or the last turn has left."""
        await _until(self.news, TYPING_REFRESH_SECONDS)
        if self.news.is_set():
            self.news.clear()
            await _until(self.gone, TYPING_AGAIN_SECONDS)

    def is_to_be_taken_back(self, shown_at: float) -> bool:
        """Whether phones may go on showing what they were shown last."""
        overtaken = self.left_at - shown_at < OVERTAKING_SECONDS
        return self.gone.is_set() and (overtaken or not self.answered)


class Presence:
    """Shows people that their messages have come to somebody.

    Args:
        channel: where.
        ack_reaction: the emoji that every message gets at once; None for none.
        read_receipts: whether people are told that their messages were read.
        tasks: where the signs are given from.
        clock: seconds since 1970.

    Attributes:
        ack_reaction: may be changed at any time, as may `read_receipts`.
    """

    def __init__(
        self,
        channel: PresenceChannel,
        *,
        ack_reaction: str | None,
        read_receipts: bool,
        tasks: asyncio.TaskGroup,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._channel = channel
        self.ack_reaction = ack_reaction
        self.read_receipts = read_receipts
        self._tasks = tasks
        self._first_signs = FirstSigns(clock)
        self._running: set[asyncio.Task[None]] = set()
        self._typing: dict[ChatId, _Typing] = {}
        self._in_flight = 0
        self._cancelled = False

    def noticed(self, chat: ChatId, author: str, timestamp: int, *, received_at: int) -> None:
        """Begin to give the signs for a message that will be answered; returns at once.

        Args:
            chat: where it was written.
            author: ACI of whoever wrote it.
            timestamp: of the message, in ms.
            received_at: when the bot received it, in ms.
        """
        self._first_signs.expected(chat, received_at)
        if chat in self._typing and self._typing[chat].visible:
            self._first_signs.given(chat)
        if chat not in self._typing and len(self._typing) < MAX_CHATS:
            self._begin_typing(chat)
        if self.ack_reaction is not None or self.read_receipts:
            self._start(self._acknowledge(chat, author, timestamp))

    @asynccontextmanager
    async def typing(self, chat: ChatId) -> AsyncIterator[TypingTurn]:
        """Show typing in a chat, from now until this is left.

        Turns of the same chat count as one. Whoever has sent the answer says so to what is
        yielded; else typing is taken back.
        """
        typing = self._typing.get(chat) or self._begin_typing(chat)
        typing.enter()
        turn = TypingTurn()
        try:
            yield turn
        finally:
            typing.leave(answered=turn.answered)
            if turn.answered:
                self._first_signs.given(chat)

    def message_sent(self, chat: ChatId) -> None:
        """Show typing again soon in a chat whose turn goes on: a message has ended it on phones."""
        self._first_signs.given(chat)
        if chat in self._typing:
            self._typing[chat].visible = False
            self._typing[chat].news.set()

    def cancel(self) -> None:
        """Give up the signs that are being given, and give no more."""
        self._cancelled = True
        for task in self._running:
            task.cancel()

    def _begin_typing(self, chat: ChatId) -> _Typing:
        typing = self._typing[chat] = _Typing()
        self._start(self._keep_typing(chat, typing))
        return typing

    def _start(self, signs: Coroutine[Any, Any, None]) -> None:
        if self._cancelled:
            signs.close()
            return
        task = self._tasks.create_task(signs)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _keep_typing(self, chat: ChatId, typing: _Typing) -> None:
        """Show typing as long as turns want it; without any, phones forget it by themselves."""
        clock = asyncio.get_running_loop().time
        try:
            while True:
                typing.visible = await self._give(chat, partial(self._channel.show_typing, chat))
                shown_at = clock()
                await typing.next_sign()
                if typing.is_to_be_taken_back(shown_at):
                    await self._take_back(chat)
                if not typing.turns:
                    return
        finally:
            del self._typing[chat]

    async def _acknowledge(self, chat: ChatId, author: str, timestamp: int) -> None:
        if self.ack_reaction is not None:
            react = partial(self._channel.react, chat, self.ack_reaction)
            await self._give(chat, partial(react, author=author, timestamp=timestamp))
        if self.read_receipts:
            await self._give(chat, partial(self._channel.mark_read, author, [timestamp]))

    async def _give(self, chat: ChatId, sign: Callable[[], Awaitable[None]]) -> bool:
        """Give a sign of life in a chat; return whether that was done."""
        given = await self._tell(sign)
        if given:
            self._first_signs.given(chat)
        return given

    async def _take_back(self, chat: ChatId) -> None:
        await self._tell(partial(self._channel.show_typing, chat, stop=True))

    async def _tell(self, sign: Callable[[], Awaitable[None]]) -> bool:
        """Tell phones something, if there is room for it; that it fails is no harm."""
        if self._in_flight >= MAX_IN_FLIGHT:
            log.debug("presence.no_room")
            return False
        self._in_flight += 1
        try:
            async with asyncio.timeout(SIGN_SECONDS):
                await sign()
        except (SignalError, TimeoutError) as error:
            log.info("presence.not_shown", reason=type(error).__name__)
            return False
        finally:
            self._in_flight -= 1
        return True


async def _until(news: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await news.wait()
