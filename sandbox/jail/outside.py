"""What both kinds of jails have in common: limits of each process, and the part of the system seen.

Source: prlimit(1), setrlimit(2).
"""

from typing import Final

from sandbox.jail.program import Bounds, Machine

DESCRIPTORS: Final = 256
ADDRESSES_PER_BYTE: Final = 16
"""Libraries reserve far more addresses than they ever use memory."""

ROOTS: Final = ("/bin", "/sbin", "/lib", "/lib32", "/lib64")
OF_ETC: Final = (
    *("/etc/alternatives", "/etc/ca-certificates", "/etc/fonts", "/etc/ld.so.cache"),
    *("/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/localtime", "/etc/mime.types"),
    *("/etc/ssl/certs", "/etc/ssl/openssl.cnf"),
)
"""What programs read of it; the rest tells of the machine."""


def limits(bounds: Bounds) -> dict[str, int]:
    """Return the limits of each process, by their names in prlimit(1) and setrlimit(2)."""
    return {
        "cpu": int(bounds.seconds) + 1,
        "data": bounds.memory_bytes,
        "as": bounds.memory_bytes * ADDRESSES_PER_BYTE,
        "fsize": bounds.file_bytes,
        "nofile": DESCRIPTORS,
        "core": 0,
    }


def environment(machine: Machine, home: str) -> dict[str, str]:
    """Return the variables that a program finds; nothing of the bot's is among them."""
    return {"HOME": home, "LANG": "C.UTF-8", "PATH": machine.path, **machine.variables}
