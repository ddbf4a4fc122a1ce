"""How the bot is to be in a chat, by the message that says so; it goes with that message."""

from conversation_store.connections import Execute
from conversation_store.models import ChatId, Instructions


def put(execute: Execute, chat: ChatId, text: str, inbox_id: int) -> Instructions | None:
    """Keep a chat's instructions instead of those before; None where their message is gone."""
    rows = list(
        execute(
            "INSERT OR REPLACE INTO instructions (chat, text, inbox_id, expires_at)"
            " SELECT ?, ?, id, expires_at FROM inbox WHERE id = ? AND state = 'waiting'"
            " RETURNING text, expires_at",
            (chat, text, inbox_id),
        )
    )
    return next((Instructions(*row) for row in rows), None)


def of_chat(execute: Execute, chat: ChatId, now_ms: int) -> Instructions | None:
    """Return a chat's instructions; None where it has none."""
    rows = execute(
        "SELECT text, expires_at FROM instructions WHERE chat = ?"
        " AND (expires_at IS NULL OR expires_at > ?)",
        (chat, now_ms),
    )
    return next((Instructions(*row) for row in list(rows)), None)


def end(execute: Execute, chat: ChatId) -> bool:
    """Forget a chat's instructions; False where it had none."""
    return bool(list(execute("DELETE FROM instructions WHERE chat = ? RETURNING chat", (chat,))))


def forget_from(execute: Execute, inbox_id: int) -> None:
    """Forget the instructions that a message gave."""
    execute("DELETE FROM instructions WHERE inbox_id = ?", (inbox_id,))


def expire(execute: Execute, now_ms: int) -> None:
    """Forget the instructions that have disappeared."""
    execute("DELETE FROM instructions WHERE expires_at <= ?", (now_ms,))


def next_expiry(execute: Execute) -> int | None:
    """Return when the next instructions disappear."""
    ((expires_at,),) = execute(
        "SELECT min(expires_at) FROM instructions WHERE expires_at IS NOT NULL"
    )
    return None if expires_at is None else int(expires_at)
