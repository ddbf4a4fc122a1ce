"""Numbers with units: exact, and bounded in their digits and powers."""

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from math import isfinite, prod
from typing import Final, Self

from sandbox.errors import WorkError
from tools.calculator.display import written
from tools.calculator.functions import Number
from tools.calculator.kinds import name_of
from tools.calculator.units import Dimension, Unit

MAX_POWER: Final = 9
_MAX_EXPONENT: Final = 99
_MAX_BITS: Final = 8_192
_EXACT_BELOW: Final = 10**15
_TOO_LARGE: Final = "The result is too large."
_UNITLESS: Final = "What has no unit"
_POINTS: Final = (
    "A temperature in °C or °F can be converted, be subtracted from another, and rise or fall by "
    "kelvins (20 °C + 5 K). For anything else write it in K."
)
_SUPERSCRIPTS: Final = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")

Units = tuple[tuple[Unit, int], ...]
"""Units and their exponents, each unit once."""


@dataclass(frozen=True, slots=True)
class Measure:
    """A number with its units; without any it is a plain number."""

    value: Fraction
    units: Units = ()

    def __post_init__(self) -> None:
        if _bits(self.value) > _MAX_BITS:
            raise WorkError(_TOO_LARGE)

    @property
    def dimension(self) -> Dimension:
        """What it measures."""
        return dimension_of(self.units)

    @property
    def is_point(self) -> bool:
        """Whether it is a point on a scale, such as 20 °C."""
        return any(unit.is_point for unit, _ in self.units)

    @property
    def in_root_units(self) -> Fraction:
        """How many root units it is."""
        return self.value * scale_of(self.units) + sum(unit.zero for unit, _ in self.units)

    def plus(self, other: Self) -> Self:
        """Return the sum, in the units of this one."""
        self._check_addable(other)
        if other.is_point:
            raise WorkError(_POINTS)
        return type(self)(self.value + other.in_root_units / scale_of(self.units), self.units)

    def minus(self, other: Self) -> Self:
        """Return the difference, in the units of this one; of two points it is an amount."""
        self._check_addable(other)
        if not (self.is_point and other.is_point):
            return self.plus(other.negated())
        unit = self.units[0][0].difference()
        return type(self)((self.in_root_units - other.in_root_units) / unit.scale, ((unit, 1),))

    def negated(self) -> Self:
        """Return it with the other sign."""
        return type(self)(-self.value, self.units)

    def times(self, other: Self) -> Self:
        """Return the product."""
        _check_amounts(self, other)
        return type(self)(self.value * other.value, product((*self.units, *other.units)))

    def divided_by(self, other: Self) -> Self:
        """Return the quotient.

        Raises:
            ZeroDivisionError: the other is zero.
        """
        return self.times(other.to_the(Fraction(-1)))

    def to_the(self, power: Fraction) -> Self:
        """Return a power.

        Raises:
            ZeroDivisionError: it is zero, and the power negative.
        """
        _check_amounts(self)
        exponent = int(power)
        if exponent != power or abs(exponent) > MAX_POWER:
            raise WorkError(f"With units there are whole powers up to {MAX_POWER}, no others.")
        if _bits(self.value) * abs(exponent) > _MAX_BITS:
            raise WorkError(_TOO_LARGE)
        units = product((unit, own * exponent) for unit, own in self.units)
        return type(self)(self.value**exponent, units)

    def simplified(self) -> Self:
        """Return it with one unit for each kind: GB·s/Mbit becomes s."""
        first: dict[Dimension, Unit] = {}
        for unit, _ in self.units:
            first.setdefault(unit.dimension, unit)
        units = product((first[unit.dimension], exponent) for unit, exponent in self.units)
        if not dimension_of(units):
            units = ()
        return type(self)(self.value * scale_of(self.units) / scale_of(units), units)

    def converted(self, target: Self) -> Self:
        """Return how many of a target it is, in the target's units.

        What is given per something may be asked the other way round: miles a gallon in liters per
        kilometer.

        Raises:
            WorkError: the two are of different kinds.
            ZeroDivisionError: it is zero, and asked the other way round.
        """
        if self.dimension == target.dimension:
            units = target.units
            if self.units and self.units[0][0].is_difference:
                units = tuple((unit.difference(), exponent) for unit, exponent in units)
            zero = sum(unit.zero for unit, _ in units)
            value = (self.in_root_units - zero) / scale_of(units) / target.value
            return type(self)(value, units)
        inverse = tuple((root, -exponent) for root, exponent in self.dimension)
        if inverse == target.dimension:
            return self.to_the(Fraction(-1)).converted(target)
        raise WorkError(f"{_comparison(self, target)}: they cannot be converted.")

    def written(self) -> str:
        """Write it for people, with at most 12 digits of what is not whole."""
        units = written_units(self.units)
        space = "" if units in {"", "°"} or units.startswith("/") else " "
        return f"{written_number(self.value)}{space}{units}"

    def _check_addable(self, other: Self) -> None:
        if self.dimension != other.dimension:
            raise WorkError(f"{_comparison(self, other)}: they cannot be added or subtracted.")


def plain(number: Number) -> Measure:
    """Return a number as a person reads it: 0.1 is a tenth.

    Raises:
        WorkError: it is too large.
    """
    if isinstance(number, int):
        return Measure(Fraction(number))
    if not isfinite(number):
        raise WorkError(_TOO_LARGE)
    return Measure(Fraction(repr(number)))


def product(units: Iterable[tuple[Unit, int]]) -> Units:
    """Return units multiplied with each other.

    Raises:
        WorkError: the power of one is out of all reason.
    """
    powers: dict[Unit, int] = {}
    for unit, exponent in units:
        powers[unit] = powers.get(unit, 0) + exponent
    if any(abs(exponent) > _MAX_EXPONENT for exponent in powers.values()):
        raise WorkError(f"Units can have powers up to {_MAX_EXPONENT}.")
    return tuple((unit, exponent) for unit, exponent in powers.items() if exponent)


def dimension_of(units: Units) -> Dimension:
    """Return what a product of units measures."""
    exponents: dict[str, int] = {}
    for unit, exponent in units:
        for root, own in unit.dimension:
            exponents[root] = exponents.get(root, 0) + own * exponent
    return tuple(sorted((root, exponent) for root, exponent in exponents.items() if exponent))


def scale_of(units: Units) -> Fraction:
    """Return how many root units one of a product of units is.

    Raises:
        WorkError: the number is too large or too small to be worked with.
    """
    if sum(_bits(unit.scale) * abs(exponent) for unit, exponent in units) > _MAX_BITS:
        raise WorkError(_TOO_LARGE)
    return prod((unit.scale**exponent for unit, exponent in units), start=Fraction(1))


def written_number(value: Fraction) -> str:
    """Write a number for people.

    Raises:
        OverflowError: it is too large.
    """
    exact = value.denominator == 1 and abs(value) < _EXACT_BELOW
    return written(value.numerator if exact else float(value))


def written_units(units: Units) -> str:
    """Write units as in books: kg·m/s², W/(m²·K), /h; nothing for a plain number."""
    over = "·".join(_raised(unit, exponent) for unit, exponent in units if exponent > 0)
    under = [_raised(unit, -exponent) for unit, exponent in units if exponent < 0]
    match under:
        case []:
            return over
        case [single]:
            return f"{over}/{single}"
        case _:
            return f"{over}/({'·'.join(under)})"


def _raised(unit: Unit, exponent: int) -> str:
    power = "" if exponent == 1 else str(exponent).translate(_SUPERSCRIPTS)
    return unit.symbol + power


def _comparison(left: Measure, right: Measure) -> str:
    here, there = (written_units(measure.units) for measure in (left, right))
    kinds = name_of(left.dimension), name_of(right.dimension)
    return f"{here or _UNITLESS} is {kinds[0]} and {there or _UNITLESS.lower()} {kinds[1]}"


def _check_amounts(*measures: Measure) -> None:
    if any(measure.is_point for measure in measures):
        raise WorkError(_POINTS)


def _bits(value: Fraction) -> int:
    return value.numerator.bit_length() + value.denominator.bit_length()
