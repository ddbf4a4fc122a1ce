"""Writes down which functions of the bot a message passes: Python imports this at its start.

SIGUSR1 begins and ends the record. When the process ends, it writes the calls in their order to
the file that the environment names: file and function, one pair a line, with a tab between.
"""

import atexit
import os
import signal
import sys
import threading
from pathlib import Path
from types import FrameType

RECORD = Path(os.environ["WAY_RECORD"])
ROOT = os.environ["WAY_ROOT"]
PACKAGES = tuple(f"{ROOT}/{name}/" for name in ("bot", "tools", "conversation_store"))

calls: list[str] = []
is_recording = False


def note(frame: FrameType, event: str, _: object) -> None:
    """Note a call of the bot's own code; a coroutine that goes on counts as called again."""
    if not is_recording or event != "call":
        return
    code = frame.f_code
    if code.co_filename.startswith(PACKAGES) and not code.co_name.startswith("<"):
        calls.append(f"{os.path.relpath(code.co_filename, ROOT)}\t{code.co_qualname}")


def switch(*_: object) -> None:
    """Begin the record, or end it."""
    global is_recording  # noqa: PLW0603 -- a signal handler has no other state
    is_recording = not is_recording


signal.signal(signal.SIGUSR1, switch)
atexit.register(lambda: RECORD.write_text("\n".join(calls)))
sys.setprofile(note)
threading.setprofile(note)
