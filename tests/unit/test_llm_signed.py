"""Questions and the proofs of their answers, at a fake of NEAR AI's cloud."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from functools import partial
from typing import Any, Final

import pytest

from bot.attestation.http import open_http
from bot.attestation.near_ai.encryption import request_keys
from bot.attestation.near_ai.signatures import (
    AnswerSignatures,
    SignatureVerdict,
)
from bot.config.llm import LlmSettings
from bot.llm.client import LlmClient, open_transport
from bot.llm.messages import Completion
from conversation_store.models import Message, Role
from tests.fakes.near_ai import NearAi, Signing, near_ai
from tests.fakes.openai_server import MODEL, chunk, script, sse, status, text

HELLO: Final = [Message(Role.USER, "hello")]


class Attested:
    """Vouches for the keys that the cloud really has."""

    def __init__(self, cloud: NearAi) -> None:
        self._cloud = cloud

    def signers(self, kind: str, algorithm: str) -> tuple[bytes, ...]:
        by_model = kind == "provider_tee"
        signing = self._cloud.model_signing if by_model else self._cloud.gateway_signing
        return (signing.address(algorithm),)


class Cloud:
    """A client, and the checker of its answers' signatures."""

    def __init__(self, client: LlmClient, signatures: AnswerSignatures) -> None:
        self.client = client
        self._signatures = signatures

    async def verdict_of(self, completion: Completion) -> SignatureVerdict:
        exchange = completion.exchange
        assert exchange is not None
        return await self._signatures.check(
            exchange.completion_id, exchange.request_sha256, exchange.response_sha256
        )


@contextlib.asynccontextmanager
async def using(cloud: NearAi, *, encrypted: bool = False) -> AsyncIterator[Cloud]:
    endpoint = LlmSettings(base_url=cloud.base_url, model=MODEL)
    encryption = partial(request_keys, cloud.encryption.encryption_key) if encrypted else None
    tls = cloud.trust.tls
    async with open_transport(endpoint, tls=tls) as transport, open_http(tls=tls) as http:
        signatures = AnswerSignatures(http, cloud.base_url, None, MODEL, Attested(cloud).signers)
        yield Cloud(
            LlmClient(transport, endpoint, seal=encryption),
            signatures,
        )


@pytest.mark.parametrize("encrypted", [False, True])
@pytest.mark.parametrize("kind", ["provider_tee", "gateway"])
async def test_client_and_cloud_hash_the_same_bytes(kind: str, encrypted: bool) -> None:
    async with near_ai(text("Good day to you.")) as cloud, using(cloud, encrypted=encrypted) as use:
        cloud.signature_kind = kind
        completion = await use.client.complete(HELLO)
        verdict = await use.verdict_of(completion)

    assert completion.message.content == "Good day to you."
    assert (verdict.state, verdict.kind) == ("proven", kind)


async def test_a_signature_that_is_late_is_waited_for() -> None:
    async with near_ai() as cloud, using(cloud) as use:
        cloud.signatures_late = 3
        verdict = await use.verdict_of(await use.client.complete(HELLO))

    assert verdict.state == "proven"
    assert cloud.signatures_late == 0


async def test_signature_of_another_exchange_is_wrong() -> None:
    async with near_ai() as cloud, using(cloud) as use:
        await use.client.complete([Message(Role.USER, "hello!")])
        theirs = cloud.exchanges[0]
        completion = await use.client.complete(HELLO)
        cloud.signature_handler = status(200, cloud.signature(theirs, "ed25519"))
        verdict = await use.verdict_of(completion)

    assert verdict.state == "wrong"


async def test_a_cloud_with_another_key_than_the_attested_one_is_wrong() -> None:
    async with near_ai() as cloud, using(cloud) as use:
        completion = await use.client.complete(HELLO)
        cloud.model_signing, real = Signing(), cloud.model_signing
        forged = cloud.signature(cloud.exchanges[0], "ed25519")
        cloud.model_signing = real
        cloud.signature_handler = status(200, forged)
        verdict = await use.verdict_of(completion)

    assert verdict.state == "wrong"


async def test_the_answer_of_a_second_attempt_is_the_one_that_is_proven() -> None:
    async with near_ai(script(status(503))) as cloud, using(cloud) as use:
        verdict = await use.verdict_of(await use.client.complete(HELLO))

    assert verdict.state == "proven"


async def test_long_encrypted_conversations_at_once_keep_their_own_proof() -> None:
    events: list[dict[str, Any]] = [chunk({"content": "word " * 20}) for _ in range(100)]
    conversation = [Message(Role.USER, "x" * 20_000)] * 20
    async with near_ai(sse(*events)) as cloud, using(cloud, encrypted=True) as use:
        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(use.client.complete(conversation)) for _ in range(8)]
        completions = [task.result() for task in asked]
        verdicts = [await use.verdict_of(completion) for completion in completions]

    assert {completion.message.content for completion in completions} == {"word " * 2000}
    assert {verdict.state for verdict in verdicts} == {"proven"}
    assert len({completion.exchange for completion in completions}) == 8
