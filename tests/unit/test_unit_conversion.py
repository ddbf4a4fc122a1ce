"""Conversions, spellings of units, and refusals; without the sandbox."""

import json
import time
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.calculator.tool import conversion
from tools.calculator.units import UnitConverter
from tools.sandbox.errors import WorkError

CONVERTER: Final = UnitConverter()
MAX_SECONDS: Final = 1.0
MAX_SENTENCE: Final = 300
OF_FOOD: Final = "(a Calorie of food is a kilocalorie; the small calorie is a thousandth of it)"


def convert(value: str, source: str, target: str) -> str:
    return CONVERTER.answer(json.dumps({"amounts": [(value, source)], "to": target}))


@pytest.mark.parametrize(
    ("value", "source", "target", "answer"),
    [
        # People write units in their own ways.
        ("5", "km", "miles", "5 km = 3.10685596119 mi"),
        ("60", "km/h", "m/s", "60 km/h = 16.6666666667 m/s"),
        ("60", "km per h", "mph", "60 km/h = 37.2822715342 mph"),
        ("180", "lbs", "kg", "180 lb = 81.6466266 kg"),
        ("100", "m2", "square feet", "100 m² = 1076.39104167 ft²"),
        ("5", "ft²", "m^2", "5 ft² = 0.4645152 m²"),
        ("5", "cubic meters per second", "l/min", "5 m³/s = 300000 l/min"),
        ("180", "°", "rad", "180° = 3.14159265359 rad"),
        ("500", "mb", "GB", "500 MB = 0.5 GB"),
        ("100", "Mbps", "MB/s", "100 Mbit/s = 12.5 MB/s"),
        ("5", "W/m^2/K", "W/m**2/K", "5 W/K/m² = 5 W/K/m²"),
        ("5e-3", "µm", "nm", "0.005 µm = 5 nm"),
        ("0.1", "m", "cm", "0.1 m = 10 cm"),
        ("70", "kg*m/s^2", "N", "70 kg·m/s² = 70 N"),
        ("1", "Calorie", "kJ", f"1 kcal = 4.184 kJ {OF_FOOD}"),
        ("8.4", "kJ", "Calories", f"8.4 kJ = 2.00764818356 kcal {OF_FOOD}"),
        ("2", "cal", "J", "2 cal = 8.368 J (small calories; a Calorie of food is 1,000 of them)"),
        # Temperatures are points on a scale.
        ("100", "°F", "°C", "100 °F = 37.7777777778 °C"),
        ("-40", "fahrenheit", "celsius", "-40 °F = -40 °C"),
        ("20", "degrees celsius", "F", "20 °C = 68 °F"),
        ("300", "k", "c", "300 K = 26.85 °C"),
        # A result is given as people ask for it.
        ("30", "mpg", "l/100km", "30 mi/gal = 7.84048611111 l/100km"),
        ("7", "l/100 km", "mpg", "7 l/100km = 33.6020833333 mi/gal"),
        ("175", "cm", "feet and inches", "175 cm = 5 ft 8.89763779528 in"),
        ("500", "min", "h and min", "500 min = 8 h 20 min"),
        ("-5.5", "ft", "ft and in", "-5.5 ft = -5 ft -6 in"),
    ],
)
def test_units_are_read_and_answered_as_people_write_them(
    value: str, source: str, target: str, answer: str
) -> None:
    assert convert(value, source, target) == answer


@pytest.mark.parametrize(
    ("value", "source", "target", "sentence"),
    [
        ("5", "km", "kg", "km and kg measure different things."),
        ("5", "furlog", "m", "There is no unit 'furlog'."),
        ("100", "USD", "EUR", "There is no unit 'USD'."),
        ("20", "dBm", "mW", "There is no converting of decibelmilliwatt here."),
        ("0", "mpg", "l/100km", "The result is too large, or a division by zero."),
        ("1e300", "yottaparsec^9", "angstrom^9", "The result is too large, or a division by zero."),
        ("5", "°C/m", "K/m", "Degrees of a scale cannot be part of another unit: use K."),
        ("5", "m^99", "m", "'m^99' is no unit. Write units as km, km/h or m^2."),
        ("5", "", "m", "A unit has 1 to 60 characters."),
        ("inf", "m", "km", "The value is no plain number, such as 5 or -2.5."),
        ("nan", "m", "km", "The value is no plain number, such as 5 or -2.5."),
        ("1e9999", "m", "km", "The value is no plain number, such as 5 or -2.5."),
    ],
)
def test_input_without_a_result_is_refused_in_a_sentence(
    value: str, source: str, target: str, sentence: str
) -> None:
    with pytest.raises(WorkError) as refusal:
        convert(value, source, target)
    assert str(refusal.value) == sentence


ATTACKS: Final = [
    "m^9^9^9",
    "m**(10**10)",
    "((m**9)**9)**9",
    "yottaparsec^9*" * 4 + "m",
    "__import__('os')",
    "().__class__",
    "m.__class__",
    "ureg.define('x = 5 m')",
    "m = 5 km",
    "@import /etc/passwd",
    "m; import os",
    "m # comment",
    "m\n+ import",
    "5 m",
    "enable_contexts",
    "m \x00",
    "\ud800",
    "ｍ",  # noqa: RUF001
    "m and " * 9 + "m",
    "/" * 60,
    "*" * 60,
    "k" * 59,
    "deg " * 14,
    "square " * 8,
    "per " * 14,
    "m" * 1_000_000,
]


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("attack", ATTACKS)
def test_attacks_are_refused_in_a_sentence_and_at_once(attack: str, place: int) -> None:
    units = ("m", attack) if place else (attack, "m")
    started = time.thread_time()
    try:
        answer = convert("1", *units)
    except WorkError as error:
        answer = str(error)
    assert time.thread_time() - started < MAX_SECONDS
    assert 0 < len(answer) < MAX_SENTENCE


@given(st.text(max_size=70), st.text(max_size=70))
def test_any_two_texts_end_in_an_answer_or_a_sentence(source: str, target: str) -> None:
    try:
        said = convert("1", source, target)
    except WorkError as error:
        said = str(error)
    assert said


@pytest.mark.parametrize(
    ("expression", "answer"),
    [
        ("5 ft 11 in in cm", "5 ft 11 in = 180.34 cm"),
        ("3 lb 4 oz in kg", "3 lb 4 oz = 1.4741752025 kg"),
        ("2 h 30 min in min", "2 h 30 min = 150 min"),
        ("5 lb and 3 oz to g", "5 lb 3 oz = 2353.010419375 g"),
        *(
            (f"{height} in cm", "5 ft 11 in = 180.34 cm")
            for height in ("5'11\"", "5'11", "5\u2019 11\u201d")
        ),
        ("5'11 in in cm", "5 ft 11 in = 180.34 cm"),
        ("3 in in cm", "3 in = 7.62 cm"),
    ],
)
def test_amounts_of_several_units_are_added(expression: str, answer: str) -> None:
    assert CONVERTER.answer(json.dumps(conversion(expression))) == answer


def test_degrees_of_a_scale_are_not_added() -> None:
    with pytest.raises(WorkError, match="cannot be added"):
        CONVERTER.answer(json.dumps(conversion("2 C 3 F in K")))
