"""Gemini's API: signatures, names, broken calls, refused questions, addresses."""

import json
from contextlib import AbstractAsyncContextManager

import pytest

from bot.config.llm import LlmSettings
from bot.llm.client import LlmClient
from bot.llm.errors import LlmBroken
from bot.llm.gemini import Gemini
from tests.contract.dialects.gemini import (
    HARNESS,
    SIGNATURE,
    StrictGemini,
    answer,
    call,
    server,
)
from tests.contract.dialects.harness import HELLO, OVER_AT_ONCE, client_of
from tests.fakes.openai_server import MODEL
from tests.fakes.scripted_http import events
from tools.base import ToolSpec


def asking(running: StrictGemini) -> AbstractAsyncContextManager[LlmClient]:
    return client_of(HARNESS, running, retry=OVER_AT_ONCE)


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


async def test_words_with_a_signature_are_bounded_like_others() -> None:
    signed = {"text": "x" * 200_000, "thoughtSignature": SIGNATURE}
    async with server() as running, asking(running) as client:
        running.handler = answer(signed, {"text": "", "thoughtSignature": SIGNATURE})
        assert (await client.complete(HELLO)).message.content == "x" * 200_000
        running.handler = answer(signed, signed)
        with pytest.raises(LlmBroken):
            await client.complete(HELLO)


def test_arguments_that_are_half_a_surrogate_pair_can_be_stored() -> None:
    asked = {"functionCall": {"name": "clock", "args": "\ud800"}}
    whole = {"candidates": [{"content": {"parts": [asked]}, "finishReason": "STOP"}]}
    reader = Gemini(LlmSettings(dialect="gemini", base_url="http://h", model=MODEL)).reader()
    reader.feed(json.dumps(whole).encode())
    [found] = reader.completion().message.tool_calls
    assert found.arguments == "?"
