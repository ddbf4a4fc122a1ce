"""Fetching what a model's endpoint, Intel and NVIDIA say about the machines that answer.

NEAR AI Cloud: `GET /v1/attestation/report`, asked with a fresh nonce and for the TLS key. NVIDIA:
`POST /v3/attest/gpu` and the key set that its answer is signed with. Nothing is believed here.
"""

import asyncio
import contextlib
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
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
from bot.attestation.near_ai.evidence import (
    MAX_REPORT_BYTES,
    NONCE_BYTES,
    ModelEvidence,
    NrasAnswer,
    NrasRefusal,
    NrasSilence,
    NrasWord,
)
from bot.attestation.near_ai.verification import gpu_questions_of, quotes_of
from bot.attestation.quote import Collateral, TdQuote
from bot.attestation.strict_json import decode
from bot.attestation.trust import REAL, Trust

REPORT_SECONDS: Final = 30.0
NRAS_SECONDS: Final = 30.0
COLLATERAL_SECONDS: Final = 60.0
"""For all quotes of a report together."""
MAX_NRAS_BYTES: Final = 1024 * 1024
KNOWS_NO_SUCH_ADDRESS: Final = frozenset({404, 405, 501})
REFUSES_THE_KEY: Final = frozenset({401, 402, 403})


@dataclass(frozen=True, slots=True)
class Gathered:
    """Everything that a verification needs, and why something is missing.

    Attributes:
        evidence: the endpoint's report.
        collateral: Intel's for each quote in it, by the quote's bytes; or why there is none.
        nras: NVIDIA's word on the GPUs of each of the model's machines, in the report's order.
    """

    evidence: ModelEvidence
    collateral: Mapping[bytes, Collateral | str]
    nras: tuple[NrasWord, ...]

    def collateral_for(self, quote: TdQuote) -> Collateral | str:
        """Return the collateral for a quote, or why there is none."""
        return self.collateral.get(quote.raw, "the collateral service took too long")


class NearAiClient:
    """Asks one endpoint about one model.

    Args:
        http: how services are asked.
        collateral: where Intel's comes from.
        base_url: the endpoint, up to and including `/v1`.
        model: its name there.
        api_key: bearer token; None sends none.
        trust: names NVIDIA's service; only tests give another than the real one.
        clock: unix seconds.
    """

    def __init__(
        self,
        http: HttpService,
        collateral: CollateralSource,
        *,
        base_url: str,
        model: str,
        api_key: str | None,
        trust: Trust = REAL,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._http = http
        self._collateral = collateral
        self._base_url = base_url.rstrip("/")
        self._model = model
        self.use_key(api_key)
        self._nras_url = trust.nras_url
        self._clock = clock

    def use_key(self, api_key: str | None) -> None:
        """Take another bearer token, from the next request on."""
        self._headers = {"authorization": f"Bearer {api_key}"} if api_key else {}

    async def gather(self) -> Gathered:
        """Fetch a report with a fresh nonce and what is needed to verify it.

        Raises:
            AttestationNotOffered: the endpoint knows no such report.
            EvidenceUnavailable: it is down, slow, limits the rate or answers garbage.
        """
        return await look_up(
            await self._report(), self._http, self._collateral, nras_url=self._nras_url
        )

    async def _report(self) -> ModelEvidence:
        nonce = secrets.token_bytes(NONCE_BYTES)
        question = {
            "model": self._model,
            "signing_algo": "ed25519",
            "nonce": nonce.hex(),
            "include_tls_fingerprint": "true",
        }
        answer = await self._http.ask(
            "GET",
            f"{self._base_url}/attestation/report?{urlencode(question)}",
            seconds=REPORT_SECONDS,
            max_bytes=MAX_REPORT_BYTES,
            headers=self._headers,
            own_connection=True,
        )
        _require_report(answer)
        return ModelEvidence(
            answer.body, nonce, self._model, answer.peer_key_sha256, int(self._clock())
        )


async def look_up(
    evidence: ModelEvidence, http: HttpService, collateral: CollateralSource, *, nras_url: str
) -> Gathered:
    """Fetch what Intel and NVIDIA say about the machines in a report.

    Raises:
        EvidenceUnavailable: the report is no JSON.
    """
    quotes, machines = await asyncio.to_thread(_questions, evidence)
    async with asyncio.TaskGroup() as tasks:
        intel = tasks.create_task(_collateral_of(collateral, quotes))
        nvidia = [tasks.create_task(_nras_word(http, nras_url, gpus)) for gpus in machines]
    return Gathered(evidence, intel.result(), tuple(task.result() for task in nvidia))


async def _collateral_of(
    source: CollateralSource, quotes: Iterable[TdQuote]
) -> dict[bytes, Collateral | str]:
    """Ask for each quote's, one after the other: most are about the same platforms."""
    found: dict[bytes, Collateral | str] = {}
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(COLLATERAL_SECONDS):
            for quote in quotes:
                found[quote.raw] = await _collateral_for(source, quote)
    return found


async def _collateral_for(source: CollateralSource, quote: TdQuote) -> Collateral | str:
    try:
        return await source.get(quote)
    except (EvidenceUnavailable, MalformedEvidence) as error:
        return str(error)


async def _nras_word(http: HttpService, nras_url: str, gpus: object) -> NrasWord:
    """Ask NVIDIA about one machine; its keys after its answer, so that they are never too old."""
    if gpus is None:
        return NrasSilence("the report holds no evidence of GPUs that can be read")
    try:
        tokens = await _ask(http, "POST", f"{nras_url}/v3/attest/gpu", gpus)
        return NrasAnswer(tokens, await _ask(http, "GET", f"{nras_url}/.well-known/jwks.json"))
    except (AnswerTooLong, MalformedEvidence) as error:
        return NrasRefusal(str(error))
    except EvidenceUnavailable as error:
        return NrasSilence(str(error))


async def _ask(http: HttpService, method: str, url: str, json: object = None) -> bytes:
    """Return an answer of NVIDIA's. Only a server in trouble has no say: else it has judged.

    Raises:
        EvidenceUnavailable: there is no answer, or HTTP 5xx.
        MalformedEvidence: another status than 200, or no JSON.
    """
    answer = await http.ask(method, url, seconds=NRAS_SECONDS, max_bytes=MAX_NRAS_BYTES, json=json)
    status = f"NVIDIA's service answered with HTTP {answer.status}"
    if 500 <= answer.status <= 599:
        raise EvidenceUnavailable(status)
    if answer.status != 200:
        raise MalformedEvidence(status)
    decode(answer.body, "what NVIDIA's service answered")
    return answer.body


def _questions(evidence: ModelEvidence) -> tuple[tuple[TdQuote, ...], tuple[object, ...]]:
    """Return the quotes of a report and each machine's GPUs, about which others are to be asked.

    A report that is JSON but none of an attestation asks for nothing: the verification says so.

    Raises:
        EvidenceUnavailable: it is no JSON.
    """
    try:
        decode(evidence.report, "its answer")
    except MalformedEvidence as error:
        raise EvidenceUnavailable(str(error)) from None
    try:
        return quotes_of(evidence.report), gpu_questions_of(evidence)
    except MalformedEvidence:
        return (), ()


def _require_report(answer: HttpAnswer) -> None:
    is_page = answer.headers.get("content-type", "").startswith("text/html")
    if answer.status in KNOWS_NO_SUCH_ADDRESS or (answer.status == 200 and is_page):
        raise AttestationNotOffered("it offers no attestation")
    if answer.status in REFUSES_THE_KEY:
        raise EvidenceUnavailable(f"its endpoint refuses the API key: HTTP {answer.status}")
    if answer.status != 200:
        raise EvidenceUnavailable(
            f"{_trouble(answer.status)}: HTTP {answer.status}",
            retry_after_seconds=answer.retry_after_seconds,
        )


def _trouble(status: int) -> str:
    if status == 429:
        return "its endpoint has been asked too often"
    return "its endpoint is in trouble" if status >= 500 else "its endpoint refuses to give it"
