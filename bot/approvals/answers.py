"""Finds out which open question people answer, and hands the answer to the desk that asked."""

from dataclasses import dataclass
from typing import Final

from bot.approvals.asked import Asked, AskedQuestions
from bot.approvals.desk import REMINDER, ApprovalDesk
from bot.approvals.meaning import Meaning, meaning_of
from bot.approvals.model_question import ModelQuestion
from bot.approvals.question import Question
from bot.approvals.questions import STILL_OPEN, QuestionDesk
from bot.messaging.events import PollVote, Reaction
from conversation_store.models import AcceptedMessage, ReceivedKind, ReceivedMessage

WHICH: Final = (
    "More than one of my questions is open, and your answer fits several. Please reply to the one"
    " that you mean."
)


@dataclass(frozen=True, slots=True)
class Answer:
    """A message that answers a question, or tries to.

    Attributes:
        question: which; None where it fits several.
        text: what it says.
    """

    question: Asked | None
    text: str


class Answers:
    """What people say to open questions.

    Args:
        asked: the open questions.
        approvals: asks before side effects.
        questions: asks for the model.
    """

    def __init__(
        self, asked: AskedQuestions, approvals: ApprovalDesk, questions: QuestionDesk
    ) -> None:
        self._asked = asked
        self._approvals = approvals
        self._questions = questions

    async def resume(self) -> None:
        """Know the questions that a restart has left open, before anything comes in."""
        await self._approvals.resume()
        await self._questions.resume()

    def answer_in(self, message: ReceivedMessage) -> Answer | None:
        """Return what a message says to an open question; None where it is about none.

        An edit says nothing to it, whatever is edited: only what was written after the question
        answers it.
        """
        if message.edited or message.kind is ReceivedKind.EDIT:
            return None
        if message.question_timestamp is not None:
            question = self._asked.find(message.chat, message.question_timestamp)
            if question is None or not _has_words_for(question, message):
                return None
            return Answer(question, message.text)
        if message.chat.is_group or self._asked.is_sending(message.chat):
            return None
        return self._answer_in_plain_words(message)

    def _answer_in_plain_words(self, message: ReceivedMessage) -> Answer | None:
        """Return the answer in words that reply to nothing, in a private chat."""
        meaning = meaning_of(message.text)
        here = [
            question
            for question in self._asked.in_chat(message.chat)
            if self._asked.in_time(message.timestamp, question)
        ]
        fitting = [question for question in here if _fits(question, message.text, meaning)]
        of_model = [question for question in fitting if isinstance(question, ModelQuestion)]
        if len(fitting) == 1:
            is_meant = fitting[0].was_asked_before(message)
            return Answer(fitting[0], message.text) if is_meant else None
        if all(question.asked_back for question in of_model):
            return None
        for question in of_model:
            question.asked_back = True
        return Answer(None, message.text)

    def awaited_by(self, turn_id: int) -> bool:
        """Whether a turn has asked something that nobody has answered."""
        return self._questions.waits(turn_id)

    def overlooked_by(self, message: ReceivedMessage) -> Asked | None:
        """Return the open question that a message waits behind or may be meant for, once."""
        found = self._approvals.overlooked_by(message)
        return found or self._questions.overlooked_by(message)

    async def remind(self, question: Asked) -> None:
        """Say that a question is open; a person who overlooked it would wait for nothing."""
        if isinstance(question, Question):
            if not question.decided.is_set():
                await self._asked.say(question.chat, REMINDER)
        elif self._asked.find(question.chat, question.signal_timestamp) is question:
            await self._asked.say(question.chat, STILL_OPEN)

    async def settle(self, accepted: AcceptedMessage, answer: Answer) -> str | None:
        """Take a message as an answer; return words for the person where it does not count."""
        match answer.question:
            case Question() as question:
                return await self._approvals.settle(accepted, question, meaning_of(answer.text))
            case ModelQuestion() as question:
                return await self._questions.settle(accepted, question, answer.text)
            case _:
                return WHICH

    async def react(self, reaction: Reaction) -> None:
        """Take a reaction as an answer, if it is one."""
        if reaction.removed:
            return
        match self._asked.find(reaction.chat, reaction.target_timestamp):
            case Question() as question:
                await self._approvals.react(reaction, question)
            case ModelQuestion() as question:
                await self._questions.react(reaction, question)
            case _:
                return

    async def vote(self, vote: PollVote) -> None:
        """Take a vote as an answer, if its poll is a question that is open."""
        question = self._asked.find(vote.chat, vote.target_timestamp)
        if isinstance(question, ModelQuestion):
            await self._questions.vote(vote, question)


def _has_words_for(question: Asked, message: ReceivedMessage) -> bool:
    """Whether a reply can answer: a file says nothing to a question of the model's."""
    if isinstance(question, ModelQuestion):
        return bool(message.text.strip()) and not message.files
    return True


def _fits(question: Asked, text: str, meaning: Meaning) -> bool:
    """Whether plain words can be an answer to a question."""
    if isinstance(question, ModelQuestion):
        return question.fits(text)
    return meaning is not Meaning.OTHER
