"""One question of the model's, and what the model is told of the answers to it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from bot.approvals.asked import Asked
from bot.approvals.choices import chosen
from bot.approvals.meaning import Meaning, meaning_of
from conversation_store.models import QuestionKind

CHOSE: Final = "The person chose: {options}"
WROTE: Final = "The person chose none of the options, and answered: {words}"
NOBODY: Final = (
    "Nobody answered within a day. Go on without the answer, and say what you assumed instead."
)
ACCEPTED: Final = (
    "The person accepted the plan. Carry it out now, and keep the list of its steps with todo. What"
    " has side effects is still asked about by itself."
)
REFUSED: Final = (
    "The person refused the plan. Do not carry it out, nor propose it again; tell the person that"
    " it is dropped."
)
CHANGES: Final = "The person wants the plan changed: {words}\nPropose the changed plan."
NOBODY_DECIDED: Final = (
    "Nobody answered within a day, so the plan is not accepted. Do not carry it out; tell the"
    " person that it may be asked for again."
)


@dataclass(slots=True)
class ModelQuestion(Asked):
    """A question of the model's; see `StoredQuestion`.

    Attributes:
        turn_id: the turn that waits for its answer.
        kind: what it asks for.
        options: what may be chosen.
        multiple: whether several of them may be.
        earlier: timestamps of its messages before the last one.
        chosen: what the model is told after the last vote, where more may follow.
        reminded: the person was told that it is open.
        asked_back: plain words that fit several questions were asked back about once.
    """

    turn_id: int
    kind: QuestionKind
    options: tuple[str, ...]
    multiple: bool
    earlier: tuple[int, ...] = ()
    chosen: str | None = None
    reminded: bool = False
    asked_back: bool = False

    @property
    def timestamps(self) -> Sequence[int]:
        """By which phones may name it: any of its messages, once all of them are there."""
        return (self.signal_timestamp, *self.earlier)

    def choice_in(self, text: str) -> tuple[int, ...]:
        """Return which options a text chooses, by their places."""
        return chosen(text, self.options, multiple=self.multiple)

    def fits(self, text: str) -> bool:
        """Whether plain words, which reply to nothing, may be an answer to it."""
        if self.kind is QuestionKind.PLAN:
            return meaning_of(text) is not Meaning.OTHER
        return bool(self.choice_in(text))


_DECIDED: Final = {
    Meaning.YES: ACCEPTED,
    Meaning.ALWAYS: ACCEPTED,
    Meaning.NO: REFUSED,
}


def told_by_emoji(question: ModelQuestion, emoji: str) -> str | None:
    """Return what the model is told of a reaction; None where it answers nothing."""
    if question.kind is QuestionKind.PLAN:
        return _DECIDED.get(meaning_of(emoji))
    choice = question.choice_in(emoji)
    return chose(question, choice) if choice else None


def told(question: ModelQuestion, text: str, *, replies: bool) -> str | None:
    """Return what the model is told of words; None where they have to be asked back.

    Args:
        question: which they answer.
        text: the words.
        replies: they are a reply to it, so that any words are meant for it.
    """
    if question.kind is QuestionKind.PLAN:
        changes = CHANGES.format(words=text.strip()) if replies else None
        return _DECIDED.get(meaning_of(text), changes)
    choice = question.choice_in(text)
    return chose(question, choice) if choice else WROTE.format(words=text.strip())


def chose(question: ModelQuestion, choice: tuple[int, ...]) -> str:
    """Return what the model is told of options that were chosen, by their places."""
    return CHOSE.format(options="; ".join(question.options[place] for place in choice))
