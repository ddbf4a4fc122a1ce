"""Asks people what the model wants to know; the turn waits for the answer on disk.

Whoever asks is told to come again once somebody has answered (`AwaitsPerson`). Until then the turn
is nowhere but in the store; here stands only which message asks what. A restart listens for the
same messages again. After a day of silence the model is told that nobody answered.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Final

import structlog

from bot.approvals.asked import NOT_YOURS, TOO_LATE, AskedQuestions
from bot.approvals.model_question import (
    NOBODY,
    NOBODY_DECIDED,
    ModelQuestion,
    chose,
    told,
    told_by_emoji,
)
from bot.language.languages import Languages
from bot.messaging.events import Person, PollVote, Reaction
from bot.messaging.messenger import Poll
from bot.messaging.questions import QuestionMessage, question_messages, styled_messages
from conversation_store.models import (
    AcceptedMessage,
    ChatId,
    QuestionKind,
    ReceivedMessage,
    StoredQuestion,
    StyledText,
)
from conversation_store.store import ConversationStore
from tools.base import Caller
from tools.errors import AwaitsPerson, ToolError
from tools.people import ASK_USER, Choice

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

VOTING_SECONDS: Final = 10.0
"""Without another vote, whoever may choose several options has chosen."""

MAX_POLL_CHARACTERS: Final = 100
"""Of a poll's question, and of each option, as phones take them."""

HOW_TO_CHOOSE: Final = (
    "Reply to this message with a number, or in your own words. I wait for a day."
)
HOW_TO_CHOOSE_SEVERAL: Final = (
    "Reply to this message with one or several numbers, such as “1, 3”, or in your own words."
    " I wait for a day."
)

HOW_TO_DECIDE: Final = (
    "This is my plan. 👍 this message or reply “yes”, and I carry it out; 👎 or “no”, and I drop"
    " it; or reply with what to change. I wait for a day."
)
YES_NO_OR_CHANGES: Final = "Please reply to my plan with “yes”, “no” or what to change."

STILL_OPEN: Final = (
    "My question above is still open. If this was your answer, please send it as a reply to the"
    " question."
)

NOT_ASKED: Final = "Nobody could be asked. Go on without the answer."
TOO_MANY: Final = (
    "Not asked: too many questions are waiting for an answer in this chat already. Go on without,"
    " or ask in your answer."
)


GoOn = Callable[[int], Awaitable[None]]
"""Lets a turn go on, by its id, if it waits."""

Render = Callable[[str], Awaitable[Sequence[StyledText]]]
"""Makes messages of Markdown."""


class QuestionDesk:
    """The questions of the model. Implements `tools.people.People`.

    Args:
        store: where they are kept.
        asked: the open ones.
        languages: in which the bot itself speaks.
        go_on: called when a turn has all its answers.
        render: shows plans.
        question_over: called when nobody needs to answer a question any more, or may not soon.
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
        render: Render,
        question_over: Callable[[], None],
        clock: Callable[[], float] = time.time,
        past: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._asked = asked
        self._languages = languages
        self._go_on = go_on
        self._render = render
        self._question_over = question_over
        self._clock = clock
        self._past = past
        self._of_turns: dict[int, list[ModelQuestion]] = {}
        self._next_due: int | None = None
        self._sooner = asyncio.Event()
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
            self._question_over()

    async def choose(self, caller: Caller, choice: Choice) -> str:
        """Return what a person has chosen or written; see `tools.people.People`."""
        stored = await self._find_or_open(
            caller, QuestionKind.CHOICE, choice.options, multiple=choice.multiple
        )
        if _is_new(stored):
            how = HOW_TO_CHOOSE_SEVERAL if choice.multiple else HOW_TO_CHOOSE
            numbered = (f"{number}. {option}" for number, option in enumerate(choice.options, 1))
            messages = question_messages(
                ASK_USER,
                "\n".join((choice.question, *numbered)),
                self._languages.say(stored.chat, how),
            )
            await self._put(stored, messages, _poll_of(stored.chat, choice))
        return _answer_of(stored)

    async def decide(self, caller: Caller, plan: str) -> str:
        """Return what a person says to a plan; see `tools.people.People`."""
        stored = await self._find_or_open(caller, QuestionKind.PLAN)
        if _is_new(stored):
            how = self._languages.say(stored.chat, HOW_TO_DECIDE)
            await self._put(stored, styled_messages(await self._render(plan), how))
        return _answer_of(stored)

    def overlooked_by(self, message: ReceivedMessage) -> ModelQuestion | None:
        """Return an open question that a message may have been meant for, once for each.

        Only in a private chat: in a group, others may talk meanwhile.
        """
        if message.chat.is_group or message.text.startswith("!"):
            return None
        here = [one for one in self._asked.in_chat(message.chat) if isinstance(one, ModelQuestion)]
        found = next((one for one in here if not one.reminded), None)
        for question in here:
            question.reminded = True
        return found

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
        answer = told(question, text, replies=message.question_timestamp is not None)
        if answer is None:
            return YES_NO_OR_CHANGES
        counts = await self._answer(question, answer, by=author, message=accepted)
        return None if counts else TOO_LATE

    async def react(self, reaction: Reaction, question: ModelQuestion) -> None:
        """Take a reaction to a question as its answer: the picture of a number, or a thumb."""
        answer = told_by_emoji(question, reaction.emoji)
        in_time = self._asked.in_time(reaction.timestamp, question)
        if answer is not None and in_time and self._asked.may_answer(reaction.author, question):
            await self._answer(question, answer, by=reaction.author)

    async def vote(self, vote: PollVote, question: ModelQuestion) -> None:
        """Take a vote as an answer; where several may be chosen, once no other follows."""
        in_time = self._asked.in_time(vote.timestamp, question)
        if not in_time or not self._asked.may_answer(vote.author, question):
            return
        choice = tuple(sorted({place for place in vote.options if place < len(question.options)}))
        if question.multiple:
            await self._choose_for_now(question, choice, vote.author)
        elif len(choice) == 1:
            await self._answer(question, chose(question, choice), by=vote.author)

    async def _choose_for_now(
        self, question: ModelQuestion, choice: tuple[int, ...], person: Person
    ) -> None:
        """Keep a vote that another one may follow; without any, the question waits on."""
        question.chosen = chose(question, choice) if choice else None
        if choice:
            question.expires_at = int((self._clock() + VOTING_SECONDS) * 1_000)
        else:
            question.expires_at = question.asked_at + int(PATIENCE_SECONDS * 1_000)
        self._is_due(question)
        await self._store.questions.choose_for_now(
            question.id, question.chosen, by=person.aci, expires_at=question.expires_at
        )

    async def run(self) -> None:
        """End what nobody has answered in time, until cancelled."""
        while True:
            self._next_due = None
            for question in self._overdue():
                nobody = NOBODY_DECIDED if question.kind is QuestionKind.PLAN else NOBODY
                await self._answer(question, question.chosen or nobody)
            for question in self._open():
                self._is_due(question)
            self._sooner.clear()
            await self._until_due()

    def _overdue(self) -> list[ModelQuestion]:
        if asyncio.get_running_loop().time() < self._silence_from:
            return []
        now = self._past() * 1_000
        return [question for question in self._open() if question.expires_at <= now]

    def _is_due(self, question: ModelQuestion) -> None:
        """Note when a question ends, if that is before all the others."""
        if self._next_due is None or question.expires_at < self._next_due:
            self._next_due = question.expires_at
            self._sooner.set()

    async def _until_due(self) -> None:
        seconds = None
        if self._next_due is not None:
            catching_up = self._silence_from - asyncio.get_running_loop().time()
            left = max(self._next_due / 1_000 - self._past(), catching_up, 0.0)
            seconds = min(left, MAX_LOOK_SECONDS)
        try:
            async with asyncio.timeout(seconds):
                await self._sooner.wait()
        except TimeoutError:
            return

    def _open(self) -> list[ModelQuestion]:
        return [question for questions in self._of_turns.values() for question in questions]

    async def _find_or_open(
        self,
        caller: Caller,
        kind: QuestionKind,
        options: tuple[str, ...] = (),
        *,
        multiple: bool = False,
    ) -> StoredQuestion:
        """Return the question of a call, made now if there is none yet.

        Raises:
            ToolError: nobody can be asked.
        """
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
        if stored.answer is None and not self._asked.find(chat, stored.signal_timestamp):
            self._listen(stored)
        if _is_new(stored) and self._count_in(chat) >= MAX_OPEN_IN_CHAT:
            raise ToolError(TOO_MANY)
        return stored

    def _count_in(self, chat: ChatId) -> int:
        return sum(isinstance(one, ModelQuestion) for one in self._asked.in_chat(chat))

    async def _put(
        self,
        stored: StoredQuestion,
        messages: Sequence[QuestionMessage],
        poll: Poll | None = None,
    ) -> None:
        """Send a question, and listen for its answer.

        Raises:
            ToolError: it could not be sent.
        """
        sent = await self._asked.send(stored.chat, messages, seconds=SENDING_SECONDS, poll=poll)
        if not sent.timestamps:
            raise ToolError(NOT_ASKED)
        asked_at = int(self._clock() * 1_000)
        asked = replace(
            stored,
            signal_timestamp=sent.timestamps[-1],
            earlier=sent.timestamps[:-1],
            asked_at=asked_at,
            expires_at=asked_at + int(PATIENCE_SECONDS * 1_000),
        )
        # Before the store has it: an answer may be on its way already.
        self._listen(asked)
        await self._store.questions.mark_asked(asked, is_poll=sent.is_poll)
        if self._asked.find(asked.chat, asked.signal_timestamp) is None:
            self._question_over()  # answered before the store knew of a poll

    def _listen(self, stored: StoredQuestion) -> None:
        if not (stored.signal_timestamp and stored.asked_at and stored.expires_at):
            return
        question = ModelQuestion(
            stored.id,
            stored.chat,
            stored.asker,
            stored.signal_timestamp,
            stored.asked_at,
            stored.expires_at,
            stored.turn_id,
            stored.kind,
            stored.options,
            stored.multiple,
            stored.earlier,
            stored.chosen,
        )
        self._of_turns.setdefault(stored.turn_id, []).append(self._asked.listen(question))
        self._is_due(question)

    async def _answer(
        self,
        question: ModelQuestion,
        answer: str,
        *,
        by: Person | None = None,
        message: AcceptedMessage | None = None,
    ) -> bool:
        """Answer a question, and let its turn go on once it has all its answers."""
        counts = await self._store.questions.answer(
            question.id, answer, by=None if by is None else by.aci, message=message
        )
        self._asked.forget(question)
        self._question_over()
        left = [one for one in self._of_turns.pop(question.turn_id, ()) if one is not question]
        if left:
            self._of_turns[question.turn_id] = left
        else:
            # Also where the turn is gone: then nothing is left to wait for.
            await self._go_on(question.turn_id)
        return counts


def _poll_of(chat: ChatId, choice: Choice) -> Poll | None:
    """Return a question as a poll; None where phones show none: only groups have polls."""
    texts = (choice.question, *choice.options)
    fits = all(len(text) <= MAX_POLL_CHARACTERS and "\n" not in text for text in texts)
    return (
        Poll(choice.question, choice.options, choice.multiple) if chat.is_group and fits else None
    )


def _is_new(stored: StoredQuestion) -> bool:
    """Whether a question is still to be asked."""
    return stored.answer is None and stored.signal_timestamp is None


def _answer_of(stored: StoredQuestion) -> str:
    """Return a person's answer; raises AwaitsPerson as long as there is none."""
    if stored.answer is None:
        raise AwaitsPerson
    return stored.answer
