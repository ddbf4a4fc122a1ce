"""One calculation from text to text. Runs inside the sandbox."""

import ast

from asteval import Interpreter

from sandbox.errors import WorkError
from tools.calculator.display import written
from tools.calculator.failures import TOO_DEEP, sentence
from tools.calculator.functions import CONSTANTS, FUNCTIONS
from tools.calculator.notation import to_python
from tools.calculator.syntax import parse


def calculate(text: str) -> str:
    """Return the value of an expression, written for people.

    Raises:
        WorkError: it cannot be read, has no real result, or is too large.
    """
    try:
        return written(_value(parse(to_python(text))))
    except RecursionError:
        raise WorkError(TOO_DEEP) from None


def _value(tree: ast.Expression) -> int | float:
    interpreter = Interpreter(symtable={**CONSTANTS, **FUNCTIONS}, minimal=True, use_numpy=False)
    try:
        value: int | float = interpreter.run(tree.body, expr="")
    except (WorkError, ArithmeticError) as error:
        raise WorkError(sentence(_first(error))) from None
    return value


def _first(error: BaseException) -> BaseException:
    """Return where it began: asteval raises an error anew on its way up, without its text."""
    first = error
    cause = error.__context__
    while cause is not None:
        if type(cause) is type(error):
            first = cause
        cause = cause.__context__
    return first
