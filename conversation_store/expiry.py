"""Messages that disappear take with them whatever was made of them."""

from conversation_store import inbox, outgoing, overheard, turns
from conversation_store.connections import Execute
from conversation_store.models import Expired


def expire(execute: Execute, now_ms: int) -> Expired:
    """Forget what has disappeared; return what is to be answered, and when to come again."""
    for turn_id in turns.expired(execute, now_ms):
        turns.forget(execute, turn_id)
    outgoing.expire(execute, now_ms)
    overheard.expire(execute, now_ms)
    waiting = inbox.take_expired(execute, now_ms)
    expiries = (
        turns.next_expiry(execute),
        outgoing.next_expiry(execute),
        overheard.next_expiry(execute),
        inbox.next_expiry(execute),
    )
    return Expired(min((at for at in expiries if at is not None), default=None), waiting)
