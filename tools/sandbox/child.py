"""The inside of a sandbox: walls first, then one reply per request until the pipe closes.

Run as a program, it is a sandbox that does nothing, to see which walls this machine has.
"""

import io
import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NoReturn

from tools.sandbox.errors import WorkError
from tools.sandbox.limits import LIFE_CPU_SECONDS, MAX_PLACES, Limits, ReplyKind
from tools.sandbox.walls import raise_walls

_FIRST_TO_CLOSE: Final = 2


class _Nowhere(io.TextIOBase):
    """Takes any text and forgets it."""

    def write(self, text: str) -> int:
        return len(text)


def serve(answer: Callable[[str], str]) -> NoReturn:
    """Answer requests until the pipe closes, or the process has used up its CPU time.

    No file can be opened inside, so everything must be loaded before. For expected failures,
    `answer` raises WorkError.
    """
    limits = Limits(**json.loads(sys.argv[1]))
    sys.stderr = _Nowhere()  # libraries may print what they read
    os.closerange(_FIRST_TO_CLOSE, os.sysconf("SC_OPEN_MAX"))
    missing = raise_walls(limits)
    send = partial(_send, limits.reply_bytes)
    send("", "ready", where=sorted(missing))
    last_start = LIFE_CPU_SECONDS - limits.call_seconds
    while time.process_time() < last_start and (request := _next_request(limits)) is not None:
        ticket, text = request
        _reply(answer, text, partial(send, ticket))
    os._exit(0)  # the walls forbid the interpreter's own way out


def _next_request(limits: Limits) -> tuple[str, str] | None:
    line = sys.stdin.buffer.readline(limits.line_bytes)
    if not line.endswith(b"\n"):
        return None
    ticket, text = json.loads(line)
    return ticket, text


def _reply(answer: Callable[[str], str], request: str, send: Callable[..., None]) -> None:
    try:
        send("result", answer(request))
    except WorkError as error:
        send("error", str(error))
    except MemoryError:
        send("error", "This needs more memory than it may have.")
    except Exception as error:  # the boundary of the process: the bot's side logs it
        frames = traceback.walk_tb(error.__traceback__)
        places = [f"{frame.f_code.co_name}:{line}" for frame, line in frames]
        send("bug", type(error).__name__, places[-MAX_PLACES:])


def _send(
    reply_bytes: int, ticket: str, kind: ReplyKind, text: str = "", where: Sequence[str] = ()
) -> None:
    body = text.encode(errors="replace")
    if len(body) > reply_bytes:
        raise WorkError("The result is too long.")
    head = {"ticket": ticket, "kind": kind, "size": len(body), "where": where}
    sys.stdout.buffer.write(json.dumps(head).encode() + b"\n" + body)
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    serve(str)
