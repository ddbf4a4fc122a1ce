"""What may be evaluated: an allow-list of syntax, held against the parsed expression."""

import ast
import math
from collections.abc import Collection
from typing import Final

from sandbox.errors import WorkError
from tools.calculator.functions import CONSTANTS, FUNCTIONS

_ALLOWED: Final = (
    ast.Expression, ast.Constant, ast.Name, ast.Load, ast.Call, ast.BinOp, ast.UnaryOp,
    ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.UAdd, ast.USub,
)  # fmt: skip
_MAX_NAME_CHARACTERS: Final = 30
_INCOMPLETE: Final = "This is no complete calculation: check its operators and parentheses."


def parse(source: str, constants: Collection[str] = tuple(CONSTANTS)) -> ast.Expression:
    """Parse an expression and hold it to the allow-list.

    Powers become calls of the bounded `pow`, and `200 + 10%` becomes `200 * (1 + 10%)`.

    Args:
        source: Python, as `to_python` writes it.
        constants: names that stand for values.

    Raises:
        WorkError: it is incomplete, or holds something else than arithmetic.
    """
    try:
        tree = ast.parse(source, mode="eval")
    except (SyntaxError, ValueError, RecursionError):
        raise WorkError(_INCOMPLETE) from None
    for node in ast.walk(tree):
        _check(node)
    _check_names(tree, constants)
    return ast.fix_missing_locations(ast.Expression(_Meaning().visit(tree.body)))


def _check(node: ast.AST) -> None:
    if not isinstance(node, _ALLOWED):
        raise WorkError("Only arithmetic with numbers and functions can be calculated.")
    if isinstance(node, ast.Constant):
        if type(node.value) not in {int, float}:
            raise WorkError("Only numbers can be calculated with.")
        if isinstance(node.value, float) and math.isinf(node.value):
            raise WorkError("A number is too large.")
    if isinstance(node, ast.Call) and (not isinstance(node.func, ast.Name) or node.keywords):
        raise WorkError("Only functions can be called, with plain numbers.")


def _check_names(tree: ast.Expression, constants: Collection[str]) -> None:
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            known = FUNCTIONS if id(node) in called else constants
            _check_name(node.id[:_MAX_NAME_CHARACTERS], known)


def _check_name(name: str, known: Collection[str]) -> None:
    if name in known:
        return
    if name in FUNCTIONS:
        raise WorkError(f"{name} is a function: put its numbers in parentheses.")
    if name in CONSTANTS:
        raise WorkError(f"{name} is a constant: write * after it.")
    raise WorkError(f"There is no {name!r} here. There are: {', '.join(known)}.")


class _Meaning(ast.NodeTransformer):
    """Gives operators the meaning that they have on a calculator."""

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        """Bound powers; read a percentage that is added as one of what it is added to."""
        self.generic_visit(node)
        if isinstance(node.op, ast.Pow):
            return _call("pow", node.left, node.right)
        added = isinstance(node.op, ast.Add | ast.Sub)
        if added and _is_percentage(node.right) and not _is_percentage(node.left):
            factor = ast.BinOp(ast.Constant(1), node.op, node.right)
            return ast.BinOp(node.left, ast.Mult(), factor)
        return node


def _call(name: str, *arguments: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(name, ast.Load()), list(arguments), [])


def _is_percentage(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "percent"
    )
