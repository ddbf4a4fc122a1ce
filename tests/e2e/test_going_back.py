"""Copies of a running bot's store, going back to one, and kills in between."""

import asyncio
import signal
import sqlite3
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Final

import pytest

from conversation_store.models import ChatId
from conversation_store.store import open_store
from tests.e2e.daemon_process import Daemon, daemon, environment, run_command
from tests.e2e.disks import CannotMount, memory_disk
from tests.e2e.running_bot import World, running_bot, world
from tests.fakes.openai_server import held, script, text
from tests.fakes.signal_side import ADA

STORE_KEY: Final = "a key that nobody may see"
KILLS: Final = 5
MAX_RUN_SECONDS: Final = 0.7
"""A restore of a small store takes about half of that, most of it to start Python."""


def histories(folder: Path) -> set[str]:
    """Return the words in all stores of a folder."""
    said = set()
    for path in folder.glob("store.db*"):
        if path.name.endswith((".lock", "-wal", "-shm")):
            continue
        with closing(sqlite3.connect(path)) as database:
            said |= {words for (words,) in database.execute("SELECT content FROM messages")}
    return said


async def stopped(bot: Daemon) -> None:
    bot.send_signal(signal.SIGTERM)
    assert await bot.exit_code() == 0


@pytest.mark.full
async def test_restored_copy_answers_no_message_twice() -> None:
    think = asyncio.Event()
    async with world(script(held(think, text("first")), text("second"))) as here:
        settings = environment(here, STORE__KEY=STORE_KEY)
        async with daemon(settings, folder=here.folder) as bot:
            await here.signal.say("a long question")
            await here.model.wait_for_requests(1)
            copied, refused = await asyncio.gather(
                run_command(["backup", "copy.db"], settings, folder=here.folder),
                run_command(["restore", "copy.db"], settings, folder=here.folder),
            )
            think.set()
            assert (await here.answer()).text == "first"
            await stopped(bot)
        code, out, err = await run_command(["restore", "copy.db"], settings, folder=here.folder)
        async with running_bot(here.settings(store={"key": STORE_KEY})):
            await here.signal.say("a short question")
            assert (await here.answer()).text == "second"
    assert copied == (0, "Copied to copy.db\n", "")
    assert refused == (1, "", "restore: another process uses this store: stop the bot first\n")
    assert (code, err) == (0, "")
    assert "Restored from copy.db\nThe store before is now " in out
    assert " 1 messages that waited, 0 on their way." in out
    assert here.answers() == ["first", "second"]


async def test_restore_of_a_wrong_file_fails_in_one_line() -> None:
    async with world() as here:
        settings = environment(here)
        code, out, err = await run_command(["restore", "copy.db"], settings, folder=here.folder)
    assert (code, out, err) == (1, "", "restore: there is no such copy\n")


@pytest.mark.full
async def test_killed_at_any_moment_of_going_back_there_is_a_store_and_nothing_is_lost() -> None:
    dice = Random(6)
    async with world() as here:
        settings = environment(here)
        async with running_bot(here.settings()):
            await here.signal.say("in both")
            await here.answer()
            await run_command(["backup", "copy.db"], settings, folder=here.folder)
            await here.signal.say("in the present one")
            await here.answer()
        said = histories(here.folder)
        for _ in range(KILLS):
            await _killed_restore(here, settings, after=dice.uniform(0.1, MAX_RUN_SECONDS))
            async with open_store(here.folder / "store.db") as store:
                known = (
                    await store.turns.history(ChatId.parse(f"direct:{ADA.aci}"), max_bytes=100_000)
                ).turns
            assert len(known) in {1, 2}
            assert histories(here.folder) == said
            assert not list(here.folder.glob("*.draft*"))


async def _killed_restore(here: World, settings: dict[str, str], *, after: float) -> None:
    command = asyncio.create_task(run_command(["restore", "copy.db"], settings, folder=here.folder))
    await asyncio.wait({command}, timeout=after)
    command.cancel()  # `run_command` kills what still runs
    await asyncio.wait({command})


async def test_a_copy_without_room_leaves_nothing_behind() -> None:
    async with world() as here:
        folder = here.folder / "small"
        folder.mkdir()
        try:
            with memory_disk(folder) as disk:
                async with running_bot(here.settings()):
                    await here.signal.say("hello")
                    await here.answer()
                    disk.fill()
                    code, _, err = await run_command(
                        ["backup", "small/copy.db"], environment(here), folder=here.folder
                    )
                assert (code, err) == (1, "backup: the copy cannot be written: the disk is full\n")
                assert [path.name for path in folder.iterdir()] == ["filler"]
        except CannotMount as reason:
            pytest.skip(str(reason))
