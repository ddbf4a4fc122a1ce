"""Tokens that people's questions took: a row for each day, person, chat and model.

Days are those of UTC, so that a change of the machine's time zone repeats no day.
"""

from collections.abc import Sequence
from typing import Final

from conversation_store.connections import Session
from conversation_store.models import TokenSpend, TokenSum
from conversation_store.operations import Aggregate, reads, reads_aside, writes_later

DAY_MS: Final = 86_400_000
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
        """Count what has no place in a turn that was stopped, or is gone."""
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
    """Delete days that are long over."""
    db.run("DELETE FROM token_usage WHERE day <= ?", now_ms // DAY_MS - KEPT_DAYS)
