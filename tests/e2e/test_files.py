"""Files of people leave signal-cli's folder, for any fate of their messages."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from bot.config.settings import Settings
from bot.signal.events import Person
from tests.e2e.running_bot import World, kill, running_bot, world
from tests.e2e.traces import let_all_timers_run_out, there
from tests.fakes.openai_server import echo, held, images_in, script, text
from tests.fakes.signal_frames import data_message, message_frame
from tests.fakes.signal_side import ADA, BOT, SharedFile
from tests.unit.test_media import picture

BEN = Person(aci="0d1e2f30-0000-4000-8000-00000000000b", number="+4915200000002", name="Ben")
GROUP = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
PHOTO = SharedFile("image/jpeg", picture())
LOOK_EVERY_SECONDS = 0.01


@asynccontextmanager
async def folder_world() -> AsyncIterator[World]:
    """A world whose signal-cli keeps the files of people in a folder."""
    async with world() as here:
        here.signal.data_dir = here.folder / "signal-cli"
        yield here


def settings(here: World, **overrides: Mapping[str, object]) -> Settings:
    side = {"data_dir": here.folder / "signal-cli"}
    return here.settings(signal=side, llm={"vision": "on"}, **overrides)


def left(here: World) -> list[str]:
    folder = here.folder / "signal-cli" / "attachments"
    return [path.name for path in folder.iterdir()] if folder.is_dir() else []


async def all_gone(here: World) -> None:
    """Wait until no file is left; the test's own time is the bound."""
    while left(here):  # noqa: ASYNC110 - the folder has no event
        await asyncio.sleep(LOOK_EVERY_SECONDS)


async def test_a_file_that_came_with_a_command() -> None:
    async with folder_world() as here, running_bot(settings(here)):
        await here.signal.say("!help", files=[PHOTO])
        await here.answer()
        await all_gone(here)


async def test_files_of_messages_that_came_too_fast() -> None:
    access = {"policy": "open", "messages_per_minute": 1}
    async with folder_world() as here, running_bot(settings(here, access=access)):
        for _ in range(3):
            await here.signal.say("look", files=[PHOTO])
        await here.answer()
        await all_gone(here)


async def test_files_of_a_stranger_however_many() -> None:
    access = {"policy": "allowlist", "allowed": ADA.aci}
    async with folder_world() as here, running_bot(settings(here, access=access)):
        for _ in range(40):
            await here.signal.say("spam", author=BEN, files=[PHOTO] * 8)
        await here.signal.say("hello")
        await here.answer()
        await all_gone(here)


async def test_files_of_messages_to_others_in_a_group() -> None:
    async with folder_world() as here, running_bot(settings(here)):
        await here.signal.say("not for the bot", group=GROUP, files=[PHOTO] * 30)
        await all_gone(here)


async def test_a_file_of_an_announcement_group() -> None:
    async with folder_world() as here, running_bot(settings(here)):
        await here.signal.change_group(GROUP, only_admins_write=True)
        await here.signal.say("look", group=GROUP, mention=True, files=[PHOTO])
        await all_gone(here)


async def test_file_of_a_waiting_message_that_was_deleted() -> None:
    release = asyncio.Event()
    async with folder_world() as here, running_bot(settings(here)):
        here.model.handler = held(release)
        await here.signal.say("first")
        await here.model.wait_for_requests(1)
        waiting = await here.signal.say("look", files=[PHOTO])
        await here.signal.delete(waiting)
        await all_gone(here)
        release.set()


async def test_file_of_a_waiting_message_that_was_stopped() -> None:
    never = asyncio.Event()
    async with folder_world() as here, running_bot(settings(here)):
        here.model.handler = held(never)
        await here.signal.say("first")
        await here.model.wait_for_requests(1)
        await here.signal.say("look", files=[PHOTO])
        await here.signal.say("!stop")
        await here.answer()
        await all_gone(here)


async def test_file_of_a_stopped_turn() -> None:
    never = asyncio.Event()
    async with folder_world() as here, running_bot(settings(here)):
        here.model.handler = held(never)
        await here.signal.say("look", files=[PHOTO])
        await here.model.wait_for_requests(1)
        await here.signal.say("!stop")
        await here.answer()
        await all_gone(here)


async def test_file_of_a_message_that_disappeared_during_an_outage() -> None:
    never = asyncio.Event()
    async with folder_world() as here:
        here.model.handler = held(never)
        async with running_bot(settings(here)) as bot:
            await here.signal.say("first")
            await here.model.wait_for_requests(1)
            await here.signal.say("second", expires_seconds=600, files=[PHOTO])
            await there(here, "second")
            await kill(bot)
        here.model.handler = echo
        let_all_timers_run_out(here)
        async with running_bot(settings(here)):
            await here.answer()
            await here.answer()
            await all_gone(here)


async def test_file_of_a_killed_turn() -> None:
    never = asyncio.Event()
    async with folder_world() as here:
        here.model.handler = held(never)
        async with running_bot(settings(here)) as bot:
            await here.signal.say("look", files=[PHOTO])
            await here.model.wait_for_requests(1)
            await kill(bot)
        here.model.handler = echo
        async with running_bot(settings(here)):
            await here.answer()
            await all_gone(here)


async def test_a_file_is_still_seen_when_the_words_with_it_are_edited() -> None:
    never = asyncio.Event()
    async with folder_world() as here:
        here.model.handler = script(held(never), text("A cat."))
        async with running_bot(settings(here)):
            await here.signal.say(None, files=[PHOTO])
            words = await here.signal.say("what's thsi?")
            await here.model.wait_for_requests(1)
            await here.signal.edit("what's this?", words)
            assert (await here.answer()).text == "A cat."
            await all_gone(here)
    assert len(images_in(here.model.requests[-1])) == 1


async def test_a_file_is_still_seen_when_its_own_words_are_edited() -> None:
    never = asyncio.Event()
    async with folder_world() as here:
        here.model.handler = script(held(never), text("A cat."))
        async with running_bot(settings(here)):
            question = await here.signal.say("what's thsi?", files=[PHOTO])
            await here.model.wait_for_requests(1)
            await here.signal.edit("what's this?", question)
            assert (await here.answer()).text == "A cat."
            await all_gone(here)
    assert len(images_in(here.model.requests[-1])) == 1


async def test_a_view_once_image_is_gone_before_the_model_answers() -> None:
    release = asyncio.Event()
    async with folder_world() as here, running_bot(settings(here)):
        here.model.handler = held(release, text("A cat."))
        await here.signal.say("what's this?", files=[PHOTO], view_once=True)
        await here.model.wait_for_requests(1)
        assert left(here) == []
        release.set()
        await here.answer()


async def test_the_files_of_a_long_text_a_quote_and_a_link_and_those_that_are_too_many() -> None:
    files = [*[PHOTO] * 35, SharedFile("text/x-signal-plain", b"word " * 500)]
    async with folder_world() as here, running_bot(settings(here)):
        # The fake's folder has a file for each; a phone sends the small pictures of these two.
        thumbnail, image = (here.signal.share(PHOTO) for _ in range(2))
        shared = [here.signal.share(file) for file in files]
        data = data_message(BOT, 1_795_000_000_000, "look", files=shared)
        quoted = {"contentType": "image/jpeg", "filename": None, "thumbnail": thumbnail}
        data["quote"] = {"id": 1, "authorUuid": BEN.aci, "text": "", "attachments": [quoted]}
        data["previews"] = [{"url": "https://a.example", "title": "A", "image": image}]
        await here.signal.push(message_frame(BOT, ADA, data))
        await here.answer()
        await all_gone(here)


async def test_a_file_that_waited_over_a_restart_is_seen_once_signal_is_back() -> None:
    async with folder_world() as here:
        here.model.handler = held(asyncio.Event())
        async with running_bot(settings(here)) as bot:
            await here.signal.say("hello")
            await here.model.wait_for_requests(1)
            await here.signal.say("look", files=[PHOTO])  # waits for its turn
            await there(here, "look")
            await kill(bot)
        here.model.handler = text("A cat.")
        async with running_bot(settings(here)):
            for _ in range(2):
                assert (await here.answer()).text == "A cat."
            await all_gone(here)
    assert len(images_in(here.model.requests[-1])) == 1
