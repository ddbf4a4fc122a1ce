"""Ollama's API: capabilities, names with tags, refused thinking, addresses."""

import pytest

from bot.config.llm import LlmSettings
from bot.llm.answering import clean_answer
from bot.llm.client import Learnt, LlmClient, RetryPolicy, open_transport
from bot.llm.messages import Completion, ModelRequest
from bot.llm.ollama import Ollama
from conversation_store.models import Message, Role
from tests.contract.dialects.ollama import CONTEXT_TOKENS, answer, line, server, text
from tests.fakes.openai_server import MODEL
from tests.fakes.scripted_http import raw_body
from tools.base import ToolSpec

HELLO = [Message(Role.USER, "hello")]
CLOCK = ToolSpec("clock", "Tells the time.", {"type": "object", "properties": {}})
ONCE = RetryPolicy(bound_seconds=0.0)


def settings(base_url: str, model: str = MODEL) -> LlmSettings:
    return LlmSettings(
        dialect="ollama", base_url=base_url, model=model, context_tokens=CONTEXT_TOKENS
    )


async def test_a_model_without_its_tag_is_the_latest() -> None:
    speaker = Ollama(settings("http://x", "llama3"))
    listed = speaker.listing()[1]({"models": [{"name": "llama3:latest"}, {"model": "llama3:8b"}]})
    assert [model.id for model in listed] == ["llama3", "llama3:8b"]


@pytest.mark.parametrize("can", [True, False])
async def test_capabilities_of_the_model_are_looked_up(*, can: bool) -> None:
    async with server() as running:
        running.capabilities = ["completion", *(["vision"] if can else [])]
        endpoint = settings(running.base_url)
        async with open_transport(endpoint) as transport:
            client = LlmClient(transport, endpoint)
            about = await client.about()
            assert about is not None
            assert about.sees_images is can
        endpoint = settings(running.base_url, "unknown")
        async with open_transport(endpoint) as transport:
            assert await LlmClient(transport, endpoint).about() is None


async def test_a_model_that_does_not_think_is_not_asked_to_again() -> None:
    async with server() as running:
        running.capabilities = ["completion", "tools"]
        running.handler = text("Hi.")
        endpoint = settings(running.base_url)
        learnt = Learnt()
        async with open_transport(endpoint) as transport:
            client = LlmClient(transport, endpoint, learnt=learnt)
            for _ in range(2):
                assert (await client.complete(HELLO)).message.content == "Hi."
        assert [body.get("think") for body in running.requests] == [True, None, None]


async def test_a_prompt_from_the_cache_has_no_count_and_counts() -> None:
    async with server() as running:
        endpoint = settings(running.base_url)
        cached = line({"content": "Hi."}, done=True, done_reason="stop", eval_count=3)
        running.handler = raw_body(cached, content_type="application/x-ndjson")
        async with open_transport(endpoint) as transport:
            completion = await LlmClient(transport, endpoint).complete(HELLO)
        assert completion.usage is not None
        assert completion.usage.completion_tokens == 3


async def test_an_answer_in_one_document_is_read() -> None:
    async with server() as running:
        endpoint = settings(running.base_url)
        end = line({"content": "Hi."}, done=True, done_reason="stop", eval_count=3)
        running.handler = raw_body(end.strip(), content_type="application/json")
        async with open_transport(endpoint) as transport:
            completion = await LlmClient(transport, endpoint).complete(HELLO)
        assert completion.message.content == "Hi."


async def test_calls_are_not_offered_where_they_may_not_be_made() -> None:
    async with server() as running:
        endpoint = settings(running.base_url)
        running.handler = answer({"content": "Hi."})
        async with open_transport(endpoint) as transport:
            client = LlmClient(transport, endpoint)
            await client.complete(HELLO, [CLOCK], may_call=False)
        assert "tools" not in running.requests[-1]


async def test_model_without_tool_calling_reads_about_tools_in_its_prompt() -> None:
    learnt = Learnt()
    async with server() as running:
        running.capabilities = ["completion", "thinking"]
        running.handler = text("Hi.")
        endpoint = settings(running.base_url)
        async with open_transport(endpoint) as transport:
            client = LlmClient(transport, endpoint)

            async def ask(request: ModelRequest) -> Completion:
                return await client.complete(request.messages, request.tools)

            for _ in range(2):
                await clean_answer(ModelRequest(HELLO, [CLOCK]), ask, learnt, "auto")
        assert ["tools" in body for body in running.requests] == [True, False, False]
        assert "Tells the time." in str(running.requests[-1]["messages"])
    assert learnt.facts.tool_calling == "prompt"
