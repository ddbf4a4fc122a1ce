"""Promises of every dialect, tested with its strict server at the wire."""

import json
from functools import partial
from typing import Final

import pytest

from bot.config.llm import LlmSettings
from bot.llm.answering import CALL_SHORTER, clean_answer
from bot.llm.api import MAX_TOOL_CALLS, Asked
from bot.llm.client import Learnt, LlmClient, api_of
from bot.llm.errors import (
    LlmBroken,
    LlmContextTooLong,
    LlmError,
    LlmRejected,
    LlmToolsRefused,
    LlmUnauthorized,
    LlmUnavailable,
)
from bot.llm.messages import CUT_OFF, Completion, ModelRequest
from bot.llm.rearranged import base64_of, with_tools_as_text
from conversation_store.models import Image, Message, Role, TokenSum, ToolCall
from tests.contract.dialects import anthropic, bedrock, gemini
from tests.contract.dialects.all_of_them import HARNESSES
from tests.contract.dialects.harness import (
    CLOCK,
    HELLO,
    OVER_AT_ONCE,
    Arguments,
    Harness,
    StrictServer,
    client_of,
    completed,
    sent_words,
)
from tests.fakes import anthropic_server, bedrock_server, scripted_http
from tests.fakes.openai_server import MODEL
from tools.base import ToolSpec

WEATHER: Final = ToolSpec(
    "get_weather",
    "Tells the weather.",
    {
        "type": "object",
        "properties": {
            "place": {"type": "string", "description": "Where."},
            "days": {"type": "integer", "minimum": 1, "maximum": 7, "default": 1},
            "units": {"enum": ["metric", "imperial"]},
        },
        "required": ["place"],
        "additionalProperties": False,
    },
)
Calls = tuple[tuple[str, Arguments], ...]
PICTURE: Final = Image("image/png", b"\x89PNG\r\n\x1a\n")


def called(*ids: str, words: str | None = None, arguments: str = "{}") -> Message:
    calls = tuple(ToolCall(id_, "clock", arguments) for id_ in ids)
    return Message(Role.ASSISTANT, words, calls)


def told(id_: str, words: str, *images: Image, failed: bool = False) -> Message:
    return Message(Role.TOOL, words, tool_call_id=id_, images=images, failed=failed)


CONVERSATIONS: Final = {
    "words": HELLO,
    "history": [*HELLO, Message(Role.ASSISTANT, "Hi."), Message(Role.USER, "And now?")],
    "parallel calls": [
        *HELLO,
        called("call_1", "call_2", words="Let me see."),
        told("call_1", "12:00"),
        told("call_2", "12:01"),
    ],
    "rounds": [
        *HELLO,
        # Kimi counts the calls of each answer from 0.
        called("clock_0"),
        told("clock_0", "12:00"),
        called("clock_0", arguments=""),
        told("clock_0", "12:01"),
        Message(Role.ASSISTANT, "Past noon."),
        Message(Role.USER, "Thanks! And in Rome?"),
    ],
    "steered": [
        *HELLO,
        called("call_1"),
        told("call_1", "12:00"),
        Message(Role.USER, "In Rome, I mean."),
        called("call_1_2", arguments=""),
        told("call_1_2", "12:01"),
        Message(Role.USER, "And be brief."),
    ],
    "unreadable arguments": [
        *HELLO,
        Message(Role.ASSISTANT, None, (ToolCall("x" * 64, "no such tool!", "{'zone': UTC"),)),
        told("x" * 64, ""),
    ],
    "failed results": [
        *HELLO,
        called("call_1", "call_2"),
        told("call_1", "There is no clock.", failed=True),
        told("call_2", "", failed=True),
    ],
    "empty words": [
        Message(Role.SYSTEM, "Be brief."),
        Message(Role.USER, ""),
        Message(Role.ASSISTANT, ""),
        Message(Role.USER, " "),
    ],
    "picture": [*HELLO[:1], Message(Role.USER, "What is this?", images=(PICTURE,))],
    "picture alone": [*HELLO[:1], Message(Role.USER, "", images=(PICTURE,))],
    "pictures of tools": [
        *HELLO,
        called("call_0", "call_1", "call_2"),
        told("call_0", "You are shown a.png.", PICTURE),
        told("call_1", "12:00"),
        told("call_2", "", PICTURE),
        Message(Role.ASSISTANT, "A clock."),
        Message(Role.USER, "And the other?"),
    ],
    "two people": [*HELLO, Message(Role.USER, "Are you there?")],
    "no system text": HELLO[1:],
    "begins with an answer": [HELLO[0], Message(Role.ASSISTANT, "Hi."), HELLO[1]],
    "half a surrogate pair": [HELLO[0], Message(Role.USER, "a\ud83db")],
}


@pytest.fixture(params=HARNESSES, ids=lambda harness: harness.name)
def harness(request: pytest.FixtureRequest) -> Harness:
    found: Harness = request.param
    return found


async def test_words_come_back_whole_with_their_count(harness: Harness) -> None:
    completion = await completed(harness, harness.text("Good day to you. Grüße 🔧"))

    assert completion.message == Message(Role.ASSISTANT, "Good day to you. Grüße 🔧")
    assert completion.usage == TokenSum(11, 7)
    assert completion.finish_reason != CUT_OFF


@pytest.mark.parametrize(
    ("name", "path"),
    [
        *(("anthropic", path) for path in ("/", "/v1", "/v1/")),
        *(("gemini", path) for path in ("/", "/v1beta", "/v1beta/")),
        *(("ollama", path) for path in ("/", "/v1", "/api", "/api/")),
    ],
)
async def test_address_may_end_with_the_path_of_the_api(name: str, path: str) -> None:
    harness = next(one for one in HARNESSES if one.name == name)
    async with harness.server() as server, client_of(harness, server, path=path) as client:
        server.handler = harness.text("Hi.")
        assert (await client.complete(HELLO)).message.content == "Hi."
        assert await client.models() == (MODEL,)


@pytest.mark.parametrize(
    ("dialect", "header", "value"),
    [
        ("openai", "authorization", "Bearer {}"),
        ("anthropic", "x-api-key", "{}"),
        ("bedrock", "authorization", "Bearer {}"),
        ("gemini", "x-goog-api-key", "{}"),
    ],
)
def test_key_travels_in_one_header_and_can_be_changed(
    dialect: str, header: str, value: str
) -> None:
    llm = {"dialect": dialect, "base_url": "http://h", "model": "m", "api_key": "first"}
    region = {"region": "eu-central-1"} if dialect == "bedrock" else {}
    api = api_of(LlmSettings.model_validate({**llm, **region}))
    assert api.listing()[0].headers[header] == value.format("first")
    api.use_key("second")
    headers = dict(api.put(Asked(ModelRequest(HELLO))).headers)
    assert headers.pop(header) == value.format("second")
    assert not {"authorization", "x-api-key"} & headers.keys()
    api.use_key(None)
    assert header not in api.listing()[0].headers


async def test_parallel_calls_are_put_together(harness: Harness) -> None:
    asked: Calls = (("clock", {}), ("get_weather", {"place": "Rome", "days": 2}))
    completion = await completed(
        harness, harness.tool_calls(asked, "Let me see."), HELLO, [CLOCK, WEATHER]
    )

    first, second = completion.message.tool_calls
    assert completion.message.content == "Let me see."
    assert (first.name, second.name) == ("clock", "get_weather")
    assert first.arguments in {"", "{}"}
    assert second.arguments.replace(" ", "") == '{"place":"Rome","days":2}'
    assert first.id != second.id


@pytest.mark.parametrize("name", CONVERSATIONS)
@pytest.mark.parametrize("may_call", [True, False])
async def test_every_stored_conversation_is_accepted(
    harness: Harness, name: str, *, may_call: bool
) -> None:
    completion = await completed(
        harness, harness.text("Fine."), CONVERSATIONS[name], [CLOCK, WEATHER], may_call=may_call
    )

    assert completion.message.content == "Fine."


@pytest.mark.parametrize("name", ["pictures of tools", "picture"])
@pytest.mark.parametrize("tool_calling", ["native", "prompt"])
async def test_every_picture_is_in_the_request(
    harness: Harness, name: str, tool_calling: str
) -> None:
    request = ModelRequest(CONVERSATIONS[name], [CLOCK, WEATHER])
    if tool_calling == "prompt":
        request = with_tools_as_text(request)
    async with harness.server() as server, client_of(harness, server) as client:
        server.handler = harness.text("Fine.")
        await client.complete(request.messages, request.tools)
        sent = json.dumps(server.requests[-1])

    shown = sum(len(message.images) for message in CONVERSATIONS[name])
    assert sent.count(base64_of(PICTURE)) == shown


def blocks_of(server: StrictServer, number: int) -> list[dict[str, object]]:
    """Return the blocks of a message in the last request."""
    body = server.requests[-1]
    turn = body["contents"][number] if "contents" in body else body["messages"][number]
    found: list[dict[str, object]] = turn["parts" if "contents" in body else "content"]
    return found


CLAUDES_THOUGHTS: Final[list[dict[str, object]]] = [
    {"type": "thinking", "thinking": "What time is it?", "signature": anthropic.SIGNATURE},
    {"type": "text", "text": "Let me see."},
    {"type": "redacted_thinking", "data": "EmwKAhgBEgy3va3pzix"},
    {"type": "tool_use", "id": "toolu_1", "name": "clock", "input": {"zone": "UTC"}},
]
NOVAS_THOUGHT: Final = {"text": "What time is it?", "signature": bedrock.SIGNATURE}
NOVAS_THOUGHTS: Final[list[dict[str, object]]] = [
    {"reasoningContent": {"reasoningText": NOVAS_THOUGHT}},
    {"text": "Let me see."},
    {"reasoningContent": {"redactedContent": "EmwKAhgBEgw="}},
    {"toolUse": {"toolUseId": "tooluse_1", "name": "clock", "input": {}}},
]
GEMINIS_THOUGHTS: Final[list[dict[str, object]]] = [
    {"text": "Let me see."},
    {**gemini.call("clock", {}), "thoughtSignature": gemini.SIGNATURE},
    gemini.call("clock", {"zone": "UTC"}),
]


@pytest.mark.parametrize(
    ("harness", "step", "said"),
    [
        (
            anthropic.HARNESS,
            anthropic_server.answer(*CLAUDES_THOUGHTS, stop_reason="tool_use"),
            CLAUDES_THOUGHTS,
        ),
        (
            bedrock.HARNESS,
            bedrock_server.answer(*NOVAS_THOUGHTS, stop_reason="tool_use"),
            NOVAS_THOUGHTS,
        ),
        (gemini.HARNESS, gemini.answer(*GEMINIS_THOUGHTS), GEMINIS_THOUGHTS),
    ],
    ids=["anthropic", "bedrock", "gemini"],
)
async def test_signed_reasoning_goes_back_with_its_calls_in_its_place(
    harness: Harness, step: scripted_http.Step, said: list[dict[str, object]]
) -> None:
    async with harness.server() as server, client_of(harness, server) as client:
        server.handler = step
        asked = (await client.complete(HELLO, [CLOCK])).message
        results = [told(call.id, "12:00") for call in asked.tool_calls]
        server.handler = harness.text("Noon.")
        await client.complete([*HELLO, asked, *results], [CLOCK])

        assert asked.content == "Let me see."
        assert blocks_of(server, 1) == said


@pytest.mark.parametrize(
    ("harness", "failure"),
    [
        (anthropic.HARNESS, {"content": "There is no clock.", "is_error": True}),
        (bedrock.HARNESS, {"content": [{"text": "There is no clock."}], "status": "error"}),
        (gemini.HARNESS, {"response": {"error": "There is no clock."}}),
    ],
    ids=["anthropic", "bedrock", "gemini"],
)
async def test_failed_result_has_error_mark(harness: Harness, failure: dict[str, object]) -> None:
    name = "eu.anthropic.claude-v1:0" if harness is bedrock.HARNESS else MODEL
    async with (
        bedrock.server(name) if harness is bedrock.HARNESS else harness.server() as server,
        client_of(harness, server, model=name) as client,
    ):
        server.handler = harness.text("Hm.")
        await client.complete(CONVERSATIONS["failed results"], [CLOCK])
        result = blocks_of(server, 2)[0]

    inner = result.get("toolResult") or result.get("functionResponse") or result
    assert isinstance(inner, dict)
    assert failure.items() <= inner.items()


async def test_answer_beyond_the_bounds_is_refused(harness: Harness) -> None:
    calls: Calls = (("clock", {}),) * (MAX_TOOL_CALLS + 1)
    async with (
        harness.server() as server,
        client_of(harness, server, retry=OVER_AT_ONCE) as client,
    ):
        for step in (harness.text("x" * 300_000), harness.tool_calls(calls, "")):
            server.handler = step
            with pytest.raises(LlmBroken):
                await client.complete(HELLO, [CLOCK])


async def test_an_answer_that_the_limit_cut_off_says_so(harness: Harness) -> None:
    completion = await completed(harness, harness.cut_off("Once upon a"))

    assert completion.message.content == "Once upon a"
    assert completion.finish_reason == CUT_OFF


async def ask(client: LlmClient, request: ModelRequest) -> Completion:
    return await client.complete(request.messages, request.tools, may_call=request.may_call)


async def test_call_cut_off_at_the_limit_is_asked_for_once_more_and_never_run(
    harness: Harness,
) -> None:
    if harness.cut_call is None:
        return
    request = ModelRequest(HELLO, [CLOCK])
    again = harness.tool_calls((("clock", {"zone": "UTC"}),), "")
    async with harness.server() as server, client_of(harness, server) as client:
        server.handler = scripted_http.script(harness.cut_call, then=again)
        answer = await clean_answer(request, partial(ask, client), Learnt(), "native")

        assert len(server.requests) == 2
        assert CALL_SHORTER in sent_words(server)
        [call] = answer.message.tool_calls
        assert json.loads(call.arguments) == {"zone": "UTC"}
        server.handler = harness.cut_call
        answer = await clean_answer(request, partial(ask, client), Learnt(), "native")
        assert answer.message.tool_calls == ()


async def test_reasoning_in_its_own_fields_is_no_part_of_the_answer(harness: Harness) -> None:
    completion = await completed(harness, harness.thinking("They greet me.", "Hi."))

    assert completion.message.content == "Hi."


ERRORS: Final = {
    "overloaded": LlmUnavailable,
    "rate_limit": LlmUnavailable,
    "key": LlmUnauthorized,
    "credit": LlmUnauthorized,
    "model": LlmRejected,
    "too_long": LlmContextTooLong,
    "no_tools": LlmToolsRefused,
    "no_images": LlmRejected,
}


@pytest.mark.parametrize("kind", ERRORS)
async def test_a_refusal_has_its_kind(kind: str) -> None:
    for harness, step in refusing(kind):
        async with (
            harness.server() as server,
            client_of(harness, server, retry=OVER_AT_ONCE) as client,
        ):
            server.handler = step
            with pytest.raises(LlmError) as caught:
                await client.complete(HELLO, [CLOCK])
        assert type(caught.value) is ERRORS[kind], harness.name
        assert "secret-key" not in f"{caught.value} {caught.value.reason}"


def refusing(kind: str) -> list[tuple[Harness, scripted_http.Step]]:
    """Return the dialects whose real servers refuse for this reason, and how they say it."""
    found = [(one, one.refusals[kind]) for one in HARNESSES if kind in one.refusals]
    assert found
    return found


async def test_a_refused_system_role_is_learnt_and_gone_without() -> None:
    for harness, step in refusing("no_system_role"):
        async with harness.server() as server, client_of(harness, server) as client:
            server.handler = scripted_http.script(step, then=harness.text("Fine."))
            for _ in range(2):
                assert (await client.complete(HELLO)).message.content == "Fine."
            assert len(server.requests) == 3
            assert "Be brief." in sent_words(server)


async def test_refused_message_after_a_result_is_learnt_and_bridged() -> None:
    call = Message(Role.ASSISTANT, None, (ToolCall("call_1", "clock", "{}"),))
    result = Message(Role.TOOL, "12:00", tool_call_id="call_1")
    later = [*HELLO, call, result, Message(Role.USER, "And?")]
    (harness,) = (one for one in HARNESSES if one.name == "openai")
    async with harness.server() as server, client_of(harness, server) as client:
        server.handler = harness.text("Fine.")
        for _ in range(2):
            assert (await client.complete(later)).message.content == "Fine."
        roles = [[one["role"] for one in sent["messages"]] for sent in server.requests]
    assert roles[0][-2:] == ["tool", "user"]  # refused
    assert roles[1][-3:] == roles[2][-3:] == ["tool", "assistant", "user"]


@pytest.mark.parametrize("kind", ["broken_stream", "half_stream", "error_midway"])
async def test_a_cut_stream_is_no_answer_and_is_tried_again(harness: Harness, kind: str) -> None:
    step = getattr(harness, kind)
    async with harness.server() as server, client_of(harness, server) as client:
        server.handler = scripted_http.script(step, then=harness.text("Whole."))
        assert (await client.complete(HELLO)).message.content == "Whole."
        server.handler = step
        with pytest.raises((LlmBroken, LlmUnavailable)):
            await client.complete(HELLO)


@pytest.mark.parametrize(
    "content_type",
    ["application/json", "text/event-stream", "application/x-ndjson", "application/octet-stream"],
)
async def test_rubbish_is_no_answer(harness: Harness, content_type: str) -> None:
    async with (
        harness.server() as server,
        client_of(harness, server, retry=OVER_AT_ONCE) as client,
    ):
        for body in (b"{}", b"[]", b"null", b"data: {}\n\n", b"\xff" * 100, b"{" * 10_000, None):
            pieces = [body] if body else []
            server.handler = scripted_http.raw_body(*pieces, content_type=content_type)
            with pytest.raises(LlmBroken):
                await client.complete(HELLO)


async def test_endpoint_lists_its_models(harness: Harness) -> None:
    async with harness.server() as server, client_of(harness, server) as client:
        assert MODEL in await client.models()
        about = await client.about()

    assert about is not None
    assert about.id == MODEL
