"""A store's key is derived once; the file is as SQLite's own derivation makes and opens it."""

from contextlib import closing
from pathlib import Path

import apsw
import pytest

from conversation_store.connections import WrongKey
from conversation_store.store import open_store

KEYS = ["k", "it's a secret", "Schlüssel 🔑", "x" * 500, "raw:no digits"]
RAW = "raw:" + "0123456789abcdef" * 4


@pytest.mark.parametrize("key", [*KEYS, RAW])
async def test_a_store_opens_again_and_by_sqlites_own_derivation(key: str, tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    for value in ("first", "second"):
        async with open_store(path, key=key) as store:
            await store.set_metadata("name", value)
    with closing(apsw.Connection(str(path))) as database:
        database.pragma("key", key)
        assert database.execute("SELECT value FROM metadata").fetchall() == [("second",)]
        database.execute("UPDATE metadata SET value = 'third'")
    async with open_store(path, key=key) as store:
        assert await store.get_metadata("name") == "third"


@pytest.mark.parametrize("key", KEYS)
async def test_another_key_opens_nothing(key: str, tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with open_store(path, key=key):
        pass
    for wrong in (f"{key} ", RAW):
        with pytest.raises(WrongKey):
            async with open_store(path, key=wrong):
                pass
