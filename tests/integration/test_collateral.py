"""Collateral from a PCCS: bounded, kept, refreshed, and never beyond its expiry."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import pytest

from bot.attestation.collateral import (
    BACK_OFF_SECONDS,
    MAX_DOCUMENT_BYTES,
    MAX_PLATFORMS,
    REFRESH_SECONDS,
    CollateralSource,
)
from bot.attestation.errors import EvidenceUnavailable
from bot.attestation.http import open_http
from bot.attestation.quote import TdQuote, parse_quote, quote_checks
from tests.fakes.pccs import IDENTITY, PCK_CRL, ROOT_CRL, TCB, documents, pccs
from tests.fakes.soft_tdx import SoftTdx
from tests.fakes.web_server import (
    Behaviour,
    Connection,
    WebServer,
    answer,
    dripping,
    endless,
    raw,
    reset,
    silent,
)

NOON: Final = 1_800_000_000
SOFT: Final = SoftTdx(now=NOON)
EXPIRES_AFTER: Final = 29 * 24 * 3600


def quote_of(machine: SoftTdx) -> TdQuote:
    return parse_quote(machine.quote(bytes(64), bytes(48), [bytes(48)] * 4))


@dataclass(slots=True)
class Service:
    """Source of collateral, the service that it asks, and its clock."""

    server: WebServer
    source: CollateralSource
    now: float = NOON

    @property
    def asked(self) -> list[str]:
        return [request.target for request in self.server.asked]

    def answer_everything(self, behaviour: Behaviour) -> None:
        for path in (PCK_CRL, ROOT_CRL, TCB, IDENTITY):
            self.server.behaviours[path] = behaviour


@asynccontextmanager
async def service(machine: SoftTdx = SOFT, *, der: bool = False) -> AsyncIterator[Service]:
    async with pccs(machine.collateral, der=der) as server, open_http() as http:
        source = CollateralSource(http, server.url(""), clock=lambda: running.now)
        running = Service(server, source)
        yield running


@pytest.mark.parametrize("der", [False, True], ids=["hex", "der"])
async def test_four_documents_make_a_collateral_that_verifies_the_quote(der: bool) -> None:
    async with service(der=der) as running:
        quote = quote_of(SOFT)
        collateral = await running.source.get(quote)
    checks = quote_checks(quote, collateral, now=NOON, trust=SOFT.trust)
    assert [check.verdict.value for check in checks] == ["proven"] * 3
    assert running.asked == [
        f"{PCK_CRL}?ca=platform&encoding=der",
        ROOT_CRL,
        f"{TCB}?fmspc=F00000000001&update=early",
        f"{IDENTITY}?update=early",
    ]


async def test_many_callers_at_once_ask_the_service_once() -> None:
    async with service() as running:
        quote = quote_of(SOFT)
        got = await asyncio.gather(*(running.source.get(quote) for _ in range(20)))
    assert len(running.asked) == 4
    assert len(set(map(id, got))) == 1


async def test_a_cancelled_caller_leaves_the_next_one_free_to_ask() -> None:
    reached, hold = asyncio.Event(), asyncio.Event()

    async def held(connection: Connection) -> bool:
        reached.set()
        await hold.wait()
        return False

    async with service() as running:
        running.server.behaviours[PCK_CRL] = held
        first = asyncio.ensure_future(running.source.get(quote_of(SOFT)))
        await reached.wait()
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        hold.set()
        running.server.behaviours.update(documents(SOFT.collateral))
        assert (await running.source.get(quote_of(SOFT))).fmspc == SOFT.fmspc


async def test_collateral_is_fetched_daily_and_used_until_it_expires() -> None:
    async with service() as running:
        quote = quote_of(SOFT)
        await running.source.get(quote)
        running.now += REFRESH_SECONDS - 1
        await running.source.get(quote)
        assert len(running.asked) == 4
        running.now += 1
        kept = await running.source.get(quote)
        assert len(running.asked) == 8
        assert kept.expires_at == NOON + EXPIRES_AFTER
        running.answer_everything(answer(b"", status=503))
        running.now = kept.expires_at - 1
        assert await running.source.get(quote) is kept
        running.now = kept.expires_at + BACK_OFF_SECONDS
        with pytest.raises(EvidenceUnavailable, match="answered 503"):
            await running.source.get(quote)


async def test_a_failing_service_is_left_alone_for_a_moment() -> None:
    async with service() as running:
        quote = quote_of(SOFT)
        running.server.behaviours[PCK_CRL] = answer(b"", status=429)
        with pytest.raises(EvidenceUnavailable, match="answered 429"):
            await running.source.get(quote)
        running.server.behaviours.update(documents(SOFT.collateral))
        running.now += BACK_OFF_SECONDS - 1
        with pytest.raises(EvidenceUnavailable, match="a moment ago"):
            await running.source.get(quote)
        assert len(running.asked) == 1
        running.now += 1
        assert (await running.source.get(quote)).fmspc == SOFT.fmspc


FAILURES: Final[dict[str, tuple[str, Behaviour, str]]] = {
    "an unknown platform": (TCB, answer(b"", status=404), "does not know this platform"),
    "a redirect": (TCB, answer(b"", status=302, headers={"Location": "/x"}), "answered 302"),
    "a connection reset": (IDENTITY, reset(b"HTTP/1.1 200 OK"), "the connection broke"),
    "no HTTP": (ROOT_CRL, raw(b"hello"), "the connection broke"),
    "a page of HTML": (TCB, answer(b"<html>"), "nonsense"),
    "a list": (TCB, answer(b'["tcbInfo": ]'), "nonsense"),
    "a document without a signature": (
        TCB,
        answer(b'{"tcbInfo":{}}', headers={"TCB-Info-Issuer-Chain": "x"}),
        "nonsense",
    ),
    "no issuer chain": (IDENTITY, answer(b'{"enclaveIdentity":{},"signature":""}'), "nonsense"),
    "brackets without end": (TCB, answer(b'{"tcbInfo":' + b"[" * 200_000), "nonsense"),
    "an endless answer": (
        PCK_CRL,
        endless(b"HTTP/1.1 200 OK\r\n\r\n", b"x" * MAX_DOCUMENT_BYTES),
        "longer than this program reads",
    ),
    "another platform's": (
        TCB,
        documents(SoftTdx(now=NOON, fmspc=bytes(6)).collateral)[TCB],
        "foreign or expired",
    ),
    "an expired one": (
        TCB,
        documents(SoftTdx(now=NOON - EXPIRES_AFTER).collateral)[TCB],
        "foreign or expired",
    ),
}


@pytest.mark.parametrize("name", FAILURES)
async def test_a_service_that_answers_badly_is_unavailable(name: str) -> None:
    path, behaviour, words = FAILURES[name]
    async with service() as running:
        running.server.behaviours[path] = behaviour
        with pytest.raises(EvidenceUnavailable, match=words):
            await running.source.get(quote_of(SOFT))


@pytest.mark.parametrize(
    "behaviour",
    [silent(), silent(b"HTTP/1.1 200 OK\r\n"), dripping(b"HTTP/1.1 200 OK\r\n\r\n", b"x")],
    ids=["silent", "silent after a line", "dripping"],
)
async def test_a_slow_service_is_given_up(
    behaviour: Behaviour, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bot.attestation.collateral.FETCH_SECONDS", 0.2)
    async with service() as running, open_http() as http:
        running.server.behaviours[IDENTITY] = behaviour
        source = CollateralSource(http, running.server.url(""))
        with pytest.raises(EvidenceUnavailable, match="no answer in time"):
            await source.get(quote_of(SOFT))


async def test_memory_holds_a_bounded_number_of_platforms() -> None:
    """The back-off tells whether a platform is still known."""
    quotes = [
        quote_of(SoftTdx(now=NOON, fmspc=index.to_bytes(6))) for index in range(MAX_PLATFORMS + 1)
    ]
    async with service() as running:
        running.answer_everything(answer(b"", status=503))
        for quote in quotes:
            with pytest.raises(EvidenceUnavailable, match="answered 503"):
                await running.source.get(quote)
        with pytest.raises(EvidenceUnavailable, match="a moment ago"):
            await running.source.get(quotes[-1])
        with pytest.raises(EvidenceUnavailable, match="answered 503"):
            await running.source.get(quotes[0])
