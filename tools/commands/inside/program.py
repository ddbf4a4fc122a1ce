"""The program behind the walls: a command in, what is known of it out, as JSON.

A request is an object with one of `line` (for a shell), `words` (a program and its arguments) or
`code` (in Python). The reply has `programs`, `risks` and `is_open`; see `shell.Reading`.
"""

import json
from dataclasses import asdict

from sandbox.child import serve
from tools.commands.inside.python import read_python
from tools.commands.inside.shell import Reading, read_shell, read_words


def answer(request: str) -> str:
    """Read what a request holds."""
    return json.dumps(asdict(_read(json.loads(request))))


def _read(asked: dict[str, object]) -> Reading:
    match asked:
        case {"line": str(line)}:
            return read_shell(line)
        case {"words": [str(), *_] as words}:
            return read_words([str(word) for word in words])
        case {"code": str(code)}:
            return read_python(code)
        case _:
            raise ValueError("no command")


if __name__ == "__main__":
    read_shell("true")  # loads what is loaded with the first use
    read_python("1")
    serve(answer)
