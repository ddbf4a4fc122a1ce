"""Messages that disappear take with them whatever was made of them."""

from conversation_store import inbox, outgoing, overheard, turns
from conversation_store.database import Execute
from conversation_store.models import Expired


def expire(execute: Execute, now_ms: int) -> tuple[Expired, bool]:
    """Forget what has disappeared; return what is to be answered, and whether anything went."""
    gone = turns.expired(execute, now_ms)
    for turn_id in gone:
        turns.forget(execute, turn_id)
    given_up = outgoing.expire(execute, now_ms)
    heard = overheard.expire(execute, now_ms)
    waiting = inbox.take_expired(execute, now_ms)
    expiries = (
        turns.next_expiry(execute),
        outgoing.next_expiry(execute),
        overheard.next_expiry(execute),
        inbox.next_expiry(execute),
    )
    next_at = min((at for at in expiries if at is not None), default=None)
    return Expired(next_at, waiting), bool(gone or given_up or heard or waiting)
