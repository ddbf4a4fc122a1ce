"""Whether images are sent to a model: by the operator's word, the endpoint's, or experience."""

import contextlib
import time
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Literal

import pytest

from bot.config.llm import LlmSettings
from bot.llm.client import Learnt, LlmClient, open_transport
from bot.llm.models import REFUSED_SECONDS, Model, NothingProven
from tests.fakes.openai_server import (
    MODEL,
    OpenAiServer,
    models,
    openai_server,
    status,
    whole,
)


@contextlib.asynccontextmanager
async def client_of(server: OpenAiServer) -> AsyncIterator[LlmClient]:
    endpoint = LlmSettings(base_url=server.base_url, model=MODEL)
    async with open_transport(endpoint) as transport:
        yield LlmClient(transport, endpoint)


def model_of(client: LlmClient, vision: Literal["auto", "on", "off"] = "auto") -> Model:
    settings = LlmSettings(model=MODEL, vision=vision)
    return Model("default", settings, client, NothingProven(""), Learnt(), signs=False)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"architecture": {"input_modalities": ["text", "image"]}}, True),
        ({"architecture": {"input_modalities": ["text"]}}, False),
        ({"input_modalities": ["image", "text"]}, True),
        ({"input_modalities": ["text"]}, False),
        ({"capabilities": {"vision": True}}, True),
        ({"capabilities": {"vision": False}}, False),
        ({}, True),
        ({"architecture": "odd", "capabilities": ["completion"], "input_modalities": 7}, True),
        ({"capabilities": {"vision": "perhaps"}}, True),
    ],
)
async def test_list_of_models_says_if_a_model_sees_otherwise_images_are_tried(
    said: dict[str, object], expected: bool
) -> None:
    async with openai_server() as server, client_of(server) as client:
        server.models_handler = models("another", MODEL, **said)

        assert await model_of(client).sees_images() is expected
        assert await client.models() == ("another", MODEL)


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


async def test_a_model_that_refused_an_image_counts_as_one_that_cannot_see_for_an_hour(
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
