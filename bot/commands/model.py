"""`!model`: which model answers in a chat."""

from collections.abc import Iterator
from typing import Final, Protocol

from bot.commands.base import (
    MODEL_NOT_PROVEN,
    UNKNOWN_MODEL,
    AdminList,
    CommandContext,
    Reply,
    group_refusal,
)
from bot.llm.model import Model
from bot.messaging.messenger import Messenger
from conversation_store.models import ChatId

HOW: Final = "Send !model and a name to choose."
ALONE: Final = "There is no other model."
CHOSEN: Final = "From now on the model {name} answers here."
NO_CHANGE: Final = "The model {name} answers here already."
CALLS_TOOLS: Final = "tools"
NO_TOOLS: Final = "no tools"
SEES_IMAGES: Final = "images"
NO_IMAGES: Final = "no images"
CONTEXT: Final = "reads {tokens:,} tokens"
PROVEN: Final = "proven"
UNPROVEN: Final = "not proven"


class ModelChoice(Protocol):
    """The models, and the choices of chats. Implemented by `bot.llm.models.Models`."""

    @property
    def proof_required(self) -> bool:
        """Whether nothing is sent to a model that is not proven."""
        ...

    def __iter__(self) -> Iterator[Model]:
        """Go through all of them."""
        ...

    def get(self, name: str) -> Model | None:
        """Return a model by its name."""
        ...

    def of(self, chat: str) -> Model:
        """Return the model that answers a chat."""
        ...

    async def choose(self, chat: str, name: str) -> None:
        """Have a chat answered by a model from now on."""
        ...


class ModelCommand:
    """Shows the models of the bot, and chooses the one that answers in a chat.

    Args:
        models: all of them.
        groups: knows who administers a group.
        admins: who administers the bot.
    """

    name = "model"
    summary = "which models I can answer with, and choose one for this chat"
    urgent = False

    def __init__(self, models: ModelChoice, groups: Messenger, admins: AdminList) -> None:
        self._models = models
        self._groups = groups
        self._admins = admins

    async def run(self, context: CommandContext) -> Reply:
        """List the models, or choose one by its name."""
        wanted = context.argument.strip().casefold()
        if not wanted:
            return Reply(await self._list(context.chat))
        if refused := await group_refusal(context, self._groups, self._admins):
            return refused
        model = self._models.get(wanted)
        if model is None:
            return Reply(UNKNOWN_MODEL)
        if model is self._models.of(context.chat):
            return Reply(NO_CHANGE.format(name=model.name))
        if self._models.proof_required and not model.proof.proven:
            return Reply(MODEL_NOT_PROVEN.format(name=model.name))
        await self._models.choose(context.chat, model.name)
        lines = CHOSEN.format(name=model.name), model.proof.summary()
        return Reply("\n".join(lines))

    async def _list(self, chat: ChatId) -> str:
        current = self._models.of(chat)
        lines = []
        for model in self._models:
            mark = " ←" * (model is current)
            lines.append(f"• {model.name} ({model.id}): {await _can(model)}{mark}")
        return "\n".join((*lines, HOW if len(lines) > 1 else ALONE))


async def _can(model: Model) -> str:
    """Say what a model can do."""
    traits = model.traits
    return ", ".join(
        (
            CALLS_TOOLS if traits.takes_tools else NO_TOOLS,
            SEES_IMAGES if await model.vision.can_see() else NO_IMAGES,
            CONTEXT.format(tokens=traits.context_tokens),
            PROVEN if model.proof.proven else UNPROVEN,
        )
    )
