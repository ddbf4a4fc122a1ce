"""The inside of a sandbox: limits first, then one reply per request until the pipe closes."""

import json
import sys
import traceback
from collections.abc import Callable, Sequence

from tools.errors import ToolError
from tools.sandbox.limits import confine, grant_cpu
from tools.sandbox.protocol import LINE_LIMIT_BYTES, ReplyKind


def serve(answer: Callable[[str], str]) -> None:
    """Answer requests until there are no more.

    Args:
        answer: what this sandbox is for; raises ToolError for an expected failure.
    """
    confine()
    _send(ReplyKind.READY)
    while (line := sys.stdin.buffer.readline(LINE_LIMIT_BYTES)).endswith(b"\n"):
        grant_cpu()
        _reply(answer, json.loads(line))


def _reply(answer: Callable[[str], str], request: str) -> None:
    try:
        _send(ReplyKind.RESULT, answer(request))
    except ToolError as error:
        _send(ReplyKind.ERROR, str(error))
    except MemoryError:
        _send(ReplyKind.ERROR, "This needs more memory than it may have.")
    except Exception as error:  # the boundary of the process: the bot's side logs it
        places = [
            f"{frame.f_code.co_name}:{line}"
            for frame, line in traceback.walk_tb(error.__traceback__)
        ]
        _send(ReplyKind.BUG, type(error).__name__, places[-8:])


def _send(kind: ReplyKind, text: str = "", where: Sequence[str] = ()) -> None:
    line = json.dumps({"kind": kind, "text": text, "where": where}).encode() + b"\n"
    if len(line) > LINE_LIMIT_BYTES:
        raise ToolError("The result is too long.")
    sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()
