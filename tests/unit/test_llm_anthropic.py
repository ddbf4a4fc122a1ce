"""Anthropic's API: blocks, cache marks, signed reasoning and errors."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import pytest

from bot.config.llm import LlmSettings
from bot.llm.anthropic import Anthropic
from bot.llm.api import MAX_STATE_CHARACTERS, Asked, ListedModel, Parameter
from bot.llm.client import LlmClient, RetryPolicy, open_transport
from bot.llm.errors import LlmBroken, LlmContextTooLong, LlmError, LlmUnavailable
from bot.llm.messages import CUT_OFF, Completion, ModelRequest
from conversation_store.models import Message, ModelState, Role, ToolCall
from tests.contract.dialects import anthropic as strict
from tests.contract.dialects.anthropic import SIGNATURE
from tests.fakes import anthropic_server as fake
from tests.fakes.anthropic_server import MODEL, began, ended, error, sse, streamed, text
from tests.fakes.scripted_http import Step, script
from tools.base import ToolSpec

SYSTEM: Final = Message(Role.SYSTEM, "Be brief.")
HELLO: Final = [SYSTEM, Message(Role.USER, "hello")]
CLOCK: Final = ToolSpec("clock", "Tells the time.", {"type": "object", "properties": {}})
CACHED: Final = {"type": "ephemeral"}
THOUGHT: Final = {"type": "thinking", "thinking": "What time is it?", "signature": SIGNATURE}
SEALED: Final = {"type": "redacted_thinking", "data": "EmwKAhgBEgy3va3pzix"}
CALL: Final = {"type": "tool_use", "id": "toolu_1", "name": "clock", "input": {}}


def endpoint(base_url: str = "http://127.0.0.1", model: str = MODEL) -> LlmSettings:
    return LlmSettings(
        dialect="anthropic",
        base_url=base_url,
        model=model,
        api_key="secret-key",
        timeout_seconds=5.0,
    )


def sent(
    messages: Sequence[Message],
    *tools: ToolSpec,
    may_call: bool = True,
    omitted: frozenset[Parameter] = frozenset(),
    model: str = MODEL,
) -> dict[str, Any]:
    """Return the body of a request that the strict server has nothing against."""
    asked = Asked(ModelRequest(messages, tools, may_call), omitted)
    request = Anthropic(endpoint(model=model)).put(asked)
    body: dict[str, Any] = json.loads(request.content)
    strict.check(body)
    return body


async def exchanged(
    step: Step, messages: Sequence[Message] = HELLO
) -> tuple[Completion, list[dict[str, Any]]]:
    """Ask the strict server, with the clock as a tool; return the answer and the requests."""
    async with strict.server() as server:
        server.handler = step
        at = endpoint(server.base_url)
        async with open_transport(at) as transport:
            client = LlmClient(transport, at, retry=RetryPolicy(bound_seconds=0.0))
            return await client.complete(messages, [CLOCK]), server.requests


async def completed(step: Step) -> Completion:
    """Return the answer to a question."""
    completion, _ = await exchanged(step)
    return completion


# Requests ---------------------------------------------------------------------------------------


def test_the_key_travels_in_one_header_and_can_be_changed() -> None:
    dialect = Anthropic(endpoint())
    before = dialect.listing()[0].headers
    dialect.use_key("another")
    after = dialect.put(Asked(ModelRequest(HELLO))).headers
    dialect.use_key(None)

    assert before["x-api-key"] == "secret-key"
    assert after["x-api-key"] == "another"
    assert "authorization" not in {*before, *after}
    assert "x-api-key" not in dialect.listing()[0].headers


def test_unchanging_parts_are_marked_for_the_cache() -> None:
    body = sent(HELLO, replace(CLOCK, name="other"), CLOCK)

    assert body["system"] == [{"type": "text", "text": "Be brief.", "cache_control": CACHED}]
    assert [tool.get("cache_control") for tool in body["tools"]] == [None, CACHED]
    assert body["messages"][-1]["content"][-1]["cache_control"] == CACHED


async def test_an_endpoint_that_knows_no_marks_is_asked_without_them() -> None:
    words = "system.0.cache_control: Extra inputs are not permitted"
    refusal = error(400, "invalid_request_error", words)

    completion, requests = await exchanged(script(refusal, then=fake.answer(text("Hi."))))

    assert completion.message.content == "Hi."
    assert "cache_control" not in json.dumps(requests[-1])


def test_calls_are_forbidden_in_the_apis_own_way() -> None:
    used = [*HELLO, Message(Role.ASSISTANT, None, (ToolCall("1", "clock", ""),))]
    used.append(Message(Role.TOOL, "12:00", tool_call_id="1"))

    assert sent(HELLO, CLOCK, may_call=False)["tool_choice"] == {"type": "none"}
    assert "tool_choice" not in sent(HELLO, CLOCK)
    assert "tool_choice" not in sent(HELLO, may_call=False)
    assert sent(used)["tool_choice"] == {"type": "none"}


def test_results_of_parallel_calls_come_in_one_message_before_words() -> None:
    calls = (ToolCall("functions.clock:0", "clock", "{}"), ToolCall("b", "what time?", "{'z"))
    body = sent(
        [
            *HELLO,
            Message(Role.ASSISTANT, "Well.", calls),
            Message(Role.TOOL, "12:00", tool_call_id="functions.clock:0"),
            Message(Role.TOOL, " ", tool_call_id="b"),
            Message(Role.USER, "And?"),
        ]
    )

    said, first, second = body["messages"][1]["content"]
    assert said == {"type": "text", "text": "Well."}
    assert second["id"] == "b"
    assert (second["name"], second["input"]) == ("what_time_", {"not_json": "{'z"})
    assert body["messages"][2]["content"] == [
        {"type": "tool_result", "tool_use_id": first["id"], "content": "12:00"},
        {"type": "tool_result", "tool_use_id": "b"},
        {"type": "text", "text": "And?", "cache_control": CACHED},
    ]


def test_failed_results_are_errors_and_never_empty() -> None:
    calls = (ToolCall("a", "clock", "{}"), ToolCall("b", "clock", "{}"))
    body = sent(
        [
            *HELLO,
            Message(Role.ASSISTANT, None, calls),
            Message(Role.TOOL, "There is no clock.", tool_call_id="a", failed=True),
            Message(Role.TOOL, "", tool_call_id="b", failed=True),
        ]
    )

    first, second = body["messages"][2]["content"]
    assert (first["content"], first["is_error"]) == ("There is no clock.", True)
    assert (second["content"], second["is_error"]) == ("(no words)", True)


def test_ids_that_return_in_a_later_turn_are_told_apart() -> None:
    """Kimi counts the calls of each answer from 0."""
    rounds = [
        message
        for result in ("12:00", "12:01")
        for message in (
            Message(Role.ASSISTANT, None, (ToolCall("clock_0", "clock", "{}"),)),
            Message(Role.TOOL, result, tool_call_id="clock_0"),
        )
    ]
    messages = sent([*HELLO, *rounds], CLOCK)["messages"]

    for number, expected in ((1, "12:00"), (3, "12:01")):
        (call,), (result,) = messages[number]["content"], messages[number + 1]["content"]
        assert call["id"] == result["tool_use_id"]
        assert result["content"] == expected


# Reasoning --------------------------------------------------------------------------------------


async def test_signed_reasoning_goes_back_with_its_calls_in_its_place() -> None:
    said = [THOUGHT, text("Let me see."), SEALED, {**CALL, "input": {"zone": "UTC"}}]
    asked = (await completed(fake.answer(*said, stop_reason="tool_use"))).message
    result = Message(Role.TOOL, "12:00", tool_call_id="toolu_1")

    _, requests = await exchanged(fake.answer(text("Noon.")), [*HELLO, asked, result])

    assert asked.content == "Let me see."
    assert requests[-1]["messages"][1]["content"] == said


async def test_reasoning_goes_first_where_the_words_were_changed() -> None:
    said = [text("<b>Well.</b>"), THOUGHT, CALL]
    asked = (await completed(fake.answer(*said, stop_reason="tool_use"))).message
    cleaned = replace(asked, content="Well.")
    result = Message(Role.TOOL, "12:00", tool_call_id="toolu_1")

    messages = sent([*HELLO, cleaned, result], CLOCK)["messages"]

    assert messages[1]["content"] == [THOUGHT, text("Well."), CALL]


@pytest.mark.parametrize(
    "said",
    [
        [THOUGHT, text("Noon.")],
        [{**THOUGHT, "signature": ""}, CALL],
        [{**THOUGHT, "thinking": "x" * MAX_STATE_CHARACTERS}, CALL],
        [text("Noon."), CALL],
    ],
    ids=["no calls", "not signed", "too long", "no reasoning"],
)
async def test_nothing_is_kept_that_the_api_does_not_want_back(said: list[fake.Event]) -> None:
    completion = await completed(fake.answer(*said))

    assert completion.message.state is None


KEPT = {"own": THOUGHT, "signed": True}


@pytest.mark.parametrize(
    "state",
    [
        ModelState("anthropic:another", json.dumps([KEPT, None])),
        ModelState("openai:test-model", json.dumps([KEPT, None])),
        ModelState(f"anthropic:{MODEL}", "no JSON"),
        ModelState(f"anthropic:{MODEL}", "[" * 10_000),
        ModelState(f"anthropic:{MODEL}", json.dumps({"a": 1})),
        ModelState(f"anthropic:{MODEL}", json.dumps([KEPT, None])),
        ModelState(f"anthropic:{MODEL}", json.dumps([KEPT, None, "x" * MAX_STATE_CHARACTERS])),
    ],
)
def test_unusable_state_of_an_answer_is_not_sent(state: ModelState) -> None:
    call = ToolCall("toolu_1", "clock", "{}")
    asked = Message(Role.ASSISTANT, None, (call,), state=state)
    result = Message(Role.TOOL, "12:00", tool_call_id="toolu_1")

    assert sent([*HELLO, asked, result], CLOCK)["messages"][1]["content"] == [CALL]


async def test_ten_megabytes_of_reasoning_cost_no_answer() -> None:
    delta = {"type": "thinking_delta", "thinking": "x" * 100_000}
    events = [{"type": "content_block_delta", "index": 0, "delta": delta}] * 100
    begin = streamed(0, {**THOUGHT, "thinking": ""})
    step = sse(*began(), begin[0], *events, *streamed(1, text("Hi.")), *ended("end_turn"))

    assert (await completed(step)).message.content == "Hi."


# Answers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stop_reason", "expected"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("tool_use", "tool_calls"),
        ("max_tokens", CUT_OFF),
        ("model_context_window_exceeded", CUT_OFF),
        ("pause_turn", CUT_OFF),
        ("guardrail_intervened", "content_filter"),
        ("refusal", "content_filter"),
        ("something_new", "something_new"),
    ],
)
async def test_the_reason_for_the_end_is_said_in_openais_words(
    stop_reason: str, expected: str
) -> None:
    completion = await completed(fake.answer(text("Hi."), stop_reason=stop_reason))

    assert completion.finish_reason == expected
    assert completion.model == MODEL


async def test_unknown_events_of_a_stream_are_ignored() -> None:
    unknown = [
        {"type": "weather_report", "sunny": True},
        *streamed(0, {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web", "input": {}}),
        {"type": "content_block_delta", "index": 0, "delta": {"type": "citations_delta"}},
        {"type": "content_block_delta", "index": 99, "delta": {"type": "input_json_delta"}},
    ]
    step = sse(*began(), *unknown, *streamed(1, text("Hi.")), *ended("end_turn"))

    assert (await completed(step)).message == Message(Role.ASSISTANT, "Hi.")


async def test_counts_that_make_no_sense_cost_no_answer() -> None:
    begin, ping = began()
    begin["message"] = {**begin["message"], "usage": {"input_tokens": "many"}, "id": 7}
    step = sse(begin, ping, *streamed(0, text("Hi.")), *ended("end_turn"))

    completion = await completed(step)

    assert completion.message.content == "Hi."
    assert completion.usage is None


@pytest.mark.parametrize(
    "events",
    [
        [{"type": "message_stop"}],
        [*began(), {"type": "content_block_start", "index": 0, "content_block": "text"}],
        [*began(), {"type": "content_block_delta", "index": 0, "delta": {"text": 7}}],
        [*began(), *streamed(0, text("x" * 300_000)), *ended("end_turn")],
        [*began(), *(e for i in range(33) for e in streamed(i, CALL)), *ended("tool_use")],
        [*began(), *(e for i in range(129) for e in streamed(i, SEALED)), *ended("end_turn")],
    ],
)
async def test_a_stream_that_is_none_or_too_long_is_no_answer(events: list[fake.Event]) -> None:
    with pytest.raises(LlmBroken):
        await completed(sse(*events))


# Errors -----------------------------------------------------------------------------------------


async def test_an_overload_in_the_middle_of_an_answer_is_one() -> None:
    overloaded = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}

    with pytest.raises(LlmUnavailable, match="overloaded_error"):
        await completed(sse(*began(), overloaded))


@pytest.mark.parametrize("said", ["no object", None, {"type": "new_error"}, {"type": ["list"]}])
async def test_an_error_that_says_nothing_known_is_one(said: object) -> None:
    with pytest.raises(LlmBroken):
        await completed(sse(*began(), {"type": "error", "error": said}))


@pytest.mark.parametrize(
    ("code", "type_", "message"),
    [
        (413, "request_too_large", "Request exceeds the maximum size"),
        (400, "invalid_request_error", "prompt is too long: 208310 tokens > 200000 maximum"),
        (
            400,
            "invalid_request_error",
            "input length and `max_tokens` exceed context limit: 199000 + 4096 > 200000",
        ),
    ],
)
async def test_refusal_of_a_long_conversation_is_recognized(
    code: int, type_: str, message: str
) -> None:
    with pytest.raises(LlmContextTooLong):
        await completed(error(code, type_, message))


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        (error(529, "overloaded_error", "Overloaded"), "HTTP 529, Overloaded."),
        (
            error(402, "billing_error", "Your account has a billing issue."),
            "HTTP 402, Payment Required. The account has no credit.",
        ),
        (
            strict.refusal("credit"),
            "HTTP 400, Bad Request. The account has no credit.",
        ),
        (
            error(404, "not_found_error", "model: claude-x"),
            "HTTP 404, Not Found. It does not know the model. See LLM__MODEL.",
        ),
    ],
)
async def test_reason_of_an_error_advises_the_operator(step: Step, reason: str) -> None:
    with pytest.raises(LlmError) as caught:
        await completed(step)

    assert caught.value.reason == reason


# Models -----------------------------------------------------------------------------------------


async def told_of(model: str) -> tuple[ListedModel | None, str]:
    """Return the endpoint's facts about a model, and the path of the request."""
    async with strict.server() as server:
        at = endpoint(server.base_url, model)
        async with open_transport(at) as transport:
            about = await LlmClient(transport, at).about()
        return about, server.received[-1].path


async def test_the_endpoint_says_that_its_model_sees_images() -> None:
    about, _ = await told_of(MODEL)

    assert about == ListedModel(MODEL, sees_images=True)


async def test_a_model_that_the_endpoint_does_not_know_is_nothing_to_tell_of() -> None:
    about, path = await told_of("vendor/unknown?")

    assert about is None
    assert path == "/v1/models/vendor%2Funknown%3F"


@pytest.mark.parametrize("capabilities", [None, {}, {"image_input": None}, {"image_input": 7}, 7])
def test_a_model_of_which_little_is_said_is_listed(capabilities: object) -> None:
    body = {"data": [{"id": "m", "capabilities": capabilities}]}

    assert Anthropic(endpoint()).listing()[1](body) == [ListedModel("m")]
