"""All models with their endpoints, wired."""

import hashlib
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Final

from bot.attestation.trust import REAL, Trust
from bot.config.llm import DEFAULT, LlmSettings
from bot.config.settings import Settings
from bot.llm.learnt import Learnt
from bot.llm.model import Model
from bot.llm.models import Models
from bot.llm.retry import RetryPolicy
from bot.llm.vision import Vision
from bot.wiring.endpoint import OpenEndpoint, has_to_prove
from bot.wiring.parts import open_endpoint
from conversation_store.store import ConversationStore

OPERATORS_PATIENCE: Final = RetryPolicy(bound_seconds=15.0, silent_seconds=3.0)


@dataclass(frozen=True, slots=True)
class OpenModels:
    """Every model that can be asked.

    Attributes:
        endpoints: by the names of their models, the default one first.
        models: which one answers each chat.
    """

    endpoints: Mapping[str, OpenEndpoint]
    models: Models

    @property
    def default(self) -> OpenEndpoint:
        """The endpoint of the default model."""
        return self.endpoints[DEFAULT]


@asynccontextmanager
async def open_models(
    settings: Settings,
    store: ConversationStore,
    trust: Trust = REAL,
    *,
    clock: Callable[[], float] = time.time,
    to_operator: bool = False,
) -> AsyncIterator[OpenModels]:
    """Open the endpoints of all models.

    Args:
        settings: of the bot.
        store: keeps what is learnt of models, and which one each chat has chosen.
        trust: whom verifications trust.
        clock: seconds since 1970.
        to_operator: whoever writes runs the bot, and would rather know what is wrong than wait.
    """
    endpoints: dict[str, OpenEndpoint] = {}
    models: dict[str, Model] = {}
    async with AsyncExitStack() as stack:
        for name in (DEFAULT, *settings.llm.models):
            own = settings_of(settings, name)
            learnt = Learnt(store, _learnt_by(own.llm), clock=clock)
            opened = open_endpoint(own, trust=trust, clock=clock, learnt=learnt)
            endpoints[name] = endpoint = await stack.enter_async_context(opened)
            models[name] = Model(
                name,
                own.llm.model,
                endpoint.client,
                vision=Vision(own.llm.vision, endpoint.client),
                proof=endpoint.proof,
                learnt=learnt,
                context_tokens=own.llm.context_tokens,
                tool_calling=own.llm.tool_calling,
                encrypts=own.attestation.e2ee and has_to_prove(own),
                signs=endpoint.signatures is not None,
                patience=OPERATORS_PATIENCE if to_operator else None,
            )
            await learnt.resume()
        proof_required = settings.attestation.model_policy == "require"
        choices = Models(models, settings.llm.fallback, store, proof_required=proof_required)
        await choices.resume()
        yield OpenModels(endpoints, choices)


def settings_of(settings: Settings, name: str) -> Settings:
    """Return the settings as they would be if a model were the default one."""
    if name == DEFAULT:
        return settings
    return settings.model_copy(update={"llm": settings.llm.of(name)})


def _learnt_by(llm: LlmSettings) -> str:
    """Return what is remembered of a model by; not its address, which may tell whose it is."""
    where = f"{llm.dialect}\n{llm.base_url}\n{llm.model}\n{llm.tool_calling}"
    return f"learnt of {hashlib.sha256(where.encode()).hexdigest()[:32]}"
