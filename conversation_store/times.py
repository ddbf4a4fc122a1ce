"""What a wrong clock has left behind."""

from typing import Final

from conversation_store.connections import Execute

_RECEIVED: Final = (
    ("inbox", "received_at", True),
    ("turns", "started_at", True),
    ("outbox", "created_at", True),
    ("overheard", "heard_at", True),
    ("audit", "at", False),
)
"""Tables, when their rows came to be, and whether those can disappear."""


def newest(execute: Execute) -> int | None:
    """Return when the newest message was received, in ms since 1970; None without any."""
    ((received_at,),) = execute("SELECT max(received_at) FROM inbox")
    return None if received_at is None else int(received_at)


def set_back(execute: Execute, now_ms: int) -> None:
    """Let what came in the future have come now, and disappear as long after that as it was to."""
    for table, came_at, disappears in _RECEIVED:
        timer = f"expires_at = expires_at - ({came_at} - ?1), " if disappears else ""
        execute(
            f"UPDATE {table} SET {timer}{came_at} = ?1 WHERE {came_at} > ?1",  # noqa: S608
            (now_ms,),
        )
