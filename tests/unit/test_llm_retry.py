"""How long the pauses between attempts are."""

from datetime import UTC, datetime

import pytest

from bot.llm.client import RetryPolicy, retry_after_seconds

NOW = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)


def test_pauses_grow_to_their_limit_and_are_never_the_same_for_a_crowd() -> None:
    policy = RetryPolicy()
    for failures, longest in [(1, 0.5), (2, 1.0), (3, 2.0), (6, 10.0), (10_000, 10.0)]:
        pauses = {policy.pause(failures, None) for _ in range(50)}
        assert longest / 2 <= min(pauses) < max(pauses) <= longest


def test_a_requested_pause_is_kept_and_retries_are_spread_after_it() -> None:
    pauses = {RetryPolicy().pause(1, 60.0) for _ in range(50)}

    assert 60.0 <= min(pauses) < max(pauses) <= 60.5


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("7", 7.0),
        (" 0 ", 0.0),
        ("Sat, 21 Nov 2026 12:00:30 GMT", 30.0),
        ("Sat, 21 Nov 2026 12:00:30 -0000", 30.0),
        ("Sat, 21 Nov 2026 11:59:00 GMT", 0.0),
        ("", None),
        ("soon", None),
        ("-5", None),
        ("1.5", None),
        ("9" * 5000, float("inf")),
        ("Sat, 99 Nov 2026 12:00:30 GMT", None),
    ],
)
def test_retry_after_is_seconds_or_a_date(header: str, seconds: float | None) -> None:
    assert retry_after_seconds(header, NOW) == seconds
