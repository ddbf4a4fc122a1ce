"""Safety numbers are those of libsignal."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.signal.account import contains_half, half, is_safety_number, spaced

ACI_A = "9d0652a3-dcc3-4d11-975f-74d61598733f"
KEY_A = bytes.fromhex("0506863bc66d02b40d27b8d49ca7c09e9239236f9d7d25d6fcca5ce13c7064d868")
ACI_B = "796abedb-ca4e-4f18-8803-1fde5b921f9f"
KEY_B = bytes.fromhex("05f781b6fb32fed9ba1cf2de978d4d5da28dc34046ae814402b5c0dbd96fda907b")
NUMBER = "446657246696264293037458627907774872764702919995219132117432"
"""Safety number of a chat between A and B, made with libsignal-client 0.80.2."""


def test_both_halves_are_those_of_libsignal() -> None:
    assert half(ACI_A, KEY_A) == NUMBER[:30]
    assert half(ACI_B, KEY_B) == NUMBER[30:]


def test_digits_are_shown_in_groups_of_five_as_signal_does() -> None:
    assert spaced(NUMBER[:30]) == "44665 72466 96264 29303 74586 27907"


@pytest.mark.parametrize(
    "shown",
    [
        NUMBER,
        spaced(NUMBER),
        "\n".join((spaced(NUMBER[:20]), spaced(NUMBER[20:40]), spaced(NUMBER[40:]))),
        f"  {NUMBER}\n",
    ],
)
def test_a_half_is_found_first_and_last_however_it_is_spaced(shown: str) -> None:
    assert is_safety_number(shown)
    assert contains_half(shown, NUMBER[:30])
    assert contains_half(shown, NUMBER[30:])


def test_thirty_digits_in_the_middle_are_no_half() -> None:
    assert not contains_half(NUMBER, NUMBER[15:45])


@pytest.mark.parametrize("text", ["", NUMBER[:59], NUMBER + "1", NUMBER[:59] + "x", "²" * 60])
def test_safety_number_has_sixty_digits(text: str) -> None:
    assert not is_safety_number(text)
    assert not contains_half(text, text[:30])


@given(st.integers(min_value=0, max_value=len(KEY_A) * 8 - 1))
def test_another_key_has_another_half(bit: int) -> None:
    other = bytearray(KEY_A)
    other[bit // 8] ^= 1 << bit % 8
    assert not contains_half(NUMBER, half(ACI_A, bytes(other)))
