"""Ollama's API: capabilities, names with tags, refused thinking, addresses."""

import pytest

from bot.config.llm import LlmSettings
from bot.llm.ollama import Ollama
from tests.contract.dialects.harness import CLOCK, HELLO, client_of, completed
from tests.contract.dialects.ollama import HARNESS, answer, line, server, text
from tests.fakes.scripted_http import raw_body


async def test_a_model_without_its_tag_is_the_latest() -> None:
    speaker = Ollama(LlmSettings(dialect="ollama", base_url="http://x", model="llama3"))
    listed = speaker.listing()[1]({"models": [{"name": "llama3:latest"}, {"model": "llama3:8b"}]})
    assert [model.id for model in listed] == ["llama3", "llama3:8b"]


@pytest.mark.parametrize("can", [True, False])
async def test_capabilities_of_the_model_are_looked_up(*, can: bool) -> None:
    async with server() as running:
        running.capabilities = ["completion", *(["vision"] if can else [])]
        async with client_of(HARNESS, running) as client:
            about = await client.about()
            assert about is not None
            assert about.sees_images is can
        async with client_of(HARNESS, running, model="unknown") as client:
            assert await client.about() is None


async def test_a_model_that_does_not_think_is_not_asked_to_again() -> None:
    async with server() as running, client_of(HARNESS, running) as client:
        running.capabilities = ["completion", "tools"]
        running.handler = text("Hi.")
        for _ in range(2):
            assert (await client.complete(HELLO)).message.content == "Hi."
        assert [body.get("think") for body in running.requests] == [True, None, None]


@pytest.mark.parametrize("content_type", ["application/x-ndjson", "application/json"])
async def test_a_cached_prompt_without_a_count_still_has_usage(content_type: str) -> None:
    cached = line({"content": "Hi."}, done=True, done_reason="stop", eval_count=3)
    completion = await completed(HARNESS, raw_body(cached, content_type=content_type))
    assert completion.message.content == "Hi."
    assert completion.usage is not None
    assert completion.usage.completion_tokens == 3


async def test_calls_are_not_offered_where_they_may_not_be_made() -> None:
    async with server() as running, client_of(HARNESS, running) as client:
        running.handler = answer({"content": "Hi."})
        await client.complete(HELLO, [CLOCK], may_call=False)
        assert "tools" not in running.requests[-1]
