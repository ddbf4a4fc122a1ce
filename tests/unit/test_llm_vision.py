"""Whether images are sent to a model: by the operator's word, the endpoint's, or experience."""

import contextlib
from collections.abc import AsyncIterator

import pytest

from bot.config.llm import LlmSettings
from bot.llm.client import LlmClient, open_transport
from bot.llm.errors import LlmContextTooLong, LlmError, LlmRejected, LlmUnavailable
from bot.llm.learnt import REFUSED_SECONDS, Vision, VisionMode, may_be_about_images
from bot.llm.rearranged import without_images
from conversation_store.models import Image, Message, Role
from tests.fakes.openai_server import (
    MODEL,
    OpenAiServer,
    images_in,
    models,
    openai_server,
    refusing_images,
    status,
    whole,
)


@contextlib.asynccontextmanager
async def client_of(server: OpenAiServer) -> AsyncIterator[LlmClient]:
    endpoint = LlmSettings(base_url=server.base_url, model=MODEL)
    async with open_transport(endpoint) as transport:
        yield LlmClient(transport, endpoint)


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

        assert await Vision("auto", client.sees_images).can_see() is expected
        assert await client.models() == ("another", MODEL)


async def test_a_model_that_is_not_on_the_list_is_tried() -> None:
    async with openai_server() as server, client_of(server) as client:
        server.models_handler = models("another", input_modalities=["text"])

        assert await Vision("auto", client.sees_images).can_see()


async def test_the_list_is_asked_for_once_and_again_only_when_it_did_not_come() -> None:
    async with openai_server() as server, client_of(server) as client:
        vision = Vision("auto", client.sees_images)
        server.models_handler = status(503)
        assert await vision.can_see()
        server.models_handler = whole("no list")
        assert await vision.can_see()
        server.models_handler = models(MODEL, input_modalities=["text"])
        assert [await vision.can_see() for _ in range(3)] == [False] * 3

    assert [request.path for request in server.received] == ["/v1/models"] * 3


@pytest.mark.parametrize(("mode", "sees"), [("on", True), ("off", False)])
async def test_setting_of_the_operator_counts_without_a_request(
    mode: VisionMode, sees: bool
) -> None:
    async with openai_server() as server, client_of(server) as client:
        vision = Vision(mode, client.sees_images)
        vision.refused()

        assert await vision.can_see() is sees

    assert server.received == []


async def test_a_model_that_refused_an_image_counts_as_one_that_cannot_see_for_an_hour() -> None:
    now = 5.0
    async with openai_server() as server, client_of(server) as client:
        vision = Vision("auto", client.sees_images, clock=lambda: now)
        assert await vision.can_see()
        vision.refused()
        assert not await vision.can_see()
        now += REFUSED_SECONDS - 1
        assert not await vision.can_see()
        now += 1
        assert await vision.can_see()


@pytest.mark.parametrize("code", [400, 404, 413, 415, 422])
async def test_refused_request_with_an_image_may_be_asked_without_it(code: int) -> None:
    said = [Message(Role.USER, "Look.", images=(Image("image/png", b"..."),))]
    async with openai_server(refusing_images(code=code)) as server, client_of(server) as client:
        with pytest.raises(LlmRejected) as caught:
            await client.complete(said)
        assert may_be_about_images(caught.value)
        completion = await client.complete(without_images(said))

    assert (completion.message.content or "").startswith("answer to: Look.")
    assert [len(images_in(body)) for body in server.requests] == [1, 0]


@pytest.mark.parametrize(
    "error",
    [LlmContextTooLong(400, "too_long"), LlmRejected(409, "conflict"), LlmUnavailable("down")],
)
def test_other_refusals_are_not_about_images(error: LlmError) -> None:
    assert not may_be_about_images(error)
