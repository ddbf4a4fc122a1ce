"""How many tokens people's questions took, a row for each day, person, chat and model.

Days are those of UTC, so that a change of the machine's time zone gives nobody a day twice.
"""

from collections.abc import Sequence
from typing import Final

from conversation_store.connections import Execute
from conversation_store.models import TokenSpend

DAY_MS: Final = 86_400_000
KEPT_DAYS: Final = 31
"""The last 30 days and today."""


def add(execute: Execute, spent: Sequence[TokenSpend], now_ms: int) -> None:
    """Count tokens for today."""
    for one in spent:
        execute(
            "INSERT INTO token_usage VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET"
            " prompt_tokens = prompt_tokens + excluded.prompt_tokens,"
            " completion_tokens = completion_tokens + excluded.completion_tokens,"
            " is_estimated = max(is_estimated, excluded.is_estimated)",
            (
                *(one.person, now_ms // DAY_MS, one.chat, one.model),
                *(one.prompt_tokens, one.completion_tokens, one.is_estimated),
            ),
        )


def purge(execute: Execute, now_ms: int) -> None:
    """Forget days that are over for long."""
    execute("DELETE FROM token_usage WHERE day <= ?", (now_ms // DAY_MS - KEPT_DAYS,))
