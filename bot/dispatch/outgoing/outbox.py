"""Answers on their way: sent in order, tried again, marked, and given up loudly after a bound.

A part is on disk before it comes here, and is sent as it stands there: what was deleted meanwhile
is not. While there is no connection it waits as long as it takes; an attempt counts only when the
Signal side had its chance, which a request that signal-cli passed over never had. The chat's
mailbox worker waits here, so a chat's messages leave in their order. What a person with a new,
untrusted key is to get is put aside until the key is trusted.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

import structlog

from bot.backoff import Backoff
from bot.dispatch.outgoing.noted_sends import now_ms
from bot.errors import (
    SignalError,
    SignalPassedOver,
    SignalRateLimited,
    SignalRejected,
    SignalUnavailable,
    SignalUntrusted,
)
from bot.messaging.messenger import Messenger
from bot.messaging.receipts import CLOCK_SKEW_MS
from bot.observability import metrics
from conversation_store.models import (
    ChatId,
    Interrupted,
    OutgoingMessage,
)
from conversation_store.store import ConversationStore

log = structlog.get_logger()


RETRY: Final = Backoff(first_seconds=1.0, longest_seconds=60.0)


@dataclass(frozen=True, slots=True)
class SendPolicy:
    """How long an answer is tried.

    Attributes:
        max_attempts: after so many failed attempts it is given up; its text stays in the store.
        backoff: between two attempts.
        reconnect_poll_seconds: how often a part without a connection looks again.
    """

    max_attempts: int = 10
    backoff: Backoff = RETRY
    reconnect_poll_seconds: float = 0.25


DEFAULT_POLICY: Final = SendPolicy()


class Outbox:
    """Sends what the store holds.

    Args:
        messenger: the Signal side.
        store: where parts are marked.
        policy: how long an answer is tried.
        untrusted: told about a chat whose person has a key that is not trusted.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        messenger: Messenger,
        store: ConversationStore,
        *,
        policy: SendPolicy = DEFAULT_POLICY,
        untrusted: Callable[[ChatId], None] = lambda _chat: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._messenger = messenger
        self._store = store
        self._policy = policy
        self._untrusted = untrusted
        self._clock = clock
        self._rate_limited_until = 0.0
        self._put_aside: dict[str, list[OutgoingMessage]] = {}
        self._began_ms = {
            is_group: defaultdict[ChatId, list[int]](list) for is_group in (True, False)
        }

    def may_be_on_its_way(self, timestamp: int, person: str) -> bool:
        """Whether a message to a person may have this timestamp, and its send is not answered.

        Args:
            timestamp: Signal's, in ms.
            person: ACI of somebody who got it.
        """
        began = list(self._began_ms[True].values())
        private = ChatId.direct(person)
        if private in self._began_ms[False]:
            began.append(self._began_ms[False][private])
        latest = now_ms() + CLOCK_SKEW_MS
        return any(ms <= timestamp <= latest for one in began for ms in one)

    async def deliver(self, parts: Sequence[OutgoingMessage], *, just_stored: bool = False) -> bool:
        """Send parts one after the other; returns when each is sent, put aside or given up.

        Args:
            parts: what the store holds.
            just_stored: nothing can have changed them since, so the first is sent as it is.

        Returns:
            whether there were any, and Signal took them all.
        """
        sent = 0
        for number, part in enumerate(parts):
            if part.chat in self._put_aside:
                self._put_aside[part.chat].append(part)
            else:
                sent += await self._deliver(part, is_current=just_stored and not number)
        return 0 < sent == len(parts)

    def take_back(self, chat: ChatId) -> tuple[OutgoingMessage, ...]:
        """Return what was put aside for a chat, to be delivered now."""
        return tuple(self._put_aside.pop(chat, ()))

    async def _deliver(self, part: OutgoingMessage, *, is_current: bool) -> bool:
        """Send a part until it is sent, withdrawn, put aside or given up; whether it was sent."""
        attempt = part.attempts
        while True:
            waited = await self._until_sending_makes_sense()
            if waited or not is_current:
                current = await self._store.outbox.as_waiting(part)
                if current is None:
                    log.info("outbox.withdrawn")
                    return False
                part = current
            is_current = False
            try:
                timestamp = await self._send(part)
            except SignalError as error:
                if isinstance(error, SignalUntrusted) and not part.chat.is_group:
                    log.warning("outbox.put_aside")
                    self._put_aside.setdefault(part.chat, []).append(part)
                    self._untrusted(part.chat)
                    return False
                if isinstance(error, SignalUnavailable) and not self._messenger.connected:
                    continue
                attempt += not isinstance(error, SignalPassedOver)
                if isinstance(error, SignalRejected) and part.replaces is not None and part.text:
                    # The old message is gone, or too old to be edited: better twice than never.
                    part = replace(part, replaces=None)
                elif await self._failed(part, attempt, error):
                    return False
            else:
                await self._store.outbox.mark_sent(part, timestamp)
                return True

    async def _send(self, part: OutgoingMessage) -> int:
        """Send a part and return its timestamp; one that takes a message away keeps that one's."""
        chat = part.chat
        if part.replaces is not None and not part.text and not part.attachments:
            await self._messenger.delete(chat, part.replaces)
            return part.replaces
        with self._noted(part), self._on_its_way(chat):
            return await self._messenger.send(
                chat,
                part.text,
                styles=part.styles,
                quote=part.quote,
                replaces=part.replaces,
                attachments=part.attachments,
            )

    @contextmanager
    def _noted(self, part: OutgoingMessage) -> Iterator[None]:
        """Note a send that may have been done without its timestamp's being told."""
        since_ms = now_ms() - CLOCK_SKEW_MS
        try:
            yield
        except SignalUnavailable:
            raise  # it was not done
        except SignalError:
            self._store.doubts.note_unnamed(Interrupted(part.id, part.chat, since_ms, now_ms()))
            raise

    @contextmanager
    def _on_its_way(self, chat: ChatId) -> Iterator[None]:
        """Note that a send to a chat is not answered yet; its timestamp will be later than now."""
        sends = self._began_ms[chat.is_group]
        began_ms = now_ms() - CLOCK_SKEW_MS
        sends[chat].append(began_ms)
        try:
            yield
        finally:
            sends[chat].remove(began_ms)
            if not sends[chat]:
                del sends[chat]

    async def _failed(self, part: OutgoingMessage, attempt: int, error: SignalError) -> bool:
        """Count a failed attempt, wait before the next, and say whether there is none."""
        give_up = attempt >= self._policy.max_attempts or isinstance(error, SignalRejected)
        if not isinstance(error, SignalPassedOver):
            await self._store.outbox.mark_failed(part, give_up=give_up)
        if give_up:
            metrics.GIVEN_UP.inc()
            log.error("outbox.gave_up", attempts=attempt, reason=type(error).__name__)
            return True
        delay = self._delay(attempt, error)
        log.warning(
            "outbox.will_retry",
            attempt=attempt,
            reason=type(error).__name__,
            delay_seconds=round(delay, 2),
        )
        if isinstance(error, SignalRateLimited):
            # Signal limits the account, not the chat: everybody waits.
            self._rate_limited_until = max(self._rate_limited_until, self._clock() + delay)
        else:
            await asyncio.sleep(delay)
        return False

    def _delay(self, attempt: int, error: SignalError) -> float:
        asked = error.retry_after_seconds
        return self._policy.backoff.seconds(max(1, attempt)) if asked is None else asked

    async def _until_sending_makes_sense(self) -> bool:
        """Wait while nothing can be sent, and return whether that was needed."""
        waited = False
        while True:
            pause = self._rate_limited_until - self._clock()
            if pause > 0:
                await asyncio.sleep(min(pause, self._policy.backoff.longest_seconds))
            elif not self._messenger.connected:
                await asyncio.sleep(self._policy.reconnect_poll_seconds)
            else:
                return waited
            waited = True
