"""The models that answer people, the choices of chats among them, and failover."""

import asyncio
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import TYPE_CHECKING, Final, Protocol

import structlog

from bot.config.llm import DEFAULT, ModelSettings
from bot.llm.answering import clean_answer
from bot.llm.client import MIN_CONTEXT_TOKENS, Learnt, LlmClient, RetryPolicy
from bot.llm.errors import (
    LlmBroken,
    LlmContextTooLong,
    LlmError,
    LlmNotAttested,
    LlmTimeout,
    LlmUnavailable,
)
from bot.llm.messages import Completion, ModelRequest, estimated_usage
from bot.observability.health import Health
from bot.observability.metrics import LLM_ENDPOINT_UP, LLM_FAILOVERS
from conversation_store.models import TokenSum

if TYPE_CHECKING:
    from conversation_store.store import ConversationStore

HEALTH_SECONDS: Final = 15.0
"""How long an answer shows that an endpoint is healthy."""
REFUSED_SECONDS: Final = 3_600.0
"""How long a model gets no images after it refused one."""
UNPROVEN: Final = (
    "Nothing is sent to the model: it is not verified, and ATTESTATION__MODEL_POLICY is require."
)
CHOSEN: Final = "model of "
"""Prefix of the store's key for the choice of a chat; the chat follows."""
HASTY: Final = RetryPolicy(bound_seconds=8.0, unreached_seconds=3.0)
"""Retries of a model that another one can replace."""
OTHER_MODEL: Final = (
    "This chat is answered by the model {name}, which was chosen here. What a proof says of the"
    " model is about the default one."
)
NOT_PROVEN_EITHER: Final = (
    "My model gives no answer right now. I could ask another one, but it has not proven who can"
    " read along there, so I have sent it nothing. Please try again later."
)

log = structlog.get_logger()


class ModelProof(Protocol):
    """Knows who can read conversations with a model: `AttestedModel` or `NothingProven`."""

    @property
    def proven(self) -> bool:
        """Whether the model is verified now."""
        ...

    def summary(self) -> str:
        """Say who can read conversations, a line for each sentence."""
        ...


@dataclass(frozen=True, slots=True)
class NothingProven:
    """Stand-in for `AttestedModel` if the bot asks for no proof."""

    why: str

    @property
    def proven(self) -> bool:
        """Never."""
        return False

    def summary(self) -> str:
        """Return why."""
        return self.why

    def evidence(self) -> None:
        """Return nothing."""

    async def settled(self) -> None:
        """Return at once."""

    async def keep_verified(self) -> None:
        """Return at once."""


@dataclass(frozen=True, slots=True)
class ModelTraits:
    """Facts about a model for its prompt.

    Attributes:
        context_tokens: budget for everything: system text, tools, history, turn and answer.
        is_proven: whether its machine is verified, and the conversation encrypted on the way.
    """

    context_tokens: int
    takes_tools: bool = True
    is_proven: bool = False


@dataclass(eq=False)
class Model:
    """A model with the facts about it.

    Attributes:
        name: the model's name for people and in the settings.
        patience: when to retry; None: by the client's policy.
    """

    name: str
    settings: ModelSettings
    client: LlmClient
    proof: ModelProof
    learnt: Learnt
    _: KW_ONLY
    signs: bool
    patience: RetryPolicy | None = None
    _sees_images: bool | None = field(default=None, init=False)
    _blind_until: float = field(default=-math.inf, init=False)
    _asked_for_context: bool = field(default=False, init=False)
    _healthy_until: float = field(default=-math.inf, init=False)

    @property
    def traits(self) -> ModelTraits:
        """Facts for the prompt, as of now."""
        settings, learnt = self.settings, self.learnt.facts.context_tokens
        is_proven = self.client.encrypts and self.proof.proven
        tokens = min(settings.context_tokens, learnt or settings.context_tokens)
        return ModelTraits(tokens, settings.tool_calling != "off", is_proven)

    async def sees_images(self) -> bool:
        """Return whether to send it images.

        The operator decides, otherwise the endpoint, which is asked once. If neither says so, the
        bot tries the first image.
        """
        if self.settings.vision != "auto":
            return self.settings.vision == "on"
        if time.monotonic() < self._blind_until:
            return False
        if self._sees_images is None:
            try:
                about = await self.client.about()
                self._sees_images = about is None or about.sees_images is not False
            except LlmError as error:
                log.info("vision.unknown", error=type(error).__name__)
        return self._sees_images is not False

    def note_refused_images(self) -> None:
        """Note that it refused a request with images, but took the same one without."""
        self._blind_until = time.monotonic() + REFUSED_SECONDS
        log.warning("vision.refused", seconds=REFUSED_SECONDS)

    async def health(self) -> Health:
        """Return whether the endpoint answers; a recent answer counts for `HEALTH_SECONDS`."""
        now = time.monotonic()
        if now >= self._healthy_until:
            try:
                await self.client.models()
            except LlmError as error:
                return Health(ok=False, detail=self.client.reach.explained(error))
            self._healthy_until = now + HEALTH_SECONDS
        return Health(ok=True, detail="The endpoint answers.")

    async def complete(
        self,
        request: ModelRequest,
        *,
        still_trying: Callable[[], None],
        cancelled: Callable[[TokenSum], None] = lambda _: None,
        patience: RetryPolicy | None = None,
    ) -> Completion:
        """Return the model's whole answer, clean of reasoning and markup; LlmError without one.

        Args:
            still_trying: called once if the model says nothing for a while.
            cancelled: called with an estimate of the prompt if the request is cancelled.
            patience: when to retry this request; None: as usual.
        """

        async def ask(request: ModelRequest) -> Completion:
            answer = await self.client.complete(
                request.messages,
                request.tools,
                may_call=request.may_call,
                still_trying=still_trying,
                cancelled=lambda: cancelled(estimated_usage(request)),
                patience=patience or self.patience,
            )
            if answer.usage is not None:
                return answer
            return replace(answer, usage=estimated_usage(request, answer))

        try:
            completion = await clean_answer(request, ask, self.learnt, self.settings.tool_calling)
        except LlmContextTooLong as error:
            await self._note_context(error.context_tokens)
            raise
        if self.proof.proven:
            await self.learnt.note(proven=True)
        if not self._asked_for_context:
            self._asked_for_context = True
            await self._note_context(await self.client.context_tokens())
        return completion

    async def _note_context(self, tokens: int | None) -> None:
        """Note how much the model reads, so that later prompts fit."""
        if tokens is not None and tokens >= MIN_CONTEXT_TOKENS:
            await self.learnt.note(context_tokens=tokens)


class Route:
    """Order in which one turn asks the models: the chosen one first, then its substitutes.

    Args:
        proof_required: nothing is sent to a model that is not proven.

    Attributes:
        model: the one to ask now.
    """

    def __init__(self, models: Sequence[Model], *, proof_required: bool = False) -> None:
        self._chosen = models[0]
        self._proof_required = proof_required
        self._left = list(models)
        self.model = self._next() or self._chosen

    @property
    def stands_in(self) -> bool:
        """Whether the model to ask now is not the chosen one."""
        return self.model is not self._chosen

    @property
    def patience(self) -> RetryPolicy | None:
        """When to retry the current model; None: as usual."""
        return HASTY if any(map(self._is_fit, self._left)) else None

    def fork(self) -> "Route":
        """Return an independent copy of this route in its current state."""
        fork = copy(self)
        fork._left = list(self._left)  # noqa: SLF001 - of its own class
        return fork

    def go_on(self, error: LlmError) -> bool:
        """Move to the next model after an error of the current one; False after the last one.

        Raises:
            LlmNotAttested: the next model lacks the proof that the chosen one has.
        """
        left, following = self.model, self._next()
        if following is None:
            if self._left and isinstance(error, LlmUnavailable | LlmTimeout | LlmBroken):
                raise LlmNotAttested(NOT_PROVEN_EITHER) from error
            return False
        self.model = following
        LLM_FAILOVERS.inc()
        log.warning(
            "llm.failover",
            error=type(error).__name__,
            where=left.client.reach.host,
            host=self.model.client.reach.host,
        )
        return True

    def _next(self) -> Model | None:
        """Take the first fit model that is left; prefer endpoints that do not fail."""
        fit = filter(self._is_fit, self._left)  # check now: a model may get proven later
        following = min(fit, key=lambda one: one.client.reach.is_avoided, default=None)
        if following is not None:
            self._left.remove(following)
        return following

    def _is_fit(self, model: Model) -> bool:
        """Whether a model may read the conversation in place of the chosen one."""
        if model is self._chosen:
            return True
        chosen = self._chosen  # people may rely on its proof, even an earlier one
        was_proven = chosen.proof.proven or chosen.learnt.facts.proven
        return model.proof.proven or not (self._proof_required or was_proven)


@dataclass(eq=False)
class Models:
    """All models, and the choices of chats.

    Attributes:
        models: by name; one is called `default`.
        fallback: the names of the models that replace others, in order.
        proof_required: nothing is sent to a model that is not proven.
    """

    models: Mapping[str, Model]
    fallback: Sequence[str]
    store: "ConversationStore"
    _: KW_ONLY
    proof_required: bool
    _chosen: dict[str, str] = field(default_factory=dict, init=False)

    async def resume(self) -> None:
        """Load the choices of earlier processes."""
        found = await self.store.metadata_below(CHOSEN)
        self._chosen = {name.removeprefix(CHOSEN): value for name, value in found.items() if value}

    def __iter__(self) -> Iterator[Model]:
        """Iterate over all models, the default first."""
        return iter(self.models.values())

    @property
    def default(self) -> Model:
        """The model of chats without a choice."""
        return self.models[DEFAULT]

    def of(self, chat: str) -> Model:
        """Return the model of a chat."""
        return self.models.get(self._chosen.get(chat, DEFAULT)) or self.default

    def summary(self, chat: str) -> str:
        """Say whether it is proven which model answers a chat, and where."""
        model = self.of(chat)
        if model is self.default:
            return model.proof.summary()
        return f"{OTHER_MODEL.format(name=model.name)}\n{model.proof.summary()}"

    async def health(self) -> Health:
        """Ask all endpoints concurrently; healthy if the default model or a substitute answers."""
        found = await asyncio.gather(*map(self._health, self))
        by_name = dict(zip(self.models, found, strict=True))
        for name, health in by_name.items():
            LLM_ENDPOINT_UP.labels(name).set(health.ok)
        if len(found) == 1:
            return found[0]
        can_answer = any(by_name[model.name].ok for model in self._route(self.default))
        details = (f"{name}: {health.detail}" for name, health in by_name.items())
        return Health(ok=can_answer, detail=" ".join(details))

    async def _health(self, model: Model) -> Health:
        if self.proof_required and not model.proof.proven:
            return Health(ok=False, detail=UNPROVEN)
        return await model.health()

    def route(self, chat: str, wanted: str | None = None) -> Route:
        """Return the route of a turn in a chat.

        Args:
            wanted: the name of the first model; for None or an unknown name, the chat's model.
        """
        chosen = self.models.get(wanted or "") or self.of(chat)
        return Route(self._route(chosen), proof_required=self.proof_required)

    def _route(self, chosen: Model) -> list[Model]:
        return [chosen, *(self.models[one] for one in self.fallback if one != chosen.name)]

    async def choose(self, chat: str, name: str) -> None:
        """Set the model of a chat."""
        await self.store.set_metadata(CHOSEN + chat, "" if name == DEFAULT else name)
        if name == DEFAULT:
            self._chosen.pop(chat, None)
        else:
            self._chosen[chat] = name

    async def forget_gone(self, chat: str) -> str | None:
        """Give a chat the default model if its own was removed; return the removed name."""
        chosen = self._chosen.get(chat)
        if chosen is None or chosen in self.models:
            return None
        await self.choose(chat, DEFAULT)
        return chosen
