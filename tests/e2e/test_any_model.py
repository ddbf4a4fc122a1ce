"""Clean answers and tools with models that write oddly, are cut off, or know no tools."""

import asyncio
import json
from typing import Final

import pytest

from bot.chat.handler import CUT, EMPTY
from bot.llm.rearranged import WORDS_ONLY
from tests.e2e.running_bot import World, running_bot, story, world
from tests.fakes.openai_server import chunk, sse, status, text, tool_calls
from tests.fakes.scripted_http import Body, Request, Step, script, whole

CALL: Final = '{"tool": "calculate", "input": {"expression": "6*7"}}'
NO_TOOLS: Final = status(400, {"error": {"message": "tools is not supported with this model"}})


async def asked(here: World, words: str = "hello") -> str:
    said = await here.answer_to(words)
    while said.text.startswith("🔧"):
        said = await here.answer()
    return said.text


def told(body: Body) -> str:
    return json.dumps(body["messages"], ensure_ascii=False)


async def test_reasoning_never_reaches_a_person_nor_the_next_request() -> None:
    async with story() as here:
        here.model.handler = text("<think>A secret plan.</think>\n\nHello!")
        assert await asked(here) == "Hello!"
        await asked(here)
        assert "secret plan" not in told(here.model.requests[-1])


async def test_a_call_that_is_written_as_text_is_run() -> None:
    written = '<tool_call>\n{"name": "calculate", "arguments": {"expression": "6*7"}}\n</tool_call>'
    async with story() as here:
        here.model.handler = script(text(f"Let me see. {written}"), then=text("It is 42."))
        assert await asked(here) == "It is 42."
        call, result = here.model.requests[-1]["messages"][-2:]
    assert call["tool_calls"][0]["function"]["name"] == "calculate"
    assert (result["role"], result["content"]) == ("tool", "42")


async def test_half_a_call_is_asked_for_once_more() -> None:
    async with story() as here:
        here.model.handler = script(text(CALL[:30]), text(CALL), then=text("It is 42."))
        assert await asked(here) == "It is 42."
        assert len(here.model.requests) == 3
        here.model.handler = script(text(CALL[:30]), then=text(f"Well. {CALL[:30]}"))
        assert await asked(here) == "Well."
        here.model.requests.clear()
        here.model.handler = text(CALL[:30])
        assert await asked(here) == EMPTY
        assert len(here.model.requests) <= 4


async def test_a_model_that_only_calls_ends_at_the_budget() -> None:
    async with story(tools={"max_tool_calls": 3}) as here:
        here.model.handler = text(CALL)
        assert await asked(here) == EMPTY
        assert len(here.model.requests) <= 6


async def test_a_cut_answer_is_continued_as_one_message() -> None:
    async with story() as here:
        here.model.handler = script(
            text("Once upon a time there was a pri", finish_reason="length"),
            text("princess who", finish_reason="length"),
            then=text("who lived."),
        )
        assert await asked(here) == "Once upon a time there was a princess who lived."
        await asked(here, "and?")
        assert "cut off" not in told(here.model.requests[-1])


async def test_an_answer_without_end_says_that_it_was_cut() -> None:
    async with story() as here:
        here.model.handler = script(
            text("One, ", finish_reason="length"),
            text("two, ", finish_reason="length"),
            text("three, ", finish_reason="length"),
            text("four", finish_reason="length"),
            then=text("Never asked."),
        )
        assert await asked(here) == f"One, two, three, four\n\n{CUT}"
        here.model.handler = script(text("Five", finish_reason="length"), then=status(400))
        assert await asked(here) == f"Five\n\n{CUT}"


async def test_reasoning_up_to_the_limit_is_no_answer_and_ten_megabytes_are_read_past() -> None:
    pieces = [chunk({"reasoning_content": "Hm. " * 25_000}) for _ in range(100)]
    async with story() as here:
        here.model.handler = text(f"<think>{'Hm. ' * 1_000}", finish_reason="length")
        assert await asked(here) == EMPTY
        assert len(here.model.requests) == 2
        here.model.handler = sse(*pieces, chunk({"content": "Hi."}, finish_reason="stop"))
        assert await asked(here) == "Hi."


async def test_tools_are_told_in_words_for_good_if_the_endpoint_refuses_them() -> None:
    async with world() as here:
        async with running_bot(here.settings()):
            here.model.handler = script(NO_TOOLS, text(CALL), then=text("It is 42."))
            assert await asked(here) == "It is 42."
            assert [("tools" in body) for body in here.model.requests] == [True, False, False]
            system, *_, result = here.model.requests[-1]["messages"]
            assert '"tool": NAME' in system["content"]
            assert "calculate" in system["content"]
            assert result == {"role": "user", "content": "Result of calculate:\n42"}
        here.model.requests.clear()
        async with running_bot(here.settings()):
            assert await asked(here) == "It is 42."
        assert [("tools" in body) for body in here.model.requests] == [False]


def counting_what_is_said(here: World, *, forgets_tools: bool) -> Step:
    """Answer as an endpoint that counts only messages as tokens, and may hide tools from its model.

    The model calls a tool when it knows of one and is asked for a sum.
    """

    async def step(request: Request, writer: asyncio.StreamWriter) -> None:
        body = here.model.requests[-1]
        is_told = "Tools, each with" in told(body) or ("tools" in body and not forgets_tools)
        is_done = "Result of calculate" in told(body) or "tool_call_id" in told(body)
        wants = "what is 6*7?" in str(body["messages"][-1]["content"])
        words = "It is 42." if is_done else CALL if is_told and wants else "Hello."
        said = sum(len(message["content"] or "") for message in body["messages"])
        usage = {"prompt_tokens": said // 4, "completion_tokens": 7}
        choice = {"index": 0, "message": {"content": words}, "finish_reason": "stop"}
        await whole({"id": "1", "choices": [choice], "usage": usage})(request, writer)

    return step


async def test_tools_are_told_in_words_if_the_endpoint_silently_drops_them() -> None:
    async with story() as here:
        here.model.handler = counting_what_is_said(here, forgets_tools=True)
        assert await asked(here, "what is 6*7?") == "It is 42."
        assert [("tools" in body) for body in here.model.requests] == [True, False, False]
        here.model.requests.clear()
        await asked(here)
        assert [("tools" in body) for body in here.model.requests] == [False]


async def test_an_endpoint_that_only_counts_otherwise_keeps_its_own_way_of_calling() -> None:
    async with story() as here:
        here.model.handler = counting_what_is_said(here, forgets_tools=False)
        for _ in range(4):
            assert await asked(here) == "Hello."
        with_tools = [("tools" in body) for body in here.model.requests]
        assert with_tools == [True, False] * 3 + [True]
        assert await asked(here, "what is 6*7?") == "It is 42."
        assert "tools" in here.model.requests[-1]


@pytest.mark.parametrize("tool_calling", ["prompt", "off"])
async def test_an_operator_chooses_how_tools_are_declared(tool_calling: str) -> None:
    async with world() as here:
        async with running_bot(here.settings()):
            here.model.handler = script(tool_calls(("calculate", {"expression": "6*7"})),
                                        then=text("It is 42."))  # fmt: skip
            assert await asked(here) == "It is 42."
        async with running_bot(here.settings(llm={"tool_calling": tool_calling})):
            here.model.handler = text("Fine.")
            assert await asked(here) == "Fine."
        body = here.model.requests[-1]
        assert "tools" not in body
        assert "tool_calls" not in told(body)
        assert ("Tools, each with" in told(body)) == (tool_calling == "prompt")


async def test_model_is_asked_for_words_after_its_last_allowed_call() -> None:
    settings = {"tool_calling": "prompt"}
    async with story(llm=settings, tools={"max_tool_calls": 1}) as here:
        here.model.handler = script(text(CALL), then=text("It is 42."))
        assert await asked(here) == "It is 42."
        assert WORDS_ONLY in told(here.model.requests[-1])


async def test_native_tool_calling_reports_a_refusal_of_tools() -> None:
    async with story(llm={"tool_calling": "native"}) as here:
        here.model.handler = NO_TOOLS
        assert "did not accept this request" in await asked(here)
        assert len(here.model.requests) == 1
