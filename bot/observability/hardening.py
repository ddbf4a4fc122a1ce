"""Protection of the bot's memory and secrets from other processes of its user.

A process may read another one of the same user: its memory, its descriptors, and the environment
that it was started with. The bot's children (MCP servers, signal-cli) have the same user unless
they run as services of their own. An attacker in one of them must not get the bot's keys.
"""

import ctypes
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Final

from bot.errors import BotError

PR_SET_DUMPABLE: Final = 4
OURS: Final = "__"
"""In the name of every setting, and of hardly any other variable."""

_ENVIRONMENT_FIELDS: Final = slice(47, 49)
"""`env_start` and `env_end` in /proc/PID/stat (proc(5)), counted after the process's name."""

_moved: dict[str, str] = {}


def harden() -> None:
    """Close this process to others of its user, and move its settings out of the environment.

    Call it before any secret is read, and before a second thread starts. It refuses ptrace(2),
    process_vm_readv(2), pidfd_getfd(2), most of /proc/PID, and core dumps. This ends when the
    process executes another program; its children start without it.

    Raises:
        BotError: the kernel refuses.
    """
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
            reason = os.strerror(ctypes.get_errno())
            raise BotError(f"Other programs of this user could read the bot's memory: {reason}.")
    for name in [name for name in os.environ if OURS in name]:
        _moved[name] = os.environ.pop(name)
    with suppress(FileNotFoundError):  # without /proc the environment is not visible
        _erase_initial_variables()


def moved_variables() -> Mapping[str, str]:
    """Return the variables that `harden` took out of the environment."""
    return MappingProxyType(_moved)


def _erase_initial_variables() -> None:
    """Overwrite our variables in the memory that /proc/PID/environ shows.

    unsetenv(3) leaves them there.
    """
    stat = Path("/proc/self/stat").read_text(encoding="ascii", errors="replace")
    start, end = (int(field) for field in stat.rpartition(")")[2].split()[_ENVIRONMENT_FIELDS])
    address = start
    for variable in ctypes.string_at(start, end - start).split(b"\0"):
        if OURS.encode() in variable.partition(b"=")[0]:
            ctypes.memset(address, 0, len(variable))
        address += len(variable) + 1
