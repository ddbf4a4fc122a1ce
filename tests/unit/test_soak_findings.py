"""Findings of a soak for logs and samples with faults."""

from collections import Counter

import pytest

from benchmarks.soak.audit import Rows, audit
from benchmarks.soak.people import STRANGERS, Kind, Said
from conversation_store.models import ChatId
from tests.fakes.signal_side import ADA, Sent

CHAT = ChatId.direct(ADA.aci)
ASKED = Said("q00001", Kind.WORDS, CHAT, at=0.0, timestamp=1_000)
ANSWER = Sent(CHAT, "q00001v00 heard", timestamp=2_000)
AGAIN = Sent(CHAT, "q00001v00 heard", timestamp=9_000)
WELL = Rows({1_000: "answered"}, Counter(sent=1), frozenset({2_000}))


@pytest.mark.parametrize(
    ("sent", "rows", "found"),
    [
        pytest.param([], WELL, "nobody got the answer", id="lost"),
        pytest.param([ANSWER, AGAIN], WELL, "answered twice", id="twice"),
        pytest.param(
            [ANSWER], Rows({1_000: None}, Counter(), frozenset()), "never answered", id="open"
        ),
        pytest.param([], Rows({}, Counter(), frozenset()), "never accepted", id="not accepted"),
        pytest.param(
            [ANSWER],
            Rows({1_000: "answered"}, Counter(given_up=1), frozenset({2_000})),
            "given_up",
            id="given up",
        ),
        pytest.param(
            [ANSWER, Sent(ChatId.direct(STRANGERS[0].aci), "Hello.", timestamp=3_000)],
            WELL,
            "strangers",
            id="stranger",
        ),
    ],
)
def test_wrong_answers_are_found(sent: list[Sent], rows: Rows, found: str) -> None:
    (fault,) = audit([ASKED], sent, rows, excuses=()).faults
    assert found in fault


def test_a_side_effect_that_happened_twice_is_found() -> None:
    (fault,) = audit([ASKED], [ANSWER], WELL, notes=["milk", "milk", "eggs"], excuses=()).faults
    assert "milk" in fault


@pytest.mark.parametrize(("excuses", "faults"), [([(1_500, 2_500)], 0), ([(5_000, 6_000)], 1)])
def test_a_send_that_is_repeated_needs_a_fault_that_explains_it(
    excuses: list[tuple[float, float]], faults: int
) -> None:
    rows = Rows({1_000: "answered"}, Counter(sent=1), frozenset({9_000}))
    assert len(audit([ASKED], [ANSWER, AGAIN], rows, excuses=excuses).faults) == faults
