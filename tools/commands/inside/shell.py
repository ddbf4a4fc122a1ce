"""Reads a shell command as a shell does, and says which programs it runs and what is risky.

The parser is tree-sitter's for Bash, whose language holds that of `sh`. What it cannot read, and
what is decided only while the command runs, is never harmless.

Source: https://pubs.opengroup.org/onlinepubs/9799919799/utilities/V3_chap02.html
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import tree_sitter_bash
from tree_sitter import Language, Node, Parser

from tools.commands.inside.dangers import (
    HARMLESS,
    HARMLESS_VARIABLES,
    KNOWN_NODES,
    MANY_THINGS,
    RISKS,
    RUNNERS,
    RUNS_OTHERS,
    UNKNOWN,
)

MAX_NODES: Final = 20_000
_LANGUAGE: Final = Language(tree_sitter_bash.language())
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)
_PLAIN_EXPANSION: Final = re.compile(r"\$\{\w+\}")
_EXPANDED: Final = frozenset("*?[{~")
"""A shell makes other words of words with these."""
_DESCRIPTOR: Final = re.compile(r"[0-9]+|-")
_DOUBTFUL: Final = re.compile(r"`|\\\n|[^\S \n\t]|[\x00-\x08\x0e-\x1f\x7f]")
"""Backticks, which this parser does not find everywhere; lines that go on, and blanks and control
characters that end a word for some shells and not for others."""
_NOTHING: Final = "/dev/null"
_KEEPS: Final = frozenset({"<", "<&", ">>", ">&", "<<<", "&>>"})
"""Redirections that leave what is there; `>&` only to a descriptor."""

UNREADABLE: Final = "it cannot be read for sure"
MADE_LATER: Final = "a program's name is made while it runs"
REDEFINES: Final = "it gives names another meaning"
WRITES_OVER: Final = "> may write over a file"


@dataclass(slots=True)
class Reading:
    """What is known of a command before it runs.

    Attributes:
        programs: that it runs, each once, in their order.
        risks: why it is not harmless, in words; empty: it is.
        is_open: other programs than these may run, so that nobody can allow all such commands.
    """

    programs: list[str] = field(default_factory=list)
    risks: list[str] = field(default_factory=list)
    is_open: bool = False

    def risk(self, why: str, *, is_open: bool = False) -> None:
        """Note that the command is not harmless."""
        if why not in self.risks:
            self.risks.append(why)
        self.is_open |= is_open

    def run(self, name: str, arguments: Sequence[str | None]) -> None:
        """Note that a program runs; None stands for arguments that are made while it runs."""
        if name not in self.programs:
            self.programs.append(name)
        if name in RUNNERS:
            self.risk(f"{name}: {RUNS_OTHERS}", is_open=True)
        elif name not in HARMLESS:
            why = RISKS.get(name) or MANY_THINGS.get(name, UNKNOWN)
            self.risk(f"{name}: {why}", is_open=name not in RISKS)
        elif HARMLESS[name] and any(_may_be(option, HARMLESS[name]) for option in arguments):
            self.risk(f"{name}: an option of it writes over files or runs programs", is_open=True)


def read_shell(command: str) -> Reading:
    """Return what is known of a line for the shell."""
    reading = Reading()
    if _DOUBTFUL.search(command):
        reading.risk(UNREADABLE, is_open=True)
    tree = Parser(_LANGUAGE).parse(command.encode(errors="replace"))
    if tree.root_node.has_error:
        reading.risk(UNREADABLE, is_open=True)
    for count, node in enumerate(_all_below(tree.root_node)):
        if count > MAX_NODES:
            reading.risk(UNREADABLE, is_open=True)
            break
        _look_at(node, reading)
    if not reading.programs:
        reading.risk(UNREADABLE, is_open=True)
    return reading


def read_words(words: Sequence[str]) -> Reading:
    """Return what is known of a program that is started without a shell."""
    reading = Reading()
    reading.run(words[0], words[1:])
    return reading


def _all_below(root: Node) -> Iterator[Node]:
    waiting = [root]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += reversed(node.named_children)


def _look_at(node: Node, reading: Reading) -> None:
    if node.type not in KNOWN_NODES or _is_of_bash(node):
        reading.risk(UNREADABLE, is_open=True)
    match node.type:
        case "command":
            _look_at_command(node, reading)
        case "function_definition":
            reading.risk(REDEFINES, is_open=True)
        case "variable_assignment":
            _look_at_name(_text(node).partition("=")[0].rstrip("+"), reading)
        case "for_statement":
            variable = node.child_by_field_name("variable")
            _look_at_name("" if variable is None else _text(variable), reading)
        case "file_redirect":
            _look_at_redirect(node, reading)


def _is_of_bash(node: Node) -> bool:
    """Whether a piece that this parser knows means something else to other shells, or may."""
    text = _text(node)
    match node.type:
        case "test_command":
            return text.startswith("[[") or "<" in text or ">" in text
        case "compound_statement":
            return text.startswith("((")
        case "expansion":
            return not _PLAIN_EXPANSION.fullmatch(text)
    return False


def _look_at_name(name: str, reading: Reading) -> None:
    """Look at the name of a variable that is set."""
    if not (name.isidentifier() and name.islower()) and name not in HARMLESS_VARIABLES:
        reading.risk(REDEFINES, is_open=True)


def _look_at_command(node: Node, reading: Reading) -> None:
    name_node = node.child_by_field_name("name")
    if name_node is None:
        return  # only assignments
    name = _value(name_node)
    arguments = [_value(argument) for argument in node.children_by_field_name("argument")]
    if not name:
        reading.risk(MADE_LATER, is_open=True)
    else:
        reading.run(name, arguments)


def _look_at_redirect(node: Node, reading: Reading) -> None:
    target = node.child_by_field_name("destination")
    where = None if target is None else _value(target)
    operator = next((child.type for child in node.children if not child.is_named), "")
    is_descriptor = where is not None and _DESCRIPTOR.fullmatch(where) is not None
    if where == _NOTHING or (operator in {">&", "<&"} and is_descriptor):
        return
    if operator not in _KEEPS or operator == ">&":
        reading.risk(WRITES_OVER)


def _value(node: Node) -> str | None:
    """Return what a word is before the shell has done anything; None: that is not known yet."""
    match node.type:
        case "word":
            text = _text(node)
            return None if _EXPANDED & set(text) and text != "[" else _ESCAPED.sub(r"\1", text)
        case "number" | "string_content" | "test_operator":
            return _text(node)
        case "raw_string":
            return _text(node)[1:-1]
        case "string" | "concatenation" | "command_name":
            if node.type == "command_name" and not node.named_children:
                return _text(node)  # `[`
            parts = [_value(part) for part in node.named_children]
            quoted = _text(node)[1:-1] if node.type == "string" and not parts else ""
            return None if None in parts else quoted + "".join(part or "" for part in parts)
    return None


def _may_be(argument: str | None, options: frozenset[str]) -> bool:
    """Whether an argument is one of some options, perhaps with a value, or could become one."""
    if argument is None:
        return True
    name = argument.partition("=")[0]
    short = {option for option in options if len(option) == len("-x")}
    bundled = argument.startswith("-") and not argument.startswith("--")
    return (
        name in options
        or (len(name) > len("--") and any(option.startswith(name) for option in options))
        or (bundled and any(option[1] in argument for option in short))
    )


def _text(node: Node) -> str:
    return (node.text or b"").decode(errors="replace")
