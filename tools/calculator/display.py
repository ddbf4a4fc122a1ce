"""Numbers as people read them."""

import math
from decimal import Context, Decimal
from typing import Final

from sandbox.errors import WorkError
from tools.calculator.functions import MAX_DIGITS

_EXACT_DIGITS: Final = 100
_SIGNIFICANT_DIGITS: Final = 12
_MAX_WHOLE_FLOAT: Final = 1e15  # a float holds every whole number up to here, and a little further


def written(value: float) -> str:
    """Write a number: whole ones exactly up to 100 digits, others with 12 significant digits.

    Raises:
        WorkError: it is too large, or no number.
    """
    if isinstance(value, int):
        return _whole(value)
    if math.isnan(value):
        raise WorkError("The calculation has no result.")
    if math.isinf(value):
        raise WorkError("The result is too large.")
    if value.is_integer() and abs(value) < _MAX_WHOLE_FLOAT:
        return str(int(value))
    mantissa, sign, exponent = f"{value:.{_SIGNIFICANT_DIGITS}g}".partition("e")
    return f"{mantissa}e{int(exponent)}" if sign else mantissa


def _whole(value: int) -> str:
    if abs(value) < 10**_EXACT_DIGITS:
        return str(value)
    if abs(value) >= 10**MAX_DIGITS:
        raise WorkError(f"The result has more than {MAX_DIGITS:,} digits.")
    rounded = Context(prec=_SIGNIFICANT_DIGITS).create_decimal(value).normalize()
    short = f"{rounded:e}".replace("+", "")
    return f"{short} ({Decimal(value).adjusted() + 1:,} digits)"
