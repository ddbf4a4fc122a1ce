"""GitHub's pages of signal-cli's releases: each file is one redirect away."""

import gzip
import hashlib
import io
import tarfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Final

from bot.signal.releases import Build, Release
from tests.fakes.scripted_http import Request, ScriptedServer, Step, raw_body, status
from tests.fakes.signal_cli_program import install

GZIP: Final = "application/gzip"
KIB: Final = 1024


@dataclass
class ReleasePage(ScriptedServer):
    """Serves archives by their names.

    Attributes:
        archives: name of a file to its bytes.
        cut_after: break each download off after so many bytes.
        in_circles: every page redirects to itself.
    """

    archives: dict[str, bytes] = field(default_factory=dict)
    cut_after: int | None = None
    in_circles: bool = False

    @classmethod
    @asynccontextmanager
    async def open(cls) -> AsyncIterator["ReleasePage"]:
        page = cls()
        await page.start()
        try:
            yield page
        finally:
            await page.stop()

    def is_question(self, request: Request) -> bool:
        return False

    def step_for(self, request: Request) -> Step:
        name = request.path.rpartition("/")[2]
        if name not in self.archives:
            return status(404)
        if self.in_circles:
            return status(302, headers={"location": request.path})
        if not request.path.startswith("/files/"):
            return status(302, headers={"location": f"{self.url}/files/{name}"})
        archive = self.archives[name]
        if self.cut_after is not None:
            return raw_body(archive[: self.cut_after], content_type=GZIP, cut=True)
        pieces = [archive[at : at + 64 * KIB] for at in range(0, len(archive), 64 * KIB)]
        return raw_body(*pieces, content_type=GZIP)

    def publish(self, archive: bytes, version: str, *, needs_java: bool = False) -> Release:
        """Publish an archive; return the release as the package's table would have it."""
        name = f"signal-cli-{version}{'' if needs_java else '-Linux-native'}.tar.gz"
        self.archives[name] = archive
        build = Build(name, hashlib.sha256(archive).hexdigest(), len(archive), needs_java)
        return Release(version, date(2026, 11, 1), 25, (build,))


def archive_of(version: str, folder: Path, *options: str, top: str = "") -> bytes:
    """Return an archive with a program that behaves as that version of signal-cli.

    Args:
        folder: for the program's notes.
        options: of `signal_cli_program.install`.
        top: path of the program's folder in the archive.
    """
    script = install(folder, *options, "--says", version) / "signal-cli"
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        tar.add(script, f"{top}signal-cli")
        other = tarfile.TarInfo(f"{top}notes.txt")
        other.size = 3 * KIB
        tar.addfile(other, io.BytesIO(bytes(other.size)))
    return gzip.compress(packed.getvalue(), mtime=0)


def damaged(release: Release) -> Release:
    """Return the release with the hash of another archive."""
    build = replace(release.builds[0], sha256=64 * "0")
    return replace(release, builds=(build,))
