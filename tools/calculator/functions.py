"""What a calculation may name: functions and constants, each with its bounds.

Runs inside the sandbox; imports only what a small process can afford.
"""

import math
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any, Final

from sandbox.errors import WorkError

MAX_DIGITS: Final = 10_000
_MAX_FACTORIAL: Final = 3_248  # the last one with fewer than MAX_DIGITS digits
_MAX_ROUNDING: Final = 300
_ANY: Final = 1_000
_TOO_LONG: Final = f"The result would have more than {MAX_DIGITS:,} digits."

Number = int | float


def _whole(value: Number) -> int:
    """Return a whole number as such, also if it was written or calculated as 4.0."""
    if isinstance(value, float) and not value.is_integer():
        raise TypeError
    return int(value)


def _power(base: Number, exponent: Number) -> Number:
    if isinstance(base, int) and isinstance(exponent, int) and abs(base) > 1:
        if exponent * math.log10(abs(base)) >= MAX_DIGITS:
            raise WorkError(_TOO_LONG)
    elif base < 0 and not float(exponent).is_integer():
        raise WorkError("A negative number to a fractional power has no real result.")
    result: Number = base**exponent
    return result


def _factorial(value: Number) -> int:
    number = _whole(value)
    if number > _MAX_FACTORIAL:
        raise WorkError(_TOO_LONG)
    return math.factorial(number)


def _comb(items: Number, chosen: Number) -> int:
    n, k = _whole(items), _whole(chosen)
    fewer = min(k, n - k)
    if n > 0 and min(fewer * math.log10(n), n * math.log10(2)) >= MAX_DIGITS:  # <= n**k, <= 2**n
        raise WorkError(_TOO_LONG)
    return math.comb(n, k)


def _perm(items: Number, chosen: Number) -> int:
    n, k = _whole(items), _whole(chosen)
    if n > 0 and min(n, k) * math.log10(n) >= MAX_DIGITS:  # <= n**k
        raise WorkError(_TOO_LONG)
    return math.perm(n, k)


def _round(value: Number, digits: Number = 0) -> Number:
    """Round half away from zero, as at school, on the decimal digits that a person sees."""
    places = _whole(digits)
    if abs(places) > _MAX_ROUNDING:
        raise WorkError(f"round takes at most {_MAX_ROUNDING} places.")
    exact = Decimal(value) if isinstance(value, int) else Decimal(repr(value))
    enough = Context(prec=MAX_DIGITS + _MAX_ROUNDING)
    rounded = exact.quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP, enough)
    return int(rounded) if isinstance(value, int) or places <= 0 else float(rounded)


def _circular(function: Callable[[float], float]) -> Callable[[Number], float]:
    """Make sin(pi) zero: a result within the rounding of its argument says nothing else."""

    def exact_at_zero(angle: Number) -> float:
        value = function(angle)
        return 0.0 if abs(value) <= abs(angle) * 2**-52 else value

    return exact_at_zero


_sin = _circular(math.sin)
_cos = _circular(math.cos)


def _tan(angle: Number) -> float:
    return _sin(angle) / _cos(angle)


def _function(
    name: str, function: Callable[..., Number], least: int = 1, most: int = 1
) -> Callable[..., Number]:
    """Wrap a function so that it says in a sentence what it cannot do."""

    def call(*values: Any) -> Number:
        if not least <= len(values) <= most:
            raise WorkError(f"{name} takes {_numbers(least, most)}, not {len(values)}.")
        try:
            return function(*values)
        except TypeError:
            raise WorkError(f"{name} needs whole numbers.") from None
        except (ValueError, ZeroDivisionError):
            raise WorkError(f"{name} has no real result for that number.") from None

    return call


def _numbers(least: int, most: int) -> str:
    if most == _ANY:
        return f"{least} or more numbers, separated by commas"
    wanted = str(least) if least == most else f"{least} to {most}"
    return f"{wanted} number{'s' * (most > 1)}"


CONSTANTS: Final = {"pi": math.pi, "e": math.e, "tau": math.tau}

FUNCTIONS: Final = {
    "abs": _function("abs", abs),
    "acos": _function("acos", math.acos),
    "asin": _function("asin", math.asin),
    "atan": _function("atan", math.atan),
    "atan2": _function("atan2", math.atan2, 2, 2),
    "cbrt": _function("cbrt", math.cbrt),
    "ceil": _function("ceil", math.ceil),
    "comb": _function("comb", _comb, 2, 2),
    "cos": _function("cos", _cos),
    "cosh": _function("cosh", math.cosh),
    "degrees": _function("degrees", math.degrees),
    "exp": _function("exp", math.exp),
    "factorial": _function("factorial", _factorial),
    "floor": _function("floor", math.floor),
    "gcd": _function("gcd", lambda *values: math.gcd(*map(_whole, values)), 2, _ANY),
    "hypot": _function("hypot", math.hypot, 2, _ANY),
    "lcm": _function("lcm", lambda *values: math.lcm(*map(_whole, values)), 2, _ANY),
    "ln": _function("ln", math.log),
    "log": _function("log", math.log, 1, 2),
    "log10": _function("log10", math.log10),
    "log2": _function("log2", math.log2),
    "max": _function("max", lambda *values: max(values), 1, _ANY),
    "min": _function("min", lambda *values: min(values), 1, _ANY),
    "mod": _function("mod", lambda dividend, divisor: dividend % divisor, 2, 2),
    "percent": _function("percent", lambda value: value / 100),
    "perm": _function("perm", _perm, 2, 2),
    "pow": _function("pow", _power, 2, 2),
    "radians": _function("radians", math.radians),
    "round": _function("round", _round, 1, 2),
    "sin": _function("sin", _sin),
    "sinh": _function("sinh", math.sinh),
    "sqrt": _function("sqrt", math.sqrt),
    "sum": _function("sum", lambda *values: sum(values), 1, _ANY),
    "tan": _function("tan", _tan),
    "tanh": _function("tanh", math.tanh),
}
