"""Bedrock's API: signatures, blocks, signed reasoning and errors."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

import pytest

from bot.config.llm import LlmSettings
from bot.llm.api import Asked
from bot.llm.bedrock import Bedrock, signed
from bot.llm.errors import (
    LlmBroken,
    LlmContextTooLong,
    LlmError,
    LlmUnauthorized,
    LlmUnavailable,
)
from bot.llm.messages import Completion, ModelRequest
from conversation_store.models import Message, Role, ToolCall
from tests.contract.dialects import bedrock as strict
from tests.contract.dialects.bedrock import API_KEY, CREDENTIALS, SIGNATURE
from tests.contract.dialects.harness import CLOCK, HELLO, OVER_AT_ONCE, client_of
from tests.fakes import bedrock_server as fake
from tests.fakes.bedrock_server import began, ended, error, event, exception, streamed, text
from tests.fakes.openai_server import MODEL
from tests.fakes.scripted_http import Body, Step, script

CALLED: Final = [
    *HELLO,
    Message(Role.ASSISTANT, None, (ToolCall("tooluse_1", "clock", "{}"),)),
    Message(Role.TOOL, "12:00", tool_call_id="tooluse_1"),
]
CALL: Final = {"toolUse": {"toolUseId": "tooluse_1", "name": "clock", "input": {}}}
THOUGHT: Final = {
    "reasoningContent": {"reasoningText": {"text": "What time is it?", "signature": SIGNATURE}}
}


AWS: Final = "https://bedrock-runtime.eu-central-1.amazonaws.com"
NOTHING_TO_SIGN_WITH: Final = dict.fromkeys(("access_key_id", "secret_access_key", "session_token"))
WITHOUT_SESSION: Final = {key: CREDENTIALS[key] for key in CREDENTIALS if key != "session_token"}


def settings(credentials: Mapping[str, object] = CREDENTIALS) -> LlmSettings:
    at = {"dialect": "bedrock", "base_url": AWS, "model": MODEL}
    return LlmSettings.model_validate({**at, **credentials})


async def exchanged(
    step: Step, *, model: str = MODEL, credentials: Mapping[str, object] = CREDENTIALS
) -> tuple[Completion, list[Body]]:
    """Ask the strict server, with the clock as a tool; return the answer and the requests."""
    async with (
        strict.server(model) as server,
        client_of(
            strict.HARNESS, server, retry=OVER_AT_ONCE, model=model, settings=credentials
        ) as client,
    ):
        server.handler = step
        return await client.complete(HELLO, [CLOCK]), server.requests


async def completed(step: Step) -> Completion:
    """Return the answer to a question."""
    completion, _ = await exchanged(step)
    return completion


NOVA: Final = f"{AWS}/model/amazon.nova-lite/converse"
CLAUDE: Final = f"{AWS}/model/eu.anthropic.claude-v1%3A0/converse-stream"
ARN: Final = "arn%3Aaws%3Abedrock%3Aeu-central-1%3A1%3Ainference-profile%2Fx~y"
PROFILE: Final = f"https://h:8443/aws/model/{ARN}/converse"


@pytest.mark.parametrize(
    ("url", "is_session", "signature"),
    [
        (NOVA, False, "a18adf83008854555c63ff997d9bc8b6f62fdcc06bd5a79a81c0898975e7baad"),
        (CLAUDE, False, "0252d66387365d2ea74d0db0157d4af63a13f7556cf93b2d2f1d5c5351039315"),
        (CLAUDE, True, "b3be9eea6a3b1939306398a4380fc788feed9b5782fcfef42bfc5b21a7bcb0b6"),
        (PROFILE, True, "b22b5140b0f8294f6b0d7065d93d37064ccd47f107da43bcdc0737c21e3df797"),
    ],
)
def test_the_signature_is_that_of_awss_own_library(
    url: str, is_session: bool, signature: str
) -> None:
    """The expected values are those of botocore 1.44.5."""
    who = settings(credentials=CREDENTIALS if is_session else WITHOUT_SESSION)
    headers = {"content-type": "application/json", "accept": "*/*", "user-agent": "bot"}
    at = datetime(2026, 11, 24, 1, 2, 3, tzinfo=UTC)

    said = signed(url, headers, b'{"messages":[]}', who, at)

    token = ";x-amz-security-token" if is_session else ""
    assert said["x-amz-date"] == "20261124T010203Z"
    assert said["authorization"] == (
        "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20261124/eu-central-1/bedrock/aws4_request,"
        f" SignedHeaders=content-type;host;x-amz-date{token}, Signature={signature}"
    )


@pytest.mark.parametrize("credentials", [{}, {**NOTHING_TO_SIGN_WITH, "api_key": API_KEY}])
async def test_signatures_and_keys_are_accepted(credentials: dict[str, object]) -> None:
    profile = "arn:aws:bedrock:eu-central-1:123456789012:application-inference-profile/abc123"
    for model in ("eu.anthropic.claude-sonnet-4-5-20250929-v1:0", profile):
        completion, _ = await exchanged(
            fake.answer(text("Hi.")), model=model, credentials=credentials
        )
        assert completion.message.content == "Hi."


@pytest.mark.parametrize(
    ("credential", "wrong"),
    [
        ("region", "us-east-1"),
        ("access_key_id", "AKIDANOTHER"),
        ("secret_access_key", "another"),
        ("session_token", None),
    ],
)
async def test_wrong_credentials_and_an_outage_have_different_errors(
    credential: str, wrong: str | None
) -> None:
    with pytest.raises(LlmUnauthorized) as caught:
        await exchanged(fake.answer(text("Hi.")), credentials={credential: wrong})
    assert CREDENTIALS["secret_access_key"] not in f"{caught.value} {caught.value.reason}"


def test_no_key_travels_where_requests_are_signed() -> None:
    signing = Bedrock(settings())
    signing.use_key("another")
    assert signing.listing()[0].headers["authorization"].startswith("AWS4-HMAC-SHA256 ")
    assert "another" not in str(signing.listing()[0].headers)
    assert CREDENTIALS["secret_access_key"] not in repr(settings())


def test_tools_that_may_not_be_called_are_not_offered() -> None:
    """Bedrock cannot be told so, and demands tools where some were called."""

    def offered(messages: Sequence[Message]) -> list[dict[str, Any]]:
        tools = [CLOCK, replace(CLOCK, name="other")]
        request = Bedrock(settings()).put(Asked(ModelRequest(messages, tools, may_call=False)))
        body = json.loads(request.content)
        strict.check(body)
        found: list[dict[str, Any]] = body.get("toolConfig", {}).get("tools", [])
        return found

    (only,) = offered(CALLED)
    assert only["toolSpec"]["name"] == "clock"
    assert only["toolSpec"]["description"] != CLOCK.description
    assert offered(HELLO) == []


async def test_a_model_that_cannot_stream_with_tools_is_asked_for_a_whole_answer() -> None:
    words = "This model doesn't support tool use in streaming mode."
    refusal = error(400, "ValidationException", words)
    calling = fake.answer(THOUGHT, text("Well."), CALL, stop_reason="tool_use")

    completion, requests = await exchanged(script(refusal, then=calling))

    assert len(requests) == 2
    assert completion.message.content == "Well."
    assert completion.message.tool_calls == (ToolCall("tooluse_1", "clock", ""),)
    assert completion.message.state is not None
    assert completion.usage is not None
    assert completion.usage.prompt_tokens == 11


@pytest.mark.parametrize(
    ("model", "points"), [("eu.anthropic.claude-v1:0", 3), ("eu.amazon.nova-pro-v1:0", 2)]
)
async def test_ends_of_stable_parts_are_cache_points(model: str, points: int) -> None:
    _, requests = await exchanged(fake.answer(text("Hi.")), model=model)

    assert json.dumps(requests[-1]).count('"cachePoint"') == points


async def test_a_model_that_refuses_cache_points_is_asked_without_them() -> None:
    async with strict.server(caches=False) as server, client_of(strict.HARNESS, server) as client:
        server.handler = fake.answer(text("Hi."))
        for _ in range(2):
            assert (await client.complete(HELLO, [CLOCK])).message.content == "Hi."
        points = ["cachePoint" in json.dumps(body) for body in server.requests]
        assert points == [True, False, False]


async def test_unknown_events_and_impossible_counts_are_ignored() -> None:
    unknown = [("weatherReport", {"sunny": True}), *streamed(0, {"citation": {"title": "x"}})]
    end = [*ended("end_turn")[:1], ("metadata", {"usage": {"inputTokens": -1}})]
    events = [*began(), *unknown, *streamed(1, text("Hi.")), *end]

    completion = await completed(fake.stream(*(event(*one) for one in events)))

    assert completion.message == Message(Role.ASSISTANT, "Hi.")
    assert completion.usage is None


@pytest.mark.parametrize(
    "events",
    [
        ended("end_turn"),
        [*began(), ("contentBlockDelta", {"delta": {"text": 7}, "contentBlockIndex": 0})],
    ],
    ids=["no beginning", "no text"],
)
async def test_a_malformed_stream_is_no_answer(events: list[fake.Event]) -> None:
    with pytest.raises(LlmBroken):
        await completed(fake.stream(*(event(*one) for one in events)))


@pytest.mark.parametrize(
    ("type_", "words", "expected"),
    [
        ("throttlingException", "Too many requests", LlmUnavailable),
        ("somethingNewException", "?", LlmBroken),
        ("validationException", "Input is too long for requested model.", LlmContextTooLong),
    ],
)
async def test_an_exception_in_a_stream_has_its_kind(
    type_: str, words: str, expected: type[LlmError]
) -> None:
    begun = [event(*one) for one in began()]

    with pytest.raises(LlmError) as caught:
        await completed(fake.stream(*begun, exception(type_, words)))

    assert type(caught.value) is expected
    assert words not in str(caught.value)


async def test_an_error_without_a_payload_ends_a_stream_too() -> None:
    headers = {":message-type": "error", ":error-code": "InternalFailure", ":error-message": "x"}

    with pytest.raises(LlmBroken, match="InternalFailure"):
        await completed(fake.stream(fake.message(headers, b"")))
