"""A waiting person is told once that the model says nothing, at any point of an answer."""

import asyncio
import json

import pytest

from bot.llm.client import RetryPolicy
from tests.contract.dialects.harness import HELLO
from tests.contract.test_llm_client import client_of
from tests.fakes.openai_server import EVENT_STREAM, Request, chunk, held, held_midway, openai_server
from tests.fakes.scripted_http import Step, raw_body

HASTY = RetryPolicy(silent_seconds=0.05)
COMMENT = b": OPENROUTER PROCESSING\n\n"


async def keeping_alive(request: Request, writer: asyncio.StreamWriter) -> None:
    """Send comments, which say nothing, before the answer."""
    said = f"data: {json.dumps(chunk({'content': 'Hi'}, finish_reason='stop'))}\n\n".encode()
    await raw_body(*[COMMENT] * 40, said, content_type=EVENT_STREAM)(request, writer)


@pytest.mark.parametrize("step", [held, lambda event: held_midway(event, chunk({"content": "Hi"}))])
async def test_silence_is_told_once_although_the_request_goes_on(step: object) -> None:
    told, release = asyncio.Event(), asyncio.Event()
    tellings = 0

    def still_trying() -> None:
        nonlocal tellings
        tellings += 1
        told.set()

    handler: Step = step(release)  # type: ignore[operator]
    async with openai_server(handler) as server, client_of(server, retry=HASTY) as client:
        async with asyncio.TaskGroup() as tasks:
            answering = tasks.create_task(client.complete(HELLO, still_trying=still_trying))
            async with asyncio.timeout(30):
                await told.wait()
            server.handler = keeping_alive
            release.set()
        assert answering.result().message.content
    assert tellings == 1
