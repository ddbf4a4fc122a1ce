"""Runs a command as on a machine whose kernel, or container, lacks some system calls.

`python -m tests.fakes.lacking_machine WALLS COMMAND ARGUMENT…`; WALLS are the names of missing
walls, or `bubblewrap`, separated by commas. A wall with a `!` after its name seems to
stand but does not hold.
Children of the command lack them, too.
"""

import os
import sys
from collections.abc import Iterable
from errno import ENOSYS

from tools.sandbox import seccomp
from tools.sandbox.seccomp import ALLOW, JUMP_IF_EQUAL, LOAD_WORD, NUMBER_OFFSET, REFUSE, RETURN
from tools.sandbox.syscalls import checked, libc
from tools.sandbox.walls import Wall

PR_SET_NO_NEW_PRIVS = 38
ARM = os.uname().machine == "aarch64"
NEEDED_BY: dict[str, tuple[int, ...]] = {
    Wall.SECCOMP: (277 if ARM else 317,),
    Wall.LANDLOCK: (444, 445, 446),
    Wall.NAMESPACES: (97, 91) if ARM else (272, 126),  # unshare; capset, as under systemd
    "bubblewrap": (41,) if ARM else (155,),  # pivot_root
}


def lack(calls: Iterable[tuple[int, int]]) -> None:
    """Make system calls, given by number, fail with their error from now on."""
    checked(libc().prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl")
    answers = [
        step
        for number, error in calls
        for step in ((JUMP_IF_EQUAL, 0, 1, number), (RETURN, 0, 0, REFUSE + error))
    ]
    seccomp.load([(LOAD_WORD, 0, 0, NUMBER_OFFSET), *answers, (RETURN, 0, 0, ALLOW)])


if __name__ == "__main__":
    lack(
        (number, 0 if name.endswith("!") else ENOSYS)
        for name in sys.argv[1].split(",")
        for number in NEEDED_BY[name.removesuffix("!")]
    )
    os.execv(sys.argv[2], sys.argv[2:])
