"""Nothing is sent to a TLS peer whose key no evidence vouches for."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest

from bot.attestation.errors import EvidenceUnavailable
from bot.attestation.http import open_http
from bot.attestation.pinning import MAX_STRANGERS, STRANGER_SECONDS, AttestedKeys, pin
from bot.config.llm import LlmSettings
from bot.llm.client import open_transport
from tests.fakes.certificates import Authority
from tests.fakes.clock import Clock
from tools.http import AiohttpTransport

NOW = 1_800_000_000.0
KEY = b"k" * 32
OTHER = b"o" * 32


class RecordingServer:
    """Answers every request over TLS and keeps each byte that it could decrypt."""

    def __init__(
        self, authority: Authority, *, newest: ssl.TLSVersion = ssl.TLSVersion.MAXIMUM_SUPPORTED
    ) -> None:
        self.identity = authority.issue()
        self.got = bytearray()
        self.url = ""
        self._context = self.identity.context()
        self._context.maximum_version = newest

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator["RecordingServer"]:
        server = await asyncio.start_server(self._answer, "127.0.0.1", 0, ssl=self._context)
        self.url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        try:
            yield self
        finally:
            server.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                self.got += data
                if data.endswith(b"\r\n\r\n"):
                    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
        writer.close()


@contextlib.asynccontextmanager
async def client(tls: ssl.SSLContext) -> AsyncIterator[AiohttpTransport]:
    transport = AiohttpTransport(max_connections=2, silence_seconds=5.0, tls=tls)
    try:
        yield transport
    finally:
        await transport.aclose()


async def get(transport: AiohttpTransport, url: str) -> bytes:
    response = await transport.handle_async_request(httpx2.Request("GET", url))
    return await response.aread()


@pytest.mark.parametrize("newest", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_key_that_is_not_attested_gets_not_one_byte(newest: ssl.TLSVersion) -> None:
    authority = Authority()
    keys = AttestedKeys(enforcing=True, clock=Clock(NOW))
    keys.vouch({OTHER}, expires_at=NOW + 60)
    async with RecordingServer(authority, newest=newest).running() as server:
        async with client(pin(authority.client_context(), keys)) as transport:
            with pytest.raises(httpx2.ConnectError):
                await get(transport, server.url)
    assert server.got == b""
    assert keys.strangers == {server.identity.key_sha256}
    assert keys.stranger_met.is_set()


async def test_an_open_connection_carries_nothing_more_once_its_key_has_expired() -> None:
    authority, clock = Authority(), Clock(NOW)
    keys = AttestedKeys(enforcing=True, clock=clock)
    async with RecordingServer(authority).running() as server:
        keys.vouch({server.identity.key_sha256}, expires_at=NOW + 60)
        async with client(pin(authority.client_context(), keys)) as transport:
            await get(transport, server.url)
            seen = bytes(server.got)
            clock.now += 60
            with pytest.raises(httpx2.TransportError):
                await get(transport, server.url)
            assert server.got == seen
            keys.vouch({server.identity.key_sha256}, expires_at=NOW + 120)
            assert await get(transport, server.url) == b"ok"


async def test_an_attested_key_without_a_trusted_certificate_is_refused() -> None:
    keys = AttestedKeys(enforcing=True, clock=Clock(NOW))
    async with RecordingServer(Authority()).running() as server:
        keys.vouch({server.identity.key_sha256}, expires_at=NOW + 60)
        async with client(pin(Authority().client_context(), keys)) as transport:
            with pytest.raises(httpx2.ConnectError):
                await get(transport, server.url)
    assert server.got == b""


def test_keys_add_up_until_each_expires_and_no_later_evidence_shortens_that() -> None:
    clock = Clock(NOW)
    keys = AttestedKeys(enforcing=True, clock=clock)
    keys.vouch({KEY}, expires_at=NOW + 10)
    keys.vouch({OTHER}, expires_at=NOW + 20)
    keys.vouch({OTHER}, expires_at=NOW + 5)
    assert keys.attested(KEY)
    clock.now += 10
    assert not keys.attested(KEY)
    assert keys.attested(OTHER)


def test_a_key_attested_during_its_use_stays_known() -> None:
    clock = Clock(NOW)
    keys = AttestedKeys(enforcing=False, clock=clock)
    keys.vouch({KEY}, expires_at=NOW + 10)
    keys.meet(KEY)
    clock.now += 10
    assert not keys.strangers
    keys.meet(KEY)
    assert keys.strangers == {KEY}


def test_strangers_are_forgotten_after_an_hour_and_beyond_a_number() -> None:
    clock = Clock(NOW)
    keys = AttestedKeys(enforcing=False, clock=clock)
    for number in range(MAX_STRANGERS + 1):
        keys.meet(number.to_bytes(32, "big"))
    assert len(keys.strangers) == MAX_STRANGERS
    assert bytes(32) not in keys.strangers
    clock.now += STRANGER_SECONDS + 1
    assert not keys.strangers


async def test_no_variable_of_the_environment_has_the_keys_of_connections_written_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = tmp_path / "keys"
    monkeypatch.setenv("SSLKEYLOGFILE", str(keys))
    async with RecordingServer(Authority()).running() as server, open_http() as http:
        with pytest.raises(EvidenceUnavailable):
            await http.ask("GET", server.url, seconds=5.0, max_bytes=100)
        transport = open_transport(LlmSettings(base_url=server.url, model="model"))
        with pytest.raises(httpx2.ConnectError):
            await transport.handle_async_request(httpx2.Request("GET", server.url))
        await transport.aclose()
    assert "TRAFFIC_SECRET" not in (keys.read_text() if keys.exists() else "")
