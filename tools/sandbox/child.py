"""The inside of a sandbox: limits first, then one reply per request until the pipe closes."""

import json
import select
import sys
import traceback
from collections.abc import Callable, Sequence

from tools.errors import ToolError
from tools.sandbox.limits import Limits, confine, grant_cpu
from tools.sandbox.protocol import ReplyKind


def serve(answer: Callable[[str], str]) -> None:
    """Answer requests until there are no more, or for too long there was none.

    Nothing can be opened any more, so whatever is read from disk must be loaded before.

    Args:
        answer: what this sandbox is for; raises ToolError for an expected failure.
    """
    limits = Limits.from_argument(sys.argv[1])
    confine(limits.memory_bytes)
    _send(ReplyKind.READY, limits=limits)
    while (request := _next_request(limits)) is not None:
        grant_cpu(limits.call_seconds)
        _reply(answer, request, limits)


def _next_request(limits: Limits) -> str | None:
    ready, _, _ = select.select([sys.stdin.buffer], (), (), limits.idle_seconds)
    line = sys.stdin.buffer.readline(limits.line_bytes) if ready else b""
    request: str | None = json.loads(line) if line.endswith(b"\n") else None
    return request


def _reply(answer: Callable[[str], str], request: str, limits: Limits) -> None:
    try:
        _send(ReplyKind.RESULT, answer(request), limits=limits)
    except ToolError as error:
        _send(ReplyKind.ERROR, str(error), limits=limits)
    except MemoryError:
        _send(ReplyKind.ERROR, "This needs more memory than it may have.", limits=limits)
    except Exception as error:  # the boundary of the process: the bot's side logs it
        places = [
            f"{frame.f_code.co_name}:{line}"
            for frame, line in traceback.walk_tb(error.__traceback__)
        ]
        _send(ReplyKind.BUG, type(error).__name__, places[-8:], limits=limits)


def _send(kind: ReplyKind, text: str = "", where: Sequence[str] = (), *, limits: Limits) -> None:
    line = json.dumps({"kind": kind, "text": text, "where": where}).encode() + b"\n"
    if len(line) > limits.line_bytes:
        raise ToolError("The result is too long.")
    sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()
