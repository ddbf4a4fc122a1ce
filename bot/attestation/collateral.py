"""Intel's word on a platform, fetched from a PCCS and kept until it expires.

A PCCS (or Intel's own PCS) answers four questions, all signed by Intel; so nothing here trusts
the service, nor the cache on disk: what is wrong with either shows when a quote is verified.

Protocol: Intel SGX and TDX Provisioning Certification Service, API version 4. dcap_qvl has a
client as well, but one without bounds on time and size that follows the environment to proxies.
"""

import asyncio
import hashlib
import json
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

import structlog

from bot.attestation.errors import EvidenceUnavailable, MalformedEvidence
from bot.attestation.http import HttpAnswer, HttpService
from bot.attestation.quote import MAX_COLLATERAL_CHARS, Collateral, TdQuote
from bot.attestation.trust import MIN_TCB_EVALUATION

FETCH_SECONDS: Final = 20.0
"""For all four documents together."""
MAX_DOCUMENT_BYTES: Final = 256 * 1024
REFRESH_SECONDS: Final = 24 * 3600.0
BACK_OFF_SECONDS: Final = 30.0
MAX_PLATFORMS: Final = 64

NEWEST: Final = "update=early"
"""Asks for Intel's newest TCB evaluation; `standard` is the newest but a year old."""
INTEL_PCS_HOST: Final = "api.trustedservices.intel.com"
INTEL_ROOT_CRL_URL: Final = "https://certificates.trustedservices.intel.com/IntelSGXRootCA.der"

log = structlog.get_logger()


@dataclass(slots=True)
class _Platform:
    """What is known of one kind of platform; one caller at a time asks for more."""

    asking: asyncio.Lock = field(default_factory=asyncio.Lock)
    collateral: Collateral | None = None
    fetched_at: float = 0.0
    failed_at: float | None = None

    def valid(self, now: float) -> Collateral | None:
        current = self.collateral
        return current if current is not None and now < current.expires_at else None


class CollateralSource:
    """Gets collateral for quotes: from memory, from disk, from the service."""

    def __init__(
        self,
        http: HttpService,
        pccs_url: str,
        *,
        cache: Path | None = None,
        clock: Callable[[], float] = time.time,
        fetch_seconds: float = FETCH_SECONDS,
    ) -> None:
        """Take where to ask.

        Args:
            http: what to ask with.
            pccs_url: address of a PCCS or of Intel's PCS, without a slash at its end.
            cache: a directory to keep collateral in; None keeps it in memory alone.
            clock: returns unix seconds.
            fetch_seconds: how long the service may take for all four documents.
        """
        self._http = http
        self._pccs_url = pccs_url
        self._disk = _Disk(cache) if cache is not None else None
        self._clock = clock
        self._fetch_seconds = fetch_seconds
        self._platforms: dict[tuple[bytes, str], _Platform] = {}

    async def get(self, quote: TdQuote) -> Collateral:
        """Return collateral for a quote's platform that has not expired.

        It is at most a day old, or older while the service does not answer.

        Raises:
            EvidenceUnavailable: none is cached, and the service gave none.
        """
        platform = self._platform(quote)
        async with platform.asking:
            now = self._clock()
            if platform.collateral is None and self._disk is not None:
                await asyncio.to_thread(self._disk.load, quote, platform, now)
            current = platform.valid(now)
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
        if self._disk is not None:
            await asyncio.to_thread(self._disk.save, quote, fresh, now)
        return fresh

    async def _fetch(self, quote: TdQuote, now: float) -> Collateral:
        try:
            async with asyncio.timeout(self._fetch_seconds):
                documents = await self._documents(quote)
        except TimeoutError:
            raise EvidenceUnavailable("the collateral service gave no answer in time") from None
        try:
            fresh = _put_together(*documents)
        except (MalformedEvidence, ValueError, RecursionError):
            raise EvidenceUnavailable("the collateral service answered nonsense") from None
        if fresh.fmspc != quote.fmspc or now >= fresh.expires_at:
            raise EvidenceUnavailable("the collateral service gave what is foreign or expired")
        return fresh

    async def _documents(
        self, quote: TdQuote
    ) -> tuple[HttpAnswer, HttpAnswer, HttpAnswer, HttpAnswer]:
        sgx = f"{self._pccs_url}/sgx/certification/v4"
        tdx = f"{self._pccs_url}/tdx/certification/v4"
        return (
            await self._ask(f"{sgx}/pckcrl?ca={quote.ca}&encoding=der"),
            await self._ask(self._root_crl_url(sgx)),
            await self._ask(f"{tdx}/tcb?fmspc={quote.fmspc.hex().upper()}&{NEWEST}"),
            await self._ask(f"{tdx}/qe/identity?{NEWEST}"),
        )

    def _root_crl_url(self, sgx: str) -> str:
        """Return where the root's list is: Intel's own service keeps it on another host."""
        if urlsplit(self._pccs_url).hostname == INTEL_PCS_HOST:
            return INTEL_ROOT_CRL_URL
        return f"{sgx}/rootcacrl"

    async def _ask(self, url: str) -> HttpAnswer:
        answer = await self._http.ask(
            "GET", url, seconds=self._fetch_seconds, max_bytes=MAX_DOCUMENT_BYTES
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
    """Return a revocation list as hex, whether it came so (as from a PCCS) or as DER."""
    try:
        return bytes.fromhex(crl.decode("ascii")).hex()
    except ValueError:
        return crl.hex()


# On disk


class _Disk:
    """Collateral in a directory, a file per kind of platform; unreadable is the same as absent."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def load(self, quote: TdQuote, platform: _Platform, now: float) -> None:
        path = self._path(quote)
        try:
            with path.open(encoding="utf-8") as file:
                fetched_at = os.fstat(file.fileno()).st_mtime
                kept = Collateral.parse(file.read(MAX_COLLATERAL_CHARS + 1))
        except (OSError, UnicodeDecodeError, MalformedEvidence):
            return
        if kept.fmspc == quote.fmspc and fetched_at <= now < kept.expires_at:
            platform.collateral, platform.fetched_at = kept, fetched_at

    def save(self, quote: TdQuote, collateral: Collateral, now: float) -> None:
        path = self._path(quote)
        beside = path.with_suffix(f".{os.getpid()}.new")
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            beside.unlink(missing_ok=True)
            with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as f:
                f.write(collateral.text)
            os.utime(beside, (now, now))
            beside.replace(path)
        except OSError as error:
            log.warning("collateral.not_kept", error=type(error).__name__)

    def _path(self, quote: TdQuote) -> Path:
        # What an earlier version kept may be of an evaluation that counts no more.
        about = f"{quote.fmspc.hex()} {quote.ca} {MIN_TCB_EVALUATION}"
        name = hashlib.sha256(about.encode()).hexdigest()
        return self._directory / f"{name}.json"
