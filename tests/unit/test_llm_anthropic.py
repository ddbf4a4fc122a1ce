"""Anthropic's API: blocks, cache marks, signed reasoning and errors."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import pytest

from bot.config.llm import LlmSettings
from bot.llm.anthropic import Anthropic
from bot.llm.api import MAX_STATE_CHARACTERS, Asked, ListedModel
from bot.llm.errors import LlmBroken
from bot.llm.messages import CUT_OFF, Completion, ModelRequest
from conversation_store.models import Message, ModelState, Role, ToolCall
from tests.contract.dialects import anthropic as strict
from tests.contract.dialects import harness
from tests.contract.dialects.anthropic import SIGNATURE
from tests.contract.dialects.harness import CLOCK, HELLO, client_of
from tests.fakes import anthropic_server as fake
from tests.fakes.anthropic_server import MODEL, began, ended, error, sse, streamed, text
from tests.fakes.scripted_http import Step, script
from tools.base import ToolSpec

CACHED: Final = {"type": "ephemeral"}
THOUGHT: Final = {"type": "thinking", "thinking": "What time is it?", "signature": SIGNATURE}
SEALED: Final = {"type": "redacted_thinking", "data": "EmwKAhgBEgy3va3pzix"}
CALL: Final = {"type": "tool_use", "id": "toolu_1", "name": "clock", "input": {}}


ENDPOINT: Final = LlmSettings(
    dialect="anthropic", base_url="http://127.0.0.1", model=MODEL, api_key="secret-key"
)


def sent(messages: Sequence[Message], *tools: ToolSpec, may_call: bool = True) -> dict[str, Any]:
    """Return the body of a request that the strict server has nothing against."""
    request = Anthropic(ENDPOINT).put(Asked(ModelRequest(messages, tools, may_call)))
    body: dict[str, Any] = json.loads(request.content)
    strict.check(body)
    return body


async def completed(step: Step) -> Completion:
    """Return the strict server's answer to a question with a tool."""
    return await harness.completed(strict.HARNESS, step, HELLO, [CLOCK])


def test_unchanging_parts_are_marked_for_the_cache() -> None:
    body = sent(HELLO, replace(CLOCK, name="other"), CLOCK)

    assert body["system"] == [{"type": "text", "text": "Be brief.", "cache_control": CACHED}]
    assert [tool.get("cache_control") for tool in body["tools"]] == [None, CACHED]
    assert body["messages"][-1]["content"][-1]["cache_control"] == CACHED


async def test_an_endpoint_that_knows_no_marks_is_asked_without_them() -> None:
    words = "system.0.cache_control: Extra inputs are not permitted"
    refusal = error(400, "invalid_request_error", words)
    async with strict.server() as server, client_of(strict.HARNESS, server) as client:
        server.handler = script(refusal, then=fake.answer(text("Hi.")))
        assert (await client.complete(HELLO, [CLOCK])).message.content == "Hi."
        assert "cache_control" not in json.dumps(server.requests[-1])


def test_calls_are_forbidden_in_the_apis_own_way() -> None:
    used = [*HELLO, Message(Role.ASSISTANT, None, (ToolCall("1", "clock", ""),))]
    used.append(Message(Role.TOOL, "12:00", tool_call_id="1"))

    assert sent(HELLO, CLOCK, may_call=False)["tool_choice"] == {"type": "none"}
    assert "tool_choice" not in sent(HELLO, CLOCK)
    assert "tool_choice" not in sent(HELLO, may_call=False)
    assert sent(used)["tool_choice"] == {"type": "none"}


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
async def test_the_finish_reason_is_mapped_to_openais_words(
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


@pytest.mark.parametrize(
    "events",
    [
        [{"type": "message_stop"}],
        [*began(), {"type": "content_block_start", "index": 0, "content_block": "text"}],
        [*began(), {"type": "content_block_delta", "index": 0, "delta": {"text": 7}}],
        [*began(), *(e for i in range(129) for e in streamed(i, SEALED)), *ended("end_turn")],
    ],
)
async def test_a_malformed_or_too_long_stream_is_no_answer(events: list[fake.Event]) -> None:
    with pytest.raises(LlmBroken):
        await completed(sse(*events))


async def test_a_model_that_the_endpoint_does_not_know_is_nothing_to_tell_of() -> None:
    async with strict.server() as server:
        async with client_of(strict.HARNESS, server) as client:
            assert await client.about() == ListedModel(MODEL, sees_images=True)
        async with client_of(strict.HARNESS, server, model="vendor/unknown?") as client:
            assert await client.about() is None
        assert server.received[-1].path == "/v1/models/vendor%2Funknown%3F"


@pytest.mark.parametrize("capabilities", [None, {}, {"image_input": None}, {"image_input": 7}, 7])
def test_a_model_with_few_details_is_listed(capabilities: object) -> None:
    body = {"data": [{"id": "m", "capabilities": capabilities}]}

    assert Anthropic(ENDPOINT).listing()[1](body) == [ListedModel("m")]
