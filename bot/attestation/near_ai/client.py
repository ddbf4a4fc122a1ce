"""Client for evidence about the model's machines: its endpoint, Intel and NVIDIA are asked.

NEAR AI Cloud: `GET /v1/attestation/report`, with a fresh nonce and the TLS key. NVIDIA:
`POST /v3/attest/gpu`, and the key set of its answer. Nothing is verified here.
"""

import asyncio
import contextlib
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlencode

from bot.attestation.collateral import CollateralSource
from bot.attestation.errors import (
    AnswerTooLong,
    AttestationNotOffered,
    EvidenceUnavailable,
    MalformedEvidence,
)
from bot.attestation.http import HttpAnswer, HttpService
from bot.attestation.near_ai.nvidia import NrasWord
from bot.attestation.near_ai.report import MAX_REPORT_BYTES, NONCE_BYTES, ModelEvidence
from bot.attestation.near_ai.verification import questions_of
from bot.attestation.quote import Collateral, TdQuote
from bot.attestation.strict_json import decode
from bot.attestation.trust import REAL, Trust

REPORT_SECONDS: Final = 30.0
NRAS_SECONDS: Final = 30.0
COLLATERAL_SECONDS: Final = 60.0
"""For all quotes of a report together."""
MAX_NRAS_BYTES: Final = 1024 * 1024
NO_SUCH_ADDRESS: Final = frozenset({404, 405, 501})
REFUSES_THE_KEY: Final = frozenset({401, 402, 403})


@dataclass(frozen=True, slots=True)
class Gathered:
    """Everything for a verification.

    Attributes:
        collateral: for each quote by its bytes, or the reason why it is missing.
        nras: NVIDIA's word on the GPUs of each of the model's machines, in the report's order.
    """

    evidence: ModelEvidence
    collateral: Mapping[bytes, Collateral | str]
    nras: tuple[NrasWord, ...]

    def collateral_for(self, quote: TdQuote) -> Collateral | str:
        """Return the collateral for a quote, or the reason why it is missing."""
        return self.collateral.get(quote.raw, "the collateral service took too long")


@dataclass(slots=True, kw_only=True)
class NearAiClient:
    """Asks one endpoint about one model.

    Attributes:
        base_url: the endpoint, up to and including `/v1`.
    """

    http: HttpService
    collateral: CollateralSource
    base_url: str
    model: str
    api_key: str | None = field(repr=False)
    trust: Trust = REAL
    clock: Callable[[], float] = time.time

    async def gather(self) -> Gathered:
        """Fetch a report with a fresh nonce, and everything needed to verify it."""
        nonce = secrets.token_bytes(NONCE_BYTES)
        query = {
            "model": self.model,
            "signing_algo": "ed25519",
            "nonce": nonce.hex(),
            "include_tls_fingerprint": "true",
        }
        answer = await self.http.ask(
            "GET",
            f"{self.base_url.rstrip('/')}/attestation/report?{urlencode(query)}",
            seconds=REPORT_SECONDS,
            max_bytes=MAX_REPORT_BYTES,
            api_key=self.api_key,
        )
        _require_report(answer)
        now = int(self.clock())
        report = ModelEvidence(answer.body, nonce, self.model, answer.peer_key_sha256, now)
        return await look_up(report, self.http, self.collateral, nras_url=self.trust.nras_url)


async def look_up(
    evidence: ModelEvidence, http: HttpService, collateral: CollateralSource, *, nras_url: str
) -> Gathered:
    """Ask Intel and NVIDIA about the machines in a report."""
    quotes, machines = await asyncio.to_thread(_questions, evidence)
    async with asyncio.TaskGroup() as tasks:
        intel = tasks.create_task(_collateral_of(collateral, quotes))
        nvidia = [tasks.create_task(_nras_word(http, nras_url, gpus)) for gpus in machines]
    return Gathered(evidence, intel.result(), tuple(task.result() for task in nvidia))


def _questions(evidence: ModelEvidence) -> tuple[tuple[TdQuote, ...], tuple[object, ...]]:
    """Return the quotes and each machine's GPUs; none for JSON that is not a report."""
    try:
        decode(evidence.report, "its answer")
    except MalformedEvidence as error:
        raise EvidenceUnavailable(str(error)) from None
    try:
        return questions_of(evidence)
    except MalformedEvidence:
        return (), ()  # the verification reports the reason


async def _collateral_of(
    source: CollateralSource, quotes: Iterable[TdQuote]
) -> dict[bytes, Collateral | str]:
    """Ask for one quote after the other, because most are of the same platforms."""
    found: dict[bytes, Collateral | str] = {}
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(COLLATERAL_SECONDS):
            for quote in quotes:
                try:
                    found[quote.raw] = await source.get(quote)
                except (EvidenceUnavailable, MalformedEvidence) as error:
                    found[quote.raw] = str(error)
    return found


async def _nras_word(http: HttpService, nras_url: str, gpus: object) -> NrasWord:
    """Ask NVIDIA about one machine, then for its keys, so that they are never too old."""
    if gpus is None:
        return NrasWord(why="the report holds no evidence of GPUs that can be read")
    try:
        tokens = await _ask(http, "POST", f"{nras_url}/v3/attest/gpu", gpus)
        return NrasWord(tokens, await _ask(http, "GET", f"{nras_url}/.well-known/jwks.json"))
    except (AnswerTooLong, MalformedEvidence) as error:
        return NrasWord(why=str(error), refused=True)
    except EvidenceUnavailable as error:
        return NrasWord(why=str(error))


async def _ask(http: HttpService, method: str, url: str, json: object = None) -> bytes:
    """Return NVIDIA's answer.

    Raises:
        EvidenceUnavailable: there is no answer, or HTTP 5xx.
        MalformedEvidence: NVIDIA answered with another status than 200, or without JSON.
    """
    answer = await http.ask(method, url, seconds=NRAS_SECONDS, max_bytes=MAX_NRAS_BYTES, json=json)
    status = f"NVIDIA's service answered with HTTP {answer.status}"
    if 500 <= answer.status <= 599:
        raise EvidenceUnavailable(status)
    if answer.status != 200:
        raise MalformedEvidence(status)
    decode(answer.body, "the answer of NVIDIA's service")
    return answer.body


def _require_report(answer: HttpAnswer) -> None:
    status = answer.status
    is_page = answer.headers.get("content-type", "").startswith("text/html")
    if status in NO_SUCH_ADDRESS or (status == 200 and is_page):
        raise AttestationNotOffered("it offers no attestation")
    if status in REFUSES_THE_KEY:
        raise EvidenceUnavailable(f"its endpoint refuses the API key: HTTP {status}")
    if status != 200:
        trouble = "its endpoint is in trouble" if status >= 500 else "its endpoint refuses it"
        if status == 429:
            trouble = "its endpoint has been asked too often"
        raise EvidenceUnavailable(
            f"{trouble}: HTTP {status}", retry_after_seconds=answer.retry_after_seconds
        )
