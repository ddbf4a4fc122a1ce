"""Figures in words."""

import pytest

from bot.observability.process import duration, size


@pytest.mark.parametrize(
    ("count", "words"),
    [(0, "0 bytes"), (1023, "1,023 bytes"), (2048, "2 KiB"), (3 * 2**40, "3.0 TiB")],
)
def test_sizes_read_as_people_read_them(count: int, words: str) -> None:
    assert size(count) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.4, "0 s"), (61, "1 min 1 s"), (7200, "2 h"), (273_600, "3 d 4 h"), (86_401, "1 d 1 s")],
)
def test_time_spans_read_as_people_read_them(seconds: float, words: str) -> None:
    assert duration(seconds) == words
