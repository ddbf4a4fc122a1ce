"""Bedrock's API: signatures, blocks, signed reasoning and errors."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

import pytest

from bot.config.llm import LlmSettings
from bot.llm.api import Asked, ListedModel, Parameter
from bot.llm.bedrock import Bedrock, signed
from bot.llm.client import LlmClient, RetryPolicy, open_transport
from bot.llm.errors import (
    LlmBroken,
    LlmContextTooLong,
    LlmError,
    LlmRejected,
    LlmUnauthorized,
    LlmUnavailable,
)
from bot.llm.messages import Completion, ModelRequest
from conversation_store.models import Image, Message, Role, ToolCall
from tests.contract.dialects import bedrock as strict
from tests.contract.dialects.bedrock import API_KEY, CREDENTIALS, SIGNATURE
from tests.fakes import bedrock_server as fake
from tests.fakes.bedrock_server import began, ended, error, event, exception, streamed, text
from tests.fakes.openai_server import MODEL
from tests.fakes.scripted_http import Body, Step, script
from tools.base import ToolSpec

CACHE_POINT: Final = {"cachePoint": {"type": "default"}}
HELLO: Final = [Message(Role.SYSTEM, "Be brief."), Message(Role.USER, "hello")]
CLOCK: Final = ToolSpec("clock", "Tells the time.", {"type": "object", "properties": {}})
CALLED: Final = [
    *HELLO,
    Message(Role.ASSISTANT, None, (ToolCall("tooluse_1", "clock", "{}"),)),
    Message(Role.TOOL, "12:00", tool_call_id="tooluse_1"),
]
CALL: Final = {"toolUse": {"toolUseId": "tooluse_1", "name": "clock", "input": {}}}
THOUGHT: Final = {
    "reasoningContent": {"reasoningText": {"text": "What time is it?", "signature": SIGNATURE}}
}
SEALED: Final = {"reasoningContent": {"redactedContent": "EmwKAhgBEgw="}}


AWS: Final = "https://bedrock-runtime.eu-central-1.amazonaws.com"
Credentials = Mapping[str, str]
KEY: Final = {"region": "eu-central-1", "api_key": API_KEY}
WITHOUT_SESSION: Final = {key: CREDENTIALS[key] for key in CREDENTIALS if key != "session_token"}


def settings(
    base_url: str = AWS, model: str = MODEL, credentials: Credentials = CREDENTIALS
) -> LlmSettings:
    at = {"dialect": "bedrock", "base_url": base_url, "model": model, "timeout_seconds": 5.0}
    return LlmSettings.model_validate({**at, **credentials})


def sent(
    messages: Sequence[Message], *tools: ToolSpec, may_call: bool = True
) -> tuple[dict[str, Any], str]:
    """Return the body, which the strict server has nothing against, and the address."""
    asked = Asked(ModelRequest(messages, tools, may_call))
    request = Bedrock(settings("https://h/", "eu.a-v1:0")).put(asked)
    body: dict[str, Any] = json.loads(request.content)
    strict.check(body)
    return body, str(request.url)


async def exchanged(
    step: Step,
    messages: Sequence[Message] = HELLO,
    *,
    model: str = MODEL,
    credentials: Credentials = CREDENTIALS,
) -> tuple[Completion, list[Body]]:
    """Ask the strict server, with the clock as a tool; return the answer and the requests."""
    async with strict.server(model) as server:
        server.handler = step
        at = settings(server.base_url, model, credentials)
        async with open_transport(at) as transport:
            client = LlmClient(transport, at, retry=RetryPolicy(bound_seconds=0.0))
            return await client.complete(messages, [CLOCK]), server.requests


async def completed(step: Step) -> Completion:
    """Return the answer to a question."""
    completion, _ = await exchanged(step)
    return completion


# Signatures -------------------------------------------------------------------------------------


PROFILE: Final = "arn%3Aaws%3Abedrock%3Aeu-central-1%3A1%3Ainference-profile%2Fx~y"


@pytest.mark.parametrize(
    ("url", "is_session", "signature"),
    [
        (
            f"{AWS}/model/amazon.nova-lite/converse",
            False,
            "a18adf83008854555c63ff997d9bc8b6f62fdcc06bd5a79a81c0898975e7baad",
        ),
        (
            f"{AWS}/model/eu.anthropic.claude-v1%3A0/converse-stream",
            False,
            "0252d66387365d2ea74d0db0157d4af63a13f7556cf93b2d2f1d5c5351039315",
        ),
        (
            f"{AWS}/model/eu.anthropic.claude-v1%3A0/converse-stream",
            True,
            "b3be9eea6a3b1939306398a4380fc788feed9b5782fcfef42bfc5b21a7bcb0b6",
        ),
        (
            f"https://h:8443/aws/model/{PROFILE}/converse",
            True,
            "b22b5140b0f8294f6b0d7065d93d37064ccd47f107da43bcdc0737c21e3df797",
        ),
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


@pytest.mark.parametrize(
    "model",
    [
        "eu.anthropic.claude-sonnet-4-5-20250929-v1:0",
        "arn:aws:bedrock:eu-central-1:123456789012:application-inference-profile/abc123",
    ],
)
@pytest.mark.parametrize("credentials", [CREDENTIALS, KEY])
async def test_signatures_and_keys_are_accepted(model: str, credentials: Credentials) -> None:
    step = fake.answer(text("Hi."))
    completion, _ = await exchanged(step, model=model, credentials=credentials)

    assert completion.message.content == "Hi."


@pytest.mark.parametrize(
    "credentials",
    [
        {**CREDENTIALS, "region": "us-east-1"},
        {**CREDENTIALS, "access_key_id": "AKIDANOTHER"},
        {**CREDENTIALS, "secret_access_key": "another"},
        WITHOUT_SESSION,
    ],
)
async def test_wrong_credentials_are_told_from_an_outage(credentials: Credentials) -> None:
    with pytest.raises(LlmUnauthorized) as caught:
        await exchanged(fake.answer(text("Hi.")), credentials=credentials)

    assert CREDENTIALS["secret_access_key"] not in f"{caught.value} {caught.value.reason}"


def test_a_key_travels_in_one_header_and_none_where_requests_are_signed() -> None:
    keyed, signing = Bedrock(settings(credentials=KEY)), Bedrock(settings())
    assert keyed.listing()[0].headers["authorization"] == f"Bearer {API_KEY}"
    keyed.use_key("another")
    signing.use_key("another")

    assert keyed.listing()[0].headers["authorization"] == "Bearer another"
    assert signing.listing()[0].headers["authorization"].startswith("AWS4-HMAC-SHA256 ")
    assert "another" not in str(signing.listing()[0].headers)
    assert CREDENTIALS["secret_access_key"] not in repr(settings())


# Requests ---------------------------------------------------------------------------------------


def test_request_has_the_members_of_bedrocks_api() -> None:
    picture = Image("image/jpeg", b"\xff\xd8")
    body, url = sent([*HELLO, Message(Role.USER, "", images=(picture,))], CLOCK)

    assert url == "https://h/model/eu.a-v1%3A0/converse-stream"
    assert body["system"] == [{"text": "Be brief."}, CACHE_POINT]
    assert body["messages"][0]["content"] == [
        {"text": "hello"},
        {"image": {"format": "jpeg", "source": {"bytes": "/9g="}}},
        CACHE_POINT,
    ]
    schema = {"type": "object", "properties": {}}
    spec = {"name": "clock", "description": "Tells the time.", "inputSchema": {"json": schema}}
    assert body["toolConfig"] == {"tools": [{"toolSpec": spec}]}


def test_top_of_a_schema_suits_nova() -> None:
    properties = {"zone": {"type": "string", "enum": ["UTC"]}}
    parameters = {"properties": properties, "required": ["zone"], "additionalProperties": False}
    tool = ToolSpec("clock", "", {"type": "object", "title": "Clock", **parameters})

    body, _ = sent(HELLO, tool)

    spec = body["toolConfig"]["tools"][0]["toolSpec"]
    schema = {"type": "object", "properties": properties, "required": ["zone"]}
    assert spec["inputSchema"] == {"json": schema}
    assert spec["description"] == "clock"


def test_tools_that_may_not_be_called_are_not_offered() -> None:
    """Bedrock cannot be told so, and demands tools where some were called."""
    forbidden, _ = sent(CALLED, CLOCK, replace(CLOCK, name="other"), may_call=False)
    (only,) = forbidden["toolConfig"]["tools"]

    assert only["toolSpec"]["name"] == "clock"
    assert only["toolSpec"]["description"] != CLOCK.description
    assert "toolConfig" not in sent(HELLO, CLOCK, may_call=False)[0]


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


def test_streaming_and_cache_points_can_be_left_out() -> None:
    dialect = Bedrock(settings(model="m"))
    asked = Asked(ModelRequest(HELLO, [CLOCK], may_call=False))
    whole = replace(asked, omitted=frozenset({Parameter.STREAM}))

    assert str(dialect.put(whole).url) == f"{AWS}/model/m/converse"


@pytest.mark.parametrize(
    ("model", "status"),
    [
        ("eu.anthropic.claude-v1:0", "error"),
        ("eu.amazon.nova-pro-v1:0", "error"),
        ("mistral.large", None),
    ],
)
async def test_failed_results_have_a_status_if_the_model_takes_it(
    model: str, status: str | None
) -> None:
    failed = replace(CALLED[-1], failed=True)
    _, requests = await exchanged(fake.answer(text("Hm.")), [*CALLED[:-1], failed], model=model)

    result = requests[-1]["messages"][-1]["content"][0]["toolResult"]
    assert result.get("status") == status


@pytest.mark.parametrize(
    ("model", "points"), [("eu.anthropic.claude-v1:0", 3), ("eu.amazon.nova-pro-v1:0", 2)]
)
async def test_ends_of_stable_parts_are_cache_points(model: str, points: int) -> None:
    _, requests = await exchanged(fake.answer(text("Hi.")), model=model)

    assert json.dumps(requests[-1]).count('"cachePoint"') == points


async def test_a_model_that_refuses_cache_points_is_asked_without_them() -> None:
    async with strict.server(caches=False) as server:
        server.handler = fake.answer(text("Hi."))
        at = settings(server.base_url)
        async with open_transport(at) as transport:
            client = LlmClient(transport, at)
            for _ in range(2):
                assert (await client.complete(HELLO, [CLOCK])).message.content == "Hi."
        assert ["cachePoint" in json.dumps(body) for body in server.requests] == [
            True,
            False,
            False,
        ]


# Reasoning --------------------------------------------------------------------------------------


async def test_signed_reasoning_goes_back_with_its_calls_in_its_place() -> None:
    said = [THOUGHT, text("Let me see."), SEALED, CALL]
    asked = (await completed(fake.answer(*said, stop_reason="tool_use"))).message

    _, requests = await exchanged(fake.answer(text("Noon.")), [*HELLO, asked, CALLED[-1]])

    assert asked.content == "Let me see."
    assert requests[-1]["messages"][1]["content"] == said


# Answers ----------------------------------------------------------------------------------------


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
        [*began(), *streamed(0, text("x" * 300_000)), *ended("end_turn")],
        [*began(), *(e for i in range(33) for e in streamed(i, CALL)), *ended("tool_use")],
    ],
    ids=["no beginning", "no text", "too long", "too many calls"],
)
async def test_a_stream_that_is_none_or_too_long_is_no_answer(events: list[fake.Event]) -> None:
    with pytest.raises(LlmBroken):
        await completed(fake.stream(*(event(*one) for one in events)))


# Errors -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("type_", "words", "expected"),
    [
        ("throttlingException", "Too many requests", LlmUnavailable),
        ("internalServerException", "Try again", LlmUnavailable),
        ("modelStreamErrorException", "The model failed", LlmBroken),
        ("somethingNewException", "?", LlmBroken),
        ("validationException", "Input is too long for requested model.", LlmContextTooLong),
        ("validationException", "Malformed input", LlmRejected),
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


DENIED: Final = "AccessDeniedException"


@pytest.mark.parametrize(
    ("code", "type_", "words", "advice"),
    [
        (403, "InvalidSignatureException", "Signature expired: 2026 is now earlier", "clock"),
        (403, "InvalidSignatureException", "The request signature we calculated", "ACCESS_KEY_ID"),
        (403, "ExpiredTokenException", "The security token is expired", "LLM__SESSION_TOKEN"),
        (403, DENIED, "You don't have access to the model with the specified ID.", "LLM__MODEL"),
        (403, DENIED, "Model access is denied due to INVALID_PAYMENT_INSTRUMENT", "no credit"),
        (403, DENIED, "Authentication failed: make sure your API Key is valid", "LLM__API_KEY"),
        (400, "ValidationException", "The provided model identifier is invalid.", "LLM__MODEL"),
        (
            400,
            "ValidationException",
            "Invocation of model ID x with on-demand throughput isn't supported.",
            "inference profile",
        ),
        (400, "ValidationException", "Number of input tokens exceeds maximum length", "HTTP 400"),
    ],
)
async def test_reason_of_an_error_advises_the_operator(
    code: int, type_: str, words: str, advice: str
) -> None:
    with pytest.raises(LlmError) as caught:
        await completed(error(code, type_, words))

    assert advice in caught.value.reason
    assert words not in f"{caught.value} {caught.value.reason}"


# The model --------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", [MODEL, "unknown"])
async def test_a_single_token_shows_whether_the_model_answers(model: str) -> None:
    async with strict.server() as server:
        at = settings(server.base_url, model)
        async with open_transport(at) as transport:
            client = LlmClient(transport, at)
            if model == MODEL:
                assert await client.about() == ListedModel(MODEL)
                assert await client.models() == (MODEL,)
            else:
                with pytest.raises(LlmRejected):
                    await client.models()


@pytest.mark.parametrize("body", [{}, {"output": {}}])
def test_an_answer_that_is_none_shows_nothing(body: dict[str, Any]) -> None:
    with pytest.raises(KeyError):
        Bedrock(settings()).listing()[1](body)
