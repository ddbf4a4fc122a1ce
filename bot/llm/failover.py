"""Which model goes on with a turn where the chosen one cannot."""

from collections.abc import Sequence
from copy import copy
from typing import Final

import structlog

from bot.llm.errors import LlmBroken, LlmError, LlmNotAttested, LlmTimeout, LlmUnavailable
from bot.llm.model import Model
from bot.llm.retry import RetryPolicy
from bot.observability.metrics import LLM_FAILOVERS

HASTY: Final = RetryPolicy(bound_seconds=8.0, unreached_seconds=3.0)
"""How a model is tried again that another one can stand in for."""

NOT_PROVEN_EITHER: Final = (
    "My model gives no answer right now. I could ask another one, but it has not proven who can"
    " read along there, so I have sent it nothing. Please try again later."
)

log = structlog.get_logger()


class Route:
    """The way of one turn through the models: the chosen one first, then those that stand in.

    Args:
        models: in the order in which they are asked.
        proof_required: nothing is sent to a model that is not proven.

    Attributes:
        model: the one that is asked now.
    """

    def __init__(self, models: Sequence[Model], *, proof_required: bool = False) -> None:
        self._chosen = models[0]
        self._proof_required = proof_required
        self.model = self._chosen
        self._left: list[Model] = []
        if others := models[1:]:
            fit = [self._chosen, *filter(self._is_fit, others)]
            self.model = next((one for one in fit if not one.breaker.is_open), self._chosen)
            self._left = [one for one in (*others, self._chosen) if one is not self.model]

    @property
    def stands_in(self) -> bool:
        """Whether the model that is asked now is not the chosen one."""
        return self.model is not self._chosen

    @property
    def patience(self) -> RetryPolicy | None:
        """How often the present model is tried again; None: as usual."""
        return HASTY if any(map(self._is_fit, self._left)) else None

    def fork(self) -> "Route":
        """Return a way of its own from here on, under the same conditions."""
        fork = copy(self)
        fork._left = list(self._left)  # noqa: SLF001 - of its own class
        return fork

    def go_on(self, error: LlmError) -> bool:
        """Go on to the next model after an error of the present one; False where there is none.

        Raises:
            LlmNotAttested: there is one, and it has not proven what the chosen one has.
        """
        left = self.model
        # Looked at now, because the chosen model may have proven itself since the turn began.
        fit = sorted(filter(self._is_fit, self._left), key=lambda model: model.breaker.is_open)
        if not fit:
            if self._left and isinstance(error, LlmUnavailable | LlmTimeout | LlmBroken):
                raise LlmNotAttested(NOT_PROVEN_EITHER) from error
            return False
        self.model = fit[0]
        self._left.remove(self.model)
        LLM_FAILOVERS.inc()
        log.warning(
            "llm.failover",
            error=type(error).__name__,
            where=left.client.reach.host,
            host=self.model.client.reach.host,
        )
        return True

    def _is_fit(self, model: Model) -> bool:
        """Whether a model may read what the chosen one may."""
        if model is self._chosen:
            return True
        return model.proof.proven or not (self._proof_required or self._chosen.was_proven)
