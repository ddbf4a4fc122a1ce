"""Copies of a running bot's store and going back to one."""

import asyncio
import shutil
import signal
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from bot.errors import BotError
from bot.signal import account_copy
from tests.e2e.daemon_process import Daemon, daemon, environment, run_command
from tests.e2e.disks import CannotMount, memory_disk
from tests.e2e.running_bot import running_bot, world
from tests.fakes.openai_server import held, script, text

STORE_KEY: Final = "a key that nobody may see"


async def stopped(bot: Daemon) -> None:
    bot.send_signal(signal.SIGTERM)
    assert await bot.exit_code() == 0


@pytest.mark.full
async def test_restored_copy_answers_no_message_twice() -> None:
    think = asyncio.Event()
    async with world(script(held(think, text("first")), text("second"))) as here:
        settings = environment(here, STORE__KEY=STORE_KEY)
        async with daemon(settings, folder=here.folder) as bot:
            await here.let_think("a long question")
            copied, refused = await asyncio.gather(
                run_command(["backup", "copy.db"], settings, folder=here.folder),
                run_command(["restore", "copy.db"], settings, folder=here.folder),
            )
            think.set()
            assert (await here.answer()).text == "first"
            await stopped(bot)
        code, out, err = await run_command(["restore", "copy.db"], settings, folder=here.folder)
        async with running_bot(here.settings(store={"key": STORE_KEY})):
            assert await here.asked("a short question") == "second"
    assert copied == (0, "Copied to copy.db\n", "")
    assert refused[0] == 1
    assert refused[2].startswith("restore: another process uses this store: stop the bot first (")
    assert (code, err) == (0, "")
    assert "Restored from copy.db\nThe store before is now " in out
    assert " 1 messages that waited, 0 on their way." in out
    assert here.answers() == ["first", "second"]


async def test_restore_of_a_wrong_file_fails_in_one_line() -> None:
    async with world() as here:
        settings = environment(here)
        code, out, err = await run_command(["restore", "copy.db"], settings, folder=here.folder)
    where = f"(from copy.db to {here.folder}/store.db)"
    assert (code, out, err) == (1, "", f"restore: there is no such copy {where}\n")


async def test_plain_copy_of_a_store_that_is_encrypted_now_is_restored_as_the_refusal_says() -> (
    None
):
    async with world() as here:
        plain, encrypted = environment(here), environment(here, STORE__KEY=STORE_KEY)

        async def bot(*arguments: str, settings: dict[str, str]) -> tuple[int, str, str]:
            return await run_command(arguments, settings, folder=here.folder)

        async with running_bot(here.settings()):
            await here.asked("hello")
            assert (await bot("backup", "copy.db", settings=plain))[0] == 0
        assert (await bot("encrypt", settings=encrypted))[0] == 0
        code, _, err = await bot("restore", "copy.db", settings=encrypted)
        assert (code, "Take STORE__KEY out" in err, err.count("\n")) == (1, True, 1)
        assert (await bot("restore", "copy.db", settings=plain))[0] == 0
        assert (await bot("encrypt", settings=encrypted))[0] == 0
        async with running_bot(here.settings(store={"key": STORE_KEY})):
            await here.asked("again")
    assert [one["role"] for one in here.model.requests[-1]["messages"]].count("user") == 2


async def test_a_copy_without_room_leaves_nothing_behind() -> None:
    async with world() as here:
        folder = here.folder / "small"
        folder.mkdir()
        try:
            with memory_disk(folder) as disk:
                async with running_bot(here.settings()):
                    await here.asked("hello")
                    disk.fill()
                    code, _, err = await run_command(
                        ["backup", "small/copy.db"], environment(here), folder=here.folder
                    )
                assert code == 1
                assert err.startswith("backup: the copy cannot be written: the disk is full (from ")
                assert [path.name for path in folder.iterdir()] == ["filler"]
        except CannotMount as reason:
            pytest.skip(str(reason))


# With the Signal account -------------------------------------------------------------------------


def accounts_folder(folder: Path) -> Path:
    """Make signal-cli's folder as it is while signal-cli runs; the database is in WAL mode."""
    data = folder / "signal" / "data"
    (data / "123.d").mkdir(parents=True)
    (data / "accounts.json").write_text('{"accounts": []}')
    (data / "123").write_text('{"registered": true}')
    (folder / "signal" / "attachments").mkdir()
    (folder / "signal" / "attachments" / "photo").write_bytes(b"a file that a person sent")
    return folder / "signal"


def keys_in(folder: Path) -> list[str]:
    with closing(sqlite3.connect(folder / "data" / "123.d" / "account.db")) as database:
        return [key for (key,) in database.execute("SELECT key FROM keys")]


async def test_the_account_is_copied_while_signal_cli_runs_and_comes_back_with_the_store() -> None:
    async with world() as here:
        folder = accounts_folder(here.folder)
        settings = environment(here, STORE__KEY=STORE_KEY, SIGNAL__DATA_DIR=str(folder))
        async with running_bot(here.settings(store={"key": STORE_KEY})):
            await here.asked("hello")
        with closing(sqlite3.connect(folder / "data" / "123.d" / "account.db")) as running:
            running.execute("PRAGMA journal_mode = WAL")
            running.execute("CREATE TABLE keys (key)")
            running.execute("INSERT INTO keys VALUES ('a secret identity')")
            running.commit()
            command = ("backup", "copy.db", "--with-signal", "copies")
            code, out, err = await run_command(command, settings, folder=here.folder)
        assert (code, err) == (0, "")
        assert out.endswith("The Signal account: copies/signal-account.copy\n")
        copy = here.folder / "copies" / "signal-account.copy"
        assert copy.stat().st_mode & 0o777 == 0o600
        assert b"secret identity" not in copy.read_bytes()
        shutil.rmtree(folder)
        accounts_folder(here.folder)
        command = ("restore", "copy.db", "--with-signal", "copies")
        code, out, err = await run_command(command, settings, folder=here.folder)
        assert (code, err) == (0, "")
        assert "Never run it in two places." in out
        assert "The account before is now" in out
        assert keys_in(folder) == ["a secret identity"]
        assert (folder / "data" / "123").read_text() == '{"registered": true}'


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"STORE__KEY": ""}, "STORE__KEY: --with-signal needs it"),
        ({"SIGNAL__DATA_DIR": ""}, "SIGNAL__DATA_DIR: --with-signal needs signal-cli's folder"),
        ({"SIGNAL__DATA_DIR": "/nowhere"}, "/nowhere has no account of signal-cli"),
    ],
)
async def test_a_copy_with_the_account_needs_a_key_and_signal_cli_s_folder(
    changed: dict[str, str], said: str
) -> None:
    async with world() as here:
        folder = str(accounts_folder(here.folder))
        key = changed.get("STORE__KEY", STORE_KEY) or None
        async with running_bot(here.settings(store={"key": key})):
            pass
        settings = environment(here, STORE__KEY=STORE_KEY, SIGNAL__DATA_DIR=folder) | changed
        command = ("backup", "copy.db", "--with-signal", "copies")
        code, _, err = await run_command(command, settings, folder=here.folder)
        assert (code != 0, said in err) == (True, True)


def test_a_damaged_copy_of_the_account_replaces_nothing(tmp_path: Path) -> None:
    folder = accounts_folder(tmp_path)
    file = account_copy.save(folder, STORE_KEY, tmp_path / "copies")
    content = file.read_bytes()
    for key, damaged in ((STORE_KEY, content[:-1] + b"!"), ("another", content), ("", b"no copy")):
        file.write_bytes(damaged)
        with pytest.raises(BotError, match=r"signal-account\.copy is "):
            account_copy.load(folder, key, tmp_path / "copies")
        assert [path.name for path in folder.glob("data*")] == ["data"]
