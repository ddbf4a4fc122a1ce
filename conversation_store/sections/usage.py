"""Questions about how many tokens people's questions took."""

from collections.abc import Sequence
from typing import Final

from conversation_store import token_usage
from conversation_store.connections import Execute
from conversation_store.models import TokenSpend, TokenSum
from conversation_store.sections.section import Section, reads, reads_aside, writes_later

_SUMS: Final = "sum(prompt_tokens), sum(completion_tokens), max(is_estimated)"


class UsageStore(Section):
    """Counts of tokens, without a word of what they were for."""

    @reads
    def spent_today(self, execute: Execute, person: str) -> int:
        """Return how many tokens a person's questions have taken today."""
        sql = "SELECT total(prompt_tokens + completion_tokens) FROM token_usage WHERE person = ?"
        ((total,),) = execute(f"{sql} AND day = ?", (person, self._today))
        return int(total)

    @reads
    def of_person(self, execute: Execute, person: str, days: int) -> dict[str, TokenSum]:
        """Return what a person's questions have taken in so many days up to today, by model."""
        rows = execute(
            f"SELECT model, {_SUMS} FROM token_usage"  # noqa: S608
            " WHERE person = ? AND day > ? GROUP BY model ORDER BY model",
            (person, self._today - days),
        )
        return {model: TokenSum(*sums) for model, *sums in rows}

    @reads_aside
    def of_all(self, execute: Execute, days: int) -> tuple[TokenSum, int]:
        """Return what everybody's questions have taken in so many days, and how many asked."""
        ((*sums, people),) = execute(
            f"SELECT {_SUMS}, count(DISTINCT person) FROM token_usage WHERE day > ?",  # noqa: S608
            (self._today - days,),
        )
        return TokenSum(*(number or 0 for number in sums)), people

    @writes_later
    def add(self, execute: Execute, spent: Sequence[TokenSpend]) -> None:
        """Count what has no place in a turn: one that was stopped, or is gone."""
        token_usage.add(execute, spent, self._context.now_ms())

    @property
    def _today(self) -> int:
        return self._context.now_ms() // token_usage.DAY_MS
