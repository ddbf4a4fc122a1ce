"""One calculation with units from text to text. Runs inside the sandbox."""

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Final

from sandbox.errors import WorkError
from tools.calculator.failures import TOO_DEEP, sentence
from tools.calculator.functions import CONSTANTS, FUNCTIONS, Number
from tools.calculator.kinds import KINDS, ValueKind, name_of
from tools.calculator.measure import Measure, Units, plain, product, written_number
from tools.calculator.measure_notation import Arithmetic, Target, read_request
from tools.calculator.notation import MAX_CHARACTERS, to_python
from tools.calculator.syntax import parse
from tools.calculator.units import Dimension, UnitTable

_TIME: Final = (("second", 1),)
_ANGLE: Final = (("radian", 1),)
_CLOCK: Final = (("d", 86_400), ("h", 3_600), ("min", 60))
_SHORT: Final = 60

_NUMBERS: Final[Mapping[type[ast.operator], Callable[[Number, Number], Number]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_MEASURES: Final[Mapping[type[ast.operator], Callable[[Measure, Measure], Measure]]] = {
    ast.Add: Measure.plus,
    ast.Sub: Measure.minus,
    ast.Mult: Measure.times,
    ast.Div: Measure.divided_by,
}

Value = Number | Measure


def calculate_measures(text: str, table: UnitTable) -> str:
    """Return the value of an expression with units, in the unit that it asks for.

    Raises:
        WorkError: it cannot be read, does not fit together, or is too large.
    """
    if len(text) > MAX_CHARACTERS:
        raise WorkError(f"An expression may have {MAX_CHARACTERS:,} characters, not more.")
    try:
        request = read_request(text, table)
        value = _value(request.source)
        return _asked(value, request.targets) if request.targets else _plainly(value, table)
    except ArithmeticError as error:
        raise WorkError(sentence(error)) from None
    except RecursionError:
        raise WorkError(TOO_DEEP) from None


def _value(arithmetic: Arithmetic) -> Measure:
    names: dict[str, Value] = {**CONSTANTS, **arithmetic.measures}
    tree = parse(to_python(arithmetic.expression), names)
    return _measure(_evaluated(tree.body, names))


def _evaluated(node: ast.expr, names: Mapping[str, Value]) -> Value:
    match node:
        case ast.Constant(value=int() | float() as number):
            return number
        case ast.Name(name):
            return names[name]
        case ast.UnaryOp(ast.USub(), operand):
            return _negated(_evaluated(operand, names))
        case ast.UnaryOp(_, operand):
            return _evaluated(operand, names)
        case ast.BinOp(left, sign, right):
            return _combined(_evaluated(left, names), type(sign), _evaluated(right, names))
        case ast.Call(ast.Name(name), arguments):
            return _called(name, [_evaluated(argument, names) for argument in arguments])
        case _:
            raise TypeError(type(node).__name__)


def _negated(value: Value) -> Value:
    return value.negated() if isinstance(value, Measure) else -value


def _combined(left: Value, sign: type[ast.operator], right: Value) -> Value:
    if not isinstance(left, Measure) and not isinstance(right, Measure):
        return _NUMBERS[sign](left, right)
    if sign not in _MEASURES:
        raise WorkError("With units there is + - * / ^, but no // and no remainder.")
    return _MEASURES[sign](_measure(left), _measure(right))


def _called(name: str, arguments: Sequence[Value]) -> Value:
    match name, arguments:
        case "pow", [Measure() as base, power]:
            return base.to_the(plain(_number(power, name)).value)
    return FUNCTIONS[name](*(_number(argument, name) for argument in arguments))


def _number(value: Value, function: str) -> Number:
    """Return what a function takes: a plain number, or an angle in radians."""
    if not isinstance(value, Measure):
        return value
    if value.dimension not in {(), _ANGLE}:
        raise WorkError(f"{function} takes plain numbers, and this is {name_of(value.dimension)}.")
    number = value.in_root_units
    return number.numerator if number.denominator == 1 else float(number)


def _measure(value: Value) -> Measure:
    return value if isinstance(value, Measure) else plain(value)


def _asked(value: Measure, targets: Sequence[Target]) -> str:
    wanted = [_value(target.arithmetic) for target in targets]
    if len(wanted) > 1:
        return _equal(value.written(), _in_several(value, wanted))
    result = value.converted(wanted[0])
    if wanted[0].value == 1:
        return _equal(value.written(), result.written())
    return _equal(value.written(), f"{written_number(result.value)} {targets[0].text}")


def _in_several(value: Measure, units: Sequence[Measure]) -> str:
    """Write a measure as whole feet and the inches that remain."""
    if any(unit.value != 1 for unit in units):
        raise WorkError("Several units are named without numbers: ft and in.")
    parts: list[Measure] = []
    for unit in units[:-1]:
        rest = value.converted(unit)
        parts.append(Measure(Fraction(int(rest.value)), rest.units))
        value = rest.minus(parts[-1])
    return " ".join(part.written() for part in (*parts, value.converted(units[-1])))


def _plainly(value: Measure, table: UnitTable) -> str:
    """Write a result that was asked in no unit: as it came, and in one that everybody knows."""
    value = value if value.is_point else value.simplified()
    if value.dimension == _TIME and abs(value.in_root_units) >= _SHORT:
        return _equal(value.written(), _clock(value.in_root_units))
    kind = KINDS.get(value.dimension)
    if kind is None:
        return value.written()
    known = Measure(Fraction(1), _units_of(kind, value.dimension, table))
    return _equal(value.written(), value.converted(known).written())


def _units_of(kind: ValueKind, dimension: Dimension, table: UnitTable) -> Units:
    names = dimension if kind.unit is None else ((kind.unit, 1),)
    return product(
        (table.find("kilogram" if name == "gram" else name)[0][0], exponent)
        for name, exponent in names
    )


def _clock(seconds: Fraction) -> str:
    """Write a time in days, hours, minutes and seconds."""
    parts, rest = [], abs(seconds)
    for name, length in _CLOCK:
        whole, rest = divmod(rest, length)
        if whole:
            parts.append(f"{whole} {name}")
    if rest:
        parts.append(f"{written_number(rest)} s")
    return ("-" if seconds < 0 else "") + " ".join(parts)


def _equal(left: str, right: str) -> str:
    return left if left == right else f"{left} = {right}"
