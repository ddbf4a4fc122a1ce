"""Abilities and limits of programs in both kinds of jails."""

import asyncio
import os
import re
import resource
import shutil
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.e2e.disks import memory_disk, mounted
from tests.integration.test_spawned import until
from tools.sandbox.errors import ToolUnavailable, WorkError
from tools.sandbox.jail.jail import Jail, Kind
from tools.sandbox.jail.program import (
    THE_SCRIPT,
    Bounds,
    Ended,
    Program,
    Stopped,
)
from tools.sandbox.jail.watch import processes_of

NO_BUBBLEWRAP = pytest.mark.skipif(
    shutil.which("bwrap") is None, reason="bubblewrap is not installed"
)
KINDS = pytest.mark.parametrize(
    "kind", [pytest.param("bubblewrap", marks=NO_BUBBLEWRAP), "Landlock"]
)
PACKAGES = Path(pytest.__file__).parents[1]
SECRET = "the key of the store"


def is_running(process: int) -> bool:
    return os.waitpid(process, os.WNOHANG) == (0, 0)


BEFORE: set[int] = set()


@pytest.fixture(autouse=True)
def _note_older_processes() -> None:
    BEFORE.clear()
    BEFORE.update(processes_of(os.getpid()))


def started() -> list[int]:
    """Return what the test has started and still runs, parents first."""
    return [one for one in processes_of(os.getpid()) if one not in BEFORE]


def command_lines() -> bytes:
    """Return the command lines of all that the test has started."""
    lines = []
    for process in started():
        with suppress(OSError):  # it has ended
            lines.append(Path(f"/proc/{process}/cmdline").read_bytes())
    return b"\n".join(lines)


def facts_about(*paths: Path) -> list[tuple[int, int, int]]:
    """Return rights, owner and time of files."""
    found = [path.stat() for path in paths]
    return [(status.st_mode, status.st_uid, status.st_mtime_ns) for status in found]


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


async def run(kind: Kind, folder: Path, script: str, shell: str = "sh", **bounds: float) -> Ended:
    """Run a script in a jail of a kind."""
    await asyncio.to_thread(folder.mkdir, exist_ok=True)
    program = Program((shell, THE_SCRIPT), folder, script)
    jail = Jail([kind])
    return await jail.run(program, Bounds(**{"seconds": 10.0, **bounds}))  # type: ignore[arg-type]


@KINDS
async def test_a_program_works_in_its_folder_with_the_packages_of_the_bot(
    tmp_path: Path, kind: Kind
) -> None:
    ended = await run(kind, tmp_path / "here", "echo one > a; cat a; ls; echo two >&2; exit 3")
    assert ended == Ended(3, "one\na\n", "two\n")
    assert (tmp_path / "here" / "a").read_text() == "one\n"
    script = "import pydantic, sys; print(sys.prefix); open('b', 'w').write('x')"
    ended = await run(kind, tmp_path / "here", script, shell="python3")
    assert (ended.exit_code, ended.output) == (0, f"{sys.prefix}\n")


TIMES = """
import os, pathlib
pathlib.Path("a").touch()
pathlib.Path("a").touch()
os.utime("a", (1, 1))
print(*os.listdir())
"""


@KINDS
@pytest.mark.parametrize(
    ("shell", "script"),
    [("sh", "touch a; touch a; touch -d 2001-01-01 a; echo *"), ("python3", TIMES)],
)
async def test_programs_that_set_the_times_of_files_go_on(
    tmp_path: Path, kind: Kind, shell: str, script: str
) -> None:
    ended = await run(kind, tmp_path / "here", script, shell=shell)
    assert (ended.errors, ended.output) == ("", "a\n")


ATTACKS = {
    "read a file beside": f"cat {'{beside}'}/secret",
    "read it by a link": "ln -s {beside}/secret l; cat l",
    "read it by /proc/self/root": "cat /proc/self/root{beside}/secret",
    "read it by the first process": "cat /proc/1/root{beside}/secret",
    "read it by the folder's parent": "cat ../secret; cat ../../secret; cat ../../../secret",
    "read it by a process outside": "cat /proc/{outside}/root{beside}/secret",
    "read the variables of the bot": "cat /proc/{outside}/environ | tr '\\0' '\\n'",
    "read the memory of the bot": "head -c 100 /proc/{outside}/mem",
    "read the variables of all": "cat /proc/*/environ | tr '\\0' '\\n'",
    "list what the bot has open": "ls -l /proc/{outside}/fd/",
    "write beside": "echo x > {beside}/written; echo x > ../written",
    "write into the system": "echo x > /usr/written; echo x > /etc/written; echo x > /written",
    "change the packages": "echo x > {packages}/evil.pth; touch {packages}/evil.py",
    "remove what is beside": "rm -rf {beside}/secret ../secret",
    "hard link": "ln {beside}/secret l; cat l",
    "mount": "mount -t tmpfs none . && echo mounted; mount --bind / . && cat .{beside}/secret",
    "unmount": "umount -l /chat-workspace; umount -l /; cat {beside}/secret",
    "unshare": "unshare -Urm sh -c 'cat {beside}/secret'",
    "chroot": "chroot / cat {beside}/secret",
    "nsenter": "nsenter -t {outside} -a cat {beside}/secret",
    "devices": "mknod d b 8 0 && cat d; mknod c c 1 1 && head -c 10 c; ls /dev/sd* /dev/vd*",
    "disks": "cat /dev/vda /dev/sda /dev/mem /dev/kmsg",
    "settings of the kernel": "echo '|/x' > /proc/sys/kernel/core_pattern && echo changed",
    "the reset button": "echo b > /proc/sysrq-trigger && echo pressed",
    "be more": "su -c id; sudo -n id; chmod u+s /bin/sh; setpriv --reuid 0 cat {beside}/secret",
    "preload": "LD_PRELOAD={beside}/secret.so cat {beside}/secret",
    "change rights": "chmod 777 {beside}/secret; chown 12345 {beside}/secret",
    "change times": "touch -d 2001-01-01 {beside}/secret",
    "change what is read": "chmod 0 {packages}/pytest/__init__.py; touch {packages}/pytest",
    "exchange the folder itself": "cd ..; mv here there; ln -s / here; rmdir here; rm here",
    "a link that changes": (
        "(while :; do ln -sfn {beside}/secret l; ln -sfn /dev/null l; done) & "
        "for i in $(seq 300); do cat l; done"
    ),
    "a folder that changes": (
        "mkdir d; touch d/secret; (while :; do mv d e; ln -s {beside} d; rm d; mv e d; done) & "
        "for i in $(seq 300); do cat d/secret; done"
    ),
    "a FIFO": "mkfifo f && echo mounted; mknod f p && echo mounted",
    "credentials": (
        "cat /run/secrets/* /run/credentials/*/* $CREDENTIALS_DIRECTORY/* ~/.env .env "
        "{beside}/.env {beside}/*/.env /etc/shadow /roo''t/.ssh/*"
    ),
    "folders of others": "cat /proc/*/cwd/secret /proc/*/root{beside}/secret /*/secret /*/*/secret",
    "SUID programs": (
        "cp /bin/cat c; chmod 4755 c; ./c {beside}/secret; newgrp root; pkexec id; "
        "find /usr/bin -perm -4000 -exec {} -c 'cat {beside}/secret' ';' < /dev/null"
    ),
    "a library of one's own": (
        "echo x > e.so; LD_PRELOAD=./e.so LD_LIBRARY_PATH=. true; LD_AUDIT=./e.so cat ../secret"
    ),
    "kill the bot": "kill -9 {outside}; kill -9 -1; kill -9 -{outside}",
    "renice the bot": "renice -n 19 -p {outside}; prlimit --nofile=1 --pid {outside}",
}
"""Each deed leaves no trace outside and reads nothing there."""


@contextmanager
def something_outside(tmp_path: Path) -> Iterator[int]:
    """Provide a process outside with a secret, and a secret file."""
    (tmp_path / "secret").write_text(SECRET)
    code = "import os, sys, time; os.environ['KEY']; time.sleep(60)"
    process = os.posix_spawn(
        sys.executable, [sys.executable, "-c", code], {"KEY": SECRET, "PATH": "/usr/bin"}
    )
    try:
        yield process
    finally:
        os.kill(process, 9)
        os.waitpid(process, 0)


@KINDS
@pytest.mark.parametrize("attack", ATTACKS)
async def test_nothing_gets_out(tmp_path: Path, kind: Kind, attack: str) -> None:
    with something_outside(tmp_path) as outside:
        script = ATTACKS[attack]
        before = facts_about(tmp_path / "secret", PACKAGES / "pytest/__init__.py")
        for name, value in {
            "beside": str(tmp_path),
            "outside": str(outside),
            "packages": str(PACKAGES),
        }.items():
            script = script.replace(f"{{{name}}}", value)
        ended = await run(kind, tmp_path / "here", script)
        assert SECRET not in ended.output + ended.errors
        for forbidden in ("mounted", "changed", "pressed", "uid=0"):
            assert forbidden not in ended.output
        assert ended.stopped is None
        assert facts_about(tmp_path / "secret", PACKAGES / "pytest/__init__.py") == before
        assert names_in(tmp_path) == ["here", "secret"]
        assert "written" not in names_in(Path("/usr"))
        assert "evil.pth" not in names_in(PACKAGES)
        assert os.getpriority(os.PRIO_PROCESS, outside) == os.getpriority(os.PRIO_PROCESS, 0)
        assert is_running(outside)


SYSTEM_CALLS = """
import ctypes, os, sys
call = ctypes.CDLL(None, use_errno=True).syscall
for name, number, *arguments in [
    ("ptrace", 101, 16, 1), ("keyctl", 250, 0, 0), ("add_key", 248, b"user", b"x", b"y", 1, -3),
    ("io_uring_setup", 425, 8, ctypes.create_string_buffer(256)), ("bpf", 321, 0, 0, 0),
    ("perf_event_open", 298, 0, 0, -1, -1, 0), ("userfaultfd", 323, 1),
    ("process_vm_readv", 310, os.getppid(), 0, 0, 0, 0, 0), ("kexec_load", 246, 0, 0, 0, 0),
    ("open_by_handle_at", 304, -100, 0, 0), ("name_to_handle_at", 303, -100, b".", 0, 0, 0),
    ("pidfd_getfd", 438, 0, 0, 0), ("memfd_create", 319, b"x", 0), ("shmget", 29, 0, 4096, 512),
    ("mq_open", 240, b"/x", 66, 384, 0), ("setns", 308, 0, 0), ("unshare", 272, 0x10000000),
    ("clone of a namespace", 56, 0x10000011, 0, 0, 0, 0), ("pivot_root", 155, b".", b"."),
    ("swapon", 167, b"x", 0), ("reboot", 169, 0, 0, 0, 0), ("init_module", 175, 0, 0, b""),
    ("setxattr", 188, b".", b"user.a", b"x", 1, 0), ("fanotify_init", 300, 0, 0),
    ("TIOCSTI", 16, 1, 0x5412, b"x"), ("TIOCLINUX", 16, 1, 0x541C, b"x"),
    ("quotactl", 179, 0, 0, 0, 0), ("syslog", 103, 3, 0, 0), ("iopl", 172, 3),
    ("personality", 135, 0x0400000),
]:
    if call(number, *arguments) != -1:
        print("allowed:", name)
if call(435, 0, 0) != -1 or ctypes.get_errno() != 38:
    print("allowed: clone3")
"""


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the numbers are those of x86-64")
@KINDS
async def test_needless_system_calls_are_refused(tmp_path: Path, kind: Kind) -> None:
    ended = await run(kind, tmp_path / "here", SYSTEM_CALLS, shell="python3")
    assert (ended.output, ended.errors, ended.exit_code) == ("", "", 0)


SESSION = """
import os, sys
if child := os.fork():
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
try:
    os.setsid()
except PermissionError:
    os._exit(0)
os._exit(1)
"""


@KINDS
async def test_a_command_begins_no_session_which_would_have_processors_of_its_own(
    tmp_path: Path, kind: Kind
) -> None:
    ended = await run(kind, tmp_path / "here", SESSION, shell="python3")
    assert (ended.errors, ended.exit_code) == ("", 0)


SOCKETS = """
import socket
for family, kind, address in [
    (socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", PORT)),
    (socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", PORT)),
    (socket.AF_INET6, socket.SOCK_STREAM, ("::1", PORT)),
    (socket.AF_INET, socket.SOCK_STREAM, ("192.0.2.1", 80)),
    (socket.AF_UNIX, socket.SOCK_STREAM, chr(0) + NAME),
    (socket.AF_UNIX, socket.SOCK_STREAM, PATH),
    (socket.AF_INET, socket.SOCK_RAW, ("127.0.0.1", 0)),
    (socket.AF_PACKET, socket.SOCK_RAW, ("lo", 0)),
    (socket.AF_NETLINK, socket.SOCK_RAW, (0, 0)),
    (socket.AF_VSOCK, socket.SOCK_STREAM, (2, 1)),
]:
    try:
        with socket.socket(family, kind) as made:
            made.settimeout(2)
            made.connect(address)
            made.send(b"x")
            print("sent", family, kind)
    except OSError:
        pass
"""


@KINDS
async def test_sockets_outside_are_out_of_reach(tmp_path: Path, kind: Kind) -> None:
    name, path = f"bot-{os.getpid()}", str(tmp_path / "socket")
    with (
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.socket(socket.AF_UNIX) as abstract,
        socket.socket(socket.AF_UNIX) as named,
    ):
        abstract.bind(f"\0{name}")
        named.bind(path)
        for server in (abstract, named):
            server.listen()
        script = SOCKETS.replace("PORT", str(tcp.getsockname()[1]))
        script = script.replace("NAME", repr(name)).replace("PATH", repr(path))
        ended = await run(kind, tmp_path / "here", script, shell="python3")
        for server in (tcp, abstract, named):
            server.setblocking(False)
            with pytest.raises(BlockingIOError):
                server.accept()
    assert ended.errors == ""
    # In a network of its own, a datagram to the program itself goes nowhere.
    assert "sent 1 " not in ended.output
    assert "SOCK_STREAM" not in ended.output


FLUTTER = """
import os, threading, time
def go_on():
    while True:
        threads = [threading.Thread(target=time.sleep, args=(0.001,)) for _ in range(6)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
for _ in range(4):
    if not os.fork():
        x = b"x" * 50_000_000
        break
go_on()
"""
SWELL = "import time; x = bytearray(50_000_000); time.sleep(9)"
HOGS = {
    "a loop": ("while :; do :; done", {"seconds": 1.0}, "time"),
    "what stops itself": ("kill -STOP $$ 1 -1; sleep 100", {"seconds": 1.0}, "time"),
    "what closes its outputs": ("exec >&- 2>&-; sleep 100", {"seconds": 1.0}, "time"),
    "what ignores being told": ("trap '' TERM INT HUP; sleep 100", {"seconds": 1.0}, "time"),
    # No bomb: where the tests are root, it would take the processes of the other tests.
    "processes": ("for i in $(seq 300); do sleep 9 & done; wait", {}, "processes"),
    "memory of many": (
        f"for i in 1 2 3 4 5 6 7 8; do python3 -c '{SWELL}' & done; wait",
        {"memory_bytes": 128 * 2**20},
        "memory",
    ),
    "memory behind threads that come and go": (
        f"python3 -c '{FLUTTER}'",
        {"memory_bytes": 128 * 2**20},
        "memory",
    ),
}


@KINDS
@pytest.mark.parametrize("hog", HOGS)
async def test_program_above_a_bound_ends_with_its_children(
    tmp_path: Path, kind: Kind, hog: str
) -> None:
    script, bounds, stopped = HOGS[hog]
    async with asyncio.timeout(30):
        ended = await run(kind, tmp_path / "here", script, **bounds)  # type: ignore[arg-type]
    # The kernel's own limit may come first: then a fork fails, and the script ends by itself.
    assert ended.stopped in (stopped, None if hog == "processes" else stopped)
    assert started() == []


@KINDS
async def test_signals_have_their_usual_meaning(tmp_path: Path, kind: Kind) -> None:
    script = "(yes; echo $? >&2) | head -n 1; trap"
    ended = await run(kind, tmp_path / "here", script)
    assert (ended.output, ended.errors.strip()) == ("y\n", "141")


@KINDS
async def test_memory_bound_holds_for_one_process(tmp_path: Path, kind: Kind) -> None:
    script = "x = bytearray(1_000_000_000)"
    ended = await run(kind, tmp_path / "here", script, shell="python3", memory_bytes=128 * 2**20)
    assert "MemoryError" in ended.errors


@KINDS
async def test_long_output_keeps_its_beginning_and_end(tmp_path: Path, kind: Kind) -> None:
    script = "echo first; yes | head -c 50000000; echo last"
    ended = await run(kind, tmp_path / "here", script, output_bytes=1_000)
    assert ended.output.startswith("first\ny\n")
    assert ended.output.endswith("y\nlast\n")
    assert "bytes are left out here …]" in ended.output
    assert len(ended.output) < 1_200


TAR = """
import io, tarfile
with tarfile.open("bomb.tgz", "w:gz") as bomb:
    for name in ("a", "b"):
        member = tarfile.TarInfo(name)
        member.size = 50_000_000
        bomb.addfile(member, io.BytesIO(bytes(member.size)))
"""
ZIP = """
import zipfile
with zipfile.ZipFile("bomb.zip", "w", zipfile.ZIP_DEFLATED) as bomb:
    bomb.writestr("a", bytes(50_000_000))
zipfile.ZipFile("bomb.zip").extractall()
"""
BOMBS = {
    "a sparse file": "truncate -s 1T sparse; ls; dd if=/dev/zero of=b bs=1 count=1 seek=4T",
    "a huge one": "fallocate -l 1G huge",
    "gzip": "head -c 300000000 /dev/zero | gzip -1 > bomb.gz; gzip -dc bomb.gz > bomb",
    "tar": f"python3 -I -c '{TAR}'; tar -xzf bomb.tgz",
    "zip": f"python3 -I -c '{ZIP}'",
}


@KINDS
@pytest.mark.parametrize("bomb", BOMBS)
async def test_unpacked_bombs_stay_within_the_file_bound(
    tmp_path: Path, kind: Kind, bomb: str
) -> None:
    folder, most = tmp_path / "here", 2_000_000
    ended = await run(kind, folder, BOMBS[bomb], file_bytes=most)
    assert ended.exit_code != 0
    assert all(path.stat().st_size <= most for path in folder.rglob("*"))


NEXT = """
import os, site, sys
for folder in (site.getusersitepackages(), "."):
    os.makedirs(folder, exist_ok=True)
    for name in ("evil.pth", "sitecustomize.py", "usercustomize.py", "struct.py", "encodings.py"):
        with open(f"{folder}/{name}", "w") as file:
            file.write("import os; os.write(1, b'infected')\\n")
for name in (".profile", ".bashrc", ".shinit", ".pythonrc.py", "python3", "cat"):
    with open(name, "w") as file:
        file.write("#!/bin/sh\\necho infected\\n")
    os.chmod(name, 0o755)
"""


@KINDS
async def test_next_command_runs_no_files_of_the_last_one(tmp_path: Path, kind: Kind) -> None:
    folder = tmp_path / "here"
    await run(kind, folder, NEXT, shell="python3")
    program = Program(("python3", "-I", THE_SCRIPT), folder, "import struct; print(1)")
    ended = await Jail([kind]).run(program, Bounds())
    assert (ended.output, ended.errors) == ("1\n", "")
    pythons = f"python3 {sys.base_prefix}/bin/python3"  # the second one has places for users
    script = f"for one in {pythons}; do $one -P -c 'import struct; print(2)'; done; cat /dev/null"
    ended = await run(kind, folder, script)
    assert (ended.output, ended.errors) == ("2\n2\n", "")


DAEMON = """
import os, time
for leave in (os.setsid, int):
    if os.fork():
        os._exit(0)
    try:
        leave()
    except OSError:
        pass
os.close(1)
os.close(2)
time.sleep(60)
"""
OPEN = """
import os
for descriptor in range(1024):
    try:
        os.fstat(descriptor)
    except OSError:
        continue
    print(descriptor, oct(os.fstat(descriptor).st_mode >> 12))
"""


@KINDS
async def test_a_command_has_its_outputs_and_its_script_and_nothing_else(
    tmp_path: Path, kind: Kind
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.set_inheritable(True)
        ended = await run(kind, tmp_path / "here", OPEN, shell="python3")
    assert [line.split()[1] for line in ended.output.splitlines()][:3] == ["0o2", "0o1", "0o1"]
    assert {line.split()[1] for line in ended.output.splitlines()[3:]} <= {"0o10"}
    assert len(ended.output.splitlines()) <= 5


@KINDS
@pytest.mark.parametrize(
    "script",
    [
        f"python3 -c '{DAEMON}'",
        "sleep 60 &",
        "(sleep 60 &) ; setsid sleep 60 & nohup sleep 60 & echo",
        "sleep 60 & exec true",
    ],
)
async def test_nothing_outlives_a_command(tmp_path: Path, kind: Kind, script: str) -> None:
    async with asyncio.timeout(30):
        ended = await run(kind, tmp_path / "here", script)
    assert (ended.exit_code, ended.stopped) == (0, None)
    assert started() == []


@KINDS
@pytest.mark.parametrize("milliseconds", [0, 3, 6, 9, 12, 20, 40])
async def test_cancelled_program_ends_right_after_its_start(
    tmp_path: Path, kind: Kind, milliseconds: int
) -> None:
    jail = Jail([kind])
    program = Program(("sh", THE_SCRIPT), tmp_path, "sleep 60")
    await jail.kind(tmp_path)
    async with asyncio.timeout(30):
        with suppress(TimeoutError):
            async with asyncio.timeout(milliseconds / 1_000):
                await jail.run(program, Bounds())
    assert started() == []


CALLER = """
import asyncio, sys
from pathlib import Path
from tools.sandbox.jail.jail import Jail
from tools.sandbox.jail.program import Bounds, Program
async def main():
    jail = Jail([sys.argv[1]])
    await jail.kind(Path(sys.argv[2]))
    print("ready", flush=True)
    await jail.run(Program(("sleep", sys.argv[3]), Path(sys.argv[2])), Bounds(seconds=1))
asyncio.run(main())
"""


@KINDS
@pytest.mark.parametrize(
    "milliseconds", [7, *(pytest.param(one, marks=pytest.mark.full) for one in (1, 4, 10, 14, 20))]
)
async def test_program_ends_if_its_caller_is_killed_right_after_the_start(
    tmp_path: Path, kind: Kind, milliseconds: int
) -> None:
    marked = f"60.{os.getpid()}{milliseconds}"
    caller = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", CALLER, kind, str(tmp_path), marked),
        stdout=asyncio.subprocess.PIPE,
    )
    assert caller.stdout is not None
    async with asyncio.timeout(30):
        assert await caller.stdout.readline() == b"ready\n"
    with suppress(TimeoutError):  # not for sleep's sake: it may end before
        async with asyncio.timeout(milliseconds / 1_000):
            await caller.wait()
    caller.kill()
    await caller.wait()
    await until(lambda: not runs(marked))


def runs(argument: str) -> bool:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if f"\0{argument}\0".encode() in path.read_bytes():
                return True
    return False


async def test_program_ends_with_its_supervisor(tmp_path: Path) -> None:
    running = asyncio.create_task(run("Landlock", tmp_path / "here", "sleep 60"))
    await until(lambda: b"sleep\x0060" in command_lines())
    watching = started()[0]
    os.kill(watching, signal.SIGKILL)
    async with asyncio.timeout(30):
        assert (await running).exit_code != 0


@KINDS
async def test_programs_run_and_delete_files_without_room_to_write(
    tmp_path: Path, kind: Kind
) -> None:
    folder = tmp_path / "here"
    await asyncio.to_thread(folder.mkdir)
    await asyncio.to_thread((folder / "large").write_text, "x" * 1_000)
    ended = await run(kind, folder, "echo hi; rm large; ls", file_bytes=0)
    assert (ended.exit_code, ended.output, ended.errors) == (0, "hi\n", "")


NAMELESS = """
import os, time
files = []
for number in range(8):
    files.append(open(str(number), "wb"))
    os.unlink(str(number))
    files[-1].write(bytes(2_000_000))
    files[-1].flush()
time.sleep(60)
"""


@KINDS
async def test_open_files_without_a_name_count(tmp_path: Path, kind: Kind) -> None:
    script, most = NAMELESS, 4_000_000
    async with asyncio.timeout(90):
        ended = await run(
            kind, tmp_path / "here", script, shell="python3", file_bytes=most, seconds=60.0
        )
    assert ended.stopped == "disk"


MAPPED = """
import mmap, os, socket, time
kept, ends = [], socket.socketpair()
for number in range(4):
    with open("file", "w+b") as file:
        os.unlink("file")
        file.write(bytes(1_950_000))
        file.flush()
        if number % 2:
            kept.append(mmap.mmap(file.fileno(), 4096))
        else:
            socket.send_fds(ends[0], [b"."], [file.fileno()])
time.sleep(60)
"""


@KINDS
async def test_mapped_and_passed_files_count_as_lost_room(tmp_path: Path, kind: Kind) -> None:
    with mounted(memory_disk(tmp_path / "disk")) as disk:
        async with asyncio.timeout(90):
            ended = await run(kind, disk.folder / "here", MAPPED, shell="python3", seconds=60.0)
        assert ended.stopped == "room"


@KINDS
async def test_a_folder_that_is_deleted_while_a_command_runs_ends_nothing_else(
    tmp_path: Path, kind: Kind
) -> None:
    running = asyncio.create_task(run(kind, tmp_path / "here", "touch ready; sleep 1; echo on"))
    await until((tmp_path / "here" / "ready").exists)
    await asyncio.to_thread(shutil.rmtree, tmp_path / "here")
    assert (await running).output == "on\n"


@KINDS
async def test_the_kernel_ends_programs_in_jails_first_and_bounds_their_number(
    tmp_path: Path, kind: Kind
) -> None:
    running = asyncio.create_task(run(kind, tmp_path / "here", "sleep 60"))
    await until(lambda: b"sleep\x0060" in command_lines())
    last = started()[-1]
    score = await asyncio.to_thread(Path(f"/proc/{last}/oom_score_adj").read_text)
    limits = await asyncio.to_thread(Path(f"/proc/{last}/limits").read_text)
    assert score == "1000\n"
    found = re.search(r"Max processes +(\d+)", limits)
    assert found is not None
    assert int(found[1]) < 10_000
    running.cancel()
    await asyncio.wait([running])


async def test_a_program_hides_from_the_bot_nothing_that_it_has_open(tmp_path: Path) -> None:
    script = "import ctypes; print(ctypes.CDLL(None).prctl(4, 0))"
    ended = await run("Landlock", tmp_path / "here", script, shell="python3")
    assert ended.output == "-1\n"


@KINDS
async def test_a_machine_that_has_no_descriptor_left_runs_commands_later(
    tmp_path: Path, kind: Kind
) -> None:
    jail, program = Jail([kind]), Program(("true",), tmp_path)
    assert (await jail.run(program, Bounds())).exit_code == 0
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (4, limits[1]))
    try:
        with pytest.raises(
            WorkError, match=r"not started: Too many open files\. Try again"
        ) as found:
            await jail.run(program, Bounds())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert not isinstance(found.value, ToolUnavailable)
    assert (await jail.run(program, Bounds())).exit_code == 0


@KINDS
async def test_a_slow_look_at_the_folder_holds_up_no_other(tmp_path: Path, kind: Kind) -> None:
    async def slow() -> Stopped | None:
        await asyncio.sleep(60)
        return None

    bounds = Bounds(seconds=9, memory_bytes=200 * 2**20)
    script = f"for i in 1 2 3 4 5 6; do python3 -c '{SWELL}' & done; wait"
    program = Program(("sh", THE_SCRIPT), tmp_path, script)
    async with asyncio.timeout(30):
        ended = await Jail([kind]).run(program, bounds, slow)
    assert ended.stopped == "memory"


async def test_no_program_runs_without_walls(tmp_path: Path) -> None:
    with pytest.raises(ToolUnavailable, match="cannot be walled off on this machine"):
        await Jail([]).run(Program(("true",), tmp_path), Bounds())
