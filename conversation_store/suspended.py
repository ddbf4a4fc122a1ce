"""Turns that wait on disk for people: their only open calls are questions that were sent.

Nothing of such a turn is in memory. Its messages owe an answer all the same, until a person has
answered, has stopped it, or the messages have disappeared.
"""

from typing import Final

from conversation_store import inbox, turns
from conversation_store.connections import Execute
from conversation_store.models import AcceptedMessage

SUSPENDED: Final = """
    SELECT turn_id FROM questions WHERE state = 'open' AND NOT EXISTS (
        SELECT 1 FROM messages LEFT JOIN questions asked ON asked.id = messages.id
        WHERE messages.turn_id = questions.turn_id AND helper_of IS NULL
        AND role = 'tool' AND content IS NULL
        AND (asked.id IS NULL OR asked.state != 'open' OR asked.signal_timestamp IS NULL)
    )
"""
"""Selects the turns."""


def turn_ids(execute: Execute) -> frozenset[int]:
    """Return the turns that wait for people."""
    return frozenset(turn_id for (turn_id,) in execute(SUSPENDED))


def end_expired(execute: Execute, now_ms: int) -> tuple[AcceptedMessage, ...]:
    """Forget turns whose messages have disappeared, and return those messages, closed.

    One that only was told what somebody has taken back (`turns.forget_at_end`) still ends.
    """
    rows = list(
        execute(
            "SELECT id FROM turns WHERE expires_at > 0 AND expires_at <= ? AND state = 'running'"  # noqa: S608
            f" AND id IN ({SUSPENDED})",
            (now_ms,),
        )
    )
    ended: list[AcceptedMessage] = []
    for (turn_id,) in rows:
        ended += inbox.waiting(execute, turn_id)
        inbox.close_joined(execute, turn_id)
        inbox.close(execute, turn_id, "disappeared")
        turns.forget(execute, turn_id)
    return tuple(ended)
