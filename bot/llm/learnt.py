"""Facts about models and their endpoints, learnt by asking and kept for a while."""

import time
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Annotated, Final, Literal

import structlog
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from bot.llm.api import Parameter
from bot.llm.errors import LlmContextTooLong, LlmError, LlmRejected

if TYPE_CHECKING:
    from conversation_store.store import ConversationStore

TRUSTED_SECONDS: Final = 30 * 86_400.0
"""How long learnt facts count; after that, a server may have learnt something new."""
REFUSING_IMAGES: Final = frozenset({400, 404, 413, 415, 422})
"""OpenRouter says 404, a small proxy 413."""

MIN_CONTEXT_TOKENS: Final = 1_000
"""A model that reads less is of no use, so smaller numbers are taken for mistakes."""

log = structlog.get_logger()


class Facts(BaseModel):
    """Facts about an endpoint and its model.

    Attributes:
        at: seconds since 1970, when the last of them was learnt.
        omitted: parts that requests go without.
        tool_calling: how to tell the model of tools; None until it is known.
        proven: whether the endpoint has ever been proven.
        context_tokens: how much the model reads; None until the endpoint has said so.
    """

    model_config = ConfigDict(extra="ignore", frozen=True)

    at: float
    omitted: Annotated[frozenset[Parameter], Field(max_length=len(Parameter))] = frozenset()
    tool_calling: Literal["native", "prompt"] | None = None
    proven: bool = False
    context_tokens: Annotated[int | None, Field(ge=MIN_CONTEXT_TOKENS)] = None


@dataclass(eq=False)
class Learnt:
    """Keeps the facts about an endpoint and its model.

    Attributes:
        store: keeps them; None: only this process does.
        key: of the model in the store.
        clock: seconds since 1970.
        doubts: questions after which it was unclear whether the endpoint shows tools to the model.
    """

    store: "ConversationStore | None" = None
    key: str = ""
    _: KW_ONLY
    clock: Callable[[], float] = time.time
    facts: Facts = field(default=Facts(at=0.0), init=False)
    doubts: int = field(default=0, init=False)

    async def resume(self) -> None:
        """Load the facts of an earlier process, unless they are too old."""
        kept = await self.store.get_metadata(self.key) if self.store is not None else None
        if kept is None:
            return
        try:
            found = Facts.model_validate_json(kept)
        except ValidationError:
            return  # of another version
        if self.clock() - found.at < TRUSTED_SECONDS:
            self.facts = found

    async def note(self, **news: object) -> None:
        """Set some of the facts; store them if they have changed."""
        facts = self.facts.model_copy(update=news)
        if facts == self.facts:
            return
        self.facts = facts = facts.model_copy(update={"at": self.clock()})
        omitted = " ".join(sorted(facts.omitted))
        log.info("llm.learnt", kind=omitted, state=facts.tool_calling or "unknown")
        if self.store is not None:
            await self.store.set_metadata(self.key, facts.model_dump_json())


def may_be_about_images(error: LlmError) -> bool:
    """Whether a request with images may have been refused because of them."""
    if isinstance(error, LlmContextTooLong):
        return False
    return isinstance(error, LlmRejected) and error.status in REFUSING_IMAGES
