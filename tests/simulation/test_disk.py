import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count
from pathlib import Path
from random import Random

import apsw
import pytest

from conversation_store import connections
from conversation_store.connections import StoreRefused
from conversation_store.models import ChatId
from conversation_store.store import open_store
from tests.simulation.disk import Disk, Refusal, in_loop_connection

CHAT = ChatId("chat")

BOTH_KILLS = pytest.mark.parametrize("power", [False, True])


@contextmanager
def opened(path: Path, connections_to_it: int = 3) -> Iterator[list[apsw.Connection]]:
    """Open connections as the product does."""
    several = [apsw.Connection(str(path)) for _ in range(connections_to_it)]
    try:
        for connection in several:
            connections.prepare(connection, None)
        yield several
    finally:
        for connection in several:
            connection.close()


def add(writer: apsw.Connection, number: int) -> None:
    """Commit a transaction that changes a few pages; all such transactions differ."""

    def operation(db: connections.Session) -> None:
        db.run("CREATE TABLE IF NOT EXISTS rows(number INTEGER PRIMARY KEY, words TEXT)")
        db.run("INSERT INTO rows VALUES (?, ?)", number, f"{number} " * 900)
        db.run("UPDATE rows SET words = ? WHERE number = ?", f"changed by {number}", number - 3)
        db.run("DELETE FROM rows WHERE number = ?", number - 8)

    connections.transact(writer, [operation])


def rows_after(number: int) -> list[connections.Row]:
    """Return the rows that there are once the transactions up to a number are committed."""
    return [
        (n, f"changed by {n + 3}" if n + 3 <= number else f"{n} " * 900)
        for n in range(max(1, number - 7), number + 1)
    ]


def rows_of(db: connections.Session) -> list[connections.Row]:
    return db.run("SELECT number, words FROM rows ORDER BY number")


def found(path: Path) -> list[connections.Row]:
    """Return the rows after a crash, and check the file."""
    with opened(path, 1) as [connection]:
        assert connection.pragma("integrity_check") == "ok"
        if not connection.table_exists("main", "rows"):
            return []
        return connections.read(connection, rows_of)


def live(disk: Disk, path: Path, number: int, rng: Random) -> int:
    """Commit until the disk dies, and return the last number that was acknowledged."""
    with opened(path) as [writer, aside, reader]:
        disk.die_after(rng.randrange(1, 60))
        try:
            while True:
                add(writer, number + 1)
                number += 1
                reader.execute("SELECT count(*) FROM rows").fetchall()
                if rng.random() < 0.2:
                    connections.empty_log(writer)
                if rng.random() < 0.1:
                    connections.rewrite(writer, 10**9)
                aside.execute("SELECT max(number) FROM rows").fetchall()
        except StoreRefused:
            assert disk.is_dead
    return number


@BOTH_KILLS
def test_committed_transactions_survive_every_kill_and_others_vanish(
    tmp_path: Path, power: bool
) -> None:
    disk, rng, path = Disk(), Random(7), tmp_path / "store.db"
    unreported = 0
    with disk.mounted():
        number = 0
        for _ in range(300):
            acknowledged = live(disk, path, number, rng)
            disk.crash(rng, power=power)
            rows = found(path)
            number = rows[-1][0] if rows else 0
            assert number in (acknowledged, acknowledged + 1)  # killed before the report
            assert rows == rows_after(number)
            unreported += number - acknowledged
    assert number > 300
    assert unreported > 0


def vacuum(writer: apsw.Connection) -> None:
    connections.rewrite(writer, 10**9)


ACTIONS = [partial(add, number=21), connections.empty_log, vacuum]


@BOTH_KILLS
@pytest.mark.parametrize("action", ACTIONS, ids=["commit", "checkpoint", "rewrite"])
def test_a_kill_at_any_change_leaves_the_old_or_the_new_state(
    tmp_path: Path, action: Callable[[apsw.Connection], object], power: bool
) -> None:
    path, seen = tmp_path / "store.db", []
    new = 21 if action is ACTIONS[0] else 20
    for moment in count(1):
        disk = Disk()
        with disk.mounted():
            with opened(path) as [writer, *_]:
                for number in range(1, 21):
                    add(writer, number)
                disk.die_after(moment)
                with suppress(StoreRefused):
                    action(writer)
                survived = not disk.is_dead
                disk.die()
            disk.crash(Random(moment), power=power)
            rows = found(path)
        assert rows in (rows_after(20), rows_after(new))
        seen.append(rows)
        for file in tmp_path.iterdir():
            file.unlink()
        if survived:
            break
    assert len(seen) > 3
    assert seen[0] == rows_after(20)
    assert seen[-1] == rows_after(new)


def test_without_syncs_a_power_loss_loses_commits_and_a_kill_does_not(tmp_path: Path) -> None:
    lost = {True: 0, False: 0}
    for power in lost:
        for seed in range(20):
            disk, path = Disk(), tmp_path / f"{power}-{seed}.db"
            with disk.mounted():
                with opened(path, 1) as [writer]:
                    add(writer, 1)
                    writer.execute("PRAGMA synchronous = OFF")
                    add(writer, 2)
                    add(writer, 3)
                    disk.die()
                disk.crash(Random(seed), power=power)
                with opened(path, 1) as [reader]:
                    last = reader.execute("SELECT max(number) FROM rows").get
                    lost[power] += last < 3
    assert lost[False] == 0
    assert 0 < lost[True] < 20


def test_an_open_transaction_vanishes(tmp_path: Path) -> None:
    disk, path = Disk(), tmp_path / "store.db"
    with disk.mounted():
        with opened(path) as [writer, *_]:
            add(writer, 1)
            writer.execute("PRAGMA cache_size = 1")  # so that pages are written before the commit
            writer.execute("BEGIN")
            for number in range(2, 50):
                writer.execute("INSERT INTO rows VALUES (?, ?)", (number, "x" * 3_000))
            disk.die()
        disk.crash(Random(0), power=False)
        assert found(path) == rows_after(1)


def test_a_dead_process_changes_nothing_and_a_forgotten_connection_does_no_harm(
    tmp_path: Path,
) -> None:
    disk, path, deaths = Disk(), tmp_path / "store.db", []
    with disk.mounted():
        forgotten = apsw.Connection(str(path))
        connections.prepare(forgotten, None)
        add(forgotten, 1)
        disk.die_after(1, lambda: deaths.append("died"))
        with pytest.raises(StoreRefused):
            add(forgotten, 2)
        forgotten.execute("BEGIN IMMEDIATE")
        with pytest.raises(apsw.CantOpenError):
            apsw.Connection(str(path)).execute("SELECT 1 FROM sqlite_schema")
        disk.crash(Random(0), power=False)
        with opened(path) as [writer, *_]:
            add(writer, 2)
            with pytest.raises(apsw.IOError):
                forgotten.execute("DELETE FROM rows; COMMIT")
            forgotten.close()
            add(writer, 3)
        assert found(path) == rows_after(3)
    assert deaths == ["died"]


@pytest.mark.parametrize(
    ("full", "refuses", "error"),
    [
        (True, "", apsw.FullError),
        (False, "read-only", apsw.ReadOnlyError),
        (False, "io", apsw.IOError),
    ],
)
def test_a_refusing_disk_can_be_read_and_heals(
    tmp_path: Path, full: bool, refuses: Refusal, error: type[apsw.Error]
) -> None:
    disk, path = Disk(), tmp_path / "store.db"
    with disk.mounted():
        with opened(path) as [writer, _, reader]:
            add(writer, 1)
            disk.full, disk.refuses = full, refuses
            for _ in range(3):
                with pytest.raises(StoreRefused) as refused:
                    add(writer, 2)
                assert type(refused.value.__cause__) is error
            assert reader.execute("SELECT max(number) FROM rows").get == 1
            disk.full, disk.refuses = False, ""
            add(writer, 2)
            assert reader.execute("SELECT max(number) FROM rows").get == 2
            disk.full, disk.refuses = full, refuses
        disk.full, disk.refuses = False, ""
        assert found(path) == rows_after(2)


def test_the_same_seeds_leave_the_same_bytes(tmp_path: Path) -> None:
    histories = []
    for name in ("first", "second"):
        folder = tmp_path / name
        folder.mkdir()
        disk, rng, path, number = Disk(5), Random(5), folder / "store.db", 0
        history = []
        with disk.mounted():
            for _ in range(10):
                live(disk, path, number, rng)
                disk.crash(rng, power=rng.random() < 0.5)
                history.append({file.name: file.read_bytes() for file in folder.iterdir()})
                rows = found(path)
                number = rows[-1][0] if rows else 0
        histories.append((history, disk.writes, disk.syncs))
    assert histories[0] == histories[1]


def test_the_default_disk_returns_after_the_block(tmp_path: Path) -> None:
    before = apsw.vfs_names()
    with Disk().mounted():
        assert apsw.vfs_names()[1:] == before
    assert apsw.vfs_names() == before


async def switched_off(path: Path, disk: Disk, dies_after: int = 10**9) -> bool:
    """Run the store as a bot does that is cancelled when the disk dies; False if it was killed."""

    async def run() -> None:
        async with open_store(path) as store:
            await store.memory.switch(CHAT, on=False)

    loop = asyncio.get_running_loop()
    bot = asyncio.create_task(run())

    def kill() -> None:
        loop.call_soon_threadsafe(bot.cancel)

    disk.die_after(dies_after, kill)
    await asyncio.wait({bot})
    if not disk.is_dead:
        bot.result()
    return not disk.is_dead


async def is_off(path: Path) -> bool:
    async with open_store(path) as store:
        return await store.memory.is_off(CHAT)


def test_the_store_opens_after_a_kill_at_any_change_of_its_first_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "connection", partial(in_loop_connection, delay=lambda: 0.0))
    answers = []
    for moment in count(1, 3):
        disk, path = Disk(), tmp_path / f"{moment}" / "store.db"
        with disk.mounted():
            survived = asyncio.run(switched_off(path, disk, moment))
            disk.crash(Random(moment), power=True)
            answers.append(asyncio.run(is_off(path)))
        if survived:
            break
    assert len(answers) > 10
    assert answers == sorted(answers)  # first not yet, then always
    assert answers[-1]


def test_the_store_works_on_the_disk_with_its_threads(tmp_path: Path) -> None:
    disk, path = Disk(), tmp_path / "store.db"
    with disk.mounted():
        assert asyncio.run(switched_off(path, disk))
        disk.crash(Random(0), power=True)
        assert asyncio.run(is_off(path))
    assert disk.syncs > 0


def test_operations_in_the_loop_keep_their_order_and_let_other_tasks_run(tmp_path: Path) -> None:
    delays = iter([0.0, 0.0, 0.02, 0.0, 0.0, 0.0])
    events: list[object] = []

    async def other() -> None:
        events.append("another task")

    async def operations() -> None:
        path = tmp_path / "store.db"
        async with in_loop_connection(path, None, delay=lambda: next(delays)) as connection:
            run = connection.async_run
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(run(lambda raw: events.append(type(raw)), connection))
                tasks.create_task(run(events.append, "second"))
                tasks.create_task(other())

    with Disk().mounted():
        asyncio.run(operations())
    assert events == ["another task", apsw.Connection, "second"]


def test_a_busy_connection_does_not_wait_in_real_time(tmp_path: Path) -> None:
    with Disk().mounted():
        with opened(tmp_path / "store.db") as [writer, other, _]:
            writer.execute("BEGIN IMMEDIATE")
            began = time.monotonic()
            with pytest.raises(StoreRefused) as refused:
                add(other, 1)
            assert type(refused.value.__cause__) is apsw.BusyError
    assert time.monotonic() - began < connections.BUSY_TIMEOUT_MS / 2_000
