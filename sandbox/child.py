"""The inside of a sandbox: walls first, then one reply per request until the pipe closes."""

import io
import json
import os
import select
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NoReturn

from sandbox.errors import WorkError
from sandbox.limits import LIFE_CPU_SECONDS, Limits
from sandbox.protocol import MAX_PLACES, ReplyKind
from sandbox.walls import raise_walls

_FIRST_TO_CLOSE: Final = 2


def serve(answer: Callable[[str], str]) -> NoReturn:
    """Answer requests until there are no more, for too long there was none, or life is over.

    Nothing can be opened any more, so whatever is read from disk must be loaded before.

    Args:
        answer: what this sandbox is for; raises WorkError for an expected failure.
    """
    limits = Limits.from_argument(sys.argv[1])
    _close_descriptors()
    missing = raise_walls(limits)
    send = partial(_send, limits.reply_bytes)
    send("", ReplyKind.READY, where=sorted(missing))
    last_start = LIFE_CPU_SECONDS - limits.call_seconds
    while time.process_time() < last_start and (request := _next_request(limits)) is not None:
        ticket, text = request
        _reply(answer, text, partial(send, ticket))
    os._exit(0)  # the interpreter's own way out asks for what the walls forbid


def _close_descriptors() -> None:
    """Give up every descriptor but the two pipes; what libraries print goes nowhere."""
    sys.stderr = _Nowhere()
    os.closerange(_FIRST_TO_CLOSE, os.sysconf("SC_OPEN_MAX"))


class _Nowhere(io.TextIOBase):
    """Takes any text and forgets it."""

    def write(self, text: str) -> int:
        return len(text)


def _next_request(limits: Limits) -> tuple[str, str] | None:
    ready, _, _ = select.select([sys.stdin.buffer], (), (), limits.idle_seconds)
    line = sys.stdin.buffer.readline(limits.line_bytes) if ready else b""
    if not line.endswith(b"\n"):
        return None
    ticket, text = json.loads(line)
    return ticket, text


def _reply(answer: Callable[[str], str], request: str, send: Callable[..., None]) -> None:
    try:
        send(ReplyKind.RESULT, answer(request))
    except WorkError as error:
        send(ReplyKind.ERROR, str(error))
    except MemoryError:
        send(ReplyKind.ERROR, "This needs more memory than it may have.")
    except Exception as error:  # the boundary of the process: the bot's side logs it
        places = [
            f"{frame.f_code.co_name}:{line}"
            for frame, line in traceback.walk_tb(error.__traceback__)
        ]
        send(ReplyKind.BUG, type(error).__name__, places[-MAX_PLACES:])


def _send(
    reply_bytes: int, ticket: str, kind: ReplyKind, text: str = "", where: Sequence[str] = ()
) -> None:
    body = text.encode(errors="replace")
    if len(body) > reply_bytes:
        raise WorkError("The result is too long.")
    head = {"ticket": ticket, "kind": kind, "size": len(body), "where": where}
    sys.stdout.buffer.write(json.dumps(head).encode() + b"\n" + body)
    sys.stdout.buffer.flush()
