"""System calls of programs in a jail: ordinary programs need these, and no others.

The list is Docker's for containers, without other processes' memory, keys, mounts, namespaces,
io_uring, BPF, System V and POSIX queues and extended attributes. Any other call fails with EPERM,
or with ENOSYS if the C library knows another way.

Programs may not begin a session. Some kernels share out processors by session (sched(7), "The
autogroup feature"): there, each session takes as much as the whole bot, at any priority.

The two kinds of jail differ. In namespaces of its own a program may send signals and open sockets,
since it can reach no other process. Without namespaces it may not. There it also may not change
rights and times of files, which Landlock does not hold. It cannot leave its process group either,
so that all of it can be ended at once.

Sources: https://docs.docker.com/engine/security/seccomp/; clone(2), ioctl_tty(2), fcntl(2).
"""

from collections.abc import Mapping
from typing import Final

from tools.sandbox.seccomp import Demand

_NEW_NAMESPACES: Final = 0x7E020000
"""The flags CLONE_NEW… of clone(2)."""
_FAMILIES: Final = (1, 2, 10)  # AF_UNIX, AF_INET, AF_INET6
_ONLY_UNIX: Final = (1,)
_TTY_INPUT, _TTY_CONSOLE = 0x5412, 0x541C  # TIOCSTI and TIOCLINUX type into a terminal
_OWNER_CALLS: Final = (0x8901, 0x8902)  # FIOSETOWN, SIOCSPGRP: the process that a socket signals
_OWNER_COMMANDS: Final = (8, 15)  # F_SETOWN, F_SETOWN_EX: the process that a file signals
_CLOSED_TO_OTHERS: Final = (4,)  # PR_SET_DUMPABLE: the bot could not see open files
_COMMON_DOMAINS: Final = (0, 0x0040000, 0xFFFFFFFF)  # PER_LINUX, ADDR_NO_RANDOMIZE, a query

_PLAIN: Final = """
accept accept4 access alarm arch_prctl bind brk capget chdir chmod chown clock_getres
clock_gettime clock_nanosleep close close_range connect copy_file_range creat dup dup2 dup3
epoll_create epoll_create1 epoll_ctl epoll_pwait epoll_pwait2 epoll_wait eventfd eventfd2 execve
execveat exit exit_group faccessat faccessat2 fadvise64 fchdir fchmod fchmodat fchown
fchownat fcntl fdatasync fgetxattr flistxattr flock fork fstat fstatfs fsync ftruncate futex
futex_waitv futimesat get_robust_list getcpu getcwd getdents getdents64 getegid geteuid getgid
getgroups getitimer getpeername getpgid getpgrp getpid getppid getpriority getrandom getresgid
getresuid getrlimit getrusage getsid getsockname getsockopt gettid gettimeofday getuid getxattr
inotify_add_watch inotify_init inotify_init1 inotify_rm_watch ioprio_get kill lchown lgetxattr
link linkat listen listxattr llistxattr lseek lstat madvise membarrier mincore mkdir mkdirat
mmap mprotect mremap msync munmap nanosleep newfstatat open openat openat2 pause pipe pipe2 poll
ppoll prctl pread64 preadv preadv2 prlimit64 pselect6 pwrite64 pwritev pwritev2 read readlink
readlinkat readv recvfrom recvmmsg recvmsg rename renameat renameat2 restart_syscall rmdir rseq
rt_sigaction rt_sigpending rt_sigprocmask rt_sigreturn rt_sigsuspend rt_sigtimedwait
sched_get_priority_max sched_get_priority_min sched_getaffinity sched_getattr sched_getparam
sched_getscheduler sched_rr_get_interval sched_yield select sendfile sendmmsg sendmsg sendto
set_robust_list set_tid_address setitimer setpgid setrlimit setsockopt shutdown
sigaltstack signalfd signalfd4 socketpair splice stat statfs statx symlink symlinkat
sync_file_range sysinfo tee tgkill time timer_create timer_delete timer_getoverrun timer_gettime
timer_settime timerfd_create timerfd_gettime timerfd_settime times tkill truncate umask uname
unlink unlinkat utime utimensat utimes vfork wait4 waitid write writev
"""

IN_NAMESPACES: Final[Mapping[str, tuple[Demand, ...]]] = {
    **dict.fromkeys(_PLAIN.split(), ()),
    "clone": (Demand(0, (0,), mask=_NEW_NAMESPACES),),
    "ioctl": (Demand(1, (_TTY_INPUT, _TTY_CONSOLE), forbidden=True),),
    "personality": (Demand(0, _COMMON_DOMAINS),),
    "sched_setattr": (),
    "sched_setscheduler": (),
    "socket": (Demand(0, _FAMILIES),),
}
"""In a jail with its own processes, network and queues."""

_REACHES_OTHERS: Final = (
    *("connect", "kill", "sched_setattr", "sched_setscheduler", "setpgid", "socket"),
    *("tgkill", "tkill"),
    # Landlock holds none of these, so they would reach files outside the folder.
    *("chmod", "chown", "fchmod", "fchmodat", "fchown", "fchownat", "lchown"),
    *("inotify_add_watch", "inotify_init", "inotify_init1", "inotify_rm_watch"),
    *("futimesat", "utime", "utimensat", "utimes"),
)

WITHOUT_NAMESPACES: Final[Mapping[str, tuple[Demand, ...]]] = {
    **{name: rules for name, rules in IN_NAMESPACES.items() if name not in _REACHES_OTHERS},
    "fcntl": (Demand(1, _OWNER_COMMANDS, forbidden=True),),
    "ioctl": (Demand(1, (_TTY_INPUT, _TTY_CONSOLE, *_OWNER_CALLS), forbidden=True),),
    "prctl": (Demand(0, _CLOSED_TO_OTHERS, forbidden=True),),
    "prlimit64": (Demand(0, (0,)),),
    "socketpair": (Demand(0, _ONLY_UNIX),),
}
"""In a jail next to the processes of others."""

_NULL: Final = (0,)

PRETENDED: Final = (
    ("utime", Demand(1, _NULL, forbidden=True)),
    ("utimes", Demand(1, _NULL, forbidden=True)),
    ("futimesat", Demand(2, _NULL, forbidden=True)),
    ("utimensat", Demand(1, _NULL)),
    ("utimensat", Demand(2, _NULL, forbidden=True)),
)
"""Calls that do nothing without namespaces, and succeed. Programs give up if they cannot set the
time of a file, and none needs it. The exception is the present time of a named file: from the
answer, programs see whether the file exists, and otherwise make it."""

ABSENT: Final = ("clone3", "fsetxattr", "lsetxattr", "setxattr")
"""The flags of clone3 lie in memory, out of sight of a filter; C libraries then use clone. Programs
that copy a file do without missing attributes, but not without refused ones."""
