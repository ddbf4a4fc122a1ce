"""Gemini's API: signatures, names, broken calls, refused questions, addresses."""

import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest

from bot.config.llm import LlmSettings
from bot.llm.client import LlmClient, RetryPolicy, open_transport
from bot.llm.errors import LlmBroken
from bot.llm.gemini import FOREIGN, Gemini
from conversation_store.models import Message, Role, ToolCall
from tests.contract.dialects.gemini import (
    SIGNATURE,
    StrictGemini,
    answer,
    call,
    server,
    tool_calls,
)
from tests.fakes.openai_server import MODEL
from tests.fakes.scripted_http import events, script, status
from tools.base import ToolSpec

HELLO = [Message(Role.USER, "hello")]
CLOCK = ToolSpec("clock", "Tells the time.", {"type": "object", "properties": {}})
QUICK = RetryPolicy(bound_seconds=0.0)


@contextlib.asynccontextmanager
async def asking(running: StrictGemini, path: str = "") -> AsyncIterator[LlmClient]:
    endpoint = LlmSettings(
        dialect="gemini", base_url=running.base_url + path, model=MODEL, api_key="secret-key"
    )
    async with open_transport(endpoint) as transport:
        yield LlmClient(transport, endpoint, retry=QUICK)


def calls_sent(running: StrictGemini) -> list[dict[str, object]]:
    parts = [part for one in running.requests[-1]["contents"] for part in one["parts"]]
    return [part for part in parts if "functionCall" in part]


def with_results(*said: Message) -> list[Message]:
    results = [
        Message(Role.TOOL, "12:00", tool_call_id=one.id) for part in said for one in part.tool_calls
    ]
    return [*HELLO, *said, *results]


async def test_signatures_go_back_with_the_very_calls_that_they_came_with() -> None:
    async with server() as running, asking(running) as client:
        running.handler = tool_calls((("clock", {}), ("clock", {"zone": "UTC"})), "Well.")
        asked = (await client.complete(HELLO, [CLOCK])).message
        running.handler = answer({"text": "Noon."})
        await client.complete(with_results(asked), [CLOCK])
        assert [one.get("thoughtSignature") for one in calls_sent(running)] == [SIGNATURE, None]


async def test_calls_of_another_model_are_marked() -> None:
    said = Message(Role.ASSISTANT, None, (ToolCall("1", "clock", "{}"),))
    async with server() as running, asking(running) as client:
        running.handler = answer({"text": "Noon."})
        await client.complete(with_results(said), [CLOCK])
        assert [one.get("thoughtSignature") for one in calls_sent(running)] == [FOREIGN]


async def test_a_name_that_gemini_refuses_comes_back_as_the_tools_own() -> None:
    tool = ToolSpec("1password-get", "Gets.", {"type": "object", "properties": {}})
    async with server() as running, asking(running) as client:
        running.handler = answer(call("_1password-get", {}))
        completion = await client.complete(HELLO, [tool])
        assert completion.message.tool_calls[0].name == "1password-get"


@pytest.mark.parametrize("reason", ["MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL"])
async def test_a_call_that_the_api_could_not_read_is_no_answer(reason: str) -> None:
    async with server() as running, asking(running) as client:
        running.handler = answer(reason=reason)
        with pytest.raises(LlmBroken):
            await client.complete(HELLO)


async def test_a_question_that_is_not_answered_at_all_is_an_empty_answer() -> None:
    refused = json.dumps({"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}})
    async with server() as running, asking(running) as client:
        running.handler = events(refused)
        completion = await client.complete(HELLO)
        assert (completion.message.content, completion.finish_reason) == (None, "content_filter")
        running.handler = answer(reason="SAFETY")
        assert (await client.complete(HELLO)).finish_reason == "content_filter"


def test_a_model_is_known_with_its_family_before_it_or_without() -> None:
    for name in ("gemini-3-pro", "models/gemini-3-pro"):
        speaker = Gemini(LlmSettings(dialect="gemini", base_url="http://x", model=name))
        listed = speaker.listing()[1]({"models": [{"name": "models/gemini-3-pro"}]})
        assert [one.id for one in listed] == [name]


async def test_failed_results_are_errors() -> None:
    said = Message(Role.ASSISTANT, None, (ToolCall("1", "clock", "{}"),))
    result = Message(Role.TOOL, "There is no clock.", tool_call_id="1", failed=True)
    async with server() as running, asking(running) as client:
        running.handler = answer({"text": "Hm."})
        await client.complete([*HELLO, said, result], [CLOCK])
        sent = running.requests[-1]["contents"][-1]["parts"][0]["functionResponse"]["response"]
        assert sent == {"error": "There is no clock."}


@dataclass(frozen=True)
class WatchedPolicy(RetryPolicy):
    """Waits only a moment, and keeps the waits that an endpoint asked for."""

    asked_for: list[float | None] = field(default_factory=list)

    def pause(self, failures: int, retry_after_seconds: float | None) -> float:
        del failures
        self.asked_for.append(retry_after_seconds)
        return 0.001


@pytest.mark.parametrize(
    ("details", "seconds"),
    [
        ([{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "58s"}], 59.0),
        ([{"@type": "a"}, {"retryDelay": "1.5s"}], 2.5),
        ([{"retryDelay": "soon"}, "text", None], None),
        ({"retryDelay": "58s"}, None),
        (None, None),
    ],
)
@pytest.mark.parametrize("is_list", [False, True])
async def test_the_wait_in_a_refusal_is_obeyed(
    details: object, seconds: float | None, *, is_list: bool
) -> None:
    said = {"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "details": details}}
    busy = status(429, [said] if is_list else said)
    policy = WatchedPolicy()
    async with server() as running, asking(running) as client:
        running.handler = script(busy, then=answer({"text": "Hi."}))
        completion = await client.complete(HELLO, patience=policy)
    assert completion.message.content == "Hi."
    assert policy.asked_for == [seconds]


async def test_words_with_a_signature_are_bounded_like_others() -> None:
    signed = {"text": "x" * 200_000, "thoughtSignature": SIGNATURE}
    async with server() as running, asking(running) as client:
        running.handler = answer(signed)
        assert (await client.complete(HELLO)).message.content == "x" * 200_000
        running.handler = answer(signed, signed)
        with pytest.raises(LlmBroken):
            await client.complete(HELLO)


def test_arguments_that_are_half_a_surrogate_pair_can_be_stored() -> None:
    asked = {"functionCall": {"name": "clock", "args": "\ud800"}}
    whole = {"candidates": [{"content": {"parts": [asked]}, "finishReason": "STOP"}]}
    reader = Gemini(LlmSettings(dialect="gemini", base_url="http://h", model=MODEL)).reader(
        "application/json"
    )
    reader.feed(json.dumps(whole).encode())
    [found] = reader.completion().message.tool_calls
    assert found.arguments == "?"
