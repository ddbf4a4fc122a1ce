"""System calls by number, if Python and the C library lack them.

Sources: openat2(2); arch/x86/entry/syscalls/syscall_64.tbl, include/uapi/asm-generic/unistd.h and
include/uapi/linux/audit.h (AUDIT_ARCH_*) of Linux.
"""

import ctypes
import os
import struct
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Final

_CALLS: Final = """
read:0:63 write:1:64 open:2 close:3:57 stat:4 fstat:5:80 lstat:6 poll:7 lseek:8:62 mmap:9:222
mprotect:10:226 munmap:11:215 brk:12:214 rt_sigaction:13:134 rt_sigprocmask:14:135
rt_sigreturn:15:139 ioctl:16:29 pread64:17:67 pwrite64:18:68 readv:19:65 writev:20:66 access:21
pipe:22 select:23 sched_yield:24:124 mremap:25:216 msync:26:227 mincore:27:232 madvise:28:233
dup:32:23 dup2:33 pause:34 nanosleep:35:101 getitimer:36:102 alarm:37 setitimer:38:103 getpid:39:172
sendfile:40:71 socket:41:198 connect:42:203 accept:43:202 sendto:44:206 recvfrom:45:207
sendmsg:46:211 recvmsg:47:212 shutdown:48:210 bind:49:200 listen:50:201 getsockname:51:204
getpeername:52:205 socketpair:53:199 setsockopt:54:208 getsockopt:55:209 clone:56:220 fork:57
vfork:58 execve:59:221 exit:60:93 wait4:61:260 kill:62:129 uname:63:160 fcntl:72:25 flock:73:32
fsync:74:82 fdatasync:75:83 truncate:76:45 ftruncate:77:46 getdents:78 getcwd:79:17 chdir:80:49
fchdir:81:50 rename:82 mkdir:83 rmdir:84 creat:85 link:86 unlink:87 symlink:88 readlink:89 chmod:90
fchmod:91:52 chown:92 fchown:93:55 lchown:94 umask:95:166 gettimeofday:96:169 getrlimit:97
getrusage:98:165 sysinfo:99:179 times:100:153 getuid:102:174 getgid:104:176 geteuid:107:175
getegid:108:177 setpgid:109:154 getppid:110:173 getpgrp:111 getgroups:115:158 getresuid:118:148
getresgid:120:150 getpgid:121:155 getsid:124:156 capget:125:90 rt_sigpending:127:136
rt_sigtimedwait:128:137 rt_sigsuspend:130:133 sigaltstack:131:132 utime:132 personality:135:92
statfs:137:43 fstatfs:138:44 getpriority:140:141 sched_getparam:143:121 sched_setscheduler:144:119
sched_getscheduler:145:120 sched_get_priority_max:146:125 sched_get_priority_min:147:126
sched_rr_get_interval:148:127 pivot_root:155:41 prctl:157:167 arch_prctl:158 setrlimit:160:164
gettid:186:178 setxattr:188:5 lsetxattr:189:6 fsetxattr:190:7 getxattr:191:8 lgetxattr:192:9
fgetxattr:193:10 listxattr:194:11 llistxattr:195:12 flistxattr:196:13 tkill:200:130 time:201
futex:202:98 sched_getaffinity:204:123 epoll_create:213 getdents64:217:61 set_tid_address:218:96
restart_syscall:219:128 fadvise64:221:223 timer_create:222:107 timer_settime:223:110
timer_gettime:224:108 timer_getoverrun:225:109 timer_delete:226:111 clock_gettime:228:113
clock_getres:229:114 clock_nanosleep:230:115 exit_group:231:94 epoll_wait:232 epoll_ctl:233:21
tgkill:234:131 utimes:235 waitid:247:95 ioprio_get:252:31 inotify_init:253 inotify_add_watch:254:27
inotify_rm_watch:255:28 openat:257:56 mkdirat:258:34 fchownat:260:54 futimesat:261 newfstatat:262:79
unlinkat:263:35 renameat:264:38 linkat:265:37 symlinkat:266:36 readlinkat:267:78 fchmodat:268:53
faccessat:269:48 pselect6:270:72 ppoll:271:73 set_robust_list:273:99 get_robust_list:274:100
splice:275:76 tee:276:77 sync_file_range:277:84 utimensat:280:88 epoll_pwait:281:22 signalfd:282
timerfd_create:283:85 eventfd:284 timerfd_settime:286:86 timerfd_gettime:287:87 accept4:288:242
signalfd4:289:74 eventfd2:290:19 epoll_create1:291:20 dup3:292:24 pipe2:293:59 inotify_init1:294:26
preadv:295:69 pwritev:296:70 recvmmsg:299:243 prlimit64:302:261 sendmmsg:307:269 getcpu:309:168
sched_setattr:314:274 sched_getattr:315:275 renameat2:316:276 seccomp:317:277 getrandom:318:278
execveat:322:281 membarrier:324:283 copy_file_range:326:285 preadv2:327:286 pwritev2:328:287
statx:332:291 rseq:334:293 clone3:435:435 close_range:436:436 openat2:437:437 faccessat2:439:439
epoll_pwait2:441:441 mount_setattr:442:442 landlock_create_ruleset:444:444 landlock_add_rule:445:445
landlock_restrict_self:446:446 futex_waitv:449:449
"""
"""Each call with its number on x86_64 and, if it exists there, on aarch64."""
_IN_ROOT, _NO_MAGIC_LINKS, _NO_OTHER_DISK = 0x10, 0x02, 0x01
_RETRIES: Final = 7
"""The kernel gives up if a path changes during the look-up."""


@dataclass(frozen=True, slots=True)
class Architecture:
    """How a processor makes system calls.

    Attributes:
        audit: its name in the kernel, AUDIT_ARCH_*.
        numbers: of the system calls that it has.
        foreign_from: calls from this number on belong to another ABI (x32); None: no other ABI.
    """

    audit: int
    numbers: Mapping[str, int]
    foreign_from: int | None = None


def _numbers(column: int) -> dict[str, int]:
    rows = (row.split(":") for row in _CALLS.split())
    return {row[0]: int(row[column]) for row in rows if len(row) > column}


ARCHITECTURES: Final[Mapping[str, Architecture]] = {
    "x86_64": Architecture(0xC000003E, _numbers(1), foreign_from=0x40000000),
    "aarch64": Architecture(0xC00000B7, _numbers(2)),
}
"""By the machine's name in uname(2)."""


@cache
def architecture() -> Architecture:
    """Return the architecture of this process; OSError if its numbers are not known."""
    machine = os.uname().machine
    if sys.platform != "linux" or sys.maxsize < 2**32 or machine not in ARCHITECTURES:
        raise OSError("no system calls are known for this machine")
    return ARCHITECTURES[machine]


def system_call(name: str, *arguments: int | bytes) -> int:
    """Make a system call of the table above; OSError if the kernel refuses or lacks it.

    Bytes are passed by their address: a text or a structure that the kernel only reads.
    """
    words = (ctypes.c_long(one) if isinstance(one, int) else one for one in arguments)
    return checked(libc().syscall(ctypes.c_long(architecture().numbers[name]), *words), name)


def prctl(option: int, value: int) -> None:
    """Set an option of this process; raises OSError."""
    checked(libc().prctl(option, ctypes.c_ulong(value), *(ctypes.c_ulong(0),) * 3), "prctl")


def checked(result: int, name: str) -> int:
    """Return the result of a C function, or raise the OSError that a negative one stands for."""
    if result < 0:
        raise OSError(ctypes.get_errno(), name)
    return result


def libc() -> ctypes.CDLL:
    """Return the C library that this process has loaded."""
    return ctypes.CDLL(None, use_errno=True)


def open_below(folder: int, path: str, flags: int, *, mode: int = 0) -> int:
    """Open a path below a folder, by the folder's descriptor, and return its own.

    The kernel resolves the path as if the folder were the root of everything. So `..`, absolute
    paths and links end inside, also while they change. Flags, mode and errors are those of
    `os.open`.
    """
    name = os.fsencode(path)
    if b"\0" in name:
        raise ValueError("a null character in a path")
    resolve = _IN_ROOT | _NO_MAGIC_LINKS | _NO_OTHER_DISK
    how = struct.pack("=QQQ", flags | os.O_CLOEXEC, mode, resolve)  # struct open_how
    for _ in range(_RETRIES):
        with suppress(BlockingIOError):
            return system_call("openat2", folder, name, how, len(how))
    return system_call("openat2", folder, name, how, len(how))


with suppress(OSError):
    architecture()  # cached before walls hide the answer
