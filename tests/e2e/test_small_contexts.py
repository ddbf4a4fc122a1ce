"""Models that read little: the bot answers with the tools and the history that fit."""

import json
from typing import Final

from tests.e2e.running_bot import running_bot, story, world
from tests.fakes.openai_server import models, prompt_bytes, reading, text, tool_calls
from tests.fakes.scripted_http import Body, script
from tests.fakes.signal_people import ADA

SMALL: Final = 4_096
LLM: Final = {"context_tokens": SMALL}
ADMIN: Final = {"admins": ADA.aci}
FORTY: Final = 40


def tools_of(body: Body) -> list[str]:
    return [tool["function"]["name"] for tool in body["tools"]]


async def test_small_context_answers_an_admin_in_a_new_chat() -> None:
    async with story(reading(SMALL), llm=LLM, access=ADMIN) as here:
        assert (await here.asked("hi")).endswith("hi")
        (request,) = here.model.requests
        assert (
            len(json.dumps(request["tools"], ensure_ascii=False, separators=(",", ":"))) < SMALL
        )  # a third of it, at three bytes a token
        assert {"calculate", "remind"} <= {*tools_of(request)}
        assert "propose_plan" not in tools_of(request)


async def test_small_context_answers_in_a_conversation_of_forty_messages() -> None:
    bot = {"summaries": False}  # they are requests too
    async with story(reading(SMALL), llm=LLM, access=ADMIN, bot=bot) as here:
        for number in range(FORTY):
            words = f"Message {number}. " + "All of this is worth remembering. " * 10
            assert (await here.asked(words)).endswith(words.strip())
        sizes = [prompt_bytes(request) // 3 for request in here.model.requests]
        assert len(sizes) == FORTY  # none was refused
        assert max(sizes) > SMALL // 2  # and the history is used


async def test_small_context_answers_messages_and_results_that_are_too_long_for_it() -> None:
    calls = [("calculate", {"expression": "10^4900"})] * 5
    step = script(tool_calls(*calls), then=text("Large numbers."))
    async with story(reading(SMALL, step), llm=LLM) as here:
        assert await here.asked("How large? " + "Very large. " * 2_000) == "Large numbers."
        assert "is left out here" in json.dumps(here.model.requests[-1]["messages"])


async def test_size_named_by_a_refusal_is_learnt_and_the_question_is_asked_again() -> None:
    async with world(reading(SMALL, text("Well."))) as here:
        async with running_bot(here.settings(access=ADMIN)):
            assert await here.asked("Very long. " * 2_000) == "Well."
            assert len(here.model.requests) == 2
        async with running_bot(here.settings(access=ADMIN)):
            assert await here.asked("Very long. " * 2_000) == "Well."
            assert len(here.model.requests) == 3  # a restart has not forgotten it


async def test_size_listed_by_the_server_is_learnt_with_the_first_answer() -> None:
    async with story(access=ADMIN) as here:
        here.model.models_handler = models("fake", max_model_len=SMALL)
        await here.asked("hi")
        await here.asked("hi")
        first, second = here.model.requests
    assert len(json.dumps(first["tools"])) > SMALL
    assert len(json.dumps(second["tools"], ensure_ascii=False, separators=(",", ":"))) < SMALL
