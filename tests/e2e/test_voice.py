"""Voice: recordings of people go to a server of their own, and answers come as voice notes."""

import asyncio
import json
import struct
from pathlib import Path
from typing import Any, Final

import pytest

from bot.chat.voice import MAX_SPOKEN, SHORTER
from bot.commands.base import ONLY_ADMINS
from bot.commands.behaviour import NO_VOICE, VOICE_USAGE, WHEN
from bot.config.loading import settings_of
from bot.models import voice_problem
from tests.e2e.running_bot import kill, running_bot, world
from tests.e2e.test_catch_up import BEN, command, team
from tests.e2e.test_media import VOICE_NOTE
from tests.e2e.test_reactions import TRANSPORTS, Side, side
from tests.e2e.traces import rows_with, there_is
from tests.fakes.dstack_agent import SoftAgent, serving
from tests.fakes.openai_server import (
    OpenAiServer,
    Step,
    echo,
    held,
    openai_server,
    script,
    speech,
    status,
    text,
    tool_calls,
    transcript,
    words_of,
)
from tests.fakes.scripted_http import Request
from tests.fakes.signal_side import ADA, Sent, SharedFile
from tests.fakes.soft_tdx import SoftTdx

FRAME: Final = bytes([0xFF, 0xF1, 0x50, 0x80, 0x19, 0x1F, 0xFC]) + bytes(193)


def ogg_page(position: int, body: bytes) -> bytes:
    """Return a page of a stream (RFC 3533); the checksum is left out."""
    head = struct.pack("<4sBBqIIIB", b"OggS", 0, 0, position, 1, 0, 0, 1)
    return head + bytes([len(body)]) + body


AAC: Final = FRAME * 40
"""Frames of 200 bytes with ADTS headers (ISO/IEC 13818-7): 44,100 Hz, one channel."""
OPUS: Final = ogg_page(0, b"OpusHead\x01\x01\x00\x0f" + bytes(8)) + ogg_page(48_000, bytes(100))
MP3: Final = b"ID3" + bytes(200)
WAV: Final = b"RIFF" + bytes(200)
VOICE: Final = {"speech_model": "mouth", "speech_voice": "nova"}
NO_GRACE: Final = 0.1
"""Seconds in which a bot that stops lets its work end."""
UNMADE: Final = "SELECT 1 FROM outbox WHERE state = 'waiting' AND unmade NOT NULL"
SHORTER_BEGINS: Final = SHORTER.partition("{")[0]


def asked_to_speak(model: OpenAiServer) -> list[str]:
    """Return the words that a server was asked to speak."""
    return [one.body["input"] for one in model.received if one.path == "/v1/audio/speech"]


def recordings(sent: Any) -> list[tuple[str, bytes]]:
    return [(file.content_type, file.data) for file in sent.attachments]


async def say(it: Side, words: str) -> Any:
    """Write to the bot, and return the next message of the bot."""
    count = len(it.people.sent)
    await it.people.say(words)
    await it.people.until(lambda: len(it.people.sent) > count)
    return it.people.sent[count]


@TRANSPORTS
async def test_the_bot_speaks_once_it_is_asked_to(transport: str) -> None:
    async with side(transport, text("At six."), llm=VOICE) as it:
        it.here.model.speech_handler = speech(AAC)
        async with running_bot(it.settings):
            await it.ready()
            assert recordings(await say(it, "When does it close?")) == []
            assert (await say(it, "!voice on")).text == f"{WHEN['on']}\n{VOICE_USAGE}"
            spoken = await say(it, "When does it close?")
            assert (spoken.text, recordings(spoken)) == ("At six.", [("audio/aac", AAC)])
            if isinstance(spoken, Sent):
                assert spoken.voice_note
            await say(it, "!voice off")
            assert recordings(await say(it, "When does it close?")) == []
            await there_is(it.here, "SELECT 1 FROM audit WHERE tool = 'speech' AND outcome = 'ok'")
    assert asked_to_speak(it.here.model) == ["At six."]


async def test_on_auto_a_voice_note_is_answered_by_one_and_a_restart_keeps_the_choice() -> None:
    async with world(text("At six.")) as here:
        here.model.speech_handler = speech(AAC)
        here.model.transcription_handler = transcript("When does it close?")
        settings = here.settings(llm={**VOICE, "transcription_model": "ears"})
        async with running_bot(settings):
            await here.asked("!voice auto")
        async with running_bot(settings):
            await here.signal.say("When does it close?")
            assert (await here.answer()).attachments == ()
            await here.signal.say(None, files=[VOICE_NOTE])
            assert recordings(await here.answer()) == [("audio/aac", AAC)]
            assert (await here.asked("!voice")).startswith(WHEN["auto"])


async def test_a_server_of_its_own_listens_and_speaks_with_its_own_key() -> None:
    async with world(text("At six.")) as here, openai_server() as local:
        local.transcription_handler = transcript("When does it close?")
        local.speech_handler = speech(AAC)
        own = {
            "transcription_model": "ears",
            "transcription_url": local.base_url,
            "transcription_key": "ears-key",
            "speech_url": local.base_url,
        }
        async with running_bot(here.settings(llm={**VOICE, **own, "api_key": "model-key"})):
            await here.asked("!voice on")
            await here.signal.say(None, files=[VOICE_NOTE])
            assert recordings(await here.answer()) == [("audio/aac", AAC)]
            listed = await here.asked("!sent")
    keys = [one.headers.get("authorization") for one in local.received]
    assert keys == ["Bearer ears-key", None]
    assert "Voice note to 127.0.0.1" in listed
    assert "Answer to 127.0.0.1" in listed
    assert asked_to_speak(here.model) == []


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("See [the plan](https://example.com/plan) or https://example.com.", "See the plan or."),
        ("Run this:\n\n```sh\nrm -rf /\n```\n\nThen `reboot` it.", "Run this:\nThen it."),
        ("| a | b |\n|--|--|\n| 1 | 2 |\n\nThat is all.", "That is all."),
        ("# Trains\n\n- at six\n- at *seven*", "Trains.\nat six.\nat seven."),
    ],
    ids=["links", "code", "table", "list"],
)
async def test_code_tables_and_links_are_never_spoken(answer: str, said: str) -> None:
    async with world(text(answer)) as here:
        here.model.speech_handler = speech(AAC)
        async with running_bot(here.settings(llm=VOICE)):
            await here.asked("!voice on")
            await here.asked("tell me")
    assert asked_to_speak(here.model) == [said]


async def test_an_answer_of_code_alone_is_not_spoken() -> None:
    async with world(text("```py\nprint(1)\n```")) as here:
        here.model.speech_handler = speech(AAC)
        async with running_bot(here.settings(llm=VOICE)):
            await here.asked("!voice on")
            assert "print(1)" in await here.asked("tell me")
    assert asked_to_speak(here.model) == []


@pytest.mark.parametrize(
    ("shorter", "said"),
    [
        (text("In short: *yes*."), "In short: yes."),
        (status(400), "This is a sentence. " * 45),
    ],
    ids=["by the model", "by its first sentences"],
)
async def test_a_long_answer_is_shortened_for_speech_and_shown_whole(
    shorter: Step, said: str
) -> None:
    long = "This is a sentence. " * 80

    async def step(request: Request, writer: asyncio.StreamWriter) -> None:
        system = words_of(request.body["messages"][0]["content"])
        is_short = system.startswith(SHORTER_BEGINS)
        await (shorter if is_short else text(long))(request, writer)

    async with world(step) as here:
        here.model.speech_handler = speech(AAC)
        async with running_bot(here.settings(llm=VOICE)):
            await here.asked("!voice on")
            assert long.strip() in await here.asked("tell me")
    assert asked_to_speak(here.model) == [said.strip()]
    assert len(said.strip()) <= MAX_SPOKEN


@pytest.mark.parametrize(
    "failing",
    [
        status(500),
        speech(WAV),
        speech(MP3),
        speech(AAC[:300]),
        speech(b""),
        speech(b"<html>"),
        status(401),
    ],
)
async def test_the_text_arrives_if_nothing_can_be_spoken(failing: Step) -> None:
    async with world(text("At six.")) as here:
        here.model.speech_handler = failing
        async with running_bot(here.settings(llm=VOICE)):
            await here.asked("!voice on")
            await here.signal.say("When?")
            answer = await here.answer()
    assert (answer.text, answer.attachments) == ("At six.", ())


async def test_a_server_without_aac_is_asked_for_opus() -> None:
    async def only_opus(request: Request, writer: asyncio.StreamWriter) -> None:
        step = speech(OPUS) if request.body["response_format"] == "opus" else status(400)
        await step(request, writer)

    async with world(text("At six.")) as here:
        here.model.speech_handler = only_opus
        async with running_bot(here.settings(llm=VOICE)):
            await here.asked("!voice on")
            for _ in range(2):
                await here.signal.say("When?")
                assert recordings(await here.answer()) == [("audio/ogg", OPUS)]
    assert len(asked_to_speak(here.model)) == 3


@TRANSPORTS
async def test_a_kill_while_the_bot_speaks_leaves_one_answer(transport: str) -> None:
    never = asyncio.Event()
    async with side(transport, script(text("At six."), text("Yes.")), llm=VOICE) as it:
        it.here.model.speech_handler = held(never, speech(AAC))
        async with running_bot(it.settings) as bot:
            await it.ready()
            await say(it, "!voice on")
            await it.people.say("When does it close?")
            await there_is(it.here, UNMADE)
            await it.here.model.until(lambda: bool(asked_to_speak(it.here.model)))
            await kill(bot)
        it.here.model.speech_handler = speech(AAC)
        async with running_bot(it.settings):
            await it.people.until(lambda: len(it.people.sent) == 2)
            await it.ready()
            await say(it, "are you there?")
    _, spoken, last = it.people.sent
    assert (spoken.text, recordings(spoken)) == ("At six.", [("audio/aac", AAC)])
    assert last.text == "Yes."


async def test_a_deleted_question_takes_its_spoken_words_along() -> None:
    never = asyncio.Event()
    async with world(script(text("sesquipedalian"), echo)) as here:
        here.model.speech_handler = held(never, speech(AAC))
        async with running_bot(here.settings(llm=VOICE), grace_seconds=NO_GRACE):
            await here.asked("!voice on")
            asked = await here.signal.say("which word?")
            await there_is(here, UNMADE)
            await here.signal.delete(asked)
            await there_is(here, "SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM turns)")
            assert rows_with(here, "sesquipedalian") == 0


async def test_the_answer_to_an_edit_replaces_a_voice_note_which_phones_do_not_edit() -> None:
    async with world(script(text("At six."), text("At seven."))) as here:
        here.model.speech_handler = speech(AAC)
        async with running_bot(here.settings(llm=VOICE)):
            await here.asked("!voice on")
            asked = await here.signal.say("When?")
            first = await here.answer()
            await here.signal.edit("When on Sundays?", asked)
            second = await here.answer()
            await here.signal.until(lambda: bool(here.signal.deleted))
    assert (second.text, second.replaces, len(second.attachments)) == ("At seven.", None, 1)
    assert [timestamp for _, timestamp in here.signal.deleted] == [first.timestamp]


async def test_files_of_an_answer_follow_its_voice_note() -> None:
    steps = script(tool_calls(("send_file", {"file_path": "inbox/a.txt"})), text("Here it is."))
    async with world(steps) as here:
        here.model.speech_handler = speech(AAC)
        access = {"policy": "open", "admins": ADA.aci}
        async with running_bot(here.settings(llm=VOICE, access=access)):
            await here.asked("!voice on")
            await here.signal.say("Send me this", files=[SharedFile("text/plain", b"hi", "a.txt")])
            spoken, file = await here.answer(), await here.answer()
    assert (spoken.text, recordings(spoken)) == ("Here it is.", [("audio/aac", AAC)])
    assert spoken.voice_note
    assert (file.text, [one.name for one in file.attachments]) == ("", ["a.txt"])


@pytest.mark.parametrize(
    ("host", "is_there"), [("voice", True), ("elsewhere", False)], ids=["a service", "no service"]
)
async def test_a_strict_policy_takes_a_service_of_the_measured_compose_file(
    host: str, is_there: bool, tmp_path: Path
) -> None:
    services = "services:\n  bot:\n    image: a\n  voice:\n    image: b\n"
    app = json.dumps({"runner": "docker-compose", "docker_compose_file": services})
    async with serving(SoftAgent(SoftTdx(), app), tmp_path / "dstack.sock") as socket:
        variables = {
            "SIGNAL__PHONE_NUMBER": "+4915112345678",
            "ATTESTATION__MODEL_POLICY": "require",
            "ATTESTATION__MODEL_PINS": str(tmp_path / "pins"),
            "ATTESTATION__DSTACK_SOCKET": str(socket),
            "LLM__SPEECH_MODEL": "mouth",
            "LLM__SPEECH_URL": f"http://{host}:8000/v1",
        }
        problem = await voice_problem(settings_of(variables), "SPEECH")
    assert (problem is None) == is_there


async def test_in_a_group_only_admins_choose_and_without_a_voice_there_is_no_command() -> None:
    async with world() as here:
        async with running_bot(here.settings(llm=VOICE)):
            team(here, ADA, BEN)
            assert await command(here, "!voice on", author=BEN) == ONLY_ADMINS
            assert (await command(here, "!voice on")).startswith(WHEN["on"])
        async with running_bot(here.settings()):
            assert await here.asked("!voice on") == NO_VOICE


async def test_a_slow_voice_delays_no_other_chat() -> None:
    never = asyncio.Event()
    async with world(text("At six.")) as here:
        here.model.speech_handler = held(never, speech(AAC))
        async with running_bot(here.settings(llm=VOICE), grace_seconds=NO_GRACE):
            await here.asked("!voice on")
            await here.signal.say("When?")
            await there_is(here, UNMADE)
            assert await here.asked("And you?", author=BEN) == "At six."
