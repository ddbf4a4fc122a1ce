"""What a store needs beside its messages: how large it is, and that it stays small."""

import os
from pathlib import Path

from conversation_store.database import Execute
from conversation_store.errors import StoreFailed
from conversation_store.models import StoreSizes


def sizes(execute: Execute, path: Path) -> StoreSizes:
    """Return how much room a store takes and has left, and how much waits in it.

    Raises:
        StoreFailed: the disk does not say.
    """
    try:
        log_bytes = _size(path.with_name(path.name + "-wal"))
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
        log_bytes=log_bytes,
        free_bytes=free_pages * page_bytes,
        disk_free_bytes=disk.f_bavail * disk.f_frsize,
        waiting_messages=messages,
        waiting_sends=sends,
        waiting_signatures=signatures,
        oldest_waiting_at=oldest,
    )


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
