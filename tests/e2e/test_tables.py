"""Tables too wide for a phone: the answer has its text, and a picture of the table with it."""

import asyncio
from io import BytesIO
from typing import Any, Final

import pytest
from PIL import Image

from tests.e2e.running_bot import kill, running_bot, world
from tests.e2e.test_reactions import TRANSPORTS, Side, side
from tests.e2e.traces import rows_with, there_is
from tests.fakes.openai_server import held, script, text
from tests.fakes.signal_rest_api import SignalRestApi
from tests.fakes.signal_side import Sent

WIDE: Final = (
    "Here you are:\n\n| City | People | Area | Height | River |\n|:--|--:|--:|--|--|\n"
    "| **Köln** | 1,084,831 | 405 km² | 53 m | Rhine |\n| Łódź | 664,860 | 293 km² | 220 m | — |"
)
NARROW: Final = "| a | b |\n|--|--|\n| 1 | 2 |"
STORED: Final = "SELECT 1 FROM outbox WHERE state = 'waiting' AND unmade NOT NULL"
DRAWN: Final = (
    "SELECT 1 FROM outbox JOIN attachments ON outbox_id = outbox.id"
    " WHERE state = 'waiting' AND unmade IS NULL"
)


def pictures(sent: Any) -> list[bytes]:
    """Return the files of a message."""
    return [file.data for file in sent.attachments]


def shows_table(sent: Any) -> None:
    """Demand that a message has the table as text and as a picture."""
    assert "Köln" in sent.text
    assert "1,084,831" in sent.text
    (data,) = pictures(sent)
    with Image.open(BytesIO(data), formats=["PNG"]) as image:
        assert image.width > 400
        assert image.height > 100
        assert image.convert("L").getextrema() == (0, 255)


@TRANSPORTS
async def test_wide_table_comes_with_a_picture_in_the_same_message(transport: str) -> None:
    async with side(transport, script(text(WIDE), text(NARROW))) as it, running_bot(it.settings):
        await it.ready()
        await it.people.say("the cities, please")
        await it.people.until(lambda: len(it.people.sent) == 1)
        shows_table(it.people.sent[0])
        await it.people.say("and shorter?")
        await it.people.until(lambda: len(it.people.sent) == 2)
        assert pictures(it.people.sent[1]) == []


@TRANSPORTS
async def test_kill_before_the_picture_leaves_one_answer(transport: str) -> None:
    go_on = asyncio.Event()
    async with side(transport, script(held(go_on, text(WIDE)), text("Yes."))) as it:
        async with running_bot(it.settings) as bot:
            await it.ready()
            await it.people.say("the cities, please")
            await it.here.model.wait_for_requests(1)
            await it.leave()
            go_on.set()
            await there_is(it.here, STORED)
            await kill(bot)
        await it.come_back()
        await answers_once(it)


@TRANSPORTS
async def test_kill_after_the_picture_leaves_one_answer(transport: str) -> None:
    never = asyncio.Event()
    async with side(transport, script(text(WIDE), text("Yes."))) as it:
        async with running_bot(it.settings) as bot:
            await it.ready()
            hold_sends(it, never)
            await it.people.say("the cities, please")
            await there_is(it.here, DRAWN)
            await kill(bot)
        hold_sends(it, None)
        await answers_once(it)


def hold_sends(it: Side, until: asyncio.Event | None) -> None:
    """Hold sends in Signal until an event, or release them."""
    if isinstance(it.people, SignalRestApi):
        it.people.hold.clear() if until else it.people.hold.set()
        return

    async def wait(_: Sent) -> None:
        if until is not None:
            await until.wait()

    it.people.on_send = wait


async def answers_once(it: Side) -> None:
    """Demand that a new life sends the answer once, and then goes on."""
    async with running_bot(it.settings):
        await it.people.until(lambda: bool(it.people.sent))
        await it.ready()
        await it.people.say("are you there?")
        await it.people.until(lambda: it.people.sent[-1].text == "Yes.")
    first, _ = it.people.sent
    shows_table(first)
    assert len(it.here.model.requests) == 2


@pytest.mark.parametrize(
    "cell", ["日本語", "سلام", "word " * 200], ids=["Japanese", "Arabic", "long"]
)
async def test_table_that_cannot_be_drawn_goes_as_text_alone(cell: str) -> None:
    async with world(text(WIDE.replace("Rhine", cell))) as here, running_bot(here.settings()):
        await here.signal.say("the cities, please")
        answer = await here.answer()
        assert cell.strip()[:20] in answer.text
        assert answer.attachments == ()


async def test_emoji_in_a_table_do_not_prevent_its_picture() -> None:
    async with world(text(WIDE.replace("Rhine", "🏞️ Rhine"))) as here:
        async with running_bot(here.settings()):
            await here.signal.say("the cities, please")
            answer = await here.answer()
    assert "🏞️ Rhine" in answer.text
    assert len(answer.attachments) == 1


async def test_picture_goes_with_the_message_that_shows_the_table() -> None:
    long = f"{'word ' * 395}\n\n{WIDE}\n\n{'word ' * 395}"
    async with world(text(long)) as here, running_bot(here.settings()):
        await here.signal.say("the cities, please")
        parts = [await here.answer() for _ in range(3)]
    assert [len(part.attachments) for part in parts] == [0, 1, 0]
    shows_table(parts[1])


async def test_edited_answer_is_followed_by_the_picture() -> None:
    steps = script(text("Which?"), text(WIDE), text(WIDE.replace("Rhine", "日本語")), text("Yes."))
    async with world(steps) as here, running_bot(here.settings()):
        asked = await here.signal.say("the cities")
        which = await here.answer()
        await here.signal.edit("the cities in a table", asked)
        table, picture = await here.answer(), await here.answer()
        assert (table.replaces, table.attachments, picture.text) == (which.timestamp, (), "")
        assert len(picture.attachments) == 1
        await here.signal.edit("in Japanese", asked)
        assert "日本語" in (await here.answer()).text
        await here.signal.until(lambda: bool(here.signal.deleted))
        await here.signal.say("are you there?")
        assert (await here.answer()).text == "Yes."
    assert [timestamp for _, timestamp in here.signal.deleted] == [picture.timestamp]


async def test_deleted_question_takes_its_table_along() -> None:
    go_on = asyncio.Event()
    secret = WIDE.replace("Rhine", "sesquipedalian")
    async with world(script(held(go_on, text(secret)), text("Yes."))) as here:
        async with running_bot(here.settings(), grace_seconds=0.1):
            asked = await here.signal.say("the cities, please")
            await here.model.wait_for_requests(1)
            await here.signal.go_away()
            go_on.set()
            await there_is(here, STORED)
        await here.signal.come_back()
        await here.signal.delete(asked)
        async with running_bot(here.settings()):
            await there_is(here, "SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM turns)")
            await here.signal.say("are you there?")
            await here.signal.until(lambda: here.answers()[-1:] == ["Yes."])
            assert rows_with(here, "sesquipedalian") == 0


async def test_sent_answer_leaves_no_copy_of_its_table_in_the_outbox() -> None:
    async with world(text(WIDE)) as here, running_bot(here.settings()):
        await here.signal.say("the cities, please")
        await here.answer()
        await there_is(here, "SELECT 1 FROM outbox WHERE state = 'sent' AND unmade IS NULL")
        await there_is(here, "SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM attachments)")
