"""Becomes a program that does not outlive the one that started it.

`python -m bot.messaging.leash PARENT_PID PROGRAM [ARGUMENT ...]`: the kernel is told to end this
process with SIGTERM when its parent dies, however that dies (PR_SET_PDEATHSIG in prctl(2)); then
it becomes the program. A process of its own asks for that, because what runs between fork and exec
in a program with threads must not be Python. SIGTERM and not SIGKILL, because signal-cli has
something to tidy up: 126 MB of unpacked library. Nor does it, or any child of it, ever get more
rights than it has, as by a setuid program (PR_SET_NO_NEW_PRIVS). Where the kernel cannot do it
(macOS), it just becomes the program.
"""

import ctypes
import os
import signal
import sys
from typing import Final

PR_SET_PDEATHSIG: Final = 1
PR_SET_NO_NEW_PRIVS: Final = 38
ONLY_FOR_THE_OWNER: Final = 0o077
"""Whoever can write to signal-cli's socket has the account."""


def main() -> None:
    """Become the program of the command line."""
    parent, *command = sys.argv[1:]
    os.umask(ONLY_FOR_THE_OWNER)
    if sys.platform == "linux":
        prctl = ctypes.CDLL(None).prctl
        prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        prctl(PR_SET_NO_NEW_PRIVS, *map(ctypes.c_ulong, (1, 0, 0, 0)))
    if os.getppid() == int(parent):  # else it died before the kernel was told
        os.execv(command[0], command)  # noqa: S606 - the program is the caller's choice


if __name__ == "__main__":
    main()
