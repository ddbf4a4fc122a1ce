"""What keeps the store small, and says how it is."""

import asyncio
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from conversation_store import (
    backup,
    catch_up,
    inbox,
    instructions,
    metadata,
    outgoing,
    overheard,
    remembered,
    reminders,
    suspended,
    token_usage,
    turns,
)
from conversation_store.atomic_replace import LOG, beside
from conversation_store.connections import Execute
from conversation_store.database import MAX_LOG_BYTES
from conversation_store.errors import StoreFailed
from conversation_store.models import Expired, StoreSizes
from conversation_store.sections import doubts
from conversation_store.sections.section import Section, reads, reads_aside, writes

DAY_MS: Final = 86_400_000

PURGE_ROWS: Final = 100
"""Rows that go in one write."""

PINGED: Final = "pinged_at"
"""Name of the fact that shows whether anything can be written."""

DUPLICATES_KNOWN_DAYS: Final = 45
"""Signal's server keeps undelivered messages about that long (SIGNAL_WIRE 5.2), so the key of a
message must be remembered at least as long to know it again."""

INCREMENTAL: Final = 2
"""What SQLite calls a file that is made smaller step by step."""

FREE_SHARE: Final = 5
"""A file may hold nothing in a fifth of its pages: that is used again soon."""

MIN_FREE_PAGES: Final = 1_024

PAGES_PER_STEP: Final = 256
"""Pages that move in one write."""

_RECEIVED: Final = (
    ("inbox", "received_at", True),
    ("turns", "started_at", True),
    ("outbox", "created_at", True),
    ("overheard", "heard_at", True),
    ("audit", "at", False),
    ("remembered", "said_at", True),
    ("kept_words", "heard_at", True),
)
"""Tables, when their rows came to be, and whether those can disappear."""


class StoreUpkeep(Section):
    """What keeps the store small, and says how it is."""

    async def expire(self, now_ms: int | None = None) -> Expired:
        """Forget everything that has disappeared; what is in a turn that runs goes when it ends.

        The log is emptied every time: it still holds what was said in answers that were sent, and
        what could not be emptied before because somebody was reading.

        Args:
            now_ms: the time that counts as now; None takes the clock.

        Returns:
            when to come again, the messages that disappeared before their turn began, without
            their text and the names of their files: they still owe an answer; and those whose
            turn waited for a person's answer, which owe none any more.
        """
        now = self._context.now_ms() if now_ms is None else now_ms
        expired = await self._expire(now)
        await self._database.scrub()
        return expired

    @writes
    def _expire(self, execute: Execute, now_ms: int) -> Expired:
        ended = suspended.end_expired(execute, now_ms)
        for turn_id in turns.expired(execute, now_ms):
            turns.forget(execute, turn_id, time_is_over=True)
        turns.forget_told(execute, remembered.expire(execute, now_ms))
        instructions.expire(execute, now_ms)
        outgoing.expire(execute, now_ms)
        reminders.expire(execute, now_ms)
        overheard.expire(execute, now_ms)
        catch_up.expire(execute, now_ms)
        waiting = inbox.take_expired(execute, now_ms)
        expiries = (
            turns.next_expiry(execute, now_ms),
            outgoing.next_expiry(execute),
            reminders.next_expiry(execute),
            overheard.next_expiry(execute),
            catch_up.next_expiry(execute),
            inbox.next_expiry(execute),
            remembered.next_expiry(execute),
            instructions.next_expiry(execute),
        )
        return Expired(min((at for at in expiries if at is not None), default=None), waiting, ended)

    async def purge(self, now_ms: int | None = None) -> int:
        """Delete what is older than the retention and return how many turns that were.

        Args:
            now_ms: the time that counts as now; None takes the clock.
        """
        now = self._context.now_ms() if now_ms is None else now_ms
        before = now - self._context.retention_days * DAY_MS
        keys_before = now - max(self._context.retention_days, DUPLICATES_KNOWN_DAYS) * DAY_MS

        deleted = await self._in_steps(partial(turns.purge, before=before))
        await self._in_steps(partial(_purge_facts, before=before))
        await self._in_steps(partial(outgoing.purge, before=before))
        await self._in_steps(partial(overheard.purge, before=before))
        missed_before = max(before, now - catch_up.MAX_DAYS * DAY_MS)
        await self._in_steps(partial(catch_up.purge, before=missed_before))
        await self._in_steps(partial(_purge_reminders, before=before))
        await self._in_steps(_purge_exchanges)
        await self._in_steps(partial(inbox.purge, before=keys_before))
        await self._in_steps(partial(_purge_audit, before=before))
        await self._database.write(lambda execute: doubts.purge(execute, now))
        await self._database.write(lambda execute: token_usage.purge(execute, now))
        await self._database.write(remembered.purge_chats)
        return deleted

    async def _in_steps(self, purge: Callable[..., int]) -> int:
        """Delete a few rows at a time, so that no message waits behind all of them."""
        deleted = 0
        while step := await self._database.write(partial(purge, at_most=PURGE_ROWS)):
            deleted += step
        if deleted:
            self._database.scrub_soon()
        return deleted

    async def give_back(self) -> int:
        """Give the file system back what the file holds no more; return how many bytes.

        A store that was made by a version before this one keeps its size, and uses it again.
        """
        log_bytes = await self._log_bytes()
        given_back = 0
        while step := await self._database.write(_give_back):
            given_back += step
        if log_bytes > MAX_LOG_BYTES:
            await self._database.scrub()
        return given_back

    async def forget_before_upgrade(self, now_ms: int) -> int:
        """Delete the store as it was before an upgrade, once that is long ago; return how many.

        Args:
            now_ms: the time that counts as now.

        Raises:
            StoreFailed: the disk does not let it.
        """
        return await asyncio.to_thread(backup.forget_before_upgrade, self._context.path, now_ms)

    @reads
    def newest(self, execute: Execute) -> float | None:
        """Return when the newest message was received, in seconds since 1970; None without any."""
        ((received_at,),) = execute("SELECT max(received_at) FROM inbox")
        return None if received_at is None else int(received_at) / 1_000

    @writes
    def set_back(self, execute: Execute) -> None:
        """Let what was stored in the future, by a clock that was wrong, have been stored now.

        Its timers begin anew; else it would stay for as long as the clock was ahead.
        """
        for table, came_at, disappears in _RECEIVED:
            timer = f"expires_at = expires_at - ({came_at} - ?1), " if disappears else ""
            execute(
                f"UPDATE {table} SET {timer}{came_at} = ?1 WHERE {came_at} > ?1",  # noqa: S608
                (self._context.now_ms(),),
            )
        reminders.set_back(execute, self._context.now_ms())

    @reads_aside
    def sizes(self, execute: Execute) -> StoreSizes:
        """Return how large the store is and how much waits in it; cheap.

        Raises:
            StoreFailed: the disk is broken, or does not say.
        """
        try:
            in_log = _log_bytes(self._context.path)
            disk = os.statvfs(self._context.path.parent)
        except OSError as error:
            raise StoreFailed(f"the disk does not say what is free: {error.strerror}") from error
        ((page_bytes,),) = execute("PRAGMA page_size")
        ((pages,),) = execute("PRAGMA page_count")
        ((free_pages,),) = execute("PRAGMA freelist_count")
        ((messages, oldest),) = execute(
            "SELECT count(*), min(received_at) FROM inbox WHERE state = 'waiting'"  # noqa: S608
            f" AND coalesce(turn_id, id) NOT IN ({suspended.SUSPENDED})"
        )
        ((sends,),) = execute("SELECT count(*) FROM outbox WHERE state = 'waiting'")
        ((signatures,),) = execute("SELECT count(*) FROM exchanges WHERE state = 'waiting'")
        return StoreSizes(
            file_bytes=pages * page_bytes,
            log_bytes=in_log,
            free_bytes=free_pages * page_bytes,
            disk_free_bytes=disk.f_bavail * disk.f_frsize,
            waiting_messages=messages,
            waiting_sends=sends,
            waiting_signatures=signatures,
            oldest_waiting_at=oldest,
        )

    @reads_aside
    def _log_bytes(self, execute: Execute) -> int:
        return _log_bytes(self._context.path)

    async def ping(self) -> None:
        """Write something and wait until it is on disk; see `refusal` for how long that takes.

        Raises:
            StoreError: the store cannot do its work.
        """
        now = str(self._context.now_ms())
        await self._database.write(lambda execute: metadata.put(execute, PINGED, now))


def _purge_exchanges(execute: Execute, at_most: int) -> int:
    """Forget what was checked and is older than every turn that is kept; return how much."""
    sql = (
        "DELETE FROM exchanges WHERE id IN (SELECT id FROM exchanges WHERE state != 'waiting'"
        " AND turn_id < coalesce((SELECT min(id) FROM turns), (SELECT max(turn_id) + 1 FROM"
        " exchanges)) LIMIT ?) RETURNING id"
    )
    return len(list(execute(sql, (at_most,))))


def _purge_facts(execute: Execute, before: int, at_most: int) -> int:
    """Forget facts that were said before a time, and turns that were told them; return how many."""
    count, told = remembered.purge(execute, before, at_most)
    turns.forget_told(execute, told)
    return count


def _purge_reminders(execute: Execute, before: int, at_most: int) -> int:
    """Forget reminders that ended before a time, and turns with their words; return how many."""
    count, holders = reminders.purge(execute, before, at_most)
    turns.forget_told(execute, holders.told + holders.runs)
    return count


def _purge_audit(execute: Execute, before: int, at_most: int) -> int:
    sql = "DELETE FROM audit WHERE id IN (SELECT id FROM audit WHERE at < ? LIMIT ?) RETURNING id"
    return len(list(execute(sql, (before, at_most))))


def _give_back(execute: Execute) -> int:
    """Give the file system back some of what a file holds no more; return how many bytes.

    Pages from the end of the file move to where nothing is, so it is worth it for a large share.
    """
    ((automatic,),) = execute("PRAGMA auto_vacuum")
    ((pages,),) = execute("PRAGMA page_count")
    ((free_pages,),) = execute("PRAGMA freelist_count")
    if automatic != INCREMENTAL or free_pages <= max(MIN_FREE_PAGES, pages // FREE_SHARE):
        return 0
    list(execute(f"PRAGMA incremental_vacuum({PAGES_PER_STEP})"))
    ((page_bytes,),) = execute("PRAGMA page_size")
    ((left,),) = execute("PRAGMA page_count")
    return int((pages - left) * page_bytes)


def _log_bytes(path: Path) -> int:
    """Return how large a store's write-ahead log is."""
    try:
        return beside(path, LOG).stat().st_size
    except FileNotFoundError:
        return 0
