"""Oddly written answers of models: people get one whole answer, or a sentence about the fault."""

import asyncio
import json
import time
from typing import Any, Final

import pytest

from bot.chat.media import HEARD_NOTHING
from bot.cli import model_findings
from bot.config.loading import setting_names
from bot.llm.errors import LlmBroken
from tests.e2e.running_bot import running_bot, story, world
from tests.e2e.test_check_and_demo import report
from tests.e2e.test_model_trouble import STILL_TRYING
from tests.fakes.openai_server import (
    EVENT_STREAM,
    JSON,
    Request,
    Step,
    chunk,
    form_fields,
    held,
    raw_body,
    sse,
    status,
    text,
    tool_calls,
    transcript,
    whole,
)
from tests.fakes.scripted_http import script
from tests.fakes.signal_people import SharedFile
from tests.unit.test_odd_calls import DSML

ANSWER: Final = "The answer is 42."
WHOLE: Final = {"choices": [{"message": {"content": ANSWER}, "finish_reason": "stop"}]}
STREAM: Final = (
    f"data: {json.dumps(chunk({'content': 'The answer'}))}\n\n"
    f"data: {json.dumps(chunk({'content': ' is 42.'}, finish_reason='stop'))}\n\ndata: [DONE]\n\n"
).encode()
CALL: Final = {"name": "calculate", "arguments": '{"expression": "6*7"}'}
FAILED: Final = sse(chunk({"content": "The ans"}), chunk({}, finish_reason="error"))


@pytest.mark.parametrize(
    "step",
    [
        raw_body(STREAM, content_type=JSON),
        raw_body(STREAM, content_type="text/html"),
        raw_body(json.dumps(WHOLE, indent=2).encode(), content_type=EVENT_STREAM),
        raw_body(json.dumps(WHOLE).encode(), content_type="text/plain"),
        script(FAILED, then=text(ANSWER)),
        script(whole({"choices": [{"message": {"function_call": CALL}}]}), then=text(ANSWER)),
        script(tool_calls(("calculate", '{}{"expression":"1+1"}')), then=text(ANSWER)),
        script(text(DSML), then=text(ANSWER)),
        script(text(f"Let me see. {DSML[:99]}"), then=text(ANSWER)),
    ],
)
async def test_a_person_gets_the_whole_answer_once(step: Step) -> None:
    async with story() as here:
        here.model.handler = step
        assert await here.asked() == ANSWER
        assert here.answers() == [ANSWER]


@pytest.mark.parametrize(
    "arguments",
    ['{}{"expression":"6*7"}', json.dumps('{"expression":"6*7"}'), "{'expression': '6*7',}"],
)
async def test_odd_arguments_run_at_once(arguments: str) -> None:
    async with story() as here:
        here.model.handler = script(tool_calls(("calculate", arguments)), then=text(ANSWER))
        assert await here.asked() == ANSWER
        assert here.model.requests[-1]["messages"][-1]["content"] == "42"
        assert len(here.model.requests) == 2


async def test_an_answer_that_keeps_failing_is_said_to_have_broken_off() -> None:
    async with story() as here:
        here.model.handler = FAILED
        assert await here.asked() == LlmBroken.sentence


async def test_markup_is_never_shown_even_if_the_model_insists() -> None:
    async with story() as here:
        here.model.handler = text(f"Let me see. {DSML}")
        assert await here.asked() == "Let me see."


# Voice notes ------------------------------------------------------------------------------------

LISTED_BY_OPENAI: Final = ["flac", "m4a", "mp3", "mp4", "mpeg", "mpga", "oga", "ogg", "wav", "webm"]
RAW_AAC: Final = SharedFile("audio/aac", b"\xff\xf1P\x80\x02\x1f\xfc")


def taking(*suffixes: str) -> Step:
    """Take only recordings whose names end in these suffixes."""

    async def look(request: Request, writer: asyncio.StreamWriter) -> None:
        name = form_fields(request)["file name"].decode()
        step = status(400, {"error": {"message": "Invalid file format."}})
        if name.rpartition(".")[2] in suffixes:
            step = transcript("buy milk")
        await step(request, writer)

    return look


async def heard(step: Step) -> str:
    async with world() as here:
        settings: dict[str, Any] = {"transcription_model": "whisper-1"}
        async with running_bot(here.settings(llm=settings)):
            here.model.transcription_handler = step
            return await here.asked(None, files=[RAW_AAC])


@pytest.mark.parametrize("suffixes", [LISTED_BY_OPENAI, ["aac"]])
async def test_a_voice_note_of_raw_aac_is_understood(suffixes: list[str]) -> None:
    assert "buy milk" in await heard(taking(*suffixes))


@pytest.mark.parametrize("said", ["[BLANK_AUDIO]", " (silence)\n", "\u266a\u266a", "[Musik] ..."])
async def test_a_remark_about_silence_is_no_speech(said: str) -> None:
    assert await heard(transcript(said)) == HEARD_NOTHING


# The operator -----------------------------------------------------------------------------------


async def test_check_beside_a_hanging_endpoint_names_the_setting_soon(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert model_findings.ENDPOINT_SECONDS == 8.0
    monkeypatch.setattr(model_findings, "ENDPOINT_SECONDS", 0.2)
    async with world() as here:
        here.model.models_handler = held(asyncio.Event())
        found = (await report(here.settings()))["llm"]
    assert found.verdict == "failed"
    assert "LLM__BASE_URL" in found.words
    assert "Restart the server" in found.words
    assert "LLM__BASE_URL" in setting_names()


@pytest.mark.long
@pytest.mark.full
async def test_a_silent_model_is_said_to_be_tried_still_after_20_seconds() -> None:
    release = asyncio.Event()
    async with story() as here:
        here.model.handler = held(release, text(ANSWER))
        await here.signal.say("hello")
        began = time.monotonic()
        waiting = await here.signal.wait_for(lambda sent: sent.text.startswith("🔧"), seconds=60.0)
        assert 19.0 < time.monotonic() - began < 30.0
        assert waiting.text == STILL_TRYING["en"]
        release.set()
        assert (await here.answer()).text == ANSWER
