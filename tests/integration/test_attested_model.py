"""The attested model in use, on a soft NEAR AI Cloud, a PCCS and NVIDIA's service on loopback."""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any
from unittest.mock import patch

import pytest

from bot.attestation.bundle import ModelPolicy
from bot.attestation.collateral import CollateralSource
from bot.attestation.errors import ModelNotVerified
from bot.attestation.http import open_http
from bot.attestation.near_ai.client import NearAiClient
from bot.attestation.near_ai.model import (
    FIRMWARE_GRACE_SECONDS,
    MAX_EVIDENCE_SECONDS,
    AttestedModel,
    ModelState,
)
from bot.attestation.pinning import KeyNotAttested, pin
from bot.backoff import Backoff
from bot.config.llm import LlmSettings
from bot.llm.client import LlmClient, RetryPolicy
from bot.llm.errors import LlmUnavailable
from conversation_store.models import Message, Role
from tests.fakes.near_ai import Body, NearAi, Signing, near_ai
from tests.fakes.openai_server import Step, cut, held, raw_body, status
from tests.fakes.pccs import TCB, pccs
from tests.fakes.web_server import WebServer, answer
from tools.http import AiohttpTransport

WAIT_SECONDS = 30.0
API_KEY = "sk-secret-of-the-tests"
NO_RETRY = RetryPolicy(bound_seconds=0.0)
QUICK: Mapping[str, Any] = {
    "ADMIT_SECONDS": 5.0,
    "RENEW_SECONDS": 3600.0,
    "MARGIN_SECONDS": 0.0,
    "RETRY": Backoff(first_seconds=0.02, longest_seconds=0.05),
    "AFTER_STRANGERS": Backoff(first_seconds=0.01, longest_seconds=0.02),
}


class Clock:
    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead


@dataclass
class World:
    """A cloud with its platform, and a model that is verified by the cloud's evidence."""

    cloud: NearAi
    pccs: WebServer
    model: AttestedModel
    clock: Clock

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            while not holds():  # noqa: ASYNC110 - a verdict is read, it announces nothing
                await asyncio.sleep(0.001)

    async def verified_again(self, *, within_seconds: float) -> None:
        before = self.model.evidence()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_seconds):
                await self.until(lambda: self.model.evidence() is not before)

    async def refusal(self) -> str:
        with pytest.raises(ModelNotVerified) as refused:
            await self.model.admit()
        return str(refused.value)

    @contextlib.asynccontextmanager
    async def kept_verified(self) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(self.model.keep_verified())
            yield
            task.cancel()

    @contextlib.asynccontextmanager
    async def chat(self) -> AsyncIterator[LlmClient]:
        """Client that sends nothing to a TLS key without attestation."""
        context = pin(self.cloud.authority.client_context(), self.model.keys)
        transport = AiohttpTransport(max_connections=2, silence_seconds=5.0, tls=context)
        endpoint = LlmSettings(
            base_url=self.cloud.base_url, model=self.cloud.model, api_key=API_KEY
        )
        try:
            yield LlmClient(transport, endpoint, retry=NO_RETRY)
        finally:
            await transport.aclose()


@contextlib.asynccontextmanager
async def world(
    policy: ModelPolicy = "require",
    *,
    pace: Mapping[str, Any] = QUICK,
) -> AsyncIterator[World]:
    clock = Clock()
    async with (
        contextlib.AsyncExitStack() as stack,
        near_ai() as cloud,
        pccs(cloud.platform.collateral) as collateral,
        open_http(tls=cloud.trust.tls) as http,
    ):
        stack.enter_context(patch.multiple("bot.attestation.near_ai.model", **pace))
        client = NearAiClient(
            http=http,
            collateral=CollateralSource(http, collateral.url(""), clock=clock),
            base_url=cloud.base_url,
            model=cloud.model,
            api_key=API_KEY,
            trust=cloud.trust,
            clock=clock,
        )
        model = AttestedModel(client, policy=policy, trust=cloud.trust, clock=clock)
        yield World(cloud, collateral, model, clock)


async def said(client: LlmClient) -> str | None:
    return (await client.complete([Message(Role.USER, "hello")])).message.content


# Verified


async def test_signatures_count_until_the_latest_evidence_for_their_keys_expires() -> None:
    async with world() as here:
        await here.model.verify()
        before = here.cloud.gateway_signing.address("ed25519")
        here.clock.ahead = -40
        await here.model.verify()
        here.cloud.gateway_signing = Signing()
        here.clock.ahead = 0
        await here.model.verify()
        after = here.cloud.gateway_signing.address("ed25519")
        assert set(here.model.signers("gateway", "ed25519")) == {before, after}
        here.clock.ahead = MAX_EVIDENCE_SECONDS - 20
        assert len(here.model.signers("gateway", "ed25519")) == 2
        here.clock.ahead = MAX_EVIDENCE_SECONDS
        assert here.model.signers("gateway", "ed25519") == ()


async def test_the_report_is_asked_for_with_the_key_a_fresh_nonce_and_the_tls_key() -> None:
    async with world() as here:
        await here.model.verify()
        first = here.model.evidence()
        await here.model.verify()
        second = here.model.evidence()
        asked = [r for r in here.cloud.received if r.path.startswith("/v1/attestation/report?")]
        assert all(request.headers["authorization"] == f"Bearer {API_KEY}" for request in asked)
        assert all("include_tls_fingerprint=true" in request.path for request in asked)
        assert first is not None
        assert second is not None
        assert first.nonce != second.nonce
        assert f"nonce={second.nonce.hex()}" in asked[1].path
        assert second.peer_key_sha256 == here.cloud.identity.key_sha256


async def test_a_message_waits_for_the_first_verification_but_not_for_ever() -> None:
    async with world() as here:
        released = asyncio.Event()
        here.cloud.report_handler = held(released, here.cloud.give_report)
        async with here.kept_verified(), asyncio.TaskGroup() as tasks:
            admitted = tasks.create_task(here.model.admit())
            await here.until(lambda: here.cloud.reports == 1)
            assert not admitted.done()
            released.set()
    async with world(pace={"ADMIT_SECONDS": 0.01}) as here:
        assert "still being checked" in await here.refusal()


# Not verified


Spoil = Callable[[World], object]


def tells(step: Step) -> Spoil:
    return lambda here: setattr(here.cloud, "report_handler", step)


def lies(name: str, value: object) -> Spoil:
    return lambda here: setattr(here.cloud.lies, name, value)


WRONG: dict[str, tuple[Spoil, str]] = {
    "an old nonce": (lies("nonce", bytes(32)), "gateway.nonce"),
    "another machine's TLS key": (lies("key_sha256", bytes(32)), "tls_key"),
    "a debug machine": (lies("debug", True), "gateway.debug"),
    "no report at all": (tells(raw_body(b"{}", content_type="application/json")), "report"),
    "NVIDIA does not vouch": (
        lambda here: here.cloud.nras.overall.update({"x-nvidia-overall-att-result": False}),
        "model.gpu_firmware",
    ),
}


@pytest.mark.parametrize("name", WRONG)
async def test_evidence_that_is_wrong_keeps_every_message_back(name: str) -> None:
    spoil, check = WRONG[name]
    async with world() as here:
        spoil(here)
        verdict = await here.model.verify()
        assert verdict.state == "failed"
        assert verdict.report is not None
        assert check in [one.name for one in verdict.report.failures]
        assert verdict.reason in [one.message for one in verdict.report.failures]
        assert "does not hold" in await here.refusal()
        assert here.model.signers("gateway", "ed25519") == ()
        assert here.model.encryption_key() is None
        assert here.model.evidence() is not None


def no_collateral(here: World) -> None:
    here.pccs.behaviours[TCB] = answer(b"", status=503)


def down(here: World) -> None:
    here.cloud.report_handler = cut


HTML = raw_body(b"<html>hello</html>", content_type="text/html; charset=utf-8")
GARBAGE = raw_body(b"\xff\xfe{[", content_type="application/json")
HUGE = raw_body(b" " * (5 * 1024 * 1024), content_type="application/json")

TROUBLE: dict[str, tuple[Spoil, ModelState, str]] = {
    "down": (down, "unavailable", "the connection broke"),
    "limiting the rate": (tells(status(429)), "unavailable", "too often: HTTP 429"),
    "refusing the key": (tells(status(401)), "unavailable", "API key"),
    "sending garbage": (tells(GARBAGE), "unavailable", "not readable"),
    "sending too much": (tells(HUGE), "unavailable", "longer"),
    "without collateral": (no_collateral, "unavailable", "collateral service"),
    "no attestation": (tells(status(404)), "not_offered", "only use one that can"),
    "a page": (tells(HTML), "not_offered", "only use one that can"),
}


@pytest.mark.parametrize("name", TROUBLE)
async def test_without_evidence_every_message_is_kept_back_with_the_reason(name: str) -> None:
    spoil, state, words = TROUBLE[name]
    async with world() as here:
        spoil(here)
        verdict = await here.model.verify()
        sentence = await here.refusal()
        assert verdict.state is state
        assert words in sentence
        assert sentence.startswith("I have not sent your message to the model, because ")
        assert here.model.evidence() is None


async def test_under_warn_gpu_signatures_suffice_without_nvidias_verdict() -> None:
    async with world("warn") as here:
        here.cloud.nras.tokens_handler = status(503)
        verdict = await here.model.verify()
        assert verdict.state == "verified"
        assert "own signatures only" in here.model.summary()


REFUSALS: dict[str, Step] = {
    **{f"HTTP {code}": status(code) for code in (204, 302, 400, 404, 408, 429)},
    "a page": raw_body(b"<html>", content_type="text/html"),
    "a list of nothing": raw_body(b"[]", content_type="application/json"),
    "too much": raw_body(b" " * 2_000_000, content_type="application/json"),
}


@pytest.mark.parametrize("name", [*REFUSALS, "no key set"])
async def test_under_require_nvidias_refusal_keeps_every_message_back(name: str) -> None:
    async with world() as here:
        await here.model.verify()
        here.cloud.nras.tokens_handler = REFUSALS.get(name)
        here.cloud.nras.keys_handler = None if name in REFUSALS else status(404)
        verdict = await here.model.verify()
        assert verdict.state == "failed", verdict
        assert "does not hold" in await here.refusal()
        # A refused verdict stays refused while the service is down.
        here.cloud.nras.tokens_handler = status(503)
        assert (await here.model.verify()).state == "failed"


@pytest.mark.parametrize("arch", ["AMPERE", "HOPPER\u200b", None, ["HOPPER"]], ids=repr)
async def test_gpus_of_an_odd_architecture_fail(arch: object) -> None:
    def edit(report: Body) -> None:
        model = report["model_attestations"][0]
        model["nvidia_payload"] = json.dumps(json.loads(model["nvidia_payload"]) | {"arch": arch})

    async with world() as here:
        here.cloud.edit = edit
        assert (await here.model.verify()).state == "failed"
        assert here.cloud.nras.received == []  # nothing of it reaches NVIDIA


@pytest.mark.parametrize("step", [status(503), cut], ids=["503", "cut"])
async def test_require_sends_nothing_without_any_verdict_of_nvidia(step: Step) -> None:
    async with world() as here:
        here.cloud.nras.tokens_handler = step
        assert (await here.model.verify()).state == "unavailable"
        assert "not all of its proof could be checked" in await here.refusal()
        here.cloud.nras.tokens_handler = None
        assert (await here.model.verify()).state == "verified"


async def test_nvidias_last_verdict_counts_for_a_bounded_outage() -> None:
    async with world() as here:
        await here.model.verify()
        here.cloud.nras.tokens_handler = status(503)
        for ahead in (1800, 3500, FIRMWARE_GRACE_SECONDS - 60):
            here.clock.ahead = ahead
            verdict = await here.model.verify()
            assert verdict.state == "verified"
            assert verdict.expires_at is not None
            assert verdict.expires_at <= here.model.verdict.since - ahead + FIRMWARE_GRACE_SECONDS
            await here.model.admit()
            assert "its earlier word on these GPUs counts" in here.model.summary()
        here.clock.ahead = FIRMWARE_GRACE_SECONDS + 1
        assert (await here.model.verify()).state == "unavailable"
        assert here.model.encryption_key() is None
        await here.refusal()


# In the course of time


async def test_the_model_is_verified_once_the_service_is_back() -> None:
    async with world() as here:
        here.cloud.report_handler = status(503)
        async with here.kept_verified():
            assert "HTTP 503" in await here.refusal()
            here.cloud.report_handler = here.cloud.give_report
            await here.until(lambda: here.model.verdict.state == "verified")
            await here.model.admit()
            asked = here.cloud.reports
            await here.verified_again(within_seconds=0.2)
            assert here.cloud.reports == asked


async def test_verified_model_stays_so_in_trouble_until_its_evidence_expires() -> None:
    async with world() as here:
        await here.model.verify()
        key = here.cloud.identity.key_sha256
        here.cloud.report_handler = status(503)
        verdict = await here.model.verify()
        assert verdict.state == "verified"
        await here.model.admit()
        assert "HTTP 503" in here.model.summary()
        assert here.model.keys.attested(key)
        here.clock.ahead = MAX_EVIDENCE_SECONDS
        assert "HTTP 503" in await here.refusal()
        assert here.model.verdict.state == "unavailable"
        assert here.model.signers("provider_tee", "ed25519") == ()
        assert here.model.evidence() is None
        assert not here.model.keys.attested(key)


async def test_wrong_evidence_ends_an_earlier_verification() -> None:
    async with world() as here, here.chat() as client:
        await here.model.verify()
        await said(client)
        here.cloud.lies.debug = True
        assert here.model.signers("gateway", "ed25519")
        await here.model.verify()
        assert "does not hold" in await here.refusal()
        assert here.model.signers("gateway", "ed25519") == ()
        assert here.model.signers("provider_tee", "ed25519") == ()
        with pytest.raises(LlmUnavailable):
            await said(client)
        assert len(here.cloud.requests) == 1
        here.cloud.report_handler = status(503)
        assert (await here.model.verify()).state == "failed"


async def test_the_model_is_verified_again_before_its_evidence_expires() -> None:
    pace = {
        "RENEW_SECONDS": 3600.0,
        "MARGIN_SECONDS": MAX_EVIDENCE_SECONDS,
        "RETRY": Backoff(first_seconds=0.01, longest_seconds=0.01),
    }
    async with world(pace=pace) as here, here.kept_verified():
        await here.until(lambda: here.cloud.reports >= 3)
        assert here.model.verdict.state == "verified"


@pytest.mark.parametrize(("longest_seconds", "is_left_alone"), [(3600.0, True), (0.05, False)])
async def test_retry_after_of_the_report_is_honoured_up_to_a_bound(
    longest_seconds: float, is_left_alone: bool
) -> None:
    retry = Backoff(first_seconds=0.001, longest_seconds=longest_seconds)
    async with world(pace={"RETRY": retry}) as here:
        here.cloud.report_handler = status(429, headers={"retry-after": "1800"})
        async with here.kept_verified():
            await here.refusal()
            if is_left_alone:
                here.cloud.report_handler = here.cloud.give_report
                await here.verified_again(within_seconds=0.1)
                assert here.cloud.reports == 1
            else:
                await here.until(lambda: here.cloud.reports > 1)


async def test_a_new_tls_key_is_asked_about_at_once_and_used_only_after_it_is_attested() -> None:
    pace = {"AFTER_STRANGERS": Backoff(first_seconds=3600.0, longest_seconds=3600.0)}
    async with world(pace=pace) as here, here.kept_verified():
        await here.model.admit()
        for _ in range(2):
            here.cloud.change_tls_key()
            new = here.cloud.identity.key_sha256
            received = len(here.cloud.requests)
            async with here.chat() as client:
                with pytest.raises(LlmUnavailable):
                    await said(client)
                assert len(here.cloud.requests) == received
                await here.until(partial(here.model.keys.attested, new))
                assert await said(client) == "answer to: hello"


@pytest.mark.parametrize(("pause", "is_asked_again"), [(0.001, True), (3600.0, False)])
async def test_an_unattested_key_is_checked_again_after_growing_pauses(
    pause: float, is_asked_again: bool
) -> None:
    pace = {"AFTER_STRANGERS": Backoff(first_seconds=pause, longest_seconds=pause)}
    async with world(pace=pace) as here, here.kept_verified():
        await here.model.admit()
        for reports in (2, 3 if is_asked_again else 2):
            with pytest.raises(KeyNotAttested):
                here.model.keys.meet(b"stranger" * 4)
            await here.until(lambda reports=reports: here.cloud.reports == reports)  # type: ignore[misc]
        await here.verified_again(within_seconds=0.2)
        assert here.model.verdict.state == "verified"
        assert here.cloud.reports == reports


async def test_warn_reports_messages_to_a_key_without_evidence() -> None:
    async with world("warn") as here, here.chat() as client:
        await here.model.verify()
        assert "nothing has vouched for" not in here.model.summary()
        here.cloud.change_tls_key()
        assert await said(client) == "answer to: hello"
        assert "nothing has vouched for" in here.model.summary()
