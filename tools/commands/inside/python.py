"""Reads a Python program without running it, and says what is risky in it.

Names that a program makes while it runs are not seen: the walls hold it, not this. What is found
here is what an honest program would do, such as deleting files.

Source: https://docs.python.org/3/library/ast.html
"""

import ast
from typing import Final

from tools.commands.inside.shell import UNREADABLE, Reading

PYTHON: Final = "Python"
MAX_NODES: Final = 50_000

HARMLESS_MODULES: Final = frozenset(
    {
        *("PIL", "__future__", "abc", "argparse", "array", "base64", "bisect", "calendar"),
        *("collections", "colorsys", "contextlib", "copy", "csv", "dataclasses", "datetime"),
        *("decimal", "difflib", "enum", "fractions", "functools", "glob", "gzip", "hashlib"),
        *("heapq", "html", "io", "itertools", "json", "locale", "math", "matplotlib", "numbers"),
        *("numpy", "operator", "os", "pandas", "pathlib", "pprint", "random", "re", "scipy"),
        *("seaborn", "secrets", "sqlite3", "statistics", "string", "struct", "sys", "textwrap"),
        *("time", "tomllib", "typing", "unicodedata", "uuid", "wave", "xml", "zipfile", "zlib"),
        "zoneinfo",
    }
)
_DELETING: Final = frozenset({"remove", "removedirs", "rmdir", "rmtree", "truncate", "unlink"})
_STARTING: Final = frozenset(
    {"exec", "eval", "compile", "__import__", "popen", "startfile", "system", "fork", "forkpty"}
)
_STARTING_PREFIXES: Final = ("exec", "posix_spawn", "spawn")


def read_python(code: str) -> Reading:
    """Return what is known of a program."""
    reading = Reading(programs=[PYTHON])
    try:
        tree = ast.parse(code.encode(errors="replace"))  # as it is read when it runs
    except SyntaxError:
        return reading  # it says so itself, and does nothing
    except (MemoryError, RecursionError, ValueError):
        reading.risk(UNREADABLE)
        return reading
    for count, node in enumerate(ast.walk(tree)):
        if count > MAX_NODES:
            reading.risk(UNREADABLE)
            break
        _look_at(node, reading)
    return reading


def _look_at(node: ast.AST, reading: Reading) -> None:
    match node:
        case ast.Import(names=names):
            for name in names:
                _look_at_module(name.name, reading)
        case ast.ImportFrom(module=module, names=names):
            _look_at_module(module or "", reading)
            for name in names:
                _look_at_name(name.name, reading)
        case ast.Attribute(attr=name) | ast.Name(id=name):
            _look_at_name(name, reading)


def _look_at_module(module: str, reading: Reading) -> None:
    root = module.partition(".")[0]
    if root not in HARMLESS_MODULES:
        reading.risk(f"what {root or 'a module of the workspace'} does is not known")


def _look_at_name(name: str, reading: Reading) -> None:
    if name in _DELETING:
        reading.risk(f"{name} may delete files")
    elif name in _STARTING or name.startswith(_STARTING_PREFIXES):
        reading.risk(f"{name} runs other programs")
