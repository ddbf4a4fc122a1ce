"""Workspaces in the whole bot: files come in, are worked with, go out, and are gone again."""

import asyncio
import os
import shutil
import sqlite3
import struct
import zlib
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bot.chat.media import CANNOT_SEE
from bot.commands.base import UNKNOWN_COMMAND
from bot.commands.questions import UNDONE
from bot.config.settings import Settings
from bot.llm.rearranged import LEFT_OUT, SHOWN_BY_TOOLS
from tests.e2e.daemon_process import daemon, environment
from tests.e2e.running_bot import World, running_bot, story, world
from tests.e2e.test_approvals import question
from tests.e2e.test_conversation import BEN
from tests.e2e.test_tools import offered
from tests.fakes.office import row, xlsx
from tests.fakes.openai_server import (
    Step,
    echo,
    images_in,
    refusing_images,
    script,
    text,
    tool_calls,
    words_of,
)
from tests.fakes.signal_side import ADA, SharedFile
from tests.integration.test_spawned import until
from tests.unit.test_media import picture

CSV = SharedFile("text/csv", b"month,sum\nJanuary,3\n", "sums.csv")


def png_chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


BOMB = (
    b"\x89PNG\r\n\x1a\n"
    + png_chunk(b"IHDR", struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0))
    + png_chunk(b"IDAT", zlib.compress(bytes(2**20)))
    + png_chunk(b"IEND", b"")
)
"""Ten gigabytes of pixels in a kilobyte."""
PHOTO = SharedFile("image/jpeg", picture(), "photo.jpg")
ARCHIVE = SharedFile("application/zip", b"PK\x03\x04\0\0", "all of it.zip")
LOOK_EVERY_SECONDS = 0.01
GROUP = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="


def for_admins(here: World, **more: Mapping[str, object]) -> Settings:
    return here.settings(access={"admins": ADA.aci}, **more)


def for_everyone(here: World) -> Settings:
    return here.settings(tools={"workspace": {"for": "everyone"}})


def calls(*named: tuple[str, dict[str, Any]]) -> Step:
    return tool_calls(*named)


def folders(here: World) -> list[Path]:
    root = here.folder / "workspaces"
    return sorted(root.iterdir()) if root.is_dir() else []


async def test_a_file_comes_in_is_changed_and_goes_out_again() -> None:
    edit = {"file_path": "inbox/sums.csv", "old_text": "3", "new_text": "4"}
    steps = script(
        calls(("list_files", {"recursive": True})),
        calls(("edit_file", edit)),
        calls(("send_file", {"file_path": "inbox/sums.csv"})),
        text("Here it is."),
    )
    async with story(steps, for_admins) as here:
        answer = await here.answer_to("Correct January to 4", files=[CSV])
        assert answer.text == "Here it is."
        [file] = answer.attachments
        assert file.data == b"month,sum\nJanuary,4\n"
        asked = here.model.requests[0]["messages"][-1]["content"]
        assert "[This file is inbox/sums.csv in the workspace.]" in asked
        assert "January,3" in asked
    assert "inbox/sums.csv (20 bytes, " in here.told(1)
    assert "2\tJanuary,4" in here.told(2)


async def test_office_document_is_read_again_from_the_workspace() -> None:
    sheet = SharedFile("application/octet-stream", xlsx(row("May", 3) + row("June", 4)), "a.xlsx")
    steps = script(
        calls(("read_file", {"file_path": "inbox/a.xlsx", "offset": 2, "limit": 1})),
        calls(("read_file", {"file_path": "inbox/a.xlsx", "offset": 9})),
        calls(("read_file", {"file_path": "no.docx"})),
        text("Three and four."),
    )
    async with story(steps, for_admins) as here:
        assert await here.asked("What are the sums?", files=[sheet]) == "Three and four."
    asked = here.model.requests[0]["messages"][-1]["content"]
    assert "Sheet Sums:\nMay\t3\nJune\t4" in asked
    assert "2\tMay\t3\n[1 more line; go on at offset 3.]" in here.told(1)
    assert "inbox/a.xlsx has 3 lines, and no more." in here.told(2)
    assert "There is no no.docx;" in here.told(3)


READ_PHOTO = ("read_file", {"file_path": "inbox/photo.jpg"})


async def test_an_image_of_the_workspace_is_shown_to_a_model_that_sees_and_again_later() -> None:
    steps = script(text("Kept."), calls(READ_PHOTO), text("A cat."), text("Still a cat."))
    async with story(steps, for_admins) as here:
        await here.asked("keep that", files=[PHOTO])
        await here.asked("!clear")
        assert await here.asked("what is in inbox/photo.jpg?") == "A cat."
        assert await here.asked("sure?") == "Still a cat."
    *_, result, shown = here.model.requests[2]["messages"]
    assert result["role"] == "tool"
    assert result["content"].startswith("[Untrusted content from read_file, begins here: ")
    assert "You are shown the image inbox/photo.jpg." in result["content"]
    assert shown["role"] == "user"
    assert words_of(shown["content"]) == SHOWN_BY_TOOLS
    assert [len(images_in(request)) for request in here.model.requests] == [1, 0, 1, 1]


async def test_blind_model_learns_that_a_file_is_an_image() -> None:
    steps = script(text("Kept."), calls(READ_PHOTO), text("I cannot see it."))
    async with story(steps, for_admins, llm={"vision": "off"}) as here:
        await here.asked("keep that", files=[PHOTO])
        assert await here.asked("what is in the photo?") == "I cannot see it."
    assert "inbox/photo.jpg is an image, and you cannot see images." in here.told()
    assert not any(map(images_in, here.model.requests))


async def test_a_model_that_turns_out_not_to_see_goes_on_without_the_image() -> None:
    steps = refusing_images(script(text("Kept."), calls(READ_PHOTO), text("Hm.")))
    async with story(steps, for_admins) as here:
        await here.asked("hello")
        await here.asked("!files")
        (files,) = here.folder.glob("workspaces/*/files")
        (files / "inbox").mkdir()
        (files / "inbox" / "photo.jpg").write_bytes(PHOTO.data)
        assert await here.asked("what is in the photo?") == f"{CANNOT_SEE}\n\nHm."
    assert LEFT_OUT in here.told()


async def test_broken_and_hostile_images_of_the_workspace_become_sentences() -> None:
    named = ["bomb.png", "no.gif", "broken.jpg", "none.webp", "large.png"]
    steps = script(
        text("Hi."), calls(*(("read_file", {"file_path": name}) for name in named)), text("None.")
    )
    async with story(steps, for_admins) as here:
        await here.asked("hello")
        await here.asked("!files")
        (files,) = here.folder.glob("workspaces/*/files")
        (files / "bomb.png").write_bytes(BOMB)
        (files / "no.gif").write_bytes(b"#!/bin/sh")
        (files / "broken.jpg").write_bytes(PHOTO.data[:400])
        (files / "large.png").write_bytes(b"\x89PNG" + bytes(9 * 2**20))
        assert await here.asked("what is in them?") == "None."
    results = here.results()
    assert results[0] == "This image has too many pixels for me."
    assert results[1] == "This is no image that I can read; I read JPEG, PNG, WebP and GIF."
    assert results[2] == "This image is broken and cannot be read."
    assert results[3].startswith("There is no none.webp; list_files")
    assert "large.png has 9,437,188 bytes; at most 8,388,608" in results[4]


async def test_only_the_newest_images_are_shown_for_which_the_model_has_room() -> None:
    name, where = READ_PHOTO
    reads = calls(*[(name, {**where, "limit": number}) for number in range(1, 6)])
    steps = script(text("Kept."), reads, text("Five cats."))
    async with world(steps) as here:
        llm = {"context_tokens": 8_000, "tool_calling": "native"}
        async with running_bot(for_admins(here, llm=llm)):
            await here.asked("keep that", files=[PHOTO])
            await here.asked("!clear")
            assert await here.asked("look five times") == "Five cats."
    messages = here.model.requests[-1]["messages"]
    shown = len(images_in(here.model.requests[-1]))
    left_out = [LEFT_OUT in m["content"] for m in messages if m["role"] == "tool"]
    assert 1 <= shown < 5
    assert left_out == [True] * (5 - shown) + [False] * shown


def kept_images(here: World) -> list[str]:
    """Return the roles of the messages that show the images in the store."""
    with closing(sqlite3.connect(here.folder / "store.db")) as store:
        rows = store.execute(
            "SELECT role FROM images JOIN messages ON messages.id = images.message_id"
        )
        return [role for (role,) in rows]


async def test_an_image_that_was_read_before_a_kill_is_shown_after_the_restart() -> None:
    """After the model has the result, the bot is killed and the file is deleted."""
    async with world() as here:
        settings = environment(here, TOOLS__WORKSPACE__FOR="everyone")
        killed: list[bool] = []

        async def model(request: Any, writer: Any) -> None:
            messages = request.body["messages"]
            if "keep" in str(messages[-1]["content"]):
                await text("Kept.")(request, writer)
            elif not images_in({"messages": messages[-1:]}):
                await calls(READ_PHOTO)(request, writer)
            elif not killed:
                killed.append(True)
                while not kept_images(here):  # noqa: ASYNC110 - as below
                    await asyncio.sleep(LOOK_EVERY_SECONDS)
                await bot.killed()
            else:
                await text("A cat.")(request, writer)

        here.model.handler = model
        async with daemon(settings, folder=here.folder) as bot:
            await here.asked("keep that", files=[PHOTO])
            await here.asked("!clear")
            await here.signal.say("what is in the photo?")
            await bot.exit_code()
        await here.signal.wait_until_alone()
        for photo in here.folder.glob("workspaces/*/files/inbox/photo.jpg"):
            photo.unlink()
        async with daemon(settings, folder=here.folder):
            assert (await here.answer()).text == "A cat."
    last = here.model.requests[-1]["messages"]
    assert len(images_in({"messages": last[-1:]})) == 1


@pytest.mark.parametrize("is_undone", [False, True])
async def test_file_is_deleted_with_its_message(is_undone: bool) -> None:
    async with story(script(text("I see.")), for_admins) as here:
        sent = await here.signal.say("Keep that", files=[ARCHIVE])
        await here.answer()
        (kept,) = here.folder.glob("workspaces/*/files/inbox/*")
        if is_undone:
            await here.signal.say("!undo")
        else:
            await here.signal.delete(sent)
        await until(lambda: not kept.exists())


async def test_unreadable_file_is_kept_without_a_notice() -> None:
    async with story(script(text("I see.")), for_admins) as here:
        assert await here.asked("Keep that", files=[ARCHIVE]) == "I see."
    assert "inbox/all of it.zip" in here.told()


async def test_by_default_only_admins_have_a_workspace() -> None:
    steps = script(text("For Ada."), text("For Ben."), calls(("list_files", {})), text("No."))
    async with story(steps, for_admins) as here:
        await here.asked("hello", author=ADA)
        await here.asked("hello", author=BEN, files=[CSV])
        assert await here.asked("list my files", author=BEN) == "No."
        assert "no workspace" in await here.asked("!files", author=BEN)
        assert "list_files" not in await here.asked("!tools", author=BEN)
        assert "list_files" in await here.asked("!tools", author=ADA)
        of_ada, of_ben = (offered(request) for request in here.model.requests[:2])
        assert set(of_ada) - set(of_ben) >= {"list_files", "write_file", "send_file"}
        assert "list_files" not in here.model.requests[1]["messages"][0]["content"]
        assert "workspace" not in here.model.requests[1]["messages"][-1]["content"]
    assert "There is no tool named 'list_files'" in here.told()
    assert folders(here) == []


async def test_settings_can_switch_workspaces_off() -> None:
    nobody = {"workspace": {"for": "nobody"}}
    async with story(echo, for_admins, tools=nobody) as here:
        assert "!files" not in await here.asked("!help")
        assert await here.asked("!files") == UNKNOWN_COMMAND
        await here.asked("hello")
    assert "read_file" not in offered(here.model.requests[-1])


async def test_people_see_their_files_and_delete_them_all() -> None:
    steps = script(
        calls(("write_file", {"file_path": "poem.txt", "content": "Violets are blue"})),
        text("Written."),
        calls(("read_file", {"file_path": "poem.txt"})),
        text("Read."),
    )
    async with story(steps, for_everyone) as here:

        async def asked(words: str) -> str:
            return await here.asked(words)

        assert await asked("!files") == "There are no files in this chat."
        assert await asked("write a poem") == "Written."
        assert await asked("!files") == "1 file, 0.0 MB of 200.0 MB:\npoem.txt (16 bytes)"
        assert await asked("read it") == "Read."
        assert "Violets are blue" in here.told()
        assert await asked("!clear files") == "The files of this chat are deleted."
        assert await asked("!files") == "There are no files in this chat."
        assert await asked("!undo") == UNDONE
        assert await asked("!clear") == "Forgotten. We start afresh."


async def test_a_chat_does_not_see_the_files_of_another() -> None:
    steps = script(
        calls(("write_file", {"file_path": "secret.txt", "content": "of Ada"})),
        text("Written."),
        calls(("search_files", {"query": "Ada"}), ("read_file", {"file_path": "secret.txt"})),
        text("Nothing."),
    )
    async with story(steps, for_everyone) as here:
        await here.asked("write it down", author=ADA)
        await here.asked("what does Ada hide?", author=BEN)
        results = here.results()
        assert "[Nothing was found.]" in results[0]
        assert results[1].startswith("There is no secret.txt;")
        named = [folder.name for folder in folders(here)]
        assert len(named) == 2
        assert not any(ADA.aci in name or BEN.aci in name for name in named)


async def test_files_of_messages_that_disappear_are_not_kept() -> None:
    async with story(script(text("I see.")), for_everyone) as here:
        await here.asked("look", files=[CSV], expires_seconds=600)
    assert "workspace" not in here.told()
    assert folders(here) == []


async def test_in_a_group_only_admins_clear_its_files() -> None:
    steps = script(calls(("write_file", {"file_path": "a", "content": "b"})), text("Written."))
    async with story(steps, for_everyone) as here:
        await here.asked("write it", group=GROUP, mention=True)
        await here.signal.say("!clear files", group=GROUP, mention=True, author=BEN)
        assert "only an admin" in (await here.answer()).text
        assert "a (1 byte)" in await here.asked("!files", group=GROUP, mention=True)


@pytest.mark.parametrize("after", ["write_file", "send_file"])
async def test_written_file_survives_a_kill(after: str) -> None:
    """Killed when a result is with the model: the turn goes on, and the file is there, whole."""
    write = calls(("write_file", {"file_path": "plot.txt", "content": "x" * 50_000}))
    send = calls(("send_file", {"file_path": "plot.txt"}))
    async with world() as here:
        settings = environment(here, TOOLS__WORKSPACE__FOR="everyone")
        results: list[str] = []

        async def model(request: Any, writer: Any) -> None:
            messages = request.body["messages"]
            results[:] = [m["content"] for m in messages if m["role"] == "tool"]
            if len(results) == (1 if after == "write_file" else 2) and not killed:
                killed.append(True)
                await bot.killed()
                return
            steps = [write, send, text("Here it is.")]
            await steps[len(results)](request, writer)

        killed: list[bool] = []
        here.model.handler = model
        async with daemon(settings, folder=here.folder) as bot:
            await here.signal.say("plot it")
            await bot.exit_code()
        await here.signal.wait_until_alone()
        async with daemon(settings, folder=here.folder):
            answer = await here.answer()
        assert answer.text == "Here it is."
        assert [len(file.data) for file in answer.attachments] == [50_000]
        assert len(here.answers()) == 1
        # A result that was not on disk yet is made again, which changes nothing.
        assert results[0].removeprefix("Overw").removeprefix("W") == (
            "rote plot.txt: 1 line, 50,000 bytes."
        )


async def test_files_of_unused_chats_are_deleted() -> None:
    steps = script(tool_calls(("write_file", {"file_path": "a", "content": "b"})), text("Written."))
    async with world(steps) as here:
        async with running_bot(for_everyone(here)):
            await here.asked("write it")
            assert len(folders(here)) == 1
        os.utime(folders(here)[0], (0, 0))
        async with running_bot(for_everyone(here)):
            while folders(here):  # noqa: ASYNC110 - a folder has no event; the test is bounded
                await asyncio.sleep(LOOK_EVERY_SECONDS)


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")
async def test_admins_see_folders_of_the_machine_and_writing_there_asks() -> None:
    path = "shared/notes/todo.txt"
    steps = script(
        calls(("read_file", {"file_path": path})),
        calls(("edit_file", {"file_path": path, "old_text": "milk", "new_text": "bread"})),
        calls(("run_command", {"command": "cat /shared/notes/todo.txt; touch /shared/notes/x"})),
        text("Changed."),
        calls(("read_file", {"file_path": path})),
        text("There is none."),
    )
    async with world(steps) as here:
        folder = here.folder / "notes"
        folder.mkdir()
        (folder / "todo.txt").write_text("buy milk")
        tools = {"workspace": {"for": "everyone", "folders": {"NOTES": f"{folder}:rw"}}}
        async with running_bot(for_admins(here, tools=tools)):
            asked = await question(here, "buy bread")
            assert 'file_path: "shared/notes/todo.txt"' in asked.text
            assert "♾️" not in asked.text
            assert (folder / "todo.txt").read_text() == "buy milk"
            await here.signal.react("👍", asked.timestamp)
            assert await here.reacted("👍", (await question(here)).timestamp) == "Changed."
            assert await here.asked("and now?", author=BEN) == "There is none."
        assert (folder / "todo.txt").read_text() == "buy bread"
        assert [path.name for path in folder.iterdir()] == ["todo.txt"]
    assert "1\tbuy milk" in here.told(1)
    assert "stdout:\nbuy bread" in here.told(3)
    assert "Read-only file system" in here.told(3)
    assert "There is no shared/notes/todo.txt" in here.told(5)
