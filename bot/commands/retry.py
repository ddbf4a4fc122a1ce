"""`!retry`: the last question is answered anew, if wanted by another model."""

from typing import Final, Protocol

from bot.commands.base import (
    MODEL_NOT_PROVEN,
    UNKNOWN_MODEL,
    AdminList,
    CommandContext,
    Reply,
    asker_refusal,
)
from bot.llm.model import Model
from bot.messaging.messenger import Messenger
from conversation_store.models import ChatId, Question, Retry

NOTHING: Final = "There is no question here that I could answer again."


class Questions(Protocol):
    """The questions of chats. Implemented by `conversation_store.sections.turns.TurnStore`."""

    async def last_question(
        self, chat: ChatId, before: int, *, or_stopped: bool
    ) -> Question | None:
        """Return the last question of a chat that came before an inbox row; None without one."""
        ...


class ModelList(Protocol):
    """The models. Implemented by `bot.llm.models.Models`."""

    @property
    def proof_required(self) -> bool:
        """Whether nothing is sent to a model that is not proven."""
        ...

    def get(self, name: str) -> Model | None:
        """Return a model by its name."""
        ...


class RetryCommand:
    """Has the last question of a chat answered anew.

    Args:
        questions: knows the last one.
        models: all of them.
        groups: knows who administers a group.
        admins: who administers the bot.
    """

    name = "retry"
    summary = "answer the last question again; with a name, by that model"
    urgent = False

    def __init__(
        self, questions: Questions, models: ModelList, groups: Messenger, admins: AdminList
    ) -> None:
        self._questions = questions
        self._models = models
        self._groups = groups
        self._admins = admins

    async def run(self, context: CommandContext) -> Reply:
        """Return what is to be answered anew, or why nothing is."""
        # One that was stopped counts: whoever stopped it does not mean the one before.
        question = await self._questions.last_question(
            context.chat, context.inbox_id, or_stopped=True
        )
        if question is None or not question.is_kept:
            return Reply(NOTHING)
        refused = await asker_refusal(context, question.asker, self._groups, self._admins)
        if refused is not None:
            return refused
        wanted = context.argument.strip().casefold()
        if not wanted:
            return Reply("", retry=Retry(question))
        model = self._models.get(wanted)
        if model is None:
            return Reply(UNKNOWN_MODEL)
        if self._models.proof_required and not model.proof.proven:
            return Reply(MODEL_NOT_PROVEN.format(name=model.name))
        return Reply("", retry=Retry(question, model.name))
