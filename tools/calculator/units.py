"""The units that there are: pint's table, asked name by name.

pint's parser, contexts and arithmetic are not used: a checked name goes in, an exact scale, a zero
and a dimension come out. Runs inside the sandbox; the table is read before the limits hold.
"""

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType
from typing import Any, Final, Self

import pint

from sandbox.errors import WorkError

_NAME: Final = re.compile(r"[A-Za-zµμΩΩÅ°][A-Za-z_]{0,39}")
_NEAREST: Final = 3

_AS_PEOPLE_WRITE: Final[Mapping[str, Mapping[str, int]]] = {
    **{f"{letter}b": {f"{prefix}byte": 1} for letter, prefix in
       (("k", "kilo"), ("m", "mega"), ("g", "giga"), ("t", "tera"))},
    **{f"{letter}b": {f"{prefix}bit": 1} for letter, prefix in
       (("K", "kilo"), ("M", "mega"), ("G", "giga"), ("T", "tera"))},
    **{f"{letter}bps": {f"{prefix}bit": 1, "second": -1} for letter, prefix in
       (("", ""), ("k", "kilo"), ("K", "kilo"), ("m", "mega"), ("M", "mega"), ("g", "giga"),
        ("G", "giga"), ("t", "tera"), ("T", "tera"))},
    "KB": {"kilobyte": 1},
    "kph": {"kilometer": 1, "hour": -1},
    "kmh": {"kilometer": 1, "hour": -1},
    "mpg": {"mile": 1, "gallon": -1},
    "sqm": {"meter": 2},
    "sqft": {"foot": 2},
    "sqkm": {"kilometer": 2},
    "cbm": {"meter": 3},
    "wk": {"week": 1},
    "wks": {"week": 1},
    "Nm": {"newton": 1, "meter": 1},
    "fl_oz": {"fluid_ounce": 1},
    "fl_ozs": {"fluid_ounce": 1},
    "Cal": {"kilocalorie": 1},
    "centigrade": {"degree_Celsius": 1},
    "°": {"degree": 1},
}  # fmt: skip
_SYMBOLS: Final = {"cp": "cup", "a": "yr", "deg": "°", "floz": "fl oz", "th": "mil"}
_OFTEN_MISSPELT: Final = (
    "celsius", "fahrenheit", "kilometer", "kilometre", "centimeter", "centimetre", "millimeter",
    "millimetre", "kilogram", "milligram", "milliliter", "millilitre", "megabyte", "gigabyte",
    "kilowatt", "milliseconds",
)  # fmt: skip

Dimension = tuple[tuple[str, int], ...]
"""Root units and their exponents, sorted by name, none of them zero."""


@dataclass(frozen=True, slots=True)
class Unit:
    """One unit, by what it is in the root units of its dimension (meter, gram, second, bit…).

    Attributes:
        symbol: how it is written.
        scale: one of it.
        zero: where it begins; other than 0 for °C and °F, which are points on a scale.
        dimension: what it measures.
        is_difference: it counts the distance of two points, such as 5 °C from 20 °C to 25 °C.
    """

    symbol: str
    scale: Fraction
    zero: Fraction
    dimension: Dimension
    is_difference: bool = False

    @property
    def is_point(self) -> bool:
        """Whether a value in it is a point on a scale, not an amount."""
        return self.zero != 0

    def difference(self) -> Self:
        """Return the unit of the distance between two points on this one's scale."""
        if not self.is_point:
            return self
        return type(self)(f"Δ{self.symbol}", self.scale, Fraction(0), self.dimension, True)


class UnitTable:
    """Finds units by the names that people give them."""

    def __init__(self) -> None:
        self._registry: Any = pint.UnitRegistry(non_int_type=Fraction)

    def find(self, name: str) -> tuple[tuple[Unit, int], ...]:
        """Return the unit of a name, or the units of which an abbreviation such as mpg is made.

        Capitals count (Mb and MB differ) unless the name exists in small letters only.

        Returns:
            Units with their exponents; none if nothing goes by that name.

        Raises:
            WorkError: the unit is known but cannot be calculated with, as decibel.
        """
        if _NAME.fullmatch(name) is None:
            return ()
        for spelling in (name, name.lower()):
            if parts := _AS_PEOPLE_WRITE.get(spelling) or self._known(spelling):
                return tuple((self._unit(part), exponent) for part, exponent in parts.items())
        return ()

    def nearest(self, name: str) -> list[str]:
        """Return the few names of units that look most like a name."""
        names = [known for known in dir(self._registry) if known[:1].isalpha() and len(known) > 2]
        return difflib.get_close_matches(name[:40].lower(), {*names, *_OFTEN_MISSPELT}, _NEAREST)

    def _known(self, name: str) -> Mapping[str, int]:
        try:
            return MappingProxyType({self._registry.get_name(name): 1})
        except pint.PintError:
            return MappingProxyType({})

    def _unit(self, name: str) -> Unit:
        """Read off a unit where it begins and how far it is to its next value."""
        quantity = self._registry.Quantity
        zero, one = (quantity(Fraction(value), name).to_root_units() for value in (0, 1))
        dimension = tuple(sorted(zero.unit_items()))
        exact = isinstance(zero.magnitude, Fraction) and isinstance(one.magnitude, Fraction)
        if not exact or any(exponent % 1 for _, exponent in dimension):
            raise WorkError(f"There is no calculating with {name} here.")
        symbol = self._registry.get_symbol(name)
        return Unit(
            symbol=_SYMBOLS.get(symbol, symbol),
            scale=one.magnitude - zero.magnitude,
            zero=zero.magnitude,
            dimension=tuple((root, int(exponent)) for root, exponent in dimension),
        )
