"""An endpoint that has to prove who reads along: evidence, pinned keys, encryption, signatures."""

import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from bot.attestation.collateral import CollateralSource
from bot.attestation.http import HttpService, open_http
from bot.attestation.near_ai.client import NearAiClient
from bot.attestation.near_ai.encryption import EndToEndEncryption
from bot.attestation.near_ai.model import AttestedModel
from bot.attestation.near_ai.pins import read_pins
from bot.attestation.near_ai.signatures import AnswerSignatures
from bot.attestation.pinning import pin
from bot.attestation.trust import REAL, Trust
from bot.config.settings import Settings
from tools.http import new_tls_context


@dataclass(frozen=True, slots=True)
class AttestedEndpoint:
    """The proving side of a model's endpoint.

    Attributes:
        model: knows whether the model is verified.
        tls: for connections that only go to attested keys under `require`.
        encryption: None sends conversations without end-to-end encryption.
        signatures: checks the signatures of answers.
    """

    model: AttestedModel
    tls: ssl.SSLContext
    encryption: EndToEndEncryption | None
    signatures: AnswerSignatures

    async def admit(self) -> bool:
        """Return whether the model is verified; encryption waits for a first key.

        Raises:
            ModelNotVerified: nothing may be sent.
        """
        await self.model.admit()
        if self.encryption is not None:
            await self.model.first_verification()
        return self.model.proven

    def use_key(self, api_key: str | None) -> None:
        """Use another bearer token from the next request on."""
        self.model.client.use_key(api_key)
        self.signatures.use_key(api_key)


@asynccontextmanager
async def open_attested(
    settings: Settings, trust: Trust = REAL, clock: Callable[[], float] = time.time
) -> AsyncIterator[AttestedEndpoint]:
    """Open the proving side of the endpoint of the default model.

    Raises:
        SettingsError: the pins cannot be read.
    """
    wanted = settings.attestation
    pins = read_pins(wanted.model_pins)
    async with open_http(tls=trust.tls) as http:
        model = AttestedModel(
            evidence_client(settings, http, trust, clock),
            policy="require" if wanted.model_policy == "require" else "warn",
            pins=pins,
            trust=trust,
            clock=clock,
        )
        yield AttestedEndpoint(
            model,
            pin(_new_context(trust), model.keys),
            EndToEndEncryption(model.encryption_key) if wanted.e2ee else None,
            AnswerSignatures(
                http, settings.llm.base_url, settings.llm.key, settings.llm.model, model.signers
            ),
        )


def evidence_client(
    settings: Settings, http: HttpService, trust: Trust, clock: Callable[[], float]
) -> NearAiClient:
    """Return a client for the endpoint's evidence."""
    return NearAiClient(
        http=http,
        collateral=CollateralSource(http, settings.attestation.pccs_url, clock=clock),
        base_url=settings.llm.base_url,
        model=settings.llm.model,
        api_key=settings.llm.key,
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
