"""The models that there are, and which one each chat has chosen."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Protocol

from bot.llm.failover import Route
from bot.llm.model import Model

DEFAULT: Final = "default"
OTHER_MODEL: Final = (
    "This chat is answered by the model {name}, which was chosen here. What a proof says of the"
    " model is about the default one."
)
CHOSEN: Final = "model of "
"""What the choice of a chat is remembered by, before the chat."""


class Memory(Protocol):
    """Remembers by names. Implemented by `conversation_store.store.ConversationStore`."""

    async def metadata_below(self, prefix: str) -> dict[str, str]:
        """Return what is remembered by names that begin so."""
        ...

    async def set_metadata(self, name: str, value: str) -> None:
        """Remember something by a name."""
        ...


class Models:
    """All models, and the choices of chats.

    Args:
        models: by their names; one is called `default`.
        fallback: the names of those that stand in for others, in their order.
        memory: keeps the choices.
        proof_required: nothing is sent to a model that is not proven.

    Attributes:
        proof_required: as above.
    """

    def __init__(
        self,
        models: Mapping[str, Model],
        fallback: Sequence[str],
        memory: Memory,
        *,
        proof_required: bool,
    ) -> None:
        self._models = models
        self._fallback = fallback
        self._memory = memory
        self.proof_required = proof_required
        self._chosen: dict[str, str] = {}

    async def resume(self) -> None:
        """Know again what was chosen; before anything comes in."""
        found = await self._memory.metadata_below(CHOSEN)
        self._chosen = {name.removeprefix(CHOSEN): value for name, value in found.items() if value}

    def __iter__(self) -> Iterator[Model]:
        """Go through all of them, the default one first."""
        return iter(self._models.values())

    @property
    def default(self) -> Model:
        """The model of chats that have chosen none."""
        return self._models[DEFAULT]

    def get(self, name: str) -> Model | None:
        """Return a model by its name; None where there is none of this name."""
        return self._models.get(name)

    def of(self, chat: str) -> Model:
        """Return the model that answers a chat."""
        return self._models.get(self._chosen.get(chat, DEFAULT)) or self.default

    def summary(self, chat: str) -> str:
        """Say whether it is proven which model answers a chat, and where."""
        model = self.of(chat)
        if model is self.default:
            return model.proof.summary()
        return f"{OTHER_MODEL.format(name=model.name)} {model.proof.summary()}"

    @property
    def route_of_default(self) -> Sequence[Model]:
        """The models that chats can be answered by which have chosen none."""
        others = [self._models[name] for name in self._fallback if name != DEFAULT]
        return [self.default, *others]

    def route(self, chat: str, wanted: str | None = None) -> Route:
        """Return the way of a turn in a chat through the models.

        Args:
            chat: the chat.
            wanted: the name of the model that comes first; None, or a name that is gone: the
                chat's.
        """
        chosen = self._models.get(wanted or "") or self.of(chat)
        others = [self._models[name] for name in self._fallback if name != chosen.name]
        return Route([chosen, *others], proof_required=self.proof_required)

    async def choose(self, chat: str, name: str) -> None:
        """Have a chat answered by a model from now on."""
        await self._memory.set_metadata(CHOSEN + chat, "" if name == DEFAULT else name)
        if name == DEFAULT:
            self._chosen.pop(chat, None)
        else:
            self._chosen[chat] = name

    async def forget_gone(self, chat: str) -> str | None:
        """Let a chat whose model is gone be answered by the default one; return what is gone."""
        chosen = self._chosen.get(chat)
        if chosen is None or chosen in self._models:
            return None
        await self.choose(chat, DEFAULT)
        return chosen
