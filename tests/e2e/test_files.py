"""Files of people leave signal-cli's folder, for any fate of their messages."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager

import pytest

from bot.config.settings import Settings
from bot.signal.events import Person
from tests.e2e.running_bot import World, killed_bot, running_bot, world
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


async def commanded(here: World) -> None:
    await here.asked("!help", files=[PHOTO])


async def too_fast(here: World) -> None:
    for _ in range(3):
        await here.signal.say("look", files=[PHOTO])
    await here.answer()


async def of_strangers(here: World) -> None:
    for _ in range(40):
        await here.signal.say("spam", author=BEN, files=[PHOTO] * 8)
    await here.asked("hello")


async def to_others_in_a_group(here: World) -> None:
    await here.signal.say("not for the bot", group=GROUP, files=[PHOTO] * 30)


async def in_an_announcement_group(here: World) -> None:
    await here.signal.change_group(GROUP, only_admins_write=True)
    await here.signal.say("look", group=GROUP, mention=True, files=[PHOTO])


@pytest.mark.parametrize(
    ("arrive", "access"),
    [
        (commanded, {}),
        (too_fast, {"policy": "open", "messages_per_minute": 1}),
        (of_strangers, {"policy": "allowlist", "allowed": ADA.aci}),
        (to_others_in_a_group, {}),
        (in_an_announcement_group, {}),
    ],
)
async def test_files_of_messages_without_a_turn_are_deleted(
    arrive: Callable[[World], Awaitable[None]], access: Mapping[str, object]
) -> None:
    overrides = {"access": access} if access else {}
    async with folder_world() as here, running_bot(settings(here, **overrides)):
        await arrive(here)
        await all_gone(here)


@pytest.mark.parametrize("fate", ["deleted", "stopped"])
async def test_files_of_ended_messages_are_deleted(fate: str) -> None:
    async with folder_world() as here, running_bot(settings(here)):
        here.model.handler = held(asyncio.Event())
        asked = [await here.signal.say("first", files=[PHOTO])]
        await here.model.wait_for_requests(1)
        asked.append(await here.signal.say("look", files=[PHOTO]))  # waits for its turn
        if fate == "deleted":
            for said in reversed(asked):
                await here.signal.delete(said)
        else:
            await here.asked("!stop")
        await all_gone(here)


async def test_file_of_a_message_that_disappeared_during_an_outage() -> None:
    never = asyncio.Event()
    async with folder_world() as here:
        here.model.handler = held(never)
        async with killed_bot(settings(here)):
            await here.let_think("first")
            await here.signal.say("second", expires_seconds=600, files=[PHOTO])
            await there(here, "second")
        here.model.handler = echo
        let_all_timers_run_out(here)
        async with running_bot(settings(here)):
            await here.answer()
            await here.answer()
            await all_gone(here)


@pytest.mark.parametrize("files_first", [False, True])
async def test_a_file_is_still_seen_when_words_are_edited(*, files_first: bool) -> None:
    async with folder_world() as here:
        here.model.handler = script(held(asyncio.Event()), text("A cat."))
        async with running_bot(settings(here)):
            if files_first:
                await here.signal.say(None, files=[PHOTO])
            files = [] if files_first else [PHOTO]
            words = await here.let_think("what's thsi?", files=files)
            await here.signal.edit("what's this?", words)
            assert (await here.answer()).text == "A cat."
            await all_gone(here)
    assert len(images_in(here.model.requests[-1])) == 1


async def test_a_view_once_image_is_gone_before_the_model_answers() -> None:
    release = asyncio.Event()
    async with folder_world() as here, running_bot(settings(here)):
        here.model.handler = held(release, text("A cat."))
        await here.let_think("what's this?", files=[PHOTO], view_once=True)
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


async def test_reply_to_a_picture_shows_its_small_copy_to_the_model() -> None:
    async with folder_world() as here, running_bot(settings(here)):
        data = data_message(BOT, 1_795_000_000_000, "what is on it?")
        thumbnail = here.signal.share(PHOTO)
        quoted = {"contentType": "image/jpeg", "filename": None, "thumbnail": thumbnail}
        data["quote"] = {"id": 1, "authorUuid": BEN.aci, "text": "", "attachments": [quoted]}
        await here.signal.push(message_frame(BOT, ADA, data))
        await here.answer()
        await all_gone(here)
    assert len(images_in(here.model.requests[-1])) == 1
    assert "a picture of which you get a small copy] what is on it?" in str(
        here.model.requests[-1]["messages"]
    )


async def test_a_file_that_waited_over_a_restart_is_seen_once_signal_is_back() -> None:
    async with folder_world() as here:
        here.model.handler = held(asyncio.Event())
        async with killed_bot(settings(here)):
            await here.let_think("hello", files=[PHOTO])
            await here.signal.say("look", files=[PHOTO])  # waits for its turn
            await there(here, "look")
        here.model.handler = text("A cat.")
        async with running_bot(settings(here)):
            for _ in range(2):
                assert (await here.answer()).text == "A cat."
            await all_gone(here)
    assert len(images_in(here.model.requests[-1])) == 2
