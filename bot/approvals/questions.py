"""Asks people what the model wants to know; the turn waits for the answer on disk.

Whoever asks is told to come again once somebody has answered (`AwaitsPerson`). Until then the turn
is nowhere but in the store; here stands only which message asks what. A restart listens for the
same messages again. After a day of silence the model is told that nobody answered.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import structlog

from bot.approvals.asked import NOT_YOURS, TOO_LATE, Asked, AskedQuestions
from bot.approvals.choices import chosen
from bot.language.languages import Languages
from bot.messaging.events import Person, Reaction
from bot.messaging.questions import question_messages
from conversation_store.models import AcceptedMessage, ChatId, QuestionKind, StoredQuestion
from conversation_store.store import ConversationStore
from tools.base import Caller
from tools.errors import AwaitsPerson, ToolError
from tools.people import Choice

log = structlog.get_logger()

PATIENCE_SECONDS: Final = 86_400.0
"""After so long the model is told that nobody answered."""

SENDING_SECONDS: Final = 300.0
"""For putting a question while there is no connection."""

CATCH_UP_SECONDS: Final = 15.0
"""After a restart: how long answers that were given meanwhile may take to come in."""

MAX_LOOK_SECONDS: Final = 60.0
"""A clock that is set, or a machine that slept, is noticed so late at the most."""

MAX_OPEN_IN_CHAT: Final = 10
"""Questions that wait in one chat; more than people can tell apart."""

HOW_TO_CHOOSE: Final = (
    "Reply to this message with a number, or in your own words. I wait for a day."
)
HOW_TO_CHOOSE_SEVERAL: Final = (
    "Reply to this message with one or several numbers, such as “1, 3”, or in your own words."
    " I wait for a day."
)

CHOSE: Final = "The person chose: {options}"
WROTE: Final = "The person chose none of the options, and answered: {words}"
NOBODY: Final = (
    "Nobody answered within a day. Go on without the answer, and say what you assumed instead."
)
NOT_ASKED: Final = "Nobody could be asked. Go on without the answer."
TOO_MANY: Final = (
    "Not asked: too many questions are waiting for an answer in this chat already. Go on without,"
    " or ask in your answer."
)


@dataclass(slots=True)
class ModelQuestion(Asked):
    """A question of the model's; see `StoredQuestion`.

    Attributes:
        turn_id: the turn that waits for its answer.
        kind: what it asks for.
        options: what may be chosen.
        multiple: whether several of them may be.
        asked_back: plain words that fit several questions were asked back about once.
    """

    turn_id: int
    kind: QuestionKind
    options: tuple[str, ...]
    multiple: bool
    asked_back: bool = False

    def choice_in(self, text: str) -> tuple[int, ...]:
        """Return which options a text chooses, by their places."""
        return chosen(text, self.options, multiple=self.multiple)


GoOn = Callable[[int], Awaitable[None]]
"""Lets a turn go on, by its id, if it waits."""


class QuestionDesk:
    """The questions of the model. Implements `tools.people.People`.

    Args:
        store: where they are kept.
        asked: the open ones.
        languages: in which the bot itself speaks.
        go_on: called when a turn has all its answers.
        clock: seconds since 1970.
        past: up to when time has passed for certain: silence goes by this.
    """

    def __init__(
        self,
        *,
        store: ConversationStore,
        asked: AskedQuestions,
        languages: Languages,
        go_on: GoOn,
        clock: Callable[[], float] = time.time,
        past: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._asked = asked
        self._languages = languages
        self._go_on = go_on
        self._clock = clock
        self._past = past
        self._of_turns: dict[int, list[ModelQuestion]] = {}
        self._changed = asyncio.Event()
        self._silence_from = 0.0

    async def resume(self) -> None:
        """Know the questions that a restart has left open, before anything comes in."""
        for stored in await self._store.questions.open():
            self._listen(stored)
        self._silence_from = asyncio.get_running_loop().time() + CATCH_UP_SECONDS

    def waits(self, turn_id: int) -> bool:
        """Whether a turn has a question that is open."""
        return turn_id in self._of_turns

    def forget_turn(self, turn_id: int) -> None:
        """Listen no longer for answers that a turn does not need any more."""
        for question in self._of_turns.pop(turn_id, ()):
            self._asked.forget(question)

    async def choose(self, caller: Caller, choice: Choice) -> str:
        """Return what a person has chosen or written; see `tools.people.People`."""
        stored = await self._find_or_open(
            caller, QuestionKind.CHOICE, choice.options, multiple=choice.multiple
        )
        if stored.answer is not None:
            return stored.answer
        if stored.signal_timestamp is None:
            how = HOW_TO_CHOOSE_SEVERAL if choice.multiple else HOW_TO_CHOOSE
            numbered = (f"{number}. {option}" for number, option in enumerate(choice.options, 1))
            messages = question_messages(
                "ask_user",
                "\n".join((choice.question, *numbered)),
                self._languages.say(stored.chat, how),
            )
            timestamp = await self._asked.send(stored.chat, messages, seconds=SENDING_SECONDS)
            await self._note(stored, timestamp)
        raise AwaitsPerson

    async def settle(
        self, accepted: AcceptedMessage, question: ModelQuestion, text: str
    ) -> str | None:
        """Take a message as an answer; return words for the person where it does not count."""
        message = accepted.message
        author = Person(message.author, message.author_number, message.author_name)
        if not self._asked.may_answer(author, question):
            return NOT_YOURS
        if not self._asked.in_time(message.timestamp, question):
            return TOO_LATE
        counts = await self._answer(question, _told(question, text), by=author, message=accepted)
        return None if counts else TOO_LATE

    async def react(self, reaction: Reaction, question: ModelQuestion) -> None:
        """Take a reaction to a question as its answer, if it is the picture of a number."""
        choice = question.choice_in(reaction.emoji)
        in_time = self._asked.in_time(reaction.timestamp, question)
        if choice and in_time and self._asked.may_answer(reaction.author, question):
            await self._answer(question, _chose(question, choice), by=reaction.author)

    async def run(self) -> None:
        """End what nobody has answered in time, until cancelled."""
        while True:
            self._changed.clear()
            for question in self._overdue():
                await self._answer(question, NOBODY)
            await self._until_due()

    def _overdue(self) -> list[ModelQuestion]:
        if asyncio.get_running_loop().time() < self._silence_from:
            return []
        now = self._past() * 1_000
        return [question for question in self._open() if question.expires_at <= now]

    async def _until_due(self) -> None:
        due = min((question.expires_at for question in self._open()), default=None)
        seconds = None
        if due is not None:
            catching_up = self._silence_from - asyncio.get_running_loop().time()
            left = max(due / 1_000 - self._past(), catching_up, 0.0)
            seconds = min(left, MAX_LOOK_SECONDS)
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return

    def _open(self) -> list[ModelQuestion]:
        return [question for questions in self._of_turns.values() for question in questions]

    async def _find_or_open(
        self, caller: Caller, kind: QuestionKind, options: tuple[str, ...], *, multiple: bool
    ) -> StoredQuestion:
        if caller.turn is None:
            raise ToolError(NOT_ASKED)
        chat = ChatId.parse(caller.chat)
        stored = await self._store.questions.find_or_open(
            caller.turn,
            caller.call,
            chat=chat,
            asker=caller.person,
            kind=kind,
            options=options,
            multiple=multiple,
        )
        if stored is None:
            raise ToolError(NOT_ASKED)
        is_new = stored.answer is None and stored.signal_timestamp is None
        if is_new and self._count_in(chat) >= MAX_OPEN_IN_CHAT:
            raise ToolError(TOO_MANY)
        return stored

    def _count_in(self, chat: ChatId) -> int:
        return sum(isinstance(one, ModelQuestion) for one in self._asked.in_chat(chat))

    async def _note(self, stored: StoredQuestion, timestamp: int | None) -> None:
        """Listen for the answer to a question that was sent.

        Raises:
            ToolError: it could not be sent.
        """
        if timestamp is None:
            raise ToolError(NOT_ASKED)
        asked_at = int(self._clock() * 1_000)
        expires_at = asked_at + int(PATIENCE_SECONDS * 1_000)
        # Before the store has it: an answer may be on its way already.
        self._listen_for(stored, timestamp, asked_at, expires_at)
        await self._store.questions.mark_asked(
            stored.id, timestamp, asked_at=asked_at, expires_at=expires_at
        )

    def _listen(self, stored: StoredQuestion) -> None:
        if stored.signal_timestamp and stored.asked_at and stored.expires_at:
            self._listen_for(stored, stored.signal_timestamp, stored.asked_at, stored.expires_at)

    def _listen_for(
        self, stored: StoredQuestion, timestamp: int, asked_at: int, expires_at: int
    ) -> None:
        question = ModelQuestion(
            stored.id,
            stored.chat,
            stored.asker,
            timestamp,
            asked_at,
            expires_at,
            stored.turn_id,
            stored.kind,
            stored.options,
            stored.multiple,
        )
        self._of_turns.setdefault(stored.turn_id, []).append(self._asked.listen(question))
        self._changed.set()

    async def _answer(
        self,
        question: ModelQuestion,
        told: str,
        *,
        by: Person | None = None,
        message: AcceptedMessage | None = None,
    ) -> bool:
        """Answer a question, and let its turn go on once it has all its answers."""
        counts = await self._store.questions.answer(
            question.id, told, by=None if by is None else by.aci, message=message
        )
        self._asked.forget(question)
        left = [one for one in self._of_turns.pop(question.turn_id, ()) if one is not question]
        if left:
            self._of_turns[question.turn_id] = left
        elif counts:
            await self._go_on(question.turn_id)
        return counts


def _told(question: ModelQuestion, text: str) -> str:
    """Return what the model is told of words."""
    choice = question.choice_in(text)
    return _chose(question, choice) if choice else WROTE.format(words=text.strip())


def _chose(question: ModelQuestion, choice: tuple[int, ...]) -> str:
    return CHOSE.format(options="; ".join(question.options[place] for place in choice))
