"""A program for a sandbox that does what it is told, also the worst: `python -m …` runs it."""

import json
import os
import sys
import time
from collections.abc import Callable
from typing import NoReturn

from tools.sandbox.child import serve
from tools.sandbox.errors import WorkError

PID = os.getpid()
"""Process id as the bot sees it, read before the sandbox hides it."""


def hang() -> NoReturn:
    while True:
        pass


def work_hard() -> str:
    while time.process_time() < 0.5:
        pass
    return str(PID)


def write(line: bytes) -> str:
    sys.stdout.buffer.write(line)
    return "written"


def refuse() -> NoReturn:
    raise WorkError("No.")


def refuse_at_length() -> NoReturn:
    raise WorkError("No. " * 10_000)


def fail() -> NoReturn:
    raise KeyError("+49 170 1234567")


DEEDS: dict[str, Callable[[], str]] = {
    "hang": hang,
    "environment": lambda: json.dumps(dict(os.environ)),
    "pid": lambda: str(PID),
    "number inside": lambda: str(os.getpid()),
    "work hard": work_hard,
    "refuse at length": refuse_at_length,
    "long": lambda: "x" * 100_000,
    "garbage": lambda: write(b"garbage\n"),
    "exit": lambda: os._exit(3),
    "refuse": refuse,
    "fail": fail,
}

if __name__ == "__main__":
    serve(lambda request: DEEDS[request]())
