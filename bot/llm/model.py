"""One of the models that people can be answered by."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from bot.llm.answering import Answering, ToolCalling
from bot.llm.breaker import Breaker
from bot.llm.client import LlmClient
from bot.llm.errors import LlmError, LlmTimeout, LlmUnavailable
from bot.llm.estimate import estimated_usage
from bot.llm.learnt import Learnt
from bot.llm.messages import Completion, ModelRequest
from bot.llm.retry import RetryPolicy
from bot.llm.vision import Vision


class ModelProof(Protocol):
    """Who can read along at a model. Implemented in `bot.attestation.near_ai` and `bot.wiring`."""

    @property
    def proven(self) -> bool:
        """Whether the model is verified now."""
        ...

    def summary(self) -> str:
        """Say in one or two sentences who can read along."""
        ...


@dataclass(frozen=True, slots=True)
class ModelTraits:
    """What a prompt has to know of the model that reads it.

    Attributes:
        context_tokens: budget for everything: system text, tools, history, turn and answer.
        takes_tools: whether it is told of tools.
        is_proven: whether its machine is verified, and what is said to it encrypted on the way.
    """

    context_tokens: int
    takes_tools: bool = True
    is_proven: bool = False


class Model:
    """A model with a name, and what is known of it.

    Args:
        name: how people and settings call it.
        id_: how its endpoint calls it.
        client: asks it.
        vision: whether it sees images.
        proof: who can read along there.
        learnt: of it so far.
        context_tokens: what it can read.
        tool_calling: how it is told of tools.
        encrypts: whether what is said to it is encrypted to its own machine.
        signs: whether it signs its answers.
        patience: when to try again; None: as the client does.

    Attributes:
        breaker: whether it is to be left alone for a while.
    """

    def __init__(
        self,
        name: str,
        id_: str,
        client: LlmClient,
        *,
        vision: Vision,
        proof: ModelProof,
        learnt: Learnt,
        context_tokens: int,
        tool_calling: ToolCalling = "auto",
        encrypts: bool = False,
        signs: bool = False,
        patience: RetryPolicy | None = None,
    ) -> None:
        self.name = name
        self.id = id_
        self.client = client
        self.vision = vision
        self.proof = proof
        self._learnt = learnt
        self._context_tokens = context_tokens
        self._takes_tools = tool_calling != "off"
        self._answering = Answering(tool_calling, learnt)
        self._encrypts = encrypts
        self.signs = signs
        self._patience = patience
        self.breaker = Breaker()

    @property
    def traits(self) -> ModelTraits:
        """What a prompt has to know of it now."""
        is_proven = self._encrypts and self.proof.proven
        return ModelTraits(self._context_tokens, self._takes_tools, is_proven)

    @property
    def was_proven(self) -> bool:
        """Whether it is verified, or has been: whoever talks with it relies on that."""
        return self.proof.proven or self._learnt.proven

    async def complete(
        self,
        request: ModelRequest,
        *,
        still_trying: Callable[[], None],
        patience: RetryPolicy | None = None,
    ) -> Completion:
        """Return the model's whole answer to a request, clean of reasoning and markup.

        Args:
            request: what is asked.
            still_trying: called once when the endpoint has been tried again for so long that
                whoever waits is to be told.
            patience: when to try this request again; None: as usual.

        Raises:
            LlmError: no usable answer.
        """

        async def ask(request: ModelRequest) -> Completion:
            answer = await self.client.complete(
                request.messages,
                request.tools,
                may_call=request.may_call,
                still_trying=still_trying,
                patience=patience or self._patience,
            )
            if answer.usage is not None:
                return answer
            return replace(answer, usage=estimated_usage(request, answer))

        try:
            completion = await self._answering.answer(request, ask)
        except LlmError as error:
            if isinstance(error, LlmUnavailable | LlmTimeout):
                self.breaker.failed()
            raise
        self.breaker.answered()
        if self.proof.proven:
            await self._learnt.note_proof()
        return completion
