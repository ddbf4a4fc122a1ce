"""What measures are about: a length, a force, an amount of data."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tools.calculator.units import Dimension


@dataclass(frozen=True, slots=True)
class ValueKind:
    """What a dimension is called, and the unit of a name of its own that everybody knows for it."""

    name: str
    unit: str | None = None


_KINDS: Final[tuple[tuple[ValueKind, Mapping[str, int]], ...]] = (
    (ValueKind("a plain number"), {}),
    (ValueKind("a length"), {"meter": 1}),
    (ValueKind("an area"), {"meter": 2}),
    (ValueKind("a volume", "liter"), {"meter": 3}),
    (ValueKind("a mass"), {"gram": 1}),
    (ValueKind("a time"), {"second": 1}),
    (ValueKind("a speed"), {"meter": 1, "second": -1}),
    (ValueKind("an acceleration"), {"meter": 1, "second": -2}),
    (ValueKind("a frequency", "hertz"), {"second": -1}),
    (ValueKind("a temperature"), {"kelvin": 1}),
    (ValueKind("a force", "newton"), {"gram": 1, "meter": 1, "second": -2}),
    (ValueKind("an energy", "joule"), {"gram": 1, "meter": 2, "second": -2}),
    (ValueKind("a power", "watt"), {"gram": 1, "meter": 2, "second": -3}),
    (ValueKind("a pressure", "pascal"), {"gram": 1, "meter": -1, "second": -2}),
    (ValueKind("a density"), {"gram": 1, "meter": -3}),
    (ValueKind("an electric current"), {"ampere": 1}),
    (ValueKind("an electric charge", "coulomb"), {"ampere": 1, "second": 1}),
    (ValueKind("a voltage", "volt"), {"gram": 1, "meter": 2, "second": -3, "ampere": -1}),
    (ValueKind("a resistance", "ohm"), {"gram": 1, "meter": 2, "second": -3, "ampere": -2}),
    (ValueKind("a capacitance", "farad"), {"gram": -1, "meter": -2, "second": 4, "ampere": 2}),
    (ValueKind("an amount of substance"), {"mole": 1}),
    (ValueKind("a luminous intensity"), {"candela": 1}),
    (ValueKind("an angle", "degree"), {"radian": 1}),
    (ValueKind("an angular speed"), {"radian": 1, "second": -1}),
    (ValueKind("an amount of data", "byte"), {"bit": 1}),
    (ValueKind("a data rate"), {"bit": 1, "second": -1}),
)
KINDS: Final[Mapping[Dimension, ValueKind]] = {
    tuple(sorted(exponents.items())): kind for kind, exponents in _KINDS
}


def name_of(dimension: Dimension) -> str:
    """Return what a dimension is called in a sentence."""
    kind = KINDS.get(dimension)
    return "something else" if kind is None else kind.name
