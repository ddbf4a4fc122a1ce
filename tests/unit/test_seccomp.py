"""The filter around sandboxes, run instruction by instruction as the kernel runs it."""

import errno
from collections.abc import Mapping, Sequence
from itertools import product

import pytest

from tools.sandbox import seccomp
from tools.sandbox.seccomp import (
    ALLOW,
    ALLOWED,
    ARCHITECTURE_OFFSET,
    ARGUMENTS_OFFSET,
    IN_A_FOLDER,
    KILL,
    NEWEST_KNOWN,
    NUMBER_OFFSET,
    REFUSE,
    REFUSED,
    Demand,
    Instruction,
    program,
)
from tools.sandbox.syscalls import ARCHITECTURES, Architecture

X86, ARM = ARCHITECTURES["x86_64"], ARCHITECTURES["aarch64"]
I386_AUDIT = 0x40000003
EPERM, ENOSYS = REFUSE + errno.EPERM, REFUSE + errno.ENOSYS
MACHINES = pytest.mark.parametrize("machine", [X86, ARM], ids=["x86_64", "aarch64"])


def run(steps: Sequence[Instruction], data: dict[int, int]) -> int:
    """Return the result of a filter for the words of a struct seccomp_data."""
    position, accumulator = 0, 0
    while True:
        code, if_true, if_false, constant = steps[position]
        position += 1
        match code:
            case seccomp.LOAD_WORD:
                accumulator = data[constant]
            case seccomp.AND:
                accumulator &= constant
            case seccomp.JUMP_IF_EQUAL:
                position += if_true if accumulator == constant else if_false
            case seccomp.JUMP_IF_GREATER:
                position += if_true if accumulator > constant else if_false
            case seccomp.JUMP_IF_NOT_LESS:
                position += if_true if accumulator >= constant else if_false
            case seccomp.RETURN:
                return constant
            case _:
                pytest.fail(f"no such instruction: {code:#x}")


def verdict(
    machine: Architecture,
    call: int | str,
    *arguments: int,
    audit: int | None = None,
    rules: Mapping[str, tuple[Demand, ...]] = ALLOWED,
) -> int:
    number = machine.numbers[call] if isinstance(call, str) else call
    words = (word for one in (*arguments, *(0,) * 6) for word in (one & 0xFFFFFFFF, one >> 32))
    data = {ARGUMENTS_OFFSET + 4 * index: word for index, word in enumerate(words)}
    data[NUMBER_OFFSET] = number
    data[ARCHITECTURE_OFFSET] = machine.audit if audit is None else audit
    return run(program(machine, rules), data)


@MACHINES
def test_only_listed_calls_leave_the_process_alive(
    machine: Architecture,
) -> None:
    alive = {number for number in range(NEWEST_KNOWN + 1) if verdict(machine, number) != KILL}
    listed = {*ALLOWED, *REFUSED} & machine.numbers.keys()
    assert alive == {machine.numbers[name] for name in listed}


@MACHINES
def test_in_a_folder_files_are_opened_in_one_way_and_nothing_else_is_new(
    machine: Architecture,
) -> None:
    def verdict_there(call: str, *arguments: int) -> int:
        return verdict(machine, call, *arguments, rules=IN_A_FOLDER)

    assert verdict_there("openat2") == ALLOW
    for call in {"open", "openat", "stat", "readlink", "ioctl", "uname"} & machine.numbers.keys():
        assert verdict_there(call) == EPERM
    assert [verdict_there("fcntl", 0, command) for command in (1030, 4, 1024)] == [
        ALLOW, EPERM, EPERM,
    ]  # fmt: skip
    assert {*ALLOWED} < {*IN_A_FOLDER}
    for number in set(range(NEWEST_KNOWN + 1)) - {
        machine.numbers[name] for name in {*IN_A_FOLDER, *REFUSED} & machine.numbers.keys()
    }:
        assert verdict(machine, number, rules=IN_A_FOLDER) == KILL


@MACHINES
def test_calls_newer_than_the_filter_do_not_exist(machine: Architecture) -> None:
    assert verdict(machine, NEWEST_KNOWN + 1) == ENOSYS
    assert verdict(machine, 0x3FFFFFFF) == ENOSYS


def test_the_other_abis_of_the_processor_are_closed() -> None:
    for number in (0x40000000, 0x40000001, 0x4000021B, 0xFFFFFFFF):
        assert verdict(X86, number) == KILL
    for number in range(NEWEST_KNOWN):
        assert verdict(X86, number, audit=I386_AUDIT) == KILL
        assert verdict(ARM, number, audit=X86.audit) == KILL


@MACHINES
def test_only_the_two_pipes_are_read_and_written(machine: Architecture) -> None:
    assert [verdict(machine, "read", fd) for fd in (0, 1, 2, 3)] == [ALLOW, EPERM, EPERM, EPERM]
    assert [verdict(machine, "write", fd) for fd in (0, 1, 2, 3)] == [EPERM, ALLOW, EPERM, EPERM]


@MACHINES
def test_memory_is_anonymous_and_never_runs(machine: Architecture) -> None:
    for protection, flags in product(range(8), (0x01, 0x02, 0x21, 0x22, 0x32, 0x4022)):
        harmless = not protection & 4 and bool(flags & 0x20)
        expected = ALLOW if harmless else EPERM
        assert verdict(machine, "mmap", 0, 4_096, protection, flags) == expected
    for protection in range(8):
        expected = EPERM if protection & 4 else ALLOW
        assert verdict(machine, "mprotect", 0, 4_096, protection) == expected


@MACHINES
def test_locks_wait_and_wake_and_do_nothing_else(machine: Architecture) -> None:
    for operation in (0, 1, 9, 10, 128, 129, 137, 137 | 256):
        assert verdict(machine, "futex", 0, operation) == ALLOW
    for operation in (3, 4, 5, 6, 11, 12, 13, 128 | 6, 512, 0x80000000):
        assert verdict(machine, "futex", 0, operation) == EPERM


@MACHINES
def test_memory_advice_and_timers_are_the_harmless_ones(machine: Architecture) -> None:
    assert [n for n in range(110) if verdict(machine, "madvise", 0, 0, n) == ALLOW] == [4, 8, 14]
    assert [n for n in range(4) if verdict(machine, "setitimer", n) == ALLOW] == [0]


@MACHINES
def test_clocks_are_those_of_the_machine_and_of_the_process_itself(machine: Architecture) -> None:
    clock_of_pid_1 = ~1 << 3 & 0xFFFFFFFF | 2
    for call in ("clock_gettime", "clock_getres"):
        assert [n for n in range(64) if verdict(machine, call, n) == ALLOW] == list(range(16))
        assert verdict(machine, call, clock_of_pid_1) == EPERM
