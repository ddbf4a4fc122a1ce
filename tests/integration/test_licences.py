"""All installed packages may be distributed with the bot under Apache-2.0."""

import re
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path
from typing import Final

LOCK: Final = Path(__file__).parents[2] / "requirements.lock"

COMPATIBLE: Final = frozenset(
    {
        "Apache Software License",
        "Apache-2.0",
        "BSD License",
        "BSD-2-Clause",
        "BSD-3-Clause",
        "CNRI-Python",
        "MIT",
        "MIT License",
        "MIT-0",
        "MIT-CMU",
        # Its files keep their licence; nothing else has to take it.
        "Mozilla Public License 2.0 (MPL 2.0)",
        "MPL-1.1",
        "MPL-2.0",
        "OSI Approved",  # apsw: any licence that the Open Source Initiative approves
        "PSF-2.0",
        "Python Software Foundation License",
        "Unlicense",
    }
)

ONLY_ELSEWHERE: Final = frozenset({"httpx2-jsfetch", "pywin32"})
"""Locked for WebAssembly and Windows."""


def locked() -> list[str]:
    return sorted(set(re.findall(r"^([A-Za-z0-9_.-]+)==", LOCK.read_text(), re.MULTILINE)))


def licences(name: str) -> list[str]:
    """Return the licence that a package declares, as an expression or otherwise."""
    found = metadata(name)
    classifiers = found.get_all("Classifier") or []
    named = [line.split(" :: ")[-1] for line in classifiers if line.startswith("License ::")]
    return found.get_all("License-Expression") or named or found.get_all("License") or []


def is_compatible(expression: str) -> bool:
    """Return whether all terms of a licence can be kept; one alternative is enough."""
    needed = expression.split(" AND ")
    return all(any(choice in COMPATIBLE for choice in one.split(" OR ")) for one in needed)


def test_every_locked_package_has_a_licence_that_fits_the_projects() -> None:
    unfit: dict[str, list[str]] = {}
    for name in locked():
        try:
            named = licences(name)
        except PackageNotFoundError:
            assert name in ONLY_ELSEWHERE, f"{name} is locked and not installed"
            continue
        if not named or not all(is_compatible(expression) for expression in named):
            unfit[name] = named
    assert unfit == {}
