"""Convert between units: `python -I -m tools.calculator.units`, in the sandbox.

Uses pint's table and arithmetic in exact fractions, but not its parser: names and small powers are
read here, so that nothing a person writes is ever evaluated. This runs in another process than the
calculator, because loading the table takes half a second.
"""

import json
import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Final

import pint
from pint.util import UnitsContainer

from tools.calculator.arithmetic import written
from tools.sandbox.errors import WorkError

MAX_UNIT_CHARACTERS: Final = 60
MAX_DIGITS: Final = 40

_DIGITS: Final = rf"[0-9]{{1,{MAX_DIGITS}}}"
_VALUE: Final = re.compile(rf"[+-]?{_DIGITS}(?:\.{_DIGITS})?(?:[eE][+-]?[0-9]{{1,3}})?")
_LETTERS: Final = "A-Za-zµμΩΩÅ°"
_PART: Final = re.compile(
    r"(?P<word>square |cubic |sq |cu )?(?:deg(?:ree)?s? )?"
    rf"(?P<name>[{_LETTERS}%][{_LETTERS}_ ]{{0,39}}?)"
    r"(?: ?(?:\^|\*\*)? ?(?P<power>-?[1-9])|(?P<raised>[⁻²³]{1,2}))?"
)
_BETWEEN: Final = re.compile(r"\s*(/|(?<!\*)\*(?!\*)|·|(?<=\s)per(?=\s))\s*")
_POWER_WORDS: Final = {"square ": 2, "sq ": 2, "cubic ": 3, "cu ": 3, None: 1}
_RAISED: Final = {"²": 2, "³": 3, "⁻²": -2, "⁻³": -3}
_EXACT_BELOW: Final = 10**15

_SPELLINGS: Final[Mapping[str, str]] = {
    **{f"{letter}b": f"{letter.upper()}B" for letter in "kmgt"},
    **{f"{letter}b": f"{letter}bit" for letter in "KMGT"},
    **{f"{letter}bps": f"{letter}bit / s" for letter in "kKMGT"},
    "bps": "bit / s", "KB": "kB", "kph": "km / h", "kmh": "km / h", "mpg": "mile / gallon",
    "l/100km": "liter_per_hundred_km", "l/100 km": "liter_per_hundred_km",
    "sqm": "m^2", "sqft": "ft^2", "sqkm": "km^2", "cbm": "m^3", "wk": "week", "wks": "week",
    "Nm": "N * m", "fl oz": "fluid_ounce", "Cal": "kilocalorie", "Calorie": "kilocalorie",
    "Calories": "kilocalorie",
    "centigrade": "celsius", "°C": "celsius", "C": "celsius", "c": "celsius",
    "°F": "fahrenheit", "F": "fahrenheit", "f": "fahrenheit", "k": "kelvin", "°": "degree",
}  # fmt: skip
_SYMBOLS: Final[Mapping[str, str]] = {
    "liter_per_hundred_km": "l/100km",
    "cp": "cup",
    "floz": "fl oz",
    "deg": "°",
    "a": "yr",
}


class UnitConverter:
    """Converts between the units that pint knows."""

    def __init__(self) -> None:
        self._registry: Any = pint.UnitRegistry(non_int_type=Fraction)
        self._registry.define("liter_per_hundred_km = liter / (100 * kilometer)")

    def answer(self, request: str) -> str:
        """Answer a request: JSON with amounts and to; WorkError says why it cannot."""
        asked = json.loads(request)
        sources = " ".join(unit for _, unit in asked["amounts"])
        amounts = [self._amount(*amount) for amount in asked["amounts"]]
        *whole, last = [self._units(name) for name in re.split(r"\s+and\s+", asked["to"].strip())]
        try:
            parts, rest = [], sum(amounts[1:], start=amounts[0])
            for unit in whole:  # 5 feet, and the rest in inches
                amount = rest.to(unit)
                parts.append(self._registry.Quantity(Fraction(int(amount.magnitude)), unit))
                rest = amount - parts[-1]
            if rest.dimensionality == last.dimensionality**-1 != last.dimensionality:
                rest = 1 / rest  # from "per litre" to "litres per" (mpg)
            parts.append(rest.to(last))
            result = f"{' '.join(map(_shown, amounts))} = {' '.join(map(_shown, parts))}"
            return result + _about_calories(f"{sources} {asked['to']}")
        except pint.DimensionalityError:
            raise WorkError(f"{sources} and {asked['to']} measure different things.") from None
        except pint.OffsetUnitCalculusError:
            raise WorkError("Degrees of a scale cannot be added.") from None
        except ArithmeticError:
            raise WorkError("The result is too large, or a division by zero.") from None

    def _amount(self, value: str, unit: str) -> Any:
        if _VALUE.fullmatch(value.strip()) is None:
            raise WorkError("The value is no plain number, such as 5 or -2.5.")
        return self._registry.Quantity(Fraction(value.strip()), self._units(unit))

    def _units(self, text: str) -> Any:
        text = text.strip()
        if not 0 < len(text) <= MAX_UNIT_CHARACTERS:
            raise WorkError(f"A unit has 1 to {MAX_UNIT_CHARACTERS} characters.")
        first, *others = _BETWEEN.split(_SPELLINGS.get(text, text))
        signed = [("*", first), *zip(others[::2], others[1::2], strict=True)]
        powers: dict[str, int] = {}
        for sign, part in signed:
            name, power = self._part(part)
            powers[name] = powers.get(name, 0) + (-power if sign in {"/", "per"} else power)
        if powers != {name: 1} and any(self._root(name, 0) for name in powers):
            raise WorkError("Degrees of a scale cannot be part of another unit: use K.")
        return self._registry.Unit(UnitsContainer(powers))

    def _part(self, text: str) -> tuple[str, int]:
        found = _PART.fullmatch(text.strip())
        if found is None:
            raise WorkError(f"{text!r} is no unit. Write units as km, km/h or m^2.")
        power = int(found["power"] or _RAISED.get(found["raised"] or "", 1))
        return self._known(found["name"].strip()), power * _POWER_WORDS[found["word"]]

    def _known(self, name: str) -> str:
        """Return the name of a unit in pint's table."""
        underscored = _SPELLINGS.get(name, name).replace(" ", "_")
        for spelling in (underscored, underscored.lower()):
            try:
                known: str = self._registry.get_name(spelling)
            except pint.PintError:
                continue
            try:
                is_exact = isinstance(self._root(known, 1), Fraction)
            except TypeError:  # if numpy is installed, it takes no logarithm of a fraction
                is_exact = False
            if not is_exact:  # such as decibel
                raise WorkError(f"There is no converting of {known} here.")
            return known
        raise WorkError(f"There is no unit {name!r}.")

    def _root(self, name: str, value: int) -> Any:
        """Return a value of a unit in root units: 0 °C is 273.15 K."""
        return self._registry.Quantity(Fraction(value), name).to_root_units().magnitude


def _about_calories(units: str) -> str:
    """Return which calorie was meant, if people may mean the other one."""
    if re.search(r"\bCal(?:ories?)?\b", units):
        return " (a Calorie of food is a kilocalorie; the small calorie is a thousandth of it)"
    if re.search(r"\bcal(?:ories?)?\b", units):
        return " (small calories; a Calorie of food is 1,000 of them)"
    return ""


def _shown(quantity: Any) -> str:
    value = quantity.magnitude
    number = written(float(value) if abs(value) >= _EXACT_BELOW else value)
    unit = f"{quantity.units:~P}"
    unit = _SYMBOLS.get(unit, unit)
    return f"{number}{unit}" if unit in {"", "°"} else f"{number} {unit}"


if __name__ == "__main__":
    from tools.sandbox.child import serve

    converter = UnitConverter()
    # Load what pint loads late before the limits hold.
    converter.answer(json.dumps({"amounts": [["1", "km/h"]], "to": "mph"}))
    serve(converter.answer)
