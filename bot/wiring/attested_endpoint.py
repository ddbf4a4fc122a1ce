"""A model's endpoint that has to prove who reads along: admission, pinned keys, encryption.

Here `bot.llm` gets what it asks for from `bot.attestation`; the two know nothing of each other.
"""

import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

from bot.attestation.collateral import CollateralSource
from bot.attestation.errors import ModelNotVerified
from bot.attestation.http import HttpService, open_http
from bot.attestation.near_ai.client import NearAiClient
from bot.attestation.near_ai.encryption import EndToEndEncryption
from bot.attestation.near_ai.service import AttestedModel
from bot.attestation.near_ai.signatures import AnswerSignatures
from bot.attestation.pinning import pin
from bot.attestation.trust import REAL, Trust
from bot.config.settings import Settings
from bot.http_client import new_tls_context
from bot.llm.attested import Sealing
from bot.llm.client import LlmClient, open_transport
from bot.llm.errors import LlmNotAttested
from bot.llm.learnt import Learnt
from bot.llm.transcription import Transcriber
from bot.wiring.endpoint import OpenEndpoint, llm_endpoint, model_pins


@asynccontextmanager
async def open_attested(
    settings: Settings,
    trust: Trust = REAL,
    *,
    clock: Callable[[], float] = time.time,
    learnt: Learnt | None = None,
) -> AsyncIterator[OpenEndpoint]:
    """Open the endpoint; what carries conversations meets only attested keys under `require`.

    Args:
        settings: say where it is and what it has to prove.
        trust: whom a verification trusts; only tests give another than the real one.
        clock: seconds since 1970; the age of proofs goes by it.
        learnt: of the model so far.

    Raises:
        SettingsError: the pins cannot be read.
    """
    endpoint = llm_endpoint(settings)
    required = settings.attestation.model_policy == "require"
    pins = model_pins(settings)
    async with AsyncExitStack() as open_parts:
        http = await open_parts.enter_async_context(open_http(tls=trust.tls))
        evidence = evidence_client(settings, http, trust, clock)
        model = AttestedModel(
            evidence,
            policy="require" if required else "warn",
            pins=pins,
            trust=trust,
            clock=clock,
        )
        tls = pin(_new_context(trust), model.keys)
        transport = await open_parts.enter_async_context(open_transport(endpoint, tls=tls))
        listener = settings.llm.transcription_model
        encryption = EndToEndEncryption(model) if settings.attestation.e2ee else None
        client = LlmClient(
            transport,
            endpoint,
            admission=_Admission(model, encrypting=encryption is not None),
            encryption=_Encryption(encryption) if encryption is not None else None,
            learnt=learnt,
        )
        transcriber = Transcriber(transport, endpoint, listener) if listener else None
        signatures = AnswerSignatures(
            http, endpoint.base_url, endpoint.api_key, endpoint.model, model
        )
        listening = () if transcriber is None else (transcriber.use_key,)
        yield OpenEndpoint(
            client=client,
            proof=model,
            transcriber=transcriber,
            signatures=signatures,
            settled=model.settled,
            keep_verified=model.keep_verified,
            use_key=(client.use_key, evidence.use_key, signatures.use_key, *listening),
        )


def evidence_client(
    settings: Settings, http: HttpService, trust: Trust, clock: Callable[[], float]
) -> NearAiClient:
    """Return what asks the endpoint for its evidence."""
    endpoint = llm_endpoint(settings)
    return NearAiClient(
        http,
        CollateralSource(http, settings.attestation.pccs_url, clock=clock),
        base_url=endpoint.base_url,
        model=endpoint.model,
        api_key=endpoint.api_key,
        trust=trust,
        clock=clock,
    )


def _new_context(trust: Trust) -> ssl.SSLContext:
    """Return a context of its own for the connections that are pinned."""
    context = new_tls_context()
    if trust.tls is not None:
        for authority in trust.tls.get_ca_certs(binary_form=True):
            context.load_verify_locations(cadata=authority)
    return context


class _Admission:
    """The model's admission in the terms of the client; encryption waits for a first key."""

    def __init__(self, model: AttestedModel, *, encrypting: bool) -> None:
        self._model = model
        self._encrypting = encrypting

    async def admit(self) -> bool:
        try:
            await self._model.admit()
        except ModelNotVerified as refused:
            raise LlmNotAttested(refused.sentence) from None
        if self._encrypting:
            await self._model.first_verification()
        return self._model.proven


class _Encryption:
    """The encryption in the terms of the client."""

    def __init__(self, encryption: EndToEndEncryption) -> None:
        self._encryption = encryption

    async def begin(self) -> Sealing:
        try:
            return await self._encryption.begin()
        except ModelNotVerified as refused:
            raise LlmNotAttested(refused.sentence) from None
