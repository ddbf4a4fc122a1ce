"""Lists of models that endpoints publish: size of the context, and vision."""

import time
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from types import SimpleNamespace
from typing import Any, Final, Literal

import pytest

from bot.config.llm import LlmSettings
from bot.llm.client import Learnt, LlmClient
from bot.llm.gemini import Gemini
from bot.llm.models import REFUSED_SECONDS, Model, NothingProven
from tests.contract.dialects import harness, ollama
from tests.contract.dialects.harness import client_at
from tests.fakes.openai_server import MODEL, models, openai_server, status, whole
from tests.fakes.scripted_http import ScriptedServer

LLAMA_CPP: Final = {"owned_by": "llamacpp", "meta": {"n_ctx_train": 131_072}}


def client_of(server: ScriptedServer, **settings: object) -> AbstractAsyncContextManager[LlmClient]:
    return client_at(server.base_url, settings=settings)


def model_of(client: LlmClient, vision: Literal["auto", "on", "off"] = "auto") -> Model:
    settings = LlmSettings(model=MODEL, vision=vision)
    return Model("default", settings, client, NothingProven(""), Learnt(), signs=False)


@pytest.mark.parametrize(
    ("listed", "tokens", "sees"),
    [
        ({}, None, True),
        ({"max_model_len": 8_096, "owned_by": "vllm"}, 8_096, True),
        ({"context_length": 131_072, "top_provider": {"context_length": 32_768}}, 32_768, True),
        ({"context_length": 131_072, "top_provider": {"context_length": None}}, 131_072, True),
        ({"max_context_length": 32_768}, 32_768, True),
        ({"context_window": 8_192}, 8_192, True),
        ({"meta": {"n_ctx": 4_096, "n_ctx_train": 131_072}}, 4_096, True),
        ({"max_model_len": "many", "meta": None, "context_length": -1}, None, True),
        ({"architecture": {"input_modalities": ["text", "image"]}}, None, True),
        ({"architecture": {"input_modalities": ["text"]}}, None, False),
        ({"input_modalities": ["image", "text"]}, None, True),
        ({"input_modalities": ["text"]}, None, False),
        ({"capabilities": {"vision": True}}, None, True),
        ({"capabilities": {"vision": False}}, None, False),
        ({"architecture": "odd", "capabilities": ["vision"], "input_modalities": 7}, None, True),
        ({"capabilities": {"vision": "perhaps"}}, None, True),
    ],
)
async def test_listed_context_and_vision_are_used_and_images_are_tried(
    listed: Mapping[str, Any], tokens: int | None, *, sees: bool
) -> None:
    async with openai_server() as server, client_of(server) as client:
        server.models_handler = models("another", MODEL, **listed)
        assert await client.context_tokens() == tokens
        assert await model_of(client).sees_images() is sees
        assert await client.models() == ("another", MODEL)


async def test_llama_cpp_tells_the_size_whatever_the_model_is_called() -> None:
    async with openai_server() as server, client_of(server, model="anything") as client:
        server.models_handler = models("gemma.gguf", **LLAMA_CPP)
        assert await client.context_tokens() is None  # props are turned off
        server.props_handler = whole(
            {"default_generation_settings": {"n_ctx": 4_096}, "total_slots": 4, "modalities": {}}
        )
        assert await client.context_tokens() == 4_096
        server.models_handler = status(404)
        assert await client.context_tokens() is None


async def test_ollama_shows_the_size() -> None:
    async with ollama.server() as server, harness.client_of(ollama.HARNESS, server) as client:
        assert await client.context_tokens() == ollama.LONGEST_TOKENS


def test_gemini_lists_the_size() -> None:
    gemini = Gemini(
        LlmSettings(base_url="https://generativelanguage.googleapis.com", model="gemini-2.5-pro")
    )
    entry = {"name": "models/gemini-2.5-pro", "inputTokenLimit": 1_048_576}
    found = gemini.lookup()[1]({"models": [entry]})
    assert found is not None
    assert found.context_tokens == 1_048_576


async def test_the_list_is_asked_for_once_and_again_only_when_it_did_not_come() -> None:
    async with openai_server() as server, client_of(server) as client:
        model = model_of(client)
        server.models_handler = status(503)
        assert await model.sees_images()
        server.models_handler = whole("no list")
        assert await model.sees_images()
        server.models_handler = models(MODEL, input_modalities=["text"])
        assert [await model.sees_images() for _ in range(3)] == [False] * 3

    assert [request.path for request in server.received] == ["/v1/models"] * 3


@pytest.mark.parametrize(("mode", "sees"), [("on", True), ("off", False)])
async def test_setting_of_the_operator_counts_without_a_request(
    mode: Literal["on", "off"], sees: bool
) -> None:
    async with openai_server() as server, client_of(server) as client:
        model = model_of(client, mode)
        model.note_refused_images()

        assert await model.sees_images() is sees

    assert server.received == []


async def test_a_model_that_refused_an_image_gets_none_for_an_hour(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with openai_server() as server, client_of(server) as client:
        model = model_of(client)
        assert await model.sees_images()
        model.note_refused_images()
        assert not await model.sees_images()
        later = time.monotonic() + REFUSED_SECONDS
        monkeypatch.setattr("bot.llm.models.time", SimpleNamespace(monotonic=lambda: later))
        assert await model.sees_images()
