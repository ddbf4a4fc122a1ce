"""Files of people and of tools, over the whole bot."""

import sys
from typing import Final

import pytest

from bot.chat.media import CANNOT_READ
from conversation_store.models import StyleRange, TextStyle
from tests.e2e.minds import Minds, delegating
from tests.e2e.running_bot import World, running_bot, world
from tests.fakes.openai_server import (
    images_in,
    refusing_images,
    script,
    status,
    text,
    tool_calls,
    transcript,
    words_of,
)
from tests.fakes.signal_side import SharedFile
from tests.integration.web_pages import pdf
from tests.unit.test_media import picture

PHOTO: Final = SharedFile("image/jpeg", picture())
VOICE_NOTE: Final = SharedFile("audio/aac", b"\xff\xf1 sound", voice_note=True)
READ_PHOTO: Final = ("read_file", {"file_path": "photo.jpg"})
LASTING: Final[list[tuple[str, dict[str, object]]]] = [
    ("remember", {"text": "Ada pays every invoice at once"}),
    ("forget", {"number": 1}),
    ("remind", {"text": "Pay", "at": "2999-01-01T08:00:00Z"}),
    ("schedule", {"question": "Pay?", "at": "2999-01-01T08:00:00Z"}),
    ("cancel_reminder", {"number": 1}),
    ("set_timezone", {"zone": "Asia/Tokyo"}),
]
LISTENING: Final = {"transcription_model": "whisper"}


def asked(here: World) -> str:
    """The last question to the model, without the time."""
    content = words_of(here.model.requests[-1]["messages"][-1]["content"])
    return content.split(" UTC] ", 1)[-1]


async def test_an_image_is_shown_to_a_model_that_may_see() -> None:
    async with world(script(text("A cat."))) as here, running_bot(here.settings()):
        await here.signal.say("what is this?", files=[PHOTO])
        assert (await here.answer()).text == "A cat."
    assert len(images_in(here.model.requests[-1])) == 1


@pytest.mark.parametrize("call", LASTING, ids=lambda call: call[0])
async def test_words_in_a_picture_change_nothing_without_a_yes(
    call: tuple[str, dict[str, object]],
) -> None:
    """As with documents, the words in a picture may come from another person than its sender."""
    steps = script(text("A bill."), tool_calls(call), text("Not done."))
    async with world(steps) as here:
        async with running_bot(here.settings()):
            await here.signal.say("what is this?", files=[PHOTO])
            await here.answer()
        async with running_bot(here.settings()):
            await here.signal.say("and now?")
            await declined(here)


@pytest.mark.parametrize("by", ["the turn", "a helper"])
async def test_a_picture_that_a_tool_shows_leaves_nothing_behind_without_a_yes(by: str) -> None:
    """A picture in the workspace may be from anywhere, such as a page."""
    looks = [tool_calls(READ_PHOTO), text("A bill.")]
    minds = Minds(
        *([tool_calls(delegating("look"))] if by == "a helper" else looks[:1]),
        tool_calls(LASTING[0]),
        text("Not done."),
        helpers={"look": looks},
    )
    async with world(minds) as here:
        async with running_bot(here.settings(tools={"workspace": {"for": "everyone"}})):
            await here.signal.say("!files")
            await here.answer()
            (files,) = here.folder.glob("workspaces/*/files")
            (files / "photo.jpg").write_bytes(PHOTO.data)
            await here.signal.say("what is in the photo?")
            await declined(here)
    assert any(images_in(dict(body)) for body in (*minds.asked_by_turns, *minds.asked_by_helpers))


async def declined(here: World) -> None:
    """Say no to a question that comes because of strangers' words."""
    question = await here.answer()
    assert question.text.startswith("❓"), question.text
    assert "strangers" in question.text
    await here.signal.react("👎", question.timestamp)
    assert (await here.answer()).text == "Not done."


async def test_a_model_that_refuses_images_is_asked_without_and_the_person_hears() -> None:
    async with world(refusing_images()) as here, running_bot(here.settings()):
        await here.signal.say("what is this?", files=[PHOTO])
        answer = await here.answer()
        await here.signal.say("and this?", files=[PHOTO])
        await here.answer()
    assert answer.text.startswith("I cannot see images, only read text and documents.\n\n")
    assert [len(images_in(request)) for request in here.model.requests] == [1, 0, 0]


async def test_a_voice_note_is_written_down_shown_in_one_line_and_answered() -> None:
    async with world(script(text("**384,400** km."))) as here:
        here.model.transcription_handler = transcript("How far\nis the moon?")
        async with running_bot(here.settings(llm=LISTENING)):
            await here.signal.say(None, files=[VOICE_NOTE])
            answer = await here.answer()
    above = "🎤 “How far is the moon?”\n\n"
    assert answer.text == f"{above}384,400 km."
    utf16_units = len(above) + 1  # the microphone is two
    assert answer.styles == (StyleRange(utf16_units, 7, TextStyle.BOLD),)
    assert asked(here).startswith("[voice note] How far")


async def test_voice_note_without_transcription_gets_a_sentence() -> None:
    async with world() as here:
        here.model.transcription_handler = status(400)
        async with running_bot(here.settings(llm=LISTENING)):
            await here.signal.say(None, files=[VOICE_NOTE])
            failed = await here.answer()
        async with running_bot(here.settings()):
            await here.signal.say(None, files=[VOICE_NOTE])
            deaf = await here.answer()
    assert failed.text.startswith("I could not listen to the voice note just now.")
    assert deaf.text == "I cannot listen to voice notes; please write it."
    assert here.model.requests == []


@pytest.mark.parametrize(
    "file",
    [
        SharedFile("application/pdf", pdf("It costs 12 euros."), name="invoice.pdf"),
        SharedFile("text/plain", b"It costs 12 euros.", name="note.txt"),
    ],
    ids=["pdf", "text"],
)
async def test_a_document_reaches_the_model_as_text(file: SharedFile) -> None:
    async with world(script(text("12 euros."))) as here, running_bot(here.settings()):
        await here.signal.say("how much is it?", files=[file])
        assert (await here.answer()).text == "12 euros."
    assert "It costs 12 euros." in asked(here)


async def test_unreadable_file_is_refused_politely_and_the_words_are_answered() -> None:
    archive = SharedFile("application/zip", b"PK", name="my_photos.zip")
    async with world(script(text("Hello."))) as here, running_bot(here.settings()):
        await here.signal.say("hello", files=[archive])
        answer = await here.answer()
    notice = f"About “my_photos.zip”: {CANNOT_READ}"
    assert answer.text == f"{notice}\n\nHello."


async def test_a_picture_that_a_tool_makes_comes_with_the_answer() -> None:
    servers = {"odd": {"command": f"{sys.executable} -m tests.fakes.mcp_odd"}}
    drawn = script(tool_calls(("odd_everything", {})), text("Here it is."))
    async with world(drawn) as here, running_bot(here.settings(mcp={"servers": servers})):
        await here.signal.say("draw")
        question = await here.answer()
        await here.signal.react("👍", question.timestamp)
        answer = await here.answer()
    assert answer.text == "Here it is."
    assert "image/png" in [file.content_type for file in answer.attachments]
