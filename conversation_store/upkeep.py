"""What a store needs beside its messages: how large it is, and that it stays small."""

import os
from pathlib import Path
from typing import Final

from conversation_store.atomic_replace import LOG, beside
from conversation_store.connections import Execute
from conversation_store.errors import StoreFailed
from conversation_store.models import StoreSizes

INCREMENTAL: Final = 2
"""What SQLite calls a file that is made smaller step by step."""

FREE_SHARE: Final = 5
"""A file may hold nothing in a fifth of its pages: that is used again soon."""

MIN_FREE_PAGES: Final = 1_024

PAGES_PER_STEP: Final = 256
"""Pages that move in one write."""


def sizes(execute: Execute, path: Path) -> StoreSizes:
    """Return how much room a store takes and has left, and how much waits in it.

    Raises:
        StoreFailed: the disk does not say.
    """
    try:
        in_log = log_bytes(path)
        disk = os.statvfs(path.parent)
    except OSError as error:
        raise StoreFailed(f"the disk does not say what is free: {error.strerror}") from error
    ((page_bytes,),) = execute("PRAGMA page_size")
    ((pages,),) = execute("PRAGMA page_count")
    ((free_pages,),) = execute("PRAGMA freelist_count")
    ((messages, oldest),) = execute(
        "SELECT count(*), min(received_at) FROM inbox WHERE state = 'waiting'"
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


def give_back(execute: Execute) -> int:
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


def log_bytes(path: Path) -> int:
    """Return how large a store's write-ahead log is."""
    try:
        return beside(path, LOG).stat().st_size
    except FileNotFoundError:
        return 0
