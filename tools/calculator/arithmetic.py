"""Calculate an expression: `python -I -m tools.calculator.arithmetic`, in the sandbox.

Reads what people and models write: `2^10`, `1,234.5`, `√16`, `2π`, `2(3+4)`, `5!`, `15% of 80`,
`10 mod 3`. Only numbers, operators and the names in FUNCTIONS and CONSTANTS mean something; sizes
and nesting are bounded. No text is ever evaluated as Python.

Decimals and quotients are exact fractions. Powers of ten (`1e9`), roots, logarithms and the like
give floats.
"""

import math
import operator
import re
from collections.abc import Callable, Mapping
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any, Final

from tools.sandbox.errors import WorkError

MAX_CHARACTERS: Final = 1_000
MAX_NESTING: Final = 50
MAX_DIGITS: Final = 10_000
_MAX_BITS: Final = 40_000  # a little more than MAX_DIGITS digits
_EXACT_DIGITS: Final = 100
_SIGNIFICANT_DIGITS: Final = 12
_MAX_DECIMALS: Final = 30
_SMALLEST_PLAIN: Final = Fraction(1, 10**6)
_MAX_WHOLE_FLOAT: Final = 1e15  # floats hold every whole number up to here
_MAX_FACTORIAL: Final = 3_248  # the last one with fewer than MAX_DIGITS digits
_MAX_ROUNDING: Final = 300
_ANY: Final = 1_000
_MAX_NAME_CHARACTERS: Final = 30

_INCOMPLETE: Final = "This is no complete calculation: check its operators and parentheses."
_TOO_DEEP: Final = f"Parentheses and powers may be nested {MAX_NESTING} deep, not deeper."
_TOO_LONG: Final = f"The result would have more than {MAX_DIGITS:,} digits."

Number = int | float | Fraction


def calculate(text: str) -> str:
    """Return the value of an expression, written for people; WorkError says why it cannot."""
    if len(text) > MAX_CHARACTERS:
        raise WorkError(f"An expression may have {MAX_CHARACTERS:,} characters, not more.")
    expression = text.lower().translate(_SPELLINGS).strip().rstrip("=? ")
    if not expression:
        raise WorkError("The expression is empty.")
    try:
        return written(_Calculation(_lexemes(expression)).value())
    except ZeroDivisionError:
        raise WorkError("Division by zero has no result.") from None
    except OverflowError:
        raise WorkError("The result is too large.") from None


def written(value: Number) -> str:
    """Write a number: whole ones exactly up to 100 digits, and decimals up to 30.

    Others have 12 significant digits.
    """
    if isinstance(value, Fraction):
        value = _exact(value)
    if isinstance(value, int):
        return _written_whole(value)
    if isinstance(value, Fraction):
        decimal = Context(prec=_MAX_DECIMALS).divide(value.numerator, Decimal(value.denominator))
        if Fraction(decimal) == value and abs(value) >= _SMALLEST_PLAIN:
            return f"{decimal:f}"
        value = float(value)
    if math.isnan(value):
        raise WorkError("The calculation has no result.")
    if math.isinf(value):
        raise WorkError("The result is too large.")
    if value.is_integer() and abs(value) < _MAX_WHOLE_FLOAT:
        return str(int(value))
    mantissa, sign, exponent = f"{value:.{_SIGNIFICANT_DIGITS}g}".partition("e")
    return f"{mantissa}e{int(exponent)}" if sign else mantissa


def _written_whole(value: int) -> str:
    if abs(value) < 10**_EXACT_DIGITS:
        return str(value)
    if abs(value) >= 10**MAX_DIGITS:
        raise WorkError(f"The result has more than {MAX_DIGITS:,} digits.")
    rounded = Context(prec=_SIGNIFICANT_DIGITS).create_decimal(value).normalize()
    short = f"{rounded:e}".replace("+", "")
    return f"{short} ({Decimal(value).adjusted() + 1:,} digits)"


# Reading ------------------------------------------------------------------------------------------

_SPELLINGS: Final = str.maketrans(
    {
        "^": "**", "×": "*", "·": "*", "⋅": "*", "÷": "/", "∕": "/", "−": "-", "–": "-",  # noqa: RUF001
        "²": "**2", "³": "**3", "π": " pi ", "τ": " tau ",
    }
)  # fmt: skip
_FRACTION: Final = r"(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?"
_PLAIN: Final = rf"[0-9][0-9_]*{_FRACTION}|\.[0-9]+(?:[eE][+-]?[0-9]+)?"
_GROUPED: Final = rf"[1-9][0-9]{{0,2}}(?:,[0-9]{{3}})+(?![0-9]){_FRACTION}"
_LEXEME: Final = re.compile(
    rf"{_GROUPED}|{_PLAIN}|[a-z][a-z0-9]*|\*\*|//|!(?!!)|[-+*/%(),√]", re.ASCII
)


def _quotient(value: Number, divisor: Number) -> Number:
    if isinstance(value, float) or isinstance(divisor, float):
        return value / divisor
    return Fraction(value) / divisor


_PRODUCTS: Final[Mapping[str, Callable[[Number, Number], Number]]] = {
    "*": operator.mul,
    "x": operator.mul,
    "of": operator.mul,
    "/": _quotient,
    "//": operator.floordiv,
    "%": operator.mod,
    "mod": operator.mod,
}


def _lexemes(text: str) -> list[str]:
    """Split a text; a comma groups thousands, and separates the arguments of a function."""
    lexemes: list[str] = []
    calls: list[bool] = []  # for each open parenthesis, whether a function's arguments are in it
    position = 0
    while position < len(text):
        if text[position].isspace():
            position += 1
            continue
        found = _LEXEME.match(text, position)
        if found is None:
            raise WorkError(f"{text[position]!r} has no place in a calculation.")
        lexeme = found[0]
        in_call = bool(calls) and calls[-1]
        if lexeme == "(":
            calls.append(bool(lexemes) and _is_name(lexemes[-1]))
        elif lexeme == ")":
            if not calls:
                raise WorkError("A closing parenthesis has no opening one.")
            calls.pop()
        elif lexeme == "," and not in_call:
            raise WorkError("A comma groups thousands, as in 1,234.5; decimals need a point.")
        elif "," in lexeme[1:] and in_call:
            raise WorkError(f"Write {lexeme} without commas, or with a space after them.")
        lexemes.append(lexeme)
        position = found.end()
    return lexemes


def _is_number(lexeme: str) -> bool:
    return lexeme[:1].isdigit() or (lexeme[:1] == "." and len(lexeme) > 1)


def _is_name(lexeme: str) -> bool:
    return lexeme[:1].isalpha() and lexeme not in {"x", "of"}


def _starts_operand(lexeme: str) -> bool:
    return _is_number(lexeme) or lexeme == "(" or (_is_name(lexeme) and lexeme != "mod")


class _Percentage(Fraction):
    """A number that was written with %; any arithmetic on it gives a plain number."""


class _Calculation:
    """Reader of an expression that calculates while it reads.

    The operators, from loose to tight: sums; products; signs; powers, from the right; ! and %.
    """

    def __init__(self, lexemes: list[str]) -> None:
        self._lexemes = [*lexemes, "", ""]  # two ends, so that looking ahead needs no care
        self._at = 0
        self._depth = 0

    def value(self) -> Number:
        """Return the value of all of it."""
        value = self._sum()
        if self._next:
            raise WorkError(_INCOMPLETE)
        return value

    @property
    def _next(self) -> str:
        return self._lexemes[self._at]

    def _take(self, *wanted: str) -> str:
        """Take the next lexeme if it is wanted; otherwise return an empty text."""
        if self._next not in wanted:
            return ""
        self._at += 1
        return self._lexemes[self._at - 1]

    def _nested(self, read: Callable[[], Number]) -> Number:
        self._depth += 1
        if self._depth > MAX_NESTING:
            raise WorkError(_TOO_DEEP)
        value = read()
        self._depth -= 1
        return value

    def _sum(self) -> Number:
        value = self._product()
        while sign := self._take("+", "-"):
            added = self._product()
            if isinstance(added, _Percentage) and not isinstance(value, _Percentage):
                added = value * added  # 200 + 10% is 220, as on a calculator
            value = _bounded(value + added if sign == "+" else value - added)
        return value

    def _product(self) -> Number:
        value = self._signed()
        symbol = ""
        while True:
            if self._next in _PRODUCTS:
                symbol = self._take(*_PRODUCTS)
                value = _bounded(_PRODUCTS[symbol](value, self._signed()))
            elif self._is_product_without_sign():
                if symbol and _PRODUCTS[symbol] is not operator.mul:
                    raise _two_readings(symbol)
                symbol = "*"
                value = _bounded(value * self._signed())
            else:
                return value

    def _is_product_without_sign(self) -> bool:
        """Tell whether two neighbours are a product: `2(`, `2pi`, `)(`, `)pi`."""
        before = self._lexemes[self._at - 1]
        return (_is_number(before) or before in {")", "!", "%"}) and (
            self._next == "(" or _is_name(self._next)
        )

    def _signed(self) -> Number:
        is_negative = False
        while sign := self._take("+", "-"):
            is_negative ^= sign == "-"
        value = self._power()
        return -value if is_negative else value

    def _power(self) -> Number:
        base = self._operand()
        if not self._take("**"):
            return base
        exponent = self._nested(self._signed)
        if self._is_product_without_sign():
            raise _two_readings("^")
        return _call("pow", base, exponent)

    def _operand(self) -> Number:
        value = self._plain_operand()
        while True:
            if self._take("!"):
                value = _call("factorial", value)
            elif self._next == "%" and not _starts_operand(self._lexemes[self._at + 1]):
                self._at += 1
                value = _call("percent", value)
            else:
                return value

    def _plain_operand(self) -> Number:
        lexeme = self._next
        self._at += 1
        if _is_number(lexeme):
            return _number(lexeme)
        if lexeme == "(":
            if values := self._values():
                return values[0]
            raise WorkError(_INCOMPLETE)
        if lexeme == "√":
            if not _starts_operand(self._next):
                raise WorkError("√ needs a number or parentheses after it.")
            return _call("sqrt", self._plain_operand())
        if _is_name(lexeme) and self._take("("):
            return _call(lexeme, *self._values())
        if _is_name(lexeme):
            return _constant(lexeme)
        if lexeme in {"!", "%"}:
            raise WorkError(f"{lexeme} needs a number before it.")
        raise WorkError(_INCOMPLETE)

    def _values(self) -> list[Number]:
        """Return the values up to a closing parenthesis; only a function has none or several."""
        if self._take(")"):
            return []
        values = [self._nested(self._sum)]
        while self._take(","):
            values.append(self._nested(self._sum))
        if not self._take(")"):
            raise WorkError(_INCOMPLETE)
        return values


def _bounded(value: Number) -> Number:
    """Return a number of bounded length: a long fraction becomes a float, and whole ones an int."""
    if isinstance(value, Fraction) and not isinstance(value, _Percentage):
        value = _exact(value)
    if isinstance(value, int) and value.bit_length() > _MAX_BITS:
        raise WorkError(_TOO_LONG)
    if isinstance(value, Fraction):
        bits = max(value.numerator.bit_length(), value.denominator.bit_length())
        return float(value) if bits > _MAX_BITS else value
    return value


def _exact(value: Fraction) -> int | Fraction:
    """Return a fraction as an int if it is whole."""
    return value.numerator if value.denominator == 1 else value


def _two_readings(symbol: str) -> WorkError:
    """Return the refusal of `1/2(3)`: some read (1/2)*3, others 1/(2*3)."""
    return WorkError(
        f"A product without * after {symbol} can be read in two ways: write the * and parentheses."
    )


def _number(lexeme: str) -> Number:
    digits = lexeme.replace(",", "").replace("_", "")
    if digits.isdigit():
        return int(digits)
    if "e" not in digits:
        return _exact(Fraction(digits))
    value = float(digits)
    if math.isinf(value):
        raise WorkError("A number is too large.")
    return value


# Functions ----------------------------------------------------------------------------------------


def _constant(name: str) -> float:
    if name in FUNCTIONS:
        raise WorkError(f"{name} is a function: put its numbers in parentheses.")
    return CONSTANTS[name] if name in CONSTANTS else _refuse(name, CONSTANTS)


def _call(name: str, *values: Number) -> Number:
    """Call a function, or say in a sentence what is wrong with the call."""
    if name in CONSTANTS:
        raise WorkError(f"{name} is a constant: write * after it.")
    if name not in FUNCTIONS:
        _refuse(name, FUNCTIONS)
    function, least, most = FUNCTIONS[name]
    if not least <= len(values) <= most:
        wanted = str(least) if least == most else f"{least} to {most}"
        numbers = f"{wanted} number{'s' * (most > 1)}"
        if most == _ANY:
            numbers = f"{least} or more numbers, separated by commas"
        raise WorkError(f"{name} takes {numbers}, not {len(values)}.")
    try:
        return _bounded(function(*values))
    except TypeError:
        raise WorkError(f"{name} needs whole numbers.") from None
    except (ValueError, ZeroDivisionError):
        raise WorkError(f"{name} has no real result for that number.") from None


def _refuse(name: str, known: Mapping[str, object]) -> Any:
    raise WorkError(
        f"There is no {name[:_MAX_NAME_CHARACTERS]!r} here. There are: {', '.join(sorted(known))}."
    )


def _whole(value: Number) -> int:
    """Return a whole number as such, also if it was calculated as 4.0."""
    if int(value) != value:
        raise TypeError
    return int(value)


def _power(base: Number, exponent: Number) -> Number:
    if isinstance(base, float) or not isinstance(exponent, int):
        if base < 0 and int(exponent) != exponent:
            raise WorkError("A negative number to a fractional power has no real result.")
        return float(float(base) ** float(exponent))
    if isinstance(base, int) and exponent >= 0:
        _bound_power(abs(base), exponent)
        power: int = base**exponent
        return power
    exact = Fraction(base)
    bits = max(exact.numerator.bit_length(), exact.denominator.bit_length())
    return exact**exponent if bits * abs(exponent) <= _MAX_BITS else float(base) ** exponent


def _factorial(value: Number) -> int:
    number = _whole(value)
    if number > _MAX_FACTORIAL:
        raise WorkError(_TOO_LONG)
    return math.factorial(number)


def _comb(items: Number, chosen: Number) -> int:
    n, k = _whole(items), _whole(chosen)
    if n * math.log10(2) >= MAX_DIGITS:  # the result is at most 2**n
        _bound_power(n, min(k, n - k))
    return math.comb(n, k)


def _perm(items: Number, chosen: Number) -> int:
    n, k = _whole(items), _whole(chosen)
    _bound_power(n, min(n, k))
    return math.perm(n, k)


def _bound_power(base: int, exponent: int) -> None:
    """Refuse a power if its result would have too many digits."""
    if base > 1 and exponent * math.log10(base) >= MAX_DIGITS:
        raise WorkError(_TOO_LONG)


def _round(value: Number, digits: Number = 0) -> Number:
    """Round half away from zero, as at school, on the decimal digits that a person sees."""
    places = _whole(digits)
    if abs(places) > _MAX_ROUNDING:
        raise WorkError(f"round takes at most {_MAX_ROUNDING} places.")
    exact = Fraction(repr(value)) if isinstance(value, float) else Fraction(value)
    scaled = abs(exact) * Fraction(10) ** places + Fraction(1, 2)
    rounded = Fraction(math.floor(scaled)) / Fraction(10) ** places
    return _exact(rounded if exact >= 0 else -rounded)


def _circular(function: Callable[[float], float]) -> Callable[[Number], float]:
    """Return `sin` or `cos` with exact zeros: without this, sin(pi) is a rounding error."""

    def rounded(angle: Number) -> float:
        value = function(float(angle))
        return 0.0 if abs(value) <= abs(float(angle)) * 2**-52 else value

    return rounded


_sin, _cos = _circular(math.sin), _circular(math.cos)

CONSTANTS: Final = {"pi": math.pi, "e": math.e, "tau": math.tau}

_OF_ONE_NUMBER: Final = (
    "acos", "asin", "atan", "cbrt", "ceil", "cosh", "degrees", "exp", "floor", "log10", "log2",
    "radians", "sinh", "sqrt", "tanh",
)  # fmt: skip
FUNCTIONS: Final[Mapping[str, tuple[Callable[..., Number], int, int]]] = {
    **{name: (getattr(math, name), 1, 1) for name in _OF_ONE_NUMBER},
    "abs": (abs, 1, 1),
    "atan2": (math.atan2, 2, 2),
    "comb": (_comb, 2, 2),
    "cos": (_cos, 1, 1),
    "factorial": (_factorial, 1, 1),
    "gcd": (lambda *values: math.gcd(*map(_whole, values)), 2, _ANY),
    "hypot": (math.hypot, 2, _ANY),
    "lcm": (lambda *values: math.lcm(*map(_whole, values)), 2, _ANY),
    "ln": (math.log, 1, 1),
    "log": (math.log, 1, 2),
    "max": (lambda *values: max(values), 1, _ANY),
    "min": (lambda *values: min(values), 1, _ANY),
    "mod": (operator.mod, 2, 2),
    "percent": (lambda value: _Percentage(Fraction(value) / 100), 1, 1),
    "perm": (_perm, 2, 2),
    "pow": (_power, 2, 2),
    "round": (_round, 1, 2),
    "sin": (_sin, 1, 1),
    "sum": (lambda *values: sum(values), 1, _ANY),
    "tan": (lambda angle: _sin(angle) / _cos(angle), 1, 1),
}
"""Each function with its least and most arguments."""

if __name__ == "__main__":
    from tools.sandbox.child import serve

    serve(calculate)
