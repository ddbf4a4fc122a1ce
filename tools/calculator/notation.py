"""What people and models write, turned into a Python expression.

`2^10`, `1,234.5`, `√16`, `2π`, `2(3+4)`, `5!`, `20%`, `15% of 80`, `10 mod 3`.
Only numbers, names, operators, parentheses and commas come out; anything else is refused here.
"""

import re
from itertools import accumulate
from typing import Final

from sandbox.errors import WorkError

MAX_CHARACTERS: Final = 1_000
MAX_NESTING: Final = 50

_SPELLINGS: Final = str.maketrans(
    {
        "^": "**", "×": "*", "·": "*", "⋅": "*", "÷": "/", "∕": "/", "−": "-", "–": "-",  # noqa: RUF001
        "²": "**2", "³": "**3", "π": " pi ", "τ": " tau ",
    }
)  # fmt: skip
INFIX_WORDS: Final = {"of": "*", "x": "*"}
_DIVIDING: Final = {"/", "//", "%", "**"}

_FRACTION: Final = r"(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?"
_PLAIN: Final = rf"[0-9][0-9_]*{_FRACTION}|\.[0-9]+(?:[eE][+-]?[0-9]+)?"
_GROUPED: Final = rf"[1-9][0-9]{{0,2}}(?:,[0-9]{{3}})+(?![0-9]){_FRACTION}"
NUMBER: Final = rf"{_GROUPED}|{_PLAIN}"
_REST: Final = r"[a-z][a-z0-9]*|\*\*|//|!(?!!)|[-+*/%(),√]"
_LEXEME: Final = re.compile(rf"{NUMBER}|{_REST}")


def to_python(text: str) -> str:
    """Return the Python expression that a text means.

    Raises:
        WorkError: something has no place in a calculation, or can be read in two ways.
    """
    if len(text) > MAX_CHARACTERS:
        raise WorkError(f"An expression may have {MAX_CHARACTERS:,} characters, not more.")
    expression = text.lower().translate(_SPELLINGS).strip().rstrip("=? ")
    if not expression:
        raise WorkError("The expression is empty.")
    lexemes = _with_operators(_with_roots(_lexemes(expression)))
    depths = accumulate((lexeme == "(") - (lexeme == ")") for lexeme in lexemes)
    if max(depths) > MAX_NESTING:
        raise WorkError(f"Parentheses may be nested {MAX_NESTING} deep, not deeper.")
    return " ".join(lexemes)


def _lexemes(text: str) -> list[str]:
    """Split a text; a comma groups thousands, and separates the arguments of a function."""
    lexemes: list[str] = []
    calls: list[bool] = []
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
        elif lexeme == ")" and calls:
            calls.pop()
        elif lexeme == "," and not in_call:
            raise WorkError("A comma groups thousands, as in 1,234.5; decimals need a point.")
        elif "," in lexeme[1:] and in_call:
            raise WorkError(f"Write {lexeme} without commas, or with a space after them.")
        lexemes.append(_without_grouping(lexeme) if _is_number(lexeme) else lexeme)
        position = found.end()
    return lexemes


def _with_roots(lexemes: list[str]) -> list[str]:
    """Spell `√16` and `√(…)` as calls of sqrt."""
    output: list[str] = []
    for lexeme in lexemes:
        if output and output[-1] == "√":
            output[-1] = "sqrt"
            if not (lexeme == "(" or _is_number(lexeme) or _is_name(lexeme)):
                raise WorkError("√ needs a number or parentheses after it.")
            output += [lexeme] if lexeme == "(" else ["(", lexeme, ")"]
        else:
            output.append(lexeme)
    return output


def _with_operators(lexemes: list[str]) -> list[str]:
    """Spell `5!` and `20%` as calls, words as operators, and `2(3)` with its multiplication."""
    output: list[str] = []
    for index, lexeme in enumerate(lexemes):
        following = lexemes[index + 1] if index + 1 < len(lexemes) else ""
        if lexeme in INFIX_WORDS:
            output.append(INFIX_WORDS[lexeme])
        elif lexeme == "mod" and output and _ends_operand(output[-1]):
            output.append("%")
        elif lexeme == "!":
            _wrap_operand(output, "factorial", lexeme)
        elif lexeme == "%" and not _starts_operand(following):
            _wrap_operand(output, "percent", lexeme)
        elif output and _multiplies(output[-1], lexeme):
            _refuse_two_readings(output)
            output += ["*", lexeme]
        else:
            output.append(lexeme)
    return output


def _wrap_operand(output: list[str], function: str, sign: str) -> None:
    """Make what stands before a sign the argument of a function."""
    if not output or not _ends_operand(output[-1]):
        raise WorkError(f"{sign} needs a number before it.")
    start = _operand_start(output)
    output[start:] = [function, "(", *output[start:], ")"]


def _multiplies(left: str, right: str) -> bool:
    """Whether two neighbours mean a product: `2(`, `2pi`, `)(`, `)pi`."""
    return (_is_number(left) or left == ")") and (right == "(" or _is_name(right))


def _refuse_two_readings(output: list[str]) -> None:
    """Refuse `1/2(3)`: some read (1/2)*3, some 1/(2*3)."""
    start = _operand_start(output)
    if start > 0 and output[start - 1] in _DIVIDING:
        raise WorkError(
            f"A product without * after {output[start - 1]} can be read in two ways: "
            "write the * and parentheses."
        )


def _operand_start(output: list[str]) -> int:
    """Return where the operand at the end begins: a number, a name, a group or a call."""
    start = len(output) - 1
    depth = int(output[start] == ")")
    while depth:
        start -= 1
        if start < 0:
            raise WorkError("A closing parenthesis has no opening one.")
        depth += (output[start] == ")") - (output[start] == "(")
    if output[start] == "(" and start > 0 and _is_name(output[start - 1]):
        return start - 1
    return start


def _starts_operand(lexeme: str) -> bool:
    return _is_number(lexeme) or _is_name(lexeme) or lexeme == "("


def _ends_operand(lexeme: str) -> bool:
    return _is_number(lexeme) or _is_name(lexeme) or lexeme == ")"


def _is_number(lexeme: str) -> bool:
    return lexeme[:1].isdigit() or (lexeme[:1] == "." and len(lexeme) > 1)


def _is_name(lexeme: str) -> bool:
    return lexeme[:1].isalpha() and lexeme not in INFIX_WORDS


def _without_grouping(number: str) -> str:
    """Return a number as Python writes it: no commas, no leading zeros."""
    return re.sub(r"^0+(?=[0-9])", "", number.replace(",", "").replace("_", ""))
