"""What people and models write about units, turned into arithmetic with named measures.

`1.5 GB / 20 Mbit/s` becomes `u0 / u1`: a number and the units after it belong together. What
comes out is checked as any other arithmetic is; `in` is a unit or asks for one, as a person
would read it.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise, takewhile
from typing import Final

from sandbox.errors import WorkError
from tools.calculator.lexemes import Lexeme, Part, lexemes
from tools.calculator.measure import MAX_POWER, Measure, Units, plain, product
from tools.calculator.units import UnitTable

_ASKING: Final = {"in", "to", "as", "into", "->", "→"}
_JOINING: Final = {"/", "*", "·", "⋅", "×"}  # noqa: RUF001 as people write it
_RAISING: Final = {"^", "**"}
_MINUS: Final = {"-", "−"}  # noqa: RUF001 as people write it
_INCH: Final = frozenset({"in"})  # after another unit it asks for one, and is no factor
_NUMBERS: Final = {Part.NUMBER, Part.FRACTION, Part.POWER}
_AND: Final = frozenset({"and"})
_FIRST_POWERS: Final = {"square": 2, "sq": 2, "cubic": 3, "cu": 3}
_MAX_WORDS: Final = 3
_MAX_TARGETS: Final = 3
_EXPONENT_DIGITS: Final = 3
_SHOWN_CHARACTERS: Final = 40
_LETTERS_OF_TEMPERATURE: Final = {"c": "celsius", "f": "fahrenheit", "k": "kelvin"}
_CURRENCIES: Final = frozenset(
    (
        "$", "€", "£", "¥", "₹", "₿", "usd", "eur", "gbp", "jpy", "cny", "inr", "chf", "cad", "aud",
        "sek", "nok", "dkk", "pln", "czk", "btc", "eth", "dollar", "dollars", "euro", "euros",
        "yen", "yuan", "rupee", "rupees", "franc", "francs", "bitcoin", "bitcoins",
    )
)  # fmt: skip
_UNIT_MISSING: Final = "The name of a unit is missing after square or cubic."
_TWO_READINGS: Final = (
    "Units without a sign between them after / can be read in two ways: write * or parentheses."
)


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """An expression in the calculator's notation, and the measures that its names stand for."""

    expression: str
    measures: Mapping[str, Measure]


@dataclass(frozen=True, slots=True)
class Target:
    """What a result is asked in; the text is as it was written."""

    arithmetic: Arithmetic
    text: str


@dataclass(frozen=True, slots=True)
class Request:
    """A calculation, and what its result is asked in: nothing, a unit, or feet and inches."""

    source: Arithmetic
    targets: tuple[Target, ...]


def read_request(text: str, table: UnitTable) -> Request:
    """Read a calculation with units.

    Raises:
        WorkError: something has no place in it, is no known unit, or can be read in two ways.
    """
    text = text.strip().rstrip("=? ")
    parts = _with_temperatures(lexemes(text))
    asking = _asking(parts)
    if asking is None:
        return Request(_Reader(parts, table).read(), ())
    source, wanted = parts[:asking], parts[asking + 1 :]
    return Request(_Reader(source, table).read(), _targets(wanted, text, table))


def _targets(wanted: Sequence[Lexeme], text: str, table: UnitTable) -> tuple[Target, ...]:
    ands = [index for index, part in enumerate(wanted) if _is(part, _AND)]
    if len(ands) >= _MAX_TARGETS:
        raise WorkError(f"A result can be given in {_MAX_TARGETS} units at most.")
    spans = [wanted[start + 1 : end] for start, end in pairwise([-1, *ands, len(wanted)])]
    if not all(spans):
        raise WorkError("Say which unit comes after 'and'.")
    return tuple(
        Target(_Reader(span, table).read(), text[span[0].start : span[-1].end]) for span in spans
    )


def _asking(parts: Sequence[Lexeme]) -> int | None:
    """Return where the last word stands that asks for the unit after it.

    `in` after a number and before nothing is an inch: `10 in`, `5 cm in in`, `10 in in cm`.
    """
    for index in range(len(parts) - 2, 0, -1):
        if parts[index].text.lower() in _ASKING and parts[index + 1].part is Part.WORD:
            return index
    return None


def _with_temperatures(parts: list[Lexeme]) -> list[Lexeme]:
    """Read `100 F in C` as temperatures: as farad and coulomb they would have no answer."""
    words = {part.text.lower() for part in parts if part.part is Part.WORD}
    temperatures = {*_LETTERS_OF_TEMPERATURE, *_LETTERS_OF_TEMPERATURE.values()}
    if len(words & temperatures) < 2 or words - temperatures - _ASKING:
        return parts
    return [
        replace(part, text=_LETTERS_OF_TEMPERATURE.get(part.text.lower(), part.text))
        if part.part is Part.WORD
        else part
        for part in parts
    ]


class _Reader:
    """Goes through lexemes once, and puts a name where a measure is."""

    def __init__(self, parts: Sequence[Lexeme], table: UnitTable) -> None:
        self._parts = parts
        self._table = table
        self._position = 0
        self._output: list[str] = []
        self._measures: dict[str, Measure] = {}

    def read(self) -> Arithmetic:
        while (part := self._at(0)) is not None:
            before = self._at(-1)
            if measure := self._quantities():
                _refuse_two_numbers(before)
                self._name(measure)
            elif units := self._units():
                self._name(Measure(Fraction(1), units))
            else:
                self._output += ["**", part.text] if part.part is Part.POWER else [part.text]
                self._position += 1
        return Arithmetic(" ".join(self._output), self._measures)

    def _name(self, measure: Measure) -> None:
        name = f"u{len(self._measures)}"
        self._measures[name] = measure
        self._output.append(name)

    def _quantities(self) -> Measure | None:
        """Read `5 km`, or `3 ft 4 in` and `8 h and 30 min` as sums."""
        total = self._quantity()
        while total is not None:
            end = self._position
            if _is(self._at(0), _AND):
                self._position += 1
            following = self._quantity()
            if following is None or following.dimension != total.dimension:
                self._position = end
                break
            total = total.plus(following)
        return total

    def _quantity(self) -> Measure | None:
        start = self._position
        number = self._number()
        units = () if number is None else self._units()
        if number is None or not units:
            self._position = start
            return None
        return Measure(number, units)

    def _number(self) -> Fraction | None:
        """Read a number that is not itself an exponent: `5`, `1/2`, `2 1/2`, `10^6`."""
        part = self._at(0)
        if part is None or (self._output and self._output[-1] in _RAISING):
            return None
        self._position += 1
        if part.part is Part.FRACTION:
            return sum((Fraction(text) for text in part.text.split()), Fraction(0))
        if part.part is not Part.NUMBER:
            return None
        number = float(part.text.replace(",", "").replace("_", ""))
        return plain(float(number ** (self._exponent() or 1))).value

    def _units(self) -> Units:
        """Read `km`, `km/h`, `kg*m/s^2`, `kW h`: units up to anything else."""
        units = list(self._unit())
        divided = False
        while units and (sign := self._sign_before_unit()) is not None:
            if divided and not sign:
                raise WorkError(_TWO_READINGS)
            self._position += 1 if sign else 0
            divided = divided or sign == "/"
            factor = -1 if sign == "/" else 1
            units += [(unit, exponent * factor) for unit, exponent in self._unit()]
        if len(units) > 1 or any(exponent != 1 for _, exponent in units):
            units = [(unit.difference(), exponent) for unit, exponent in units]
        return product(units)

    def _sign_before_unit(self) -> str | None:
        """Return what joins the next unit to the one before: a sign, nothing, or None."""
        here, there = self._at(0), self._at(1)
        if _is_unit(here) and not _is(here, _INCH):
            return ""
        if here is not None and here.text in _JOINING and _is_unit(there):
            return here.text
        return None

    def _unit(self) -> Units:
        """Read one unit with its power: `km`, `m^2`, `m2`, `square meters`."""
        part = self._at(0)
        if part is None or not _is_unit(part):
            return ()
        power = _FIRST_POWERS.get(part.text.lower(), 1)
        self._position += 1 if power > 1 else 0
        units = self._named_unit()
        power *= self._exponent() or 1
        if abs(power) > MAX_POWER or _is(self._at(0), _RAISING):
            raise WorkError(f"A unit can have whole powers up to {MAX_POWER}.")
        return tuple((unit, exponent * power) for unit, exponent in units)

    def _named_unit(self) -> Units:
        """Read the name of a unit, of up to three words: `nautical miles`."""
        following = self._parts[self._position :][:_MAX_WORDS]
        words = [part.text for part in takewhile(_is_unit, following)]
        if words and words[0].lower() in _CURRENCIES:
            raise WorkError("Rates of exchange are not known here: calculate with plain numbers.")
        for count in range(len(words), 0, -1):
            if units := self._table.find("_".join(words[:count])):
                self._position += count
                return units
        raise WorkError(_unknown(words[0], self._table) if words else _UNIT_MISSING)

    def _exponent(self) -> int | None:
        """Read `²`, `^2`, `^-1`, or the 2 of `m2`, if one of them stands here."""
        part = self._at(0)
        if part is None:
            return None
        if part.part is Part.POWER:
            self._position += 1
            return int(part.text)
        sign = 1 if _is(self._at(1), _MINUS) else 0
        digits = self._at(1 + sign)
        if part.text in _RAISING and digits is not None and _is_digits(digits):
            self._position += 2 + sign
            return int(digits.text) * (-1 if sign else 1)
        return None

    def _at(self, distance: int) -> Lexeme | None:
        index = self._position + distance
        return self._parts[index] if 0 <= index < len(self._parts) else None


def _refuse_two_numbers(before: Lexeme | None) -> None:
    """Refuse `10 000 km`: a number before a number is no product."""
    if before is not None and (before.part in _NUMBERS or before.text == ")"):
        raise WorkError("Between two numbers an operator is missing; thousands are written 1,000.")


def _is(part: Lexeme | None, texts: Collection[str]) -> bool:
    return part is not None and part.text.lower() in texts


def _is_unit(part: Lexeme | None) -> bool:
    return part is not None and part.part is Part.WORD and not _is(part, _AND)


def _is_digits(part: Lexeme) -> bool:
    return part.part is Part.NUMBER and part.text.isdecimal() and len(part.text) <= _EXPONENT_DIGITS


def _unknown(word: str, table: UnitTable) -> str:
    shown = word[:_SHOWN_CHARACTERS]
    if word.lower() in _ASKING:
        return f"{shown!r} asks for one unit, at the end: 5 km in miles."
    near = table.nearest(word)
    return f"There is no unit {shown!r} here." + (f" Near: {', '.join(near)}." if near else "")
