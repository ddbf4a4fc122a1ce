"""The model's endpoint as the bot uses it, and what is known about who can read along there."""

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import urlsplit

from bot.attestation.errors import MalformedEvidence
from bot.config.settings import Settings
from bot.errors import SettingsError
from bot.llm.client import Endpoint, LlmClient, open_transport
from bot.llm.learnt import Learnt
from bot.llm.transcription import Transcriber
from bot.wiring.dialects import dialect_of

if TYPE_CHECKING:
    from bot.attestation.near_ai.evidence import ModelEvidence
    from bot.attestation.near_ai.pins import ModelPins
    from bot.attestation.near_ai.signatures import AnswerSignatures

Work = Callable[[], Coroutine[Any, Any, None]]

OFF: Final = "Whether the model proves who can read along is not checked: it is turned off."
NOT_OVER_TLS: Final = (
    "The model's endpoint cannot prove who reads along: it is not reached over TLS, so nothing can"
    " be proven."
)
OTHER_DIALECT: Final = (
    "The model's endpoint cannot prove who reads along: nothing of the kind exists for its API. Its"
    " provider may read what you write here."
)


class ModelProof(Protocol):
    """Who can read along at the model: `AttestedModel`, or `NothingProven`."""

    @property
    def proven(self) -> bool:
        """Whether the model is verified now."""
        ...

    def summary(self) -> str:
        """Say in one or two sentences who can read along."""
        ...

    def evidence(self) -> "ModelEvidence | None":
        """Return the evidence, if there is any."""
        ...


@dataclass(frozen=True, slots=True)
class NothingProven:
    """A model that is not asked for proof; `why` is a sentence."""

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


async def _nothing_to_do() -> None:
    """Without a proof there is nothing to verify."""


@dataclass(frozen=True, slots=True)
class OpenEndpoint:
    """A model that can be asked.

    Attributes:
        client: asks it.
        proof: who can read along there.
        use_key: each gives another bearer token to one of the parts that ask the endpoint.
        transcriber: turns voice notes into text.
        signatures: checks the signatures of answers, if the endpoint signs them.
        settled: returns once the first verification has ended, whatever its result.
        keep_verified: runs as long as the bot.
    """

    client: LlmClient
    proof: ModelProof
    use_key: tuple[Callable[[str | None], None], ...]
    transcriber: Transcriber | None = None
    signatures: "AnswerSignatures | None" = None
    settled: Work = _nothing_to_do
    keep_verified: Work = _nothing_to_do


@asynccontextmanager
async def open_unproven(
    settings: Settings, learnt: Learnt | None = None
) -> AsyncIterator[OpenEndpoint]:
    """Open an endpoint without proof: none is wanted, or none can be given."""
    endpoint = llm_endpoint(settings)
    listener = settings.llm.transcription_model
    why = _why_unproven(settings)
    async with open_transport(endpoint) as transport:
        client = LlmClient(transport, endpoint, dialect_of(settings.llm, endpoint), learnt=learnt)
        transcriber = Transcriber(transport, endpoint, listener) if listener else None
        listening = () if transcriber is None else (transcriber.use_key,)
        yield OpenEndpoint(
            client,
            NothingProven(why),
            (client.use_key, *listening),
            transcriber=transcriber,
        )


@asynccontextmanager
async def open_client(settings: Settings) -> AsyncIterator[LlmClient]:
    """Open what asks the endpoint about itself, and nothing that anybody says."""
    endpoint = llm_endpoint(settings)
    async with open_transport(endpoint) as transport:
        yield LlmClient(transport, endpoint, dialect_of(settings.llm, endpoint))


def _why_unproven(settings: Settings) -> str:
    if settings.attestation.model_policy == "off":
        return OFF
    return NOT_OVER_TLS if settings.llm.dialect == "openai" else OTHER_DIALECT


def llm_endpoint(settings: Settings) -> Endpoint:
    """Return the model's endpoint as the client takes it."""
    return Endpoint(
        base_url=settings.llm.base_url,
        model=settings.llm.model,
        api_key=api_key(settings),
        timeout_seconds=settings.llm.timeout_seconds,
        max_concurrency=settings.llm.max_concurrency,
    )


def api_key(settings: Settings) -> str | None:
    """Return the bearer token for the endpoint; None where none is set."""
    key = settings.llm.api_key
    return key.get_secret_value() if key is not None else None


def model_pins(settings: Settings) -> "ModelPins | None":
    """Return which of the model's machines are accepted; None if that is not set.

    Raises:
        SettingsError: the file cannot be read, or holds no pins.
    """
    value = settings.attestation.model_pins
    if value is None:
        return None
    # Imported here: a bot that pins nothing saves 13 MB of cryptography.
    from bot.attestation.near_ai.pins import MAX_PINS_BYTES, ModelPins  # noqa: PLC0415

    try:
        if value.startswith("{"):
            return ModelPins.parse(value)
        with Path(value).open("rb") as file:
            return ModelPins.parse(file.read(MAX_PINS_BYTES + 1))
    except OSError as error:
        raise SettingsError(f"ATTESTATION__MODEL_PINS: {value}: {error.strerror}") from None
    except MalformedEvidence as error:
        raise SettingsError(f"ATTESTATION__MODEL_PINS: {error}") from None


def has_to_prove(settings: Settings) -> bool:
    """Whether the endpoint is asked for proof; without TLS no key can identify the other side."""
    over_tls = urlsplit(settings.llm.base_url).scheme == "https"
    speaks_it = settings.llm.dialect == "openai"
    return over_tls and speaks_it and settings.attestation.model_policy != "off"
