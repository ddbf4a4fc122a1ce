"""A plain store is encrypted, and an encrypted one gets another key, despite kills and failures."""

import asyncio
import sys
from asyncio.subprocess import DEVNULL, PIPE
from contextlib import closing
from pathlib import Path
from typing import Final

import apsw
import pytest

from conversation_store.backup import encrypt, is_plain, key_fits
from conversation_store.connections import StoreFailed, StoreLocked, StoreUnreadable, WrongKey
from conversation_store.store import open_store
from tests.unit.stores import answer, questions, received

WORD: Final = "sesquipedalian"
NEW: Final = "a new key"
VALUE_SQL: Final = "SELECT value FROM metadata WHERE name = 'name'"
RAW: Final = "raw:" + "0123456789abcdef" * 4
STEP_SECONDS: Final = 15.0

ENDS_EARLY: Final = """
import os, sys
from pathlib import Path
from conversation_store.backup import encrypt

path, key, new_key = Path(sys.argv[1]), sys.argv[2] or None, sys.argv[3]
steps = 0

def count(event, arguments):
    global steps
    if event in {"open", "os.rename", "os.remove"}:
        steps -= 1
        if steps < 0:
            os._exit(9)

for line in sys.stdin:
    steps = int(line)
    child = os.fork()
    if child == 0:
        sys.addaudithook(count)
        encrypt(path, key, new_key)
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
"""For each number that it reads: a process that encrypts and ends as by a power cut, before it has
opened, renamed or deleted so many files and another."""


async def make(path: Path, key: str | None) -> None:
    async with open_store(path, key=key) as store:
        await answer(store, received(1, WORD))


async def holds(path: Path, key: str | None) -> bool:
    async with open_store(path, key=key) as store:
        return await questions(store, received(1).chat) == [WORD]


def traces(folder: Path) -> list[str]:
    return [file.name for file in folder.iterdir() if WORD.encode() in file.read_bytes()]


def names(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


@pytest.mark.parametrize("key", ["it's a Schlüssel 🔑", "raw:no digits", RAW])
async def test_a_store_opens_again_and_by_sqlites_own_derivation(key: str, tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    for value in ("first", "second"):
        async with open_store(path, key=key) as store:
            await store.set_metadata("name", value)
    with closing(apsw.Connection(str(path))) as database:
        database.pragma("key", key)
        assert database.execute(VALUE_SQL).fetchall() == [("second",)]
        database.execute("UPDATE metadata SET value = 'third'")
    async with open_store(path, key=key) as store:
        assert await store.get_metadata("name") == "third"
    for wrong in (None, f"{key} ", "raw:" + "0" * 64):
        with pytest.raises(WrongKey):
            async with open_store(path, key=wrong):
                pass


@pytest.mark.parametrize("old", [None, "an old key"])
async def test_a_store_is_whole_under_its_new_key_and_nothing_is_left_in_the_clear(
    old: str | None, tmp_path: Path
) -> None:
    path = tmp_path / "store.db"
    await make(path, old)
    assert is_plain(path) is (old is None)
    encrypt(path, old, NEW)
    assert (is_plain(path), key_fits(path, NEW), key_fits(path, old or "")) == (False, True, False)
    assert await holds(path, NEW)
    assert traces(tmp_path) == []
    assert names(tmp_path) == ["store.db", "store.db.lock"]


@pytest.mark.parametrize("old", [None, "an old key"])
async def test_a_crash_at_any_step_leaves_the_store_under_its_old_key_or_its_new_one(
    old: str | None, tmp_path: Path
) -> None:
    path = tmp_path / "store.db"
    await make(path, old)
    keys = set()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", ENDS_EARLY, str(path), old or "", NEW),
        stdin=PIPE,
        stdout=PIPE,
        stderr=DEVNULL,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    for steps in range(100):
        process.stdin.write(f"{steps}\n".encode())
        async with asyncio.timeout(STEP_SECONDS):
            code = int(await process.stdout.readline())
        # The next start finishes what was decided, and forgets what was not.
        key = old
        try:
            assert await holds(path, old)
        except WrongKey:
            key = NEW
            assert await holds(path, NEW)
        keys.add(key)
        if key == NEW:
            assert traces(tmp_path) == []
            break
        assert code == 9
    assert keys == {old, NEW}
    process.stdin.close()
    await process.wait()


async def test_store_stays_unchanged_if_encryption_fails(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with pytest.raises(StoreFailed, match="there is no store yet"):
        encrypt(path, None, NEW)
    await make(path, "an old key")
    with pytest.raises(WrongKey):
        encrypt(path, "another key", NEW)
    with pytest.raises(WrongKey):
        encrypt(path, None, NEW)
    async with open_store(path, key="an old key"):
        with pytest.raises(StoreLocked):
            encrypt(path, "an old key", NEW)
    assert await holds(path, "an old key")
    rubbish = tmp_path / "rubbish.db"
    rubbish.write_bytes(b"SQLite format 3\0" + b"x" * 5_000)
    with pytest.raises((StoreUnreadable, StoreFailed)):
        encrypt(rubbish, None, NEW)
    assert rubbish.read_bytes().endswith(b"x" * 5_000)
