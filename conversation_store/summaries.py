"""Summaries of the oldest turns of chats, and the turns that the next one is to be made of.

Each summary is made only of its own turns. When any of them is deleted, a trigger (`schema.py`)
deletes the summary too, and the remaining turns are summarised again.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final, NamedTuple

from conversation_store import history, usage
from conversation_store.connections import Row, Session
from conversation_store.database import (
    Aggregate,
    reads,
    reads_aside,
    writes,
    writes_and_scrubs_soon,
)
from conversation_store.models import DAY_MS, ChatId, Message, NewExchange

LEFT_MS: Final = DAY_MS
"""Turns kept for less than this are not summarised: the summary would soon be deleted too."""

KEPT_SHARE: Final = 0.7
"""Share of the room that turns keep when the oldest of them are summarised."""

TURNS_SQL: Final = """
    SELECT turns.id,
        (expires_at IS NULL OR expires_at > ?2) AND started_at > ?3,
        sum(octet_length(coalesce(content, '')) + octet_length(coalesce(tool_calls, ''))
            + octet_length(coalesce(messages.state, '')))
    FROM turns JOIN messages ON messages.turn_id = turns.id
    WHERE turns.chat = ?1 AND turns.state IN ('answered', 'failed') AND helper_of IS NULL
        AND NOT EXISTS (SELECT 1 FROM summaries
            WHERE summaries.chat = ?1 AND turns.id BETWEEN first_turn AND last_turn)
    GROUP BY turns.id ORDER BY turns.id
"""
"""Turns that no summary covers: id, whether it is kept long enough, and bytes."""


class Summary(NamedTuple):
    """A summary of the turns of a chat from the first to the last; rows never change."""

    id: int
    first_turn: int
    last_turn: int
    text: str


class Due(NamedTuple):
    """Turns that are to be summarised, with their messages; or summaries that are to become one."""

    turns: tuple[tuple[int, tuple[Message, ...]], ...] = ()
    summaries: tuple[Summary, ...] = ()


class SummaryStore(Aggregate):
    """The summaries of all chats."""

    @reads
    def of_chat(self, db: Session, chat: ChatId) -> tuple[Summary, ...]:
        """Return a chat's summaries, oldest first."""
        return _of_chat(db, chat) if self._context.with_summaries.may_have(db, chat) else ()

    @reads_aside
    def due(self, db: Session, chat: ChatId, *, most_bytes: int, request_bytes: int) -> Due | None:
        """Return the turns or summaries to summarise next, or None.

        In this order: turns between summaries, whose own summary was deleted; the oldest summaries,
        once all summaries exceed half of `most_bytes`; the oldest turns, once all turns and
        summaries together exceed `most_bytes`.

        Args:
            request_bytes: bytes of the returned turns at most, unless it is a single turn.
        """
        now = self._now_ms()
        kept_since = now - self._context.retention_days * DAY_MS + LEFT_MS
        known = _of_chat(db, chat)
        turns = db.run(TURNS_SQL, chat, now + LEFT_MS, kept_since)
        last = known[-1].last_turn if known else 0
        between = _neighbours(known, [row for row in turns if row[0] < last and row[1]])
        if found := _first(between, request_bytes):
            return Due(_with_messages(db, found))
        sizes = [len(one.text.encode()) for one in known]
        if len(known) > 1 and sum(sizes) > most_bytes // 2:
            return Due(summaries=known[: (len(known) + 1) // 2])
        newest = [row for row in turns if row[0] > last]
        size = sum(sizes) + sum(size for *_, size in newest)
        if size <= most_bytes:
            return None
        old: list[Row] = []
        for row in newest[:-1]:
            if size <= most_bytes * KEPT_SHARE:
                break
            size -= row[2]
            old.append(row)
        found = _first([row for row in old if row[1]], request_bytes)
        return Due(_with_messages(db, found)) if found else None

    @writes_and_scrubs_soon
    def forget_all(self, db: Session) -> None:
        """Delete all summaries."""
        db.run("DELETE FROM summaries")

    @writes
    def add(
        self,
        db: Session,
        chat: ChatId,
        due: Due,
        text: str,
        turn_id: int = 0,
        *,
        exchanged: Sequence[NewExchange] = (),
    ) -> bool:
        """Store a summary; False if something of it was deleted in the meantime.

        Args:
            turn_id: the turn that the exchange with the model is counted to.
            exchanged: that exchange, if its signature is to be checked.
        """
        usage.add_exchanges(db, turn_id, exchanged)
        known = {one.id for one in _of_chat(db, chat)}
        if not known.issuperset(one.id for one in due.summaries):
            return False
        sql = "SELECT 1 FROM turns WHERE id = ? AND chat = ? AND state IN ('answered', 'failed')"
        if not all(db.run(sql, turn_id, chat) for turn_id, _ in due.turns):
            return False
        for summary in due.summaries:
            db.run("DELETE FROM summaries WHERE id = ?", summary.id)
        self._context.with_summaries.add(chat)
        ends = due.summaries or [(0, turn_id, turn_id) for turn_id, _ in due.turns]
        db.insert("summaries", chat=chat, first_turn=ends[0][1], last_turn=ends[-1][2], text=text)
        return True


def _of_chat(db: Session, chat: ChatId) -> tuple[Summary, ...]:
    rows = db.run(
        "SELECT id, first_turn, last_turn, text FROM summaries WHERE chat = ? ORDER BY first_turn",
        chat,
    )
    return tuple(Summary(*row) for row in rows)


def _neighbours(known: Sequence[Summary], rows: Iterable[Row]) -> list[Row]:
    """Return the first turns that have the same summaries before and after them."""
    groups: Iterator[tuple[int, Iterator[Row]]] = groupby(
        rows, lambda row: sum(one.last_turn < row[0] for one in known)
    )
    return next((list(group) for _, group in groups), [])


def _first(rows: Iterable[Row], most_bytes: int) -> list[int]:
    """Return the ids of the first turns that fit, but at least one."""
    found: list[int] = []
    for turn_id, _, size in rows:
        most_bytes -= size
        if found and most_bytes < 0:
            break
        found.append(turn_id)
    return found


def _with_messages(
    db: Session, turns: Iterable[int]
) -> tuple[tuple[int, tuple[Message, ...]], ...]:
    return tuple((turn_id, history.of_turn(db, turn_id)) for turn_id in turns)
