"""Reasons why an endpoint cannot be reached or used, at the wire of real servers."""

import asyncio
import ssl
from contextlib import AbstractAsyncContextManager
from typing import Final

import httpx2
import pytest
from structlog.testing import capture_logs

from bot.llm.client import LlmClient, Reach, RetryPolicy
from bot.llm.errors import LlmError, LlmRejected, LlmUnauthorized, LlmUnavailable, LlmUnreachable
from conversation_store.models import Message, Role
from tests.contract.dialects import harness
from tests.fakes.accepting import close_listener
from tests.fakes.certificates import Authority
from tests.fakes.openai_server import (
    OpenAiServer,
    Step,
    cut,
    echo,
    openai_server,
    raw,
    script,
    status,
)

KEY: Final = "sk-sesame"
HELLO: Final = [Message(Role.USER, "frobnicate")]
PATIENT: Final = RetryPolicy(first_seconds=0.001, longest_seconds=0.01, unreached_seconds=0.02)
"""Final errors come within this bound; others would outlast the test."""

NOBODY: Final = "http://127.0.0.1:9"


def client_at(
    base_url: str,
    *,
    tls: ssl.SSLContext | None = None,
    retry: RetryPolicy = PATIENT,
    api_key: str | None = KEY,
) -> AbstractAsyncContextManager[LlmClient]:
    return harness.client_at(base_url, tls=tls, retry=retry, settings={"api_key": api_key})


def listening(context: ssl.SSLContext) -> AbstractAsyncContextManager[OpenAiServer]:
    return harness.running(OpenAiServer(tls=context))


async def failure(client: LlmClient) -> LlmError:
    with pytest.raises(LlmError) as caught:
        await client.complete(HELLO)
    return caught.value


# Nothing usable at the address --------------------------------------------------------------------


async def test_endpoint_that_never_answered_is_given_up_soon_and_named_in_the_log() -> None:
    async with client_at(f"{NOBODY}/v1") as client:
        with capture_logs() as logs:
            error = await failure(client)
    assert type(error) is LlmUnreachable
    assert error.reason.startswith("It refuses connections.")
    assert client.reach.trouble == f"127.0.0.1:9: {error.reason}"
    assert {entry["event"] for entry in logs} == {"llm.retry", "llm.failed"}
    assert {(entry["host"], entry["reason"]) for entry in logs} == {("127.0.0.1:9", error.reason)}
    assert not any(word in str(logs) for word in (KEY, "frobnicate"))


@pytest.mark.parametrize("host", ["no-such-host.localhost.invalid", "two..dots"])
async def test_an_unknown_host_is_reported(host: str) -> None:
    async with client_at(f"http://{host}/v1") as client:
        error = await failure(client)
    assert type(error) is LlmUnreachable
    assert "name" in error.reason
    assert client.reach.trouble is not None
    assert client.reach.trouble.startswith(f"{host}: ")


async def test_password_in_an_address_is_never_told() -> None:
    async with client_at("http://user:sesame@127.0.0.1:9/v1", api_key=None) as client:
        with capture_logs() as logs:
            await failure(client)
    assert client.reach.trouble is not None
    assert client.reach.trouble.startswith("127.0.0.1:9: ")
    assert "sesame" not in str(logs) + client.reach.trouble


ADDRESSES: dict[str, tuple[Step, type[LlmError], str]] = {
    "no path": (status(404, {"detail": "Not Found"}), LlmRejected, "ends with /v1"),
    "redirect": (status(301, headers={"location": "https://a/"}), LlmRejected, "redirects"),
    "key": (status(401, {"error": {"message": "sesame"}}), LlmUnauthorized, "See LLM__API_KEY"),
    "own code": (status(400, {"error": {"code": "frobnicate"}}), LlmRejected, "HTTP 400"),
}


@pytest.mark.parametrize(("step", "kind", "reason"), ADDRESSES.values(), ids=list(ADDRESSES))
async def test_first_answer_tells_a_wrong_address_model_or_key(
    step: Step, kind: type[LlmError], reason: str
) -> None:
    async with openai_server(step) as server, client_at(server.base_url) as client:
        with capture_logs() as logs:
            error = await failure(client)
    assert type(error) is kind
    assert reason in error.reason
    assert len(server.requests) == 1
    assert [entry["reason"] for entry in logs] == [error.reason]
    assert not any(word in str(logs) for word in (KEY, "sesame", "frobnicate"))


@pytest.mark.parametrize("ending", ["", "/v1/v1"])
async def test_an_address_with_too_little_or_too_much_at_its_end_is_named(ending: str) -> None:
    async with openai_server() as server:
        address = server.base_url.removesuffix("/v1") + ending
        async with client_at(address) as client:
            error = await failure(client)
    assert "LLM__BASE_URL, which ends with /v1" in error.reason
    assert len(server.received) == 1


# TLS ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "starts_in_days", "is_trusted", "reason"),
    [
        ("127.0.0.2", -1, True, "another name"),
        ("127.0.0.1", -60, True, "has expired"),
        ("127.0.0.1", 2, True, "not valid yet"),
        ("127.0.0.1", -1, False, "no public authority"),
    ],
)
async def test_wrong_certificate_is_reported_at_once(
    address: str, starts_in_days: int, reason: str, *, is_trusted: bool
) -> None:
    authority = Authority()
    identity = authority.issue(address=address, starts_in_days=starts_in_days)
    trusted = authority.client_context() if is_trusted else None
    async with (
        listening(identity.context()) as server,
        client_at(server.base_url, tls=trusted) as client,
    ):
        error = await failure(client)
    assert type(error) is LlmUnreachable
    assert reason in error.reason
    assert server.received == []


async def test_plain_http_at_an_https_address_is_reported_at_once() -> None:
    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(plain, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with client_at(f"https://127.0.0.1:{port}/v1") as client:
        error = await failure(client)
    await close_listener(server)
    assert type(error) is LlmUnreachable
    assert "use http://" in error.reason


async def test_tls_at_a_plain_address_is_guessed_soon() -> None:
    async with listening(Authority().issue().context()) as server:
        async with client_at(server.base_url.replace("https", "http")) as client:
            error = await failure(client)
    assert type(error) is LlmUnreachable
    assert "If it speaks TLS, LLM__BASE_URL must begin with https://." in error.reason


def test_server_with_a_tls_handshake_timeout_may_speak_plain_http() -> None:
    error = Reach("https://127.0.0.1/v1").lost(httpx2.ConnectTimeout("No connection."))
    assert isinstance(error, LlmUnreachable)
    assert error.is_final
    assert error.reason.endswith("LLM__BASE_URL must begin with http://.")


async def test_a_certificate_that_turns_bad_is_reported_at_once() -> None:
    authority = Authority()
    async with (
        listening(authority.issue().context()) as server,
        client_at(server.base_url, tls=authority.client_context()) as client,
    ):
        assert (await client.complete(HELLO)).message.content == "answer to: frobnicate"
        await server.stop()
        server.tls = authority.issue(starts_in_days=-60).context()
        await server.start()
        assert "has expired" in (await failure(client)).reason


# What passes --------------------------------------------------------------------------------------

SOON: Final = RetryPolicy(
    first_seconds=0.001, longest_seconds=0.01, unreached_seconds=0.02, silent_seconds=0.05
)


@pytest.mark.parametrize("away", [None, cut, raw(b"no HTTP\r\n\r\n"), status(503), status(429)])
async def test_endpoint_that_has_answered_before_is_waited_for_and_reported_once(
    away: Step | None,
) -> None:
    told = asyncio.Event()
    times = []

    def still_trying() -> None:
        times.append("still trying")
        told.set()

    async with openai_server() as server, client_at(server.base_url, retry=SOON) as client:
        await client.complete(HELLO)
        if away is None:
            await server.stop()
        else:
            server.handler = away
        waiting = asyncio.create_task(client.complete(HELLO, still_trying=still_trying))
        await told.wait()
        assert client.reach.trouble is not None
        if away is None:
            await server.start()
        server.handler = echo
        assert (await waiting).message.content == "answer to: frobnicate"
    assert times == ["still trying"]
    assert client.reach.trouble is None


async def test_starting_endpoint_gets_the_patience_of_a_busy_one() -> None:
    answers = RetryPolicy(first_seconds=0.01, longest_seconds=0.02, unreached_seconds=5.0)
    async with openai_server(script(*[status(503)] * 5)) as server:
        await server.stop()
        async with client_at(server.base_url, retry=answers) as client:
            waiting = asyncio.create_task(client.complete(HELLO))
            while client.reach.trouble is None:  # noqa: ASYNC110 - the first failure has no event
                await asyncio.sleep(0.001)
            await server.start()
            assert (await waiting).message.content == "answer to: frobnicate"


async def test_an_endpoint_that_is_busy_beyond_every_bound_is_not_called_unreachable() -> None:
    short = RetryPolicy(bound_seconds=0.05, first_seconds=0.001, longest_seconds=0.01)
    async with (
        openai_server(status(503)) as server,
        client_at(server.base_url, retry=short) as client,
    ):
        error = await failure(client)
    assert type(error) is LlmUnavailable
    assert error.reason == "HTTP 503, Service Unavailable."
