"""What every question to a person has in common: sent, known by its message, answered in time.

A question is one message, or several of which the last one is to be answered: by a reaction to it
or a reply, in a private chat also by plain words that were written after it. The person whom it is
for, or an admin, answers it.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar
from weakref import WeakValueDictionary

import structlog

from bot.backoff import Backoff
from bot.errors import SignalError, SignalLacks, SignalRejected
from bot.language.languages import Languages
from bot.messaging.events import Person
from bot.messaging.messenger import Poll, PollSender
from bot.messaging.questions import QuestionMessage
from conversation_store.models import ChatId, ReceivedMessage

log = structlog.get_logger()

SAY_SECONDS: Final = 15.0

SEND_RETRY: Final = Backoff(first_seconds=0.5, longest_seconds=15.0)

NOT_YOURS: Final = "Only the person this is for, or an admin of the bot, can answer that question."
YES_OR_NO: Final = "Please answer the question with “yes” or “no”."
TOO_LATE: Final = "That question has been answered already."


@dataclass(slots=True)
class Asked:
    """A question that was sent.

    It is known once all of its messages are sent: nobody can answer what is not shown whole yet.

    Attributes:
        id: its row.
        chat: where it was asked.
        asker: ACI of the person whom it is for.
        signal_timestamp: of its last message.
        asked_at: when it was sent, by our clock in ms.
        expires_at: until when an answer counts, in ms.
    """

    id: int
    chat: ChatId
    asker: str
    signal_timestamp: int
    asked_at: int
    expires_at: int

    @property
    def timestamps(self) -> Sequence[int]:
        """By which phones may name it."""
        return (self.signal_timestamp,)

    def was_asked_before(self, message: ReceivedMessage) -> bool:
        """Whether a message came after it by its author's clock and by our own.

        The author's may be ahead, and what has waited since before the question is not meant for
        it.
        """
        is_later = message.timestamp > self.signal_timestamp
        return is_later and message.received_at >= self.asked_at


@dataclass(frozen=True, slots=True)
class Sent:
    """The messages of a question.

    Attributes:
        timestamps: Signal's, in order; none if not all could be sent.
        is_poll: it is one message, and that a poll.
    """

    timestamps: tuple[int, ...] = ()
    is_poll: bool = False


A = TypeVar("A", bound=Asked)


class AskedQuestions:
    """The questions that are open, of whatever kind, and the way they are sent.

    Args:
        channel: where they are asked.
        is_admin: whether a person may answer for others.
        languages: in which the bot itself speaks.
        clock: seconds since 1970.
    """

    def __init__(
        self,
        channel: PollSender,
        *,
        is_admin: Callable[[Person], bool],
        languages: Languages,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._channel = channel
        self._is_admin = is_admin
        self._languages = languages
        self._clock = clock
        self._of_chats: dict[ChatId, dict[int, Asked]] = {}
        self._has_polls = True
        self._sending: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def listen(self, question: A) -> A:
        """Know a question from now on, by all its timestamps."""
        here = self._of_chats.setdefault(question.chat, {})
        here.update(dict.fromkeys(question.timestamps, question))
        return question

    def forget(self, question: Asked) -> None:
        """Listen for its answer no longer."""
        here = self._of_chats.get(question.chat, {})
        for timestamp in question.timestamps:
            if here.get(timestamp) is question:
                del here[timestamp]
        if not here:
            self._of_chats.pop(question.chat, None)

    def find(self, chat: ChatId, timestamp: int | None) -> Asked | None:
        """Return the open question whose message has a timestamp."""
        return None if timestamp is None else self._of_chats.get(chat, {}).get(timestamp)

    def in_chat(self, chat: ChatId) -> tuple[Asked, ...]:
        """Return the open questions of a chat."""
        here = self._of_chats.get(chat, {}).values()
        return tuple({question.id: question for question in here}.values())

    def is_sending(self, chat: ChatId) -> bool:
        """Whether a question is on its way to a chat: plain words may be meant for that one."""
        sending = self._sending.get(chat)
        return sending is not None and sending.locked()

    def in_time(self, timestamp: int, question: Asked) -> bool:
        """Whether an answer of that time (ms) counts: a phone's clock may be ahead of ours."""
        return min(timestamp, self._clock() * 1000) <= question.expires_at

    def may_answer(self, person: Person, question: Asked) -> bool:
        """Whether a question is somebody's to answer."""
        return person.aci == question.asker or self._is_admin(person)

    async def send(
        self,
        chat: ChatId,
        messages: Sequence[QuestionMessage],
        *,
        seconds: float,
        poll: Poll | None = None,
    ) -> Sent:
        """Send a question, trying again while there is no connection.

        Args:
            chat: where to.
            messages: of the question.
            seconds: how long to try.
            poll: shows the question instead of the messages, where the Signal side knows polls.

        Returns:
            its messages; none if not all of them could be sent.
        """
        timestamps: list[int] = []
        try:
            # One question after the other: the messages of two must not mix.
            async with (
                asyncio.timeout(seconds),
                self._sending.setdefault(chat, asyncio.Lock()),
            ):
                if (of_poll := await self._send_poll(chat, poll)) is not None:
                    return Sent((of_poll,), is_poll=True)
                for message in messages:
                    send = partial(
                        self._channel.send,
                        chat,
                        message.text,
                        styles=message.styles,
                        attachments=message.attachments,
                    )
                    timestamps.append(
                        await SEND_RETRY.retry(send, on=(SignalError,), final=(SignalRejected,))
                    )
        except (SignalRejected, TimeoutError) as error:
            log.warning("approval.not_asked", reason=type(error).__name__)
            return Sent()
        return Sent(tuple(timestamps))

    async def say(self, chat: ChatId, sentence: str) -> None:
        """Say something about an open question; that it cannot be said does no harm."""
        try:
            async with asyncio.timeout(SAY_SECONDS):
                await self._channel.send(chat, self._languages.say(chat, sentence))
        except (SignalError, TimeoutError) as error:
            log.info("approval.not_reminded", reason=type(error).__name__)

    async def _send_poll(self, chat: ChatId, poll: Poll | None) -> int | None:
        """Send a poll; None where there is none, or it cannot be shown as one."""
        if poll is None or not self._has_polls:
            return None
        send = partial(self._channel.send_poll, chat, poll)
        try:
            return await SEND_RETRY.retry(send, on=(SignalError,), final=(SignalRejected,))
        except SignalLacks:
            self._has_polls = False
            log.info("signal.no_polls")
        except SignalRejected as error:
            log.info("approval.no_poll", reason=type(error).__name__)
        return None
