"""Gemini's API: signatures, names, broken calls, refused questions, addresses."""

import json

import pytest

from bot.config.llm import LlmSettings
from bot.llm.errors import LlmBroken
from bot.llm.gemini import Gemini
from tests.contract.dialects.gemini import (
    HARNESS,
    SIGNATURE,
    answer,
    call,
)
from tests.contract.dialects.harness import HELLO, completed
from tests.fakes.openai_server import MODEL
from tests.fakes.scripted_http import events
from tools.base import ToolSpec


async def test_a_name_that_gemini_refuses_comes_back_as_the_tools_own() -> None:
    tool = ToolSpec("1password-get", "Gets.", {"type": "object", "properties": {}})
    completion = await completed(HARNESS, answer(call("_1password-get", {})), HELLO, [tool])
    assert completion.message.tool_calls[0].name == "1password-get"


@pytest.mark.parametrize("reason", ["MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL"])
async def test_a_call_that_the_api_could_not_read_is_no_answer(reason: str) -> None:
    with pytest.raises(LlmBroken):
        await completed(HARNESS, answer(reason=reason))


async def test_a_question_that_is_not_answered_at_all_is_an_empty_answer() -> None:
    refused = json.dumps({"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}})
    completion = await completed(HARNESS, events(refused))
    assert (completion.message.content, completion.finish_reason) == (None, "content_filter")
    assert (await completed(HARNESS, answer(reason="SAFETY"))).finish_reason == "content_filter"


def test_a_model_is_known_with_its_family_before_it_or_without() -> None:
    for name in ("gemini-3-pro", "models/gemini-3-pro"):
        speaker = Gemini(LlmSettings(dialect="gemini", base_url="http://x", model=name))
        listed = speaker.listing()[1]({"models": [{"name": "models/gemini-3-pro"}]})
        assert [one.id for one in listed] == [name]


async def test_words_with_a_signature_are_bounded_like_others() -> None:
    signed = {"text": "x" * 200_000, "thoughtSignature": SIGNATURE}
    nothing = {"text": "", "thoughtSignature": SIGNATURE}
    assert (await completed(HARNESS, answer(signed, nothing))).message.content == "x" * 200_000
    with pytest.raises(LlmBroken):
        await completed(HARNESS, answer(signed, signed))


def test_arguments_that_are_half_a_surrogate_pair_can_be_stored() -> None:
    asked = {"functionCall": {"name": "clock", "args": "\ud800"}}
    whole = {"candidates": [{"content": {"parts": [asked]}, "finishReason": "STOP"}]}
    reader = Gemini(LlmSettings(dialect="gemini", base_url="http://h", model=MODEL)).reader()
    reader.feed(json.dumps(whole).encode())
    [found] = reader.completion().message.tool_calls
    assert found.arguments == "?"
