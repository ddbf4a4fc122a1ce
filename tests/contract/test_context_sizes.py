"""How much a model reads, as servers tell it and as their refusals name it."""

from collections.abc import Mapping
from typing import Any, Final

import pytest

from bot.config.llm import LlmSettings
from bot.llm.client import LlmClient, open_transport
from bot.llm.gemini import Gemini
from tests.contract.dialects.ollama import CONTEXT_TOKENS, LONGEST_TOKENS
from tests.contract.dialects.ollama import server as ollama_server
from tests.fakes.openai_server import MODEL, models, openai_server, status, whole

LLAMA_CPP: Final = {"owned_by": "llamacpp", "meta": {"n_ctx_train": 131_072}}


async def context_of(llm: LlmSettings) -> int | None:
    async with open_transport(llm) as transport:
        return await LlmClient(transport, llm).context_tokens()


@pytest.mark.parametrize(
    ("listed", "tokens"),
    [
        ({}, None),
        ({"max_model_len": 8_096, "owned_by": "vllm"}, 8_096),
        ({"context_length": 131_072, "top_provider": {"context_length": 32_768}}, 32_768),
        ({"context_length": 131_072, "top_provider": {"context_length": None}}, 131_072),
        ({"max_context_length": 32_768}, 32_768),
        ({"context_window": 8_192}, 8_192),
        ({"meta": {"n_ctx": 4_096, "n_ctx_train": 131_072}}, 4_096),
        ({"max_model_len": "many", "meta": None, "context_length": -1}, None),
    ],
)
async def test_size_is_read_from_a_list_of_models(
    listed: Mapping[str, Any], tokens: int | None
) -> None:
    async with openai_server() as server:
        server.models_handler = models("another", MODEL, **listed)
        endpoint = LlmSettings(base_url=server.base_url, model=MODEL)
        assert await context_of(endpoint) == tokens


async def test_llama_cpp_tells_the_size_whatever_the_model_is_called() -> None:
    async with openai_server() as server:
        server.models_handler = models("gemma.gguf", **LLAMA_CPP)
        server.props_handler = whole(
            {"default_generation_settings": {"n_ctx": 4_096}, "total_slots": 4, "modalities": {}}
        )
        endpoint = LlmSettings(base_url=server.base_url, model="anything")
        assert await context_of(endpoint) == 4_096


async def test_unknown_size_is_no_error() -> None:
    async with openai_server() as server:
        endpoint = LlmSettings(base_url=server.base_url, model=MODEL)
        server.models_handler = models(MODEL, **LLAMA_CPP)
        assert await context_of(endpoint) is None  # props are turned off
        server.models_handler = status(404)
        assert await context_of(endpoint) is None


async def test_ollama_shows_the_size() -> None:
    async with ollama_server() as server:
        llm = LlmSettings(
            dialect="ollama",
            base_url=server.url,
            model=MODEL,
            context_tokens=CONTEXT_TOKENS,
        )
        assert await context_of(llm) == LONGEST_TOKENS


def test_gemini_lists_the_size() -> None:
    gemini = Gemini(
        LlmSettings(base_url="https://generativelanguage.googleapis.com", model="gemini-2.5-pro")
    )
    entry = {"name": "models/gemini-2.5-pro", "inputTokenLimit": 1_048_576}
    found = gemini.lookup()[1]({"models": [entry]})
    assert found is not None
    assert found.context_tokens == 1_048_576
