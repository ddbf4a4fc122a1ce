"""How long the pauses between attempts are."""

from bot.llm.client import RetryPolicy


def test_pauses_grow_to_their_limit_and_are_never_the_same_for_a_crowd() -> None:
    policy = RetryPolicy()
    for failures, longest in [(1, 0.5), (2, 1.0), (3, 2.0), (6, 10.0), (10_000, 10.0)]:
        pauses = {policy.pause(failures, None) for _ in range(50)}
        assert longest / 2 <= min(pauses) < max(pauses) <= longest


def test_a_pause_that_was_asked_for_is_kept_and_a_crowd_spread_behind_it() -> None:
    pauses = {RetryPolicy().pause(1, 60.0) for _ in range(50)}

    assert 60.0 <= min(pauses) < max(pauses) <= 60.5
