"""Source of Intel's collateral: a PCCS, with a cache in memory until the documents expire.

A PCCS (or Intel's own PCS) answers four questions, all signed by Intel. So the service is not
trusted: the verification of a quote finds every error in its answers.

Protocol: Intel SGX and TDX Provisioning Certification Service, API version 4. dcap_qvl has a
client as well, but without bounds on time and size, and it follows proxies in the environment.
"""

import asyncio
import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote, urlsplit

import structlog

from bot.attestation.errors import EvidenceUnavailable, MalformedEvidence
from bot.attestation.http import HttpAnswer, HttpService
from bot.attestation.quote import Collateral, TdQuote

FETCH_SECONDS: Final = 20.0
"""For all four documents together."""
MAX_DOCUMENT_BYTES: Final = 256 * 1024
REFRESH_SECONDS: Final = 24 * 3600.0
BACK_OFF_SECONDS: Final = 30.0
MAX_PLATFORMS: Final = 64

NEWEST: Final = "update=early"
"""Asks for Intel's newest TCB evaluation; `standard` is up to a year older."""
INTEL_PCS_HOST: Final = "api.trustedservices.intel.com"
INTEL_ROOT_CRL_URL: Final = "https://certificates.trustedservices.intel.com/IntelSGXRootCA.der"

log = structlog.get_logger()


@dataclass(slots=True)
class _Platform:
    """Cache for one kind of platform; one caller at a time fetches."""

    asking: asyncio.Lock = field(default_factory=asyncio.Lock)
    collateral: Collateral | None = None
    fetched_at: float = 0.0
    failed_at: float | None = None


@dataclass(frozen=True, slots=True)
class CollateralSource:
    """Gets collateral for quotes, from memory or from the service.

    Attributes:
        pccs_url: of a PCCS or of Intel's PCS, without a slash at its end.
    """

    http: HttpService
    pccs_url: str
    clock: Callable[[], float] = time.time
    _platforms: dict[tuple[bytes, str], _Platform] = field(default_factory=dict, init=False)

    async def get(self, quote: TdQuote) -> Collateral:
        """Return unexpired collateral for a quote's platform.

        It is at most a day old, or older while the service does not answer.
        """
        platform = self._platform(quote)
        async with platform.asking:
            now = self.clock()
            current = platform.collateral
            if current is not None and now >= current.expires_at:
                current = None
            if current is not None and now - platform.fetched_at < REFRESH_SECONDS:
                return current
            try:
                return await self._refresh(quote, platform, now)
            except EvidenceUnavailable:
                if current is not None:
                    return current
                raise

    def _platform(self, quote: TdQuote) -> _Platform:
        key = (quote.fmspc, quote.ca)
        if key not in self._platforms and len(self._platforms) >= MAX_PLATFORMS:
            del self._platforms[next(iter(self._platforms))]
        return self._platforms.setdefault(key, _Platform())

    async def _refresh(self, quote: TdQuote, platform: _Platform, now: float) -> Collateral:
        if platform.failed_at is not None and now - platform.failed_at < BACK_OFF_SECONDS:
            raise EvidenceUnavailable("the collateral service gave no answer a moment ago")
        try:
            fresh = await self._fetch(quote, now)
        except EvidenceUnavailable as error:
            platform.failed_at = now
            log.warning("collateral.unavailable", reason=str(error))
            raise
        platform.collateral, platform.fetched_at = fresh, now
        return fresh

    async def _fetch(self, quote: TdQuote, now: float) -> Collateral:
        sgx = f"{self.pccs_url}/sgx/certification/v4"
        tdx = f"{self.pccs_url}/tdx/certification/v4"
        # Intel's own service keeps the root's list on another host.
        is_intel = urlsplit(self.pccs_url).hostname == INTEL_PCS_HOST
        try:
            async with asyncio.timeout(FETCH_SECONDS):
                documents = (
                    await self._ask(f"{sgx}/pckcrl?ca={quote.ca}&encoding=der"),
                    await self._ask(INTEL_ROOT_CRL_URL if is_intel else f"{sgx}/rootcacrl"),
                    await self._ask(f"{tdx}/tcb?fmspc={quote.fmspc.hex().upper()}&{NEWEST}"),
                    await self._ask(f"{tdx}/qe/identity?{NEWEST}"),
                )
        except TimeoutError:
            raise EvidenceUnavailable("the collateral service gave no answer in time") from None
        try:
            fresh = _put_together(*documents)
        except (MalformedEvidence, ValueError, RecursionError):
            raise EvidenceUnavailable("the collateral service answered nonsense") from None
        if fresh.fmspc != quote.fmspc or now >= fresh.expires_at:
            raise EvidenceUnavailable("the collateral service gave foreign or expired documents")
        return fresh

    async def _ask(self, url: str) -> HttpAnswer:
        answer = await self.http.ask(
            "GET", url, seconds=FETCH_SECONDS, max_bytes=MAX_DOCUMENT_BYTES
        )
        if answer.status == 404:
            raise EvidenceUnavailable("the collateral service does not know this platform")
        if answer.status != 200:
            raise EvidenceUnavailable(f"the collateral service answered {answer.status}")
        return answer


# The four answers


def _put_together(
    pck_crl: HttpAnswer, root_crl: HttpAnswer, tcb: HttpAnswer, identity: HttpAnswer
) -> Collateral:
    tcb_info, tcb_info_signature = _signed(tcb.body, "tcbInfo")
    qe_identity, qe_identity_signature = _signed(identity.body, "enclaveIdentity")
    fields = {
        "pck_crl_issuer_chain": _chain(pck_crl, "SGX-PCK-CRL-Issuer-Chain"),
        "root_ca_crl": _hex(root_crl.body),
        "pck_crl": _hex(pck_crl.body),
        "tcb_info_issuer_chain": _chain(tcb, "TCB-Info-Issuer-Chain", "SGX-TCB-Info-Issuer-Chain"),
        "tcb_info": tcb_info,
        "tcb_info_signature": tcb_info_signature,
        "qe_identity_issuer_chain": _chain(identity, "SGX-Enclave-Identity-Issuer-Chain"),
        "qe_identity": qe_identity,
        "qe_identity_signature": qe_identity_signature,
    }
    return Collateral.parse(json.dumps(fields))


def _signed(body: bytes, name: str) -> tuple[str, str]:
    """Return the signed document exactly as it was sent, and its signature."""
    text = body.decode()
    start = re.search(rf'"{name}"\s*:\s*', text)
    whole = json.loads(text)
    if start is None or not isinstance(whole, dict) or not isinstance(whole.get("signature"), str):
        raise ValueError("the document or its signature is missing")
    _, end = json.JSONDecoder().raw_decode(text, start.end())
    return text[start.end() : end], whole["signature"]


def _chain(answer: HttpAnswer, *names: str) -> str:
    for name in names:
        if name in answer.headers:
            return unquote(answer.headers[name], errors="strict")
    raise ValueError("the issuer chain is missing")


def _hex(crl: bytes) -> str:
    """Return a revocation list as hex; a PCCS sends hex, Intel sends DER."""
    try:
        return bytes.fromhex(crl.decode("ascii")).hex()
    except ValueError:
        return crl.hex()
