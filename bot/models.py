"""All models with their endpoints; connects `bot.llm` to the proofs of `bot.attestation`."""

import hashlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeVar
from urllib.parse import urlsplit

from bot.attestation.errors import ModelNotVerified
from bot.attestation.trust import REAL, Trust
from bot.config.llm import DEFAULT, LlmSettings
from bot.config.loading import is_local
from bot.config.settings import Settings
from bot.errors import SettingsError
from bot.llm.client import Learnt, LlmClient, RetryPolicy, open_transport
from bot.llm.errors import LlmNotAttested
from bot.llm.models import Model, Models, NothingProven
from bot.llm.speech import Speaker
from bot.llm.transcription import Transcriber
from conversation_store.store import ConversationStore

if TYPE_CHECKING:
    import ssl

    from bot.attestation.near_ai.model import AttestedModel
    from bot.attestation.near_ai.signatures import AnswerSignatures

OPERATORS_PATIENCE: Final = RetryPolicy(bound_seconds=15.0, silent_seconds=3.0)

OFF: Final = "Whether the model proves who can read along is not checked: it is turned off."
NOT_OVER_TLS: Final = (
    "The model's endpoint cannot prove who reads along: it is not reached over TLS, so nothing can"
    " be proven."
)
OTHER_DIALECT: Final = (
    "The model's endpoint cannot prove who reads along: nothing of the kind exists for its API. Its"
    " provider may read what you write here."
)

NOT_MEASURED: Final = (
    "LLM__{what}_URL: is neither on this machine nor a service of the measured compose file, as"
    " ATTESTATION__MODEL_POLICY=require or ATTESTATION__E2EE wants it"
)

Voicing = Literal["TRANSCRIPTION", "SPEECH"]
"""What an endpoint does with voices, as its settings name it."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class OpenEndpoint:
    """A model that can be asked.

    Attributes:
        client: asks it.
        proof: knows whether the endpoint's machine is verified.
        use_key: sets another bearer token for all parts that ask the endpoint.
        transcriber: turns voice notes into text.
        speaker: turns answers into voice notes.
        signatures: checks the signatures of answers, if the endpoint signs them.
    """

    client: LlmClient
    proof: "AttestedModel | NothingProven"
    use_key: Callable[[str | None], None]
    transcriber: Transcriber | None
    speaker: Speaker | None
    signatures: "AnswerSignatures | None"


@asynccontextmanager
async def open_models(
    settings: Settings,
    store: ConversationStore,
    trust: Trust = REAL,
    *,
    clock: Callable[[], float] = time.time,
    to_operator: bool = False,
) -> AsyncIterator[tuple[Models, Mapping[str, OpenEndpoint]]]:
    """Open the endpoints of all models, and provide them by model name.

    Args:
        to_operator: the people who write are operators, who prefer an error to a wait.

    Raises:
        SettingsError: the pins cannot be read.
    """
    endpoints: dict[str, OpenEndpoint] = {}
    models: dict[str, Model] = {}
    async with AsyncExitStack() as stack:
        for name in (DEFAULT, *settings.llm.models):
            own = settings.with_default_model(name)
            learnt = Learnt(store, _learnt_by(own.llm), clock=clock)
            opened = open_endpoint(
                own, trust=trust, clock=clock, learnt=learnt, has_voice=name == DEFAULT
            )
            endpoints[name] = endpoint = await stack.enter_async_context(opened)
            models[name] = Model(
                name,
                own.llm,
                endpoint.client,
                endpoint.proof,
                learnt,
                signs=endpoint.signatures is not None,
                patience=OPERATORS_PATIENCE if to_operator else None,
            )
            await learnt.resume()
        proof_required = settings.attestation.model_policy == "require"
        choices = Models(models, settings.llm.fallback, store, proof_required=proof_required)
        await choices.resume()
        yield choices, endpoints


@asynccontextmanager
async def open_endpoint(
    settings: Settings,
    *,
    trust: Trust = REAL,
    clock: Callable[[], float] = time.time,
    learnt: Learnt | None = None,
    has_voice: bool = False,
) -> AsyncIterator[OpenEndpoint]:
    """Open the model's endpoint, with a proof if the settings ask for one.

    Args:
        has_voice: also open what listens and speaks.

    Raises:
        SettingsError: the pins cannot be read.
    """
    llm = settings.llm
    async with AsyncExitStack() as stack:
        model: AttestedModel | None = None
        tls: ssl.SSLContext | None = None
        signatures: AnswerSignatures | None = None
        if settings.model_has_to_prove:
            # Imported here: a bot that asks for no proof saves 13 MB of cryptography.
            from bot.attestation.near_ai.model import open_attested  # noqa: PLC0415

            attested = open_attested(settings, trust, clock)
            model, tls, signatures = await stack.enter_async_context(attested)
        transport = await stack.enter_async_context(open_transport(llm, tls=tls))
        client = LlmClient(
            transport,
            llm,
            admit=_for_llm(model.admit) if model else None,
            seal=_for_llm(model.request_keys) if model and model.encrypts else None,
            learnt=learnt,
        )
        transcriber = speaker = None
        if has_voice and (ears := llm.transcription_model):
            listens = await _open_voice(stack, settings, client, "TRANSCRIPTION")
            transcriber = Transcriber(listens, ears, llm.timeout_seconds)
        if has_voice and (mouth := llm.speech_model):
            speaks = await _open_voice(stack, settings, client, "SPEECH")
            speaker = Speaker(speaks, mouth, llm.speech_voice)

        def use_key(api_key: str | None) -> None:
            client.api.use_key(api_key)
            if model is not None and signatures is not None:
                model.client.api_key = signatures.api_key = api_key

        yield OpenEndpoint(
            client=client,
            proof=model or NothingProven(_why_unproven(settings)),
            use_key=use_key,
            transcriber=transcriber,
            speaker=speaker,
            signatures=signatures,
        )


async def _open_voice(
    stack: AsyncExitStack, settings: Settings, client: LlmClient, what: Voicing
) -> LlmClient:
    """Return the client of the endpoint that listens or speaks, perhaps the model's own.

    Raises:
        SettingsError: the endpoint has to be measured together with the bot, and is not.
    """
    if problem := await voice_problem(settings, what):
        raise SettingsError(problem)
    there = voice_settings(settings.llm, what)
    if there is settings.llm:
        return client
    return LlmClient(await stack.enter_async_context(open_transport(there)), there)


def voice_settings(llm: LlmSettings, what: Voicing) -> LlmSettings:
    """Return the settings of the endpoint that listens or speaks."""
    if what == "SPEECH":
        return llm.at(llm.speech_url, llm.speech_key)
    return llm.at(llm.transcription_url, llm.transcription_key)


async def voice_problem(settings: Settings, what: Voicing) -> str | None:
    """Return the problem of an endpoint for voices that the policy does not allow, or None."""
    attestation, there = settings.attestation, voice_settings(settings.llm, what)
    host = urlsplit(there.base_url).hostname or ""
    is_strict = attestation.model_policy == "require" or attestation.e2ee
    if not is_strict or is_local(host):
        return None
    from bot.attestation.proof import measured_services  # noqa: PLC0415 - as above

    return None if host in await measured_services(settings) else NOT_MEASURED.format(what=what)


def _for_llm(ask: Callable[[], Awaitable[T]]) -> Callable[[], Awaitable[T]]:
    """Translate errors of `bot.attestation` into errors of `bot.llm`."""

    async def asked() -> T:
        try:
            return await ask()
        except ModelNotVerified as refused:
            raise LlmNotAttested(str(refused)) from None

    return asked


def _why_unproven(settings: Settings) -> str:
    if settings.attestation.model_policy == "off":
        return OFF
    return NOT_OVER_TLS if settings.llm.dialect == "openai" else OTHER_DIALECT


def _learnt_by(llm: LlmSettings) -> str:
    """Return the store's key for facts about a model; hashed, as the address may name its owner."""
    where = f"{llm.dialect}\n{llm.base_url}\n{llm.model}\n{llm.tool_calling}"
    return f"learnt of {hashlib.sha256(where.encode()).hexdigest()[:32]}"
