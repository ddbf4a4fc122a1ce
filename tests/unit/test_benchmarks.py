"""Each benchmark in small, and the report of its numbers."""

import pytest

from benchmarks import report
from benchmarks.__main__ import MEASURES
from benchmarks.platform import running_bot, sides
from benchmarks.report import Figure


@pytest.mark.full
@pytest.mark.parametrize("name", MEASURES)
async def test_every_measure_brings_its_figures(name: str) -> None:
    figures = await MEASURES[name](quick=True)

    assert len({figure.measure for figure in figures}) == len(figures) > 0
    assert all(figure.value > 0 for figure in figures)
    assert any(figure.met is not None for figure in figures)


async def test_every_message_of_a_load_is_answered_one_at_a_time_if_asked() -> None:
    async with sides() as world, running_bot(world.settings, world.folder):
        await world.signal.ask(turns=4, chats=2, in_flight=2, pause_seconds=0.001)
        result = await world.signal.ask(turns=5, chats=2, in_flight=1, pause_seconds=0.01)

    assert result["turns"] == 5
    assert result["seconds"] >= 4 * 0.01  # four pauses lie between five turns
    assert 0 < result["p50_ms"] <= result["p99_ms"] <= result["seconds"] * 1000


def test_the_table_says_which_target_was_missed() -> None:
    lines = report.table(
        (Figure("wait", 5.0, "ms", at_most=4), Figure("rate", 1234.5, "/s", at_least=400))
    ).splitlines()

    assert lines[2].split() == ["wait", "5.00", "ms", "<=", "4", "ms", "NO"]
    assert lines[3].split() == ["rate", "1,234.50", "/s", ">=", "400", "/s", "yes"]
