"""Speech to text, against an endpoint on loopback."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from bot.config.llm import LlmSettings
from bot.llm.client import LlmClient, open_transport
from bot.llm.errors import LlmBroken, LlmError, LlmTimeout, LlmUnauthorized, LlmUnavailable
from bot.llm.transcription import MAX_ANSWER_BYTES, Transcriber
from tests import exposition
from tests.fakes.openai_server import (
    JSON,
    OpenAiServer,
    Step,
    cut,
    form_fields,
    held,
    openai_server,
    raw_body,
    script,
    status,
    transcript,
    whole,
)

SPEECH = b"OggS" + b"\0" * 100


def transcriptions(outcome: str) -> float:
    return exposition.now().value("llm_requests_total", asked_for="transcription", outcome=outcome)


@contextlib.asynccontextmanager
async def transcriber_of(
    server: OpenAiServer, *, timeout_seconds: float = 10.0
) -> AsyncIterator[Transcriber]:
    endpoint = LlmSettings(
        base_url=server.base_url, model="chat", api_key="token", timeout_seconds=timeout_seconds
    )
    async with open_transport(endpoint) as transport:
        yield Transcriber(LlmClient(transport, endpoint), "whisper-1", timeout_seconds)


async def test_a_recording_is_sent_as_a_form_and_its_words_come_back() -> None:
    counted = transcriptions("ok")
    async with openai_server() as server, transcriber_of(server) as transcriber:
        server.transcription_handler = transcript(" Is it raining? \n")

        assert await transcriber.transcribe(SPEECH) == "Is it raining?"
        assert transcriptions("ok") == counted + 1

    (request,) = server.received
    assert form_fields(request) == {
        "model": b"whisper-1",
        "response_format": b"json",
        "file": SPEECH,
        "file name": b"recording.ogg",
    }
    assert request.headers["authorization"] == "Bearer token"
    assert request.headers["accept"] == "application/json"


@pytest.mark.parametrize(
    ("beginning", "suffix"),
    [
        (b"\xff\xf1P\x80", b"m4a"),
        (b"\0\0\0\x1cftypM4A ", b"m4a"),
        (b"ID3\x04", b"mp3"),
        (b"RIFF....WAVE", b"wav"),
        (b"what is this", b"m4a"),
    ],
)
async def test_recording_is_named_after_its_format(beginning: bytes, suffix: bytes) -> None:
    async with openai_server() as server, transcriber_of(server) as transcriber:
        server.transcription_handler = transcript("words")
        await transcriber.transcribe(beginning)

    assert form_fields(server.received[0])["file name"] == b"recording." + suffix


@pytest.mark.parametrize(
    ("failures", "error", "requests"),
    [
        ([status(503)], None, 2),
        ([cut], None, 2),
        ([status(500)] * 3, LlmUnavailable, 2),
        ([status(401)], LlmUnauthorized, 1),
    ],
)
async def test_a_server_in_trouble_is_asked_once_more_unless_it_refuses(
    failures: list[Step], error: type[LlmError] | None, requests: int
) -> None:
    async with openai_server() as server, transcriber_of(server) as transcriber:
        server.transcription_handler = script(*failures, transcript("words"))
        with pytest.raises(error) if error else contextlib.nullcontext():
            assert await transcriber.transcribe(SPEECH) == "words"
        assert len(server.received) == requests


async def test_a_silent_server_costs_the_time_out_and_no_more() -> None:
    async with (
        openai_server() as server,
        transcriber_of(server, timeout_seconds=0.05) as transcriber,
    ):
        server.transcription_handler = held(asyncio.Event())
        with pytest.raises(LlmTimeout):
            await transcriber.transcribe(SPEECH)


@pytest.mark.parametrize(
    "answer",
    [
        whole({"words": "what is text?"}),
        raw_body(b"plain words", content_type="text/plain"),
        raw_body(b'{"text": "' + b"a" * 2 * MAX_ANSWER_BYTES + b'"}', content_type=JSON),
    ],
)
async def test_answers_without_a_transcript_are_broken(answer: Step) -> None:
    async with openai_server() as server, transcriber_of(server) as transcriber:
        server.transcription_handler = answer
        with pytest.raises(LlmBroken) as caught:
            await transcriber.transcribe(SPEECH)

    assert "words" not in str(caught.value)
