"""What both kinds of jails have in common: limits of each process, and the part of the system seen.

Source: prlimit(1), setrlimit(2).
"""

from typing import Final

from sandbox.jail.program import Bounds, Machine

PRLIMIT: Final = "prlimit"
NICENESS: Final = 15
"""Whoever waits for an answer comes before whoever waits for a command."""
DESCRIPTORS: Final = 512
ADDRESSES_PER_BYTE: Final = 16
"""Libraries reserve far more addresses than they ever use memory."""

ROOTS: Final = ("/bin", "/sbin", "/lib", "/lib32", "/lib64")
OF_ETC: Final = (
    *("/etc/alternatives", "/etc/ca-certificates", "/etc/fonts", "/etc/ld.so.cache"),
    *("/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/localtime", "/etc/mime.types"),
    *("/etc/ssl/certs", "/etc/ssl/openssl.cnf"),
)
"""What programs read of it; the rest tells of the machine."""


def within(bounds: Bounds) -> list[str]:
    """Return what stands before a command line, so that each of its processes has limits."""
    return [
        PRLIMIT,
        f"--cpu={int(bounds.seconds) + 1}",
        f"--data={bounds.memory_bytes}",
        f"--as={bounds.memory_bytes * ADDRESSES_PER_BYTE}",
        f"--fsize={bounds.file_bytes}",
        f"--nofile={DESCRIPTORS}",
        "--core=0",
        "--",
    ]


def environment(machine: Machine, home: str) -> dict[str, str]:
    """Return the variables that a program finds; nothing of the bot's is among them."""
    return {"HOME": home, "LANG": "C.UTF-8", "PATH": machine.path, **machine.variables}
