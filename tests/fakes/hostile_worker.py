"""A worker that tries to break out of its sandbox; each request names a deed.

Most deeds are bare system calls: Python would look at their arguments before the kernel does. A
deed that works is answered with "done".
"""

import ctypes
import os
import signal
import struct
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Final, NoReturn

from tools.sandbox.child import serve

ARM: Final = os.uname().machine == "aarch64"
NOBODY: Final = 65_534
PARENT: Final = os.getppid()
PID: Final = os.getpid()
"""Process id outside of the namespace, read before the sandbox closes."""
PASSWD: Final = b"/etc/passwd"
ENVIRONMENT: Final = f"/proc/{PARENT}/environ".encode()
HERE: Final = -100  # AT_FDCWD
ROOM: Final = ctypes.create_string_buffer(4_096)
NEW_USER: Final = 0x10000000
TIOCSTI: Final = 0x5412
GIBIBYTE: Final = 2**30
LEFT_OPEN: Final = 3
PTRACE_SEIZE: Final = 0x4206

LIBC: Final = ctypes.CDLL(None, use_errno=True)
LIBC.syscall.restype = ctypes.c_long

Argument = int | bytes | None


def memory_of(pid: int) -> int:
    """Return an address at which a process certainly has memory."""
    with open(f"/proc/{pid}/maps", encoding="ascii") as maps:  # noqa: PTH123
        return int(maps.readline().partition("-")[0], 16)


HERE_TO_READ: Final = struct.pack("=QQ", ctypes.addressof(ROOM), 8)
THERE_TO_READ: Final = struct.pack("=QQ", memory_of(PARENT), 8)


def address_of(argument: Argument) -> ctypes.c_void_p | ctypes.c_long | ctypes.c_char_p:
    match argument:
        case None:
            return ctypes.c_void_p(ctypes.addressof(ROOM))
        case bytes():
            return ctypes.c_char_p(argument)
        case _:
            return ctypes.c_long(argument)


def call(number: int, *arguments: Argument) -> str:
    """Make a system call; None means the address of a buffer, bytes their own address."""
    result = LIBC.syscall(ctypes.c_long(number), *map(address_of, arguments))
    if result < 0:
        raise OSError(ctypes.get_errno(), "refused")
    return "done"


def numbered(x86: int, arm: int, *arguments: Argument) -> Callable[[], str]:
    return lambda: call(arm if ARM else x86, *arguments)


def start_a_thread() -> str:
    threading.Thread(target=time.monotonic).start()
    return "done"


def fork() -> str:
    if os.fork() == 0:
        os._exit(0)
    return "done"


def close_and_open() -> str:
    """Open a file under the number of a closed descriptor."""
    LIBC.close(0)
    return call(56 if ARM else 257, HERE, PASSWD, 0, 0)


def close_and_connect() -> str:
    LIBC.close(0)
    return call(198 if ARM else 41, 2, 1, 0)


def read_through_python() -> str:
    with open(PASSWD, "rb") as file:  # noqa: PTH123
        file.read()
    return "done"


def hang_behind_blocked_signals() -> NoReturn:
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    while True:
        pass


def leave_its_group_and_its_parent() -> str:
    os.setsid()
    ctypes.CDLL(None, use_errno=True).prctl(1, 0, 0, 0, 0)  # PR_SET_PDEATHSIG
    return str(PID)


def storm_of_timers() -> NoReturn:
    signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, 0.000_1, 0.000_1)
    while True:
        pass


def linger() -> str:
    """Answer, and never read a request again."""
    signal.signal(signal.SIGALRM, lambda *_: hang_behind_blocked_signals())
    signal.setitimer(signal.ITIMER_REAL, 0.01)
    return str(PID)


def pour(chunk: bytes) -> NoReturn:
    while True:
        os.write(1, chunk)


def take_all_memory() -> str:
    taken = [bytearray(2**20) for _ in range(64 * 1_024)]
    return f"done {len(taken)}"


def name_a_bug_by_a_text() -> NoReturn:
    raise type("meet Eve at 5", (Exception,), {})


def name_a_place_by_a_text() -> str:
    code = name_a_bug_by_a_text.__code__.replace(co_name="meet Eve at 5")
    exec(code)
    return "done"


def answer_twice() -> str:
    reply = b'{"ticket": "", "kind": "result", "size": 3, "where": []}\none'
    os.write(1, reply * 1_000)
    return "two"


def send_brackets() -> str:
    """Send a line that takes seconds and gigabytes to read as JSON."""
    line = b'{"ticket": "", "kind": "result", "where": [' + b"[]," * (5 * 2**20) + b"0]}\n"
    while line:
        line = line[os.write(1, line[: 2**20]) :]
    return "done"


def announce_gigabytes() -> str:
    os.write(1, b'{"ticket": "", "kind": "result", "size": 4294967296, "where": []}\n')
    return "done"


REFUSED: Final[Mapping[str, Callable[[], str]]] = {
    "open /etc/passwd as Python does": read_through_python,
    "openat": numbered(257, 56, HERE, PASSWD, 0, 0),
    "openat for writing": numbered(257, 56, HERE, b"/tmp/escaped", 0o101, 0o600),
    "openat2": numbered(437, 437, HERE, PASSWD, None, 24),
    "the bot's environment": numbered(257, 56, HERE, ENVIRONMENT, 0, 0),
    "its own memory as a file": numbered(257, 56, HERE, b"/proc/self/mem", 2, 0),
    "/sys": numbered(257, 56, HERE, b"/sys/kernel/notes", 0, 0),
    "a terminal": numbered(257, 56, HERE, b"/dev/tty", 2, 0),
    "a path below a descriptor": numbered(257, 56, LEFT_OPEN + 1, b"environ", 0, 0),
    "close and open": close_and_open,
    "statx": numbered(332, 291, HERE, PASSWD, 0, 0xFFF, None),
    "newfstatat": numbered(262, 79, HERE, PASSWD, None, 0),
    "readlinkat": numbered(267, 78, HERE, b"/proc/self/exe", None, 4_096),
    "faccessat": numbered(269, 48, HERE, PASSWD, 0),
    "getdents64": numbered(217, 61, 0, None, 4_096),
    "read stdout": numbered(0, 63, 1, None, 1),
    "read what a library left open": numbered(0, 63, LEFT_OPEN, None, 1),
    "write to stdin": numbered(1, 64, 0, b"x", 1),
    "write to stderr": numbered(1, 64, 2, b"x", 1),
    "map a file": numbered(9, 222, 0, 4_096, 1, 2, LEFT_OPEN, 0),
    "map memory to run": numbered(9, 222, 0, 4_096, 7, 0x22, -1, 0),
    "make memory run": numbered(10, 226, 0, 4_096, 5),
    "punch a hole": numbered(28, 233, 0, 4_096, 9),
    "a futex with priority inheritance": numbered(202, 98, None, 6, 0, 0),
    "a futex requeued": numbered(202, 98, None, 12, 0, 0, None, 0),
    "ioctl TIOCSTI": numbered(16, 29, 0, TIOCSTI, b"x"),
    "fcntl F_DUPFD": numbered(72, 25, 0, 0, 10),
    "prctl PR_SET_DUMPABLE": numbered(157, 167, 4, 1, 0, 0, 0),
    "prctl PR_SET_PDEATHSIG": numbered(157, 167, 1, 0, 0, 0, 0),
    "prctl PR_SET_SECCOMP": numbered(157, 167, 22, 2, None, 0, 0),
    "prlimit64 of its own": numbered(302, 261, 0, 7, None, 0),
    "prlimit64 of the bot": numbered(302, 261, PARENT, 7, None, 0),
    "ITIMER_PROF": numbered(38, 103, 2, None, 0),
    "the bot's processor time": numbered(228, 113, ~PARENT << 3 | 2, None),
    "sleep": numbered(35, 101, b"\1" + bytes(15), 0),
    "a system call from the future": numbered(5_000, 5_000),
}
"""End with an error."""

FATAL: Final[Mapping[str, Callable[[], str]]] = {
    "close and connect": close_and_connect,
    "socket AF_INET": numbered(41, 198, 2, 1, 0),
    "socket AF_UNIX": numbered(41, 198, 1, 1, 0),
    "socket AF_NETLINK": numbered(41, 198, 16, 3, 0),
    "socketpair": numbered(53, 199, 1, 1, 0, None),
    "connect": numbered(42, 203, 0, b"\1\0/var/run/dstack.sock", 22),
    "bind": numbered(49, 200, 0, b"\1\0\0escaped", 10),
    "sendmsg with a descriptor": numbered(46, 211, 0, None, 0),
    "memfd_create": numbered(319, 279, b"x", 0),
    "dup": numbered(32, 23, 0),
    "pipe2": numbered(293, 59, None, 0),
    "timer_create": numbered(222, 107, 1, 0, None),
    "userfaultfd": numbered(323, 282, 0),
    "perf_event_open": numbered(298, 241, None, 0, -1, -1, 0),
    "io_uring_setup": numbered(425, 425, 8, None),
    "bpf": numbered(321, 280, 0, None, 120),
    "fork": fork,
    "clone": numbered(56, 220, 17, 0, 0, 0, 0),
    "clone3": numbered(435, 435, None, 88),
    "thread": start_a_thread,
    "execve": numbered(59, 221, b"/bin/true", 0, 0),
    "execveat": numbered(322, 281, HERE, b"/bin/true", 0, 0, 0),
    "kill the bot": numbered(62, 129, PARENT, 0),
    "kill everybody": numbered(62, 129, -1, 0),
    "tgkill": numbered(234, 131, PARENT, PARENT, 0),
    "pidfd_open": numbered(434, 434, PARENT, 0),
    "pidfd_getfd": numbered(438, 438, 3, 0, 0),
    "ptrace": numbered(101, 117, PTRACE_SEIZE, PARENT, 0, 0),
    "process_vm_readv": numbered(310, 270, PARENT, HERE_TO_READ, 1, THERE_TO_READ, 1, 0),
    "keyctl": numbered(250, 219, 0, -3, 0, 0, 0),
    "mount": numbered(165, 40, b"none", b"/tmp", b"tmpfs", 0, 0),
    "chroot": numbered(161, 51, b"/"),
    "open_tree": numbered(428, 428, HERE, b"/", 1),
    "unshare": numbered(272, 97, NEW_USER),
    "setns": numbered(308, 268, 0, 0),
    "open_by_handle_at": numbered(304, 265, HERE, None, 0),
    "shmget": numbered(29, 194, 0, 4_096, 0o1600),
    "setuid": numbered(105, 146, 0),
    "setpgid": numbered(109, 154, 0, PARENT),
    "seccomp": numbered(317, 277, 1, 0, None),
    "unlinkat": numbered(263, 35, HERE, b"/tmp/nothing-here", 0),
    "symlinkat": numbered(266, 36, b"/", HERE, b"/tmp/nothing-here"),
    "splice": numbered(275, 76, 0, 0, 1, 0, 1, 0),
    "pread64": numbered(17, 67, 0, None, 1, 0),
    "sched_setaffinity": numbered(203, 122, PARENT, 8, None),
    "init_module": numbered(175, 105, None, 0, b""),
    "reboot": numbered(169, 142, 0, 0, 0, 0),
    "sethostname": numbered(170, 161, b"x", 1),
    "landlock_restrict_self": numbered(446, 446, 0, 0),
}
"""End with the process."""

X86_ONLY: Final[Mapping[str, Callable[[], str]]] = {
    "arch_prctl": numbered(158, -1, 0x1002, 0),
    "write by the number of x32": numbered(0x40000001, -1, 1, b"x", 1),
    "process_vm_readv by the number of x32": numbered(0x4000021B, -1, PARENT, None, 1, None, 1, 0),
}
"""End with the process, too."""

DEEDS: Final[Mapping[str, Callable[[], str]]] = {
    **REFUSED,
    **FATAL,
    **X86_ONLY,
    "hang behind blocked signals": hang_behind_blocked_signals,
    "storm of timers": storm_of_timers,
    "abort": os.abort,
    "gigabytes": lambda: pour(bytes(2**20)),
    "lines without end": lambda: pour(b"{}\n" * 20_000),
    "all memory": take_all_memory,
    "map more than there is": numbered(9, 222, 0, 64 * GIBIBYTE, 3, 0x22, -1, 0),
    "use what is not there": lambda: ctypes.string_at(8).decode(),
    "answer twice": answer_twice,
    "brackets": send_brackets,
    "announce gigabytes": announce_gigabytes,
    "linger": linger,
    "leave its group and its parent": leave_its_group_and_its_parent,
    "name a bug by a text": name_a_bug_by_a_text,
    "name a place by a text": name_a_place_by_a_text,
    "pid": lambda: str(PID),
}


def become_nobody() -> None:
    """Become a user without rights."""
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)


def leave_descriptors_open() -> None:
    """Leave open what a careless library might: a file and a directory, from LEFT_OPEN on."""
    for path in ("/etc/passwd", f"/proc/{PARENT}"):
        os.open(path, os.O_RDONLY)


def main() -> None:
    serve(lambda deed: DEEDS[deed]())


if __name__ == "__main__":
    leave_descriptors_open()
    if sys.argv[1:2] == ["without-walls"]:
        print(*(DEEDS[deed]() for deed in sys.argv[2:]), sep="\n")  # noqa: T201
    else:
        main()
