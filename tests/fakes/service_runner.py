"""Settings of a unit file as systemd reads them, and the processes of a service."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

DEPLOY: Final = Path(__file__).parents[2] / "deploy" / "systemd"


@dataclass(frozen=True, slots=True)
class Unit:
    """The section [Service] of a unit file, for a machine whose root is a folder."""

    settings: Mapping[str, tuple[str, ...]]
    root: Path

    @classmethod
    def read(cls, name: str, root: Path) -> "Unit":
        """Read one of the unit files that are delivered."""
        settings: dict[str, list[str]] = defaultdict(list)
        section = ""
        for line in (DEPLOY / f"{name}.service").read_text().splitlines():
            key, equals, value = line.partition("=")
            if line.startswith("["):
                section = line
            elif section == "[Service]" and equals and not line.startswith("#"):
                settings[key].append(value)
        return cls({key: tuple(values) for key, values in settings.items()}, root)

    def all(self, key: str) -> tuple[str, ...]:
        return self.settings.get(key, ())

    def one(self, key: str) -> str:
        """Return the last value of a setting, empty if it has none."""
        return (self.all(key) or ("",))[-1]


def descendants(pid: int) -> Iterator[int]:
    """Yield the ids of a process's children and of theirs."""
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError):  # a thread has ended in the meantime
            for child in (thread / "children").read_text().split():
                yield int(child)
                yield from descendants(int(child))
