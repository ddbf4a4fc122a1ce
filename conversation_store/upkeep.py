"""Keeps the store small, deletes what has disappeared, and reports sizes."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from conversation_store import (
    deletion,
    files,
    heard,
    history,
    memory,
    messages,
    outbox,
    reminders,
    usage,
)
from conversation_store.atomic_replace import LOG, beside
from conversation_store.connections import MAX_LOG_BYTES, Session, StoreFailed
from conversation_store.database import Aggregate, reads_aside, writes, writes_and_scrubs
from conversation_store.models import DAY_MS, AcceptedMessage

PURGE_ROWS: Final = 100
"""Rows deleted in one write."""

DUPLICATES_KNOWN_DAYS: Final = 45
"""Signal's server keeps undelivered messages about that long, so keys of messages are kept at least
as long to recognise duplicates."""

INCREMENTAL: Final = 2
"""Value of `auto_vacuum` of a file that is made smaller step by step."""
FREE_SHARE: Final = 5
"""A fifth of a file's pages may be empty: they are used again soon."""
MIN_FREE_PAGES: Final = 1_024
PAGES_PER_STEP: Final = 256
"""Pages moved in one write."""

NEXT_EXPIRY_SQL: Final = f"""
    SELECT min(at) FROM (
        SELECT min(expires_at) AS at FROM turns
            WHERE expires_at IS NOT NULL AND (state != 'running' OR expires_at > ?)
        UNION ALL SELECT min(expires_at + iif(state = 'waiting' AND quote IS NULL,
            {outbox.UNSENT_MS}, 0)) FROM outbox
            WHERE expires_at NOT NULL AND (state != 'sent' OR quote NOT NULL)
        UNION ALL SELECT min(expires_at) FROM reminders WHERE expires_at IS NOT NULL
        UNION ALL SELECT min(expires_at) FROM facts WHERE expires_at IS NOT NULL
        UNION ALL SELECT min(expires_at) FROM instructions
        UNION ALL SELECT min(expires_at) FROM overheard JOIN inbox USING (id)
        UNION ALL SELECT min(expires_at) FROM kept_words JOIN inbox USING (id)
        UNION ALL SELECT min(expires_at) FROM workspace_files JOIN inbox ON inbox.id = message_id
        UNION ALL SELECT min(expires_at) FROM inbox
            WHERE state = 'waiting' AND outcome IS NULL AND NOT EXISTS
            (SELECT 1 FROM turns WHERE turns.id = coalesce(turn_id, inbox.id))
    )
"""
"""When something disappears next. Turns that run past their time are deleted when they end."""


@dataclass(frozen=True, slots=True)
class StoreSizes:
    """Sizes of a store.

    Attributes:
        log_bytes: of the write-ahead log.
        free_bytes: empty pages of the file, which will be used again.
        waiting_messages: owe an answer, and do not wait for a person.
    """

    file_bytes: int
    log_bytes: int
    free_bytes: int
    disk_free_bytes: int
    waiting_messages: int
    waiting_sends: int
    waiting_signatures: int
    oldest_waiting_at: int | None


@dataclass(frozen=True, slots=True)
class Expired:
    """Effects of deleting messages that have disappeared.

    Attributes:
        next_at: when something disappears next; None for never.
        waiting: messages whose turn had not begun; their text and the names of their files are
            deleted, and they still owe an answer.
        ended: messages whose turn waited for a person; they are closed.
    """

    next_at: int | None
    waiting: tuple[AcceptedMessage, ...] = ()
    ended: tuple[AcceptedMessage, ...] = ()


class StoreUpkeep(Aggregate):
    """Upkeep of an open store."""

    @writes_and_scrubs
    def expire(self, db: Session, now_ms: int | None = None) -> Expired:
        """Delete everything that has disappeared, except for running turns.

        The log is emptied every time: it still holds the words of answers that were sent.
        """
        now = self._now_ms() if now_ms is None else now_ms
        ended = _end_suspended(db, now)
        for (turn_id,) in db.run(
            "SELECT id FROM turns WHERE expires_at <= ? AND state != 'running'", now
        ):
            deletion.end(db, turn_id)
        for table in ("facts", "instructions"):
            db.run(f"DELETE FROM {table} WHERE expires_at <= ?", now)
        for table in ("overheard", "kept_words"):
            at = f"(SELECT expires_at FROM inbox WHERE inbox.id = {table}.id)"
            db.run(f"DELETE FROM {table} WHERE {at} <= ?", now)
        outbox.expire(db, now)
        reminders.expire(db, now)
        files.expire(db, now)
        waiting = messages.take_expired(db, now)
        return Expired(db.value(NEXT_EXPIRY_SQL, now), waiting, ended)

    async def purge(self, now_ms: int | None = None) -> int:
        """Delete rows that are older than the retention, and return the number of turns."""
        now = self._now_ms() if now_ms is None else now_ms
        days = self._context.retention_days
        before = now - days * DAY_MS
        kept_before = max(before, now - heard.MAX_DAYS * DAY_MS)
        keys_before = now - max(days, DUPLICATES_KNOWN_DAYS) * DAY_MS
        deleted = await self._delete("turns", "started_at < ? AND state != 'running'", before)
        await self._in_steps(partial(memory.purge, before=before))
        await self._delete("outbox", "created_at < ? AND state != 'waiting'", before)
        for table, oldest in (("overheard", before), ("kept_words", kept_before)):
            came_at = f"(SELECT received_at FROM inbox WHERE inbox.id = {table}.id)"
            await self._delete(table, f"{came_at} < ?", oldest)
        await self._in_steps(partial(reminders.purge, before=before))
        await self._in_steps(usage.purge_exchanges)
        # Turns and answers share the ids of the inbox, so the newest row stays: its id is not
        # reused.
        done = "received_at < ? AND state = 'done' AND id < (SELECT max(id) FROM inbox)"
        await self._delete("inbox", done, keys_before)
        await self._delete("audit", "at < ?", before)
        await self._database.write(partial(outbox.purge, now_ms=now))
        await self._database.write(partial(usage.purge, now_ms=now))
        await self._database.write(memory.purge_chats)
        return deleted

    async def _delete(self, table: str, old: str, before: int) -> int:
        """Delete the rows for which an SQL condition with a time holds; return how many."""
        sql = (
            f"DELETE FROM {table} WHERE id IN (SELECT id FROM {table} WHERE {old} LIMIT ?)"
            " RETURNING id"
        )
        return await self._in_steps(lambda db, at_most: len(db.run(sql, before, at_most)))

    async def _in_steps(self, purge: Callable[..., int]) -> int:
        """Delete a few rows at a time, so that no message waits for all of them."""
        deleted = 0
        while step := await self._database.write(partial(purge, at_most=PURGE_ROWS)):
            deleted += step
        if deleted:
            self._database.scrub_soon()
        return deleted

    async def give_back(self) -> int:
        """Give empty pages of the file back to the file system; return how many bytes."""
        log_bytes = (await self.sizes()).log_bytes
        given_back = 0
        while step := await self._database.write(_give_back):
            given_back += step
        if log_bytes > MAX_LOG_BYTES:
            await self._database.scrub()
        return given_back

    @reads_aside
    def sizes(self, db: Session) -> StoreSizes:
        """Return how large the store is and how much waits in it. Cheap."""
        try:
            log = beside(self._context.path, LOG)
            in_log = log.stat().st_size if log.exists() else 0
            disk = os.statvfs(self._context.path.parent)
        except OSError as error:
            raise StoreFailed(f"the disk does not say what is free: {error.strerror}") from error
        page_bytes = db.value("PRAGMA page_size")
        ((waiting, oldest),) = db.run(
            "SELECT count(*), min(received_at) FROM inbox WHERE state = 'waiting'"
            f" AND coalesce(turn_id, id) NOT IN ({history.SUSPENDED})"
        )
        return StoreSizes(
            file_bytes=db.value("PRAGMA page_count") * page_bytes,
            log_bytes=in_log,
            free_bytes=db.value("PRAGMA freelist_count") * page_bytes,
            disk_free_bytes=disk.f_bavail * disk.f_frsize,
            waiting_messages=waiting,
            waiting_sends=db.value("SELECT count(*) FROM outbox WHERE state = 'waiting'"),
            waiting_signatures=db.value("SELECT count(*) FROM exchanges WHERE state = 'waiting'"),
            oldest_waiting_at=oldest,
        )

    @writes
    def ping(self, db: Session) -> None:
        """Write something and wait until it is on disk; see `ConversationStore.refusal`."""
        now = str(self._now_ms())
        db.run("INSERT OR REPLACE INTO metadata (name, value) VALUES ('pinged_at', ?)", now)


def _end_suspended(db: Session, now_ms: int) -> tuple[AcceptedMessage, ...]:
    """Delete turns that wait for people and have disappeared; return their messages, closed.

    Turns that only read something deleted (`expires_at` is 0) still end.
    """
    ended: list[AcceptedMessage] = []
    for (turn_id,) in db.run(
        "SELECT id FROM turns WHERE expires_at > 0 AND expires_at <= ? AND state = 'running'"
        f" AND id IN ({history.SUSPENDED})",
        now_ms,
    ):
        ended += messages.waiting(db, turn_id)
        messages.close_joined(db, turn_id)
        messages.close(db, turn_id, "disappeared")
        deletion.forget_turns(db, {turn_id})
    return tuple(ended)


def _give_back(db: Session) -> int:
    """Give some empty pages back to the file system; return how many bytes.

    Pages from the end of the file move into empty ones, so this is worth it for a large share.
    """
    pages = db.value("PRAGMA page_count")
    free_pages = db.value("PRAGMA freelist_count")
    if db.value("PRAGMA auto_vacuum") != INCREMENTAL or free_pages <= max(
        MIN_FREE_PAGES, pages // FREE_SHARE
    ):
        return 0
    db.run(f"PRAGMA incremental_vacuum({PAGES_PER_STEP})")
    left = db.value("PRAGMA page_count")
    return int((pages - left) * db.value("PRAGMA page_size"))
