"""Run a program that ends when the process that started it dies.

    python -m bot.observability.parent_death PARENT_PID PROGRAM [ARGUMENT ...]

This asks the kernel for a SIGTERM when the parent dies in any way (PR_SET_PDEATHSIG, prctl(2)), and
then executes the program. It is a process of its own because no Python may run between fork and
exec in a program with threads. SIGTERM and not SIGKILL, because signal-cli has to delete 126 MB of
unpacked library. The program and its children never gain rights, such as by a setuid program
(PR_SET_NO_NEW_PRIVS). Without such a kernel (macOS), it only executes the program.
"""

import ctypes
import os
import signal
import sys
from typing import Final

PR_SET_PDEATHSIG: Final = 1
PR_SET_NO_NEW_PRIVS: Final = 38
ONLY_FOR_THE_OWNER: Final = 0o077
"""A process that can write to signal-cli's socket has the account."""


def main() -> None:
    """Execute the program of the command line."""
    parent, *command = sys.argv[1:]
    os.umask(ONLY_FOR_THE_OWNER)
    if sys.platform == "linux":
        prctl = ctypes.CDLL(None).prctl
        prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        prctl(PR_SET_NO_NEW_PRIVS, *map(ctypes.c_ulong, (1, 0, 0, 0)))
    if os.getppid() == int(parent):  # otherwise it died before the request to the kernel
        os.execv(command[0], command)  # noqa: S606 - the program is the caller's choice


if __name__ == "__main__":
    main()
