"""Landlock with an empty rule set: no path, no TCP port, no socket and no process outside.

It denies what it is told to handle and no rule allows; there are no rules. A wall behind seccomp,
for descriptors that somebody might get after all.

Source: https://docs.kernel.org/userspace-api/landlock.html; linux/landlock.h.
"""

import ctypes
import os
from collections.abc import Mapping
from typing import Final

from sandbox.syscalls import system_call

_ASK_VERSION: Final = 1
_FILE_RIGHTS: Final[Mapping[int, int]] = {1: 13, 2: 14, 3: 15, 5: 16}
"""How many rights there are from a version of the interface on; they are the lowest bits."""
_NETWORK_FROM, _NETWORK_RIGHTS = 4, 0b11  # bind and connect over TCP
_SCOPES_FROM, _SCOPES = 6, 0b11  # abstract Unix sockets, and signals


class _Ruleset(ctypes.Structure):
    """A struct landlock_ruleset_attr: what is denied unless a rule allows it."""

    _fields_ = (
        ("files", ctypes.c_uint64),
        ("network", ctypes.c_uint64),
        ("scopes", ctypes.c_uint64),
    )


def version() -> int:
    """Return the version of the kernel's Landlock; 0 where there is none."""
    try:
        return system_call("landlock_create_ruleset", ctypes.c_void_p(), 0, _ASK_VERSION)
    except OSError:
        return 0


def install() -> None:
    """Deny this process everything that the kernel's Landlock knows of.

    Needs no_new_privs and a free descriptor.

    Raises:
        OSError: the kernel cannot or may not.
    """
    here = version()
    rules = _Ruleset(
        files=(1 << max((n for since, n in _FILE_RIGHTS.items() if since <= here), default=0)) - 1,
        network=_NETWORK_RIGHTS if here >= _NETWORK_FROM else 0,
        scopes=_SCOPES if here >= _SCOPES_FROM else 0,
    )
    address = ctypes.c_void_p(ctypes.addressof(rules))
    # An older kernel takes the longer structure, as what it does not know is zero.
    ruleset = system_call("landlock_create_ruleset", address, ctypes.sizeof(rules), 0)
    try:
        system_call("landlock_restrict_self", ruleset, 0)
    finally:
        os.close(ruleset)
