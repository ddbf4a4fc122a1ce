"""The releases of signal-cli that this package knows: their dates, and the archives to install."""

import sys
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from importlib import resources
from typing import Any, Final

from bot.errors import BotError

LOG_DAYS: Final = 60
"""signal-cli's README: "releases older than three months may not work correctly"."""
ADMIN_DAYS: Final = 75
YOUNG: Final = "{} is {} days old."
OLD: Final = (
    "{} is {} days old. Signal refuses versions that are some months old and drops their"
    " accounts. Update it: signal-tee-bot signal-cli update; or, if it runs elsewhere, install its"
    " newest release there."
)


@dataclass(frozen=True, slots=True)
class Build:
    """An archive of a release.

    Attributes:
        name: of the file, as published.
        size: in bytes; None if only the hash is known.
    """

    name: str
    sha256: str
    size: int | None
    needs_java: bool


@dataclass(frozen=True, slots=True)
class Release:
    """A release of signal-cli; `java` is the oldest major version for the build in Java."""

    version: str
    date: date
    java: int
    builds: tuple[Build, ...] = ()


def _release(row: dict[str, Any]) -> Release:
    version = row["version"]
    builds = [
        Build(name.format(version), row[kind]["sha256"], row[kind].get("size"), needs_java=java)
        for kind, name, java in (
            ("native_build", "signal-cli-{}-Linux-native.tar.gz", False),
            ("java_build", "signal-cli-{}.tar.gz", True),
        )
        if kind in row
    ]
    return Release(version, row["date"], row["java"], tuple(builds))


_TABLE: Final = resources.files(__package__).joinpath("releases.toml").read_text("utf-8")
RELEASES: Final = tuple(map(_release, tomllib.loads(_TABLE)["release"]))
"""The newest first."""


def newest_for(
    machine: str, java: int | None, releases: Sequence[Release] = RELEASES
) -> tuple[Release, Build]:
    """Return the newest release that runs here: the native build, otherwise the one in Java.

    Args:
        machine: as in `platform.machine()`.
        java: major version of this machine's Java, if there is one.

    Raises:
        BotError: none does without another Java.
    """
    has_native = machine == "x86_64" and sys.platform == "linux"
    for release in releases:
        for build in release.builds:
            if has_native if not build.needs_java else (java or 0) >= release.java:
                return release, build
    wanted = next(release.java for release in releases if release.builds)
    has = "there is none" if java is None else f"this machine has Java {java}"
    raise BotError(
        f"signal-cli needs Java {wanted} here, and {has}. Install a Java runtime {wanted}, such as"
        f" openjdk-{wanted}-jre-headless, or set JAVA_HOME to one."
    )


def age_days(server: str | None, today: date) -> int | None:
    """Return the days since the release of signal-cli; None if the table does not have it.

    Args:
        server: name and version, as `Messenger.server`.
    """
    name, _, version = (server or "").partition(" ")
    dates = {release.version: release.date for release in RELEASES}
    if name != "signal-cli" or version not in dates:
        return None
    return max(0, (today - dates[version]).days)


def age_words(server: str | None, today: date) -> str | None:
    """Return the age of signal-cli in words, with advice from `LOG_DAYS` on."""
    days = age_days(server, today)
    return None if days is None else (YOUNG if days < LOG_DAYS else OLD).format(server, days)
