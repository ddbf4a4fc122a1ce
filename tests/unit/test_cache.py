"""What is kept for a while, and what is forgotten."""

import pytest

from tools.cache import Cache


class Clock:
    """A clock that goes on when it is told to."""

    now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def cache(clock: Clock) -> Cache[str, str]:
    return Cache(seconds=60, entries=2, now=clock)


def test_a_value_is_kept_for_its_time_and_no_longer(cache: Cache[str, str], clock: Clock) -> None:
    cache.put("a", "first")
    clock.now += 59.9
    assert cache.get("a") == "first"
    clock.now += 0.1
    assert cache.get("a") is None


def test_nothing_old_is_left_in_memory(cache: Cache[str, str], clock: Clock) -> None:
    cache.put("a", "first")
    clock.now += 30
    cache.put("b", "second")
    clock.now += 30
    assert len(cache) == 1
    assert cache.get("b") == "second"
    cache.put("c", "third")
    clock.now += 60
    assert len(cache) == 0


def test_when_it_is_full_the_oldest_goes_first(cache: Cache[str, str]) -> None:
    for key in "abc":
        cache.put(key, f"value of {key}")
    assert [cache.get(key) for key in "abc"] == [None, "value of b", "value of c"]


def test_a_value_that_is_put_again_is_the_newest(cache: Cache[str, str], clock: Clock) -> None:
    cache.put("a", "first")
    cache.put("b", "second")
    clock.now += 30
    cache.put("a", "third")
    cache.put("c", "fourth")
    assert [cache.get(key) for key in "abc"] == ["third", None, "fourth"]
    clock.now += 59.9
    assert cache.get("a") == "third"
