"""Usage of answers: tokens, and exchanges with an attested model.

Tokens have a row for each day, person, chat and model. Days are those of UTC, so that a change of
the machine's time zone repeats no day. An exchange is a request to an attested model and its
answer: hashes, and the result of the signature check.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Final

from conversation_store import outbox
from conversation_store.connections import Session
from conversation_store.database import Aggregate, reads, reads_aside, writes, writes_later
from conversation_store.models import (
    DAY_MS,
    ChatId,
    ExchangeState,
    NewExchange,
    OutgoingMessage,
    StoredExchange,
    TokenSpend,
    TokenSum,
)

KEPT_DAYS: Final = 31
"""The last 30 days and today."""

SUMS: Final = "sum(prompt_tokens), sum(completion_tokens), max(is_estimated)"


class UsageStore(Aggregate):
    """Counts of tokens, without any text."""

    @reads
    def spent_today(self, db: Session, person: str) -> int:
        """Return how many tokens a person's questions have taken today."""
        sql = "SELECT total(prompt_tokens + completion_tokens) FROM token_usage WHERE person = ?"
        return int(db.value(f"{sql} AND day = ?", person, self._today))

    @reads
    def of_person(self, db: Session, person: str, days: int) -> dict[str, TokenSum]:
        """Return a person's sums of the last days, including today, by model."""
        rows = db.run(
            f"SELECT model, {SUMS} FROM token_usage"
            " WHERE person = ? AND day > ? GROUP BY model ORDER BY model",
            *(person, self._today - days),
        )
        return {model: TokenSum(*sums) for model, *sums in rows}

    @reads_aside
    def of_all(self, db: Session, days: int) -> tuple[TokenSum, int]:
        """Return the sums of all people in the last days, and the number of people."""
        sql = f"SELECT {SUMS}, count(DISTINCT person) FROM token_usage WHERE day > ?"
        ((prompt, completion, is_estimated, people),) = db.run(sql, self._today - days)
        return TokenSum(prompt or 0, completion or 0, bool(is_estimated)), people

    @writes_later
    def add(self, db: Session, spent: Sequence[TokenSpend]) -> None:
        """Count tokens of a turn that cannot count them itself: it was stopped, or is gone."""
        count(db, spent, self._now_ms())

    @property
    def _today(self) -> int:
        return self._now_ms() // DAY_MS


def count(db: Session, spent: Sequence[TokenSpend], now_ms: int) -> None:
    """Count tokens for today."""
    for one in spent:
        db.run(
            "INSERT INTO token_usage VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET"
            " prompt_tokens = prompt_tokens + excluded.prompt_tokens,"
            " completion_tokens = completion_tokens + excluded.completion_tokens,"
            " is_estimated = max(is_estimated, excluded.is_estimated)",
            *(one.person, now_ms // DAY_MS, one.chat, one.model),
            *(one.prompt_tokens, one.completion_tokens, one.is_estimated),
        )


def purge(db: Session, now_ms: int) -> None:
    """Delete the counts of days that are no longer kept."""
    db.run("DELETE FROM token_usage WHERE day <= ?", now_ms // DAY_MS - KEPT_DAYS)


SELECT: Final = (
    "SELECT id, turn_id, completion_id, request_sha256, response_sha256, state, kind, words, model"
    " FROM exchanges WHERE"
)


class ExchangeStore(Aggregate):
    """Exchanges whose signatures are checked."""

    @reads
    def unchecked(self, db: Session, limit: int) -> tuple[StoredExchange, ...]:
        """Return exchanges of turns that have ended and are not checked yet, oldest first."""
        rows = db.run(
            f"{SELECT} state = 'waiting' AND NOT EXISTS"
            " (SELECT 1 FROM turns WHERE turns.id = turn_id AND turns.state = 'running')"
            " ORDER BY id LIMIT ?",
            limit,
        )
        return tuple(StoredExchange(*row) for row in rows)

    @reads
    def of_last_answer(self, db: Session, chat: ChatId) -> tuple[StoredExchange, ...]:
        """Return the exchanges of the last answer in a chat, in order."""
        rows = db.run(
            f"{SELECT} turn_id = (SELECT max(id) FROM turns"
            " WHERE chat = ? AND turns.state IN ('answered', 'failed')) ORDER BY id",
            chat,
        )
        return tuple(StoredExchange(*row) for row in rows)

    @writes
    def settle(
        self,
        db: Session,
        exchange: StoredExchange,
        state: ExchangeState,
        *,
        kind: str,
        message: str,
        warning: Callable[[str], str] | None = None,
    ) -> tuple[OutgoingMessage, ...]:
        """Store the result of a check, and return messages to send because of it.

        Args:
            exchange: nothing changes if it was settled before, or is gone.
            warning: returns the words for a chat; they are sent after the turn's answer, once for
                all of its exchanges.
        """
        wrong = "SELECT 1 FROM exchanges WHERE turn_id = ? AND state = 'wrong'"
        was_warned = bool(db.run(wrong, exchange.turn_id))
        settled = db.run(
            "UPDATE exchanges SET state = ?, kind = ?, words = ?"
            " WHERE id = ? AND state = 'waiting' RETURNING id",
            *(state, kind, message, exchange.id),
        )
        if not settled or warning is None or was_warned:
            return ()
        turn_id, now = exchange.turn_id, self._now_ms()
        return tuple(
            outbox.follow_up(db, turn_id, ChatId.parse(chat), warning(chat), now)
            for (chat,) in db.run("SELECT chat FROM inbox WHERE id = ?", turn_id)
        )


def add_exchanges(db: Session, turn_id: int, exchanges: Sequence[NewExchange]) -> None:
    """Add unchecked exchanges of a turn."""
    for exchange in exchanges:
        db.insert("exchanges", turn_id=turn_id, state="waiting", **asdict(exchange))


def purge_exchanges(db: Session, at_most: int) -> int:
    """Delete checked exchanges that are older than every stored turn; return how many."""
    sql = (
        "DELETE FROM exchanges WHERE id IN (SELECT id FROM exchanges WHERE state != 'waiting'"
        " AND turn_id < coalesce((SELECT min(id) FROM turns), (SELECT max(turn_id) + 1 FROM"
        " exchanges)) LIMIT ?) RETURNING id"
    )
    return len(db.run(sql, at_most))
