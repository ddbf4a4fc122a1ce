"""What has been learnt of a model by asking it, so that only the first question pays for it."""

import time
from collections.abc import Callable
from typing import Annotated, Final, Literal, Protocol

import structlog
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from bot.llm.dialect import Parameter

TRUSTED_SECONDS: Final = 30 * 86_400.0
"""How long it counts: a server may learn what it did not know."""

ToolCalling = Literal["native", "prompt"]

log = structlog.get_logger()


class Memory(Protocol):
    """Where it is kept. Implemented by `conversation_store.store.ConversationStore`."""

    async def get_metadata(self, name: str) -> str | None:
        """Return what is remembered by a name."""
        ...

    async def set_metadata(self, name: str, value: str) -> None:
        """Remember something by a name."""
        ...


class _Kept(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    at: float
    omitted: Annotated[frozenset[Parameter], Field(max_length=len(Parameter))] = frozenset()
    tool_calling: ToolCalling | None = None
    proven: bool = False


class Learnt:
    """What a model's endpoint refuses, and how the model is told of tools.

    Args:
        memory: keeps it; None: it is forgotten with the process.
        key: of this model there.
        clock: seconds since 1970.
    """

    def __init__(
        self,
        memory: Memory | None = None,
        key: str = "",
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._memory = memory
        self._key = key
        self._clock = clock
        self._kept = _Kept(at=0.0)

    @property
    def omitted(self) -> frozenset[Parameter]:
        """What requests go without."""
        return self._kept.omitted

    @property
    def tool_calling(self) -> ToolCalling | None:
        """How the model is told of tools; None where that is not known yet."""
        return self._kept.tool_calling

    @property
    def proven(self) -> bool:
        """Whether it has proven who reads along, once."""
        return self._kept.proven

    async def resume(self) -> None:
        """Take up what an earlier process has learnt, unless that was long ago."""
        kept = await self._memory.get_metadata(self._key) if self._memory is not None else None
        if kept is None:
            return
        try:
            found = _Kept.model_validate_json(kept)
        except ValidationError:
            return  # of another version: it is learnt again
        if self._clock() - found.at < TRUSTED_SECONDS:
            self._kept = found

    async def omit(self, omitted: frozenset[Parameter]) -> None:
        """Take note of what requests go without from now on."""
        if omitted != self._kept.omitted:
            await self._keep(self._kept.model_copy(update={"omitted": omitted}))

    async def tell_of_tools(self, tool_calling: ToolCalling) -> None:
        """Take note of how the model is told of tools from now on."""
        if tool_calling != self.tool_calling:
            await self._keep(self._kept.model_copy(update={"tool_calling": tool_calling}))

    async def note_proof(self) -> None:
        """Take note that it has proven who reads along."""
        if not self.proven:
            await self._keep(self._kept.model_copy(update={"proven": True}))

    async def _keep(self, kept: _Kept) -> None:
        self._kept = kept = kept.model_copy(update={"at": self._clock()})
        omitted = " ".join(sorted(kept.omitted))
        log.info("llm.learnt", kind=omitted, state=kept.tool_calling or "unknown")
        if self._memory is not None:
            await self._memory.set_metadata(self._key, kept.model_dump_json())
