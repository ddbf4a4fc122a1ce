"""What measures are about: a length, a force, an amount of data."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tools.calculator.units import Dimension


@dataclass(frozen=True, slots=True)
class Kind:
    """What a dimension is called, and the unit of a name of its own that everybody knows for it."""

    name: str
    unit: str | None = None


_KINDS: Final[tuple[tuple[Kind, Mapping[str, int]], ...]] = (
    (Kind("a plain number"), {}),
    (Kind("a length"), {"meter": 1}),
    (Kind("an area"), {"meter": 2}),
    (Kind("a volume", "liter"), {"meter": 3}),
    (Kind("a mass"), {"gram": 1}),
    (Kind("a time"), {"second": 1}),
    (Kind("a speed"), {"meter": 1, "second": -1}),
    (Kind("an acceleration"), {"meter": 1, "second": -2}),
    (Kind("a frequency", "hertz"), {"second": -1}),
    (Kind("a temperature"), {"kelvin": 1}),
    (Kind("a force", "newton"), {"gram": 1, "meter": 1, "second": -2}),
    (Kind("an energy", "joule"), {"gram": 1, "meter": 2, "second": -2}),
    (Kind("a power", "watt"), {"gram": 1, "meter": 2, "second": -3}),
    (Kind("a pressure", "pascal"), {"gram": 1, "meter": -1, "second": -2}),
    (Kind("a density"), {"gram": 1, "meter": -3}),
    (Kind("an electric current"), {"ampere": 1}),
    (Kind("an electric charge", "coulomb"), {"ampere": 1, "second": 1}),
    (Kind("a voltage", "volt"), {"gram": 1, "meter": 2, "second": -3, "ampere": -1}),
    (Kind("a resistance", "ohm"), {"gram": 1, "meter": 2, "second": -3, "ampere": -2}),
    (Kind("a capacitance", "farad"), {"gram": -1, "meter": -2, "second": 4, "ampere": 2}),
    (Kind("an amount of substance"), {"mole": 1}),
    (Kind("a luminous intensity"), {"candela": 1}),
    (Kind("an angle", "degree"), {"radian": 1}),
    (Kind("an angular speed"), {"radian": 1, "second": -1}),
    (Kind("an amount of data", "byte"), {"bit": 1}),
    (Kind("a data rate"), {"bit": 1, "second": -1}),
)
KINDS: Final[Mapping[Dimension, Kind]] = {
    tuple(sorted(exponents.items())): kind for kind, exponents in _KINDS
}


def name_of(dimension: Dimension) -> str:
    """Return what a dimension is called in a sentence."""
    kind = KINDS.get(dimension)
    return "something else" if kind is None else kind.name
