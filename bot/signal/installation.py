"""A signal-cli of the bot's own, next to the store: downloaded, checked, unpacked, chosen.

    <folder of the store>/signal-cli/0.14.9/    a release, whole
    <folder of the store>/signal-cli/current    link to the release that `spawn:` runs

A release appears under its name only after its archive had the SHA-256 of `releases.toml` and all
of it was written. So neither a cut download nor a full disk leaves something that could be run.
"""

import asyncio
import hashlib
import os
import re
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO, Final

import aiohttp
import httpx2

from bot.errors import BotError
from bot.signal.releases import Build, Release
from tools.http import httpx2_errors, new_session

DOWNLOADS: Final = "https://github.com/AsamK/signal-cli/releases/download"
MAX_ARCHIVE_BYTES: Final = 256 * 2**20
"""Releases have 90 to 110 MB."""
MAX_UNPACKED_BYTES: Final = 2**30
"""The native program has 370 MB."""
PIECE_BYTES: Final = 2**20
DOWNLOAD_SECONDS: Final = 3_600.0
SILENCE_SECONDS: Final = 30.0
CONNECT_SECONDS: Final = 10.0
MAX_REDIRECTS: Final = 5
JAVA_SECONDS: Final = 10.0

_CURRENT: Final = "current"
_JAVA_VERSION: Final = re.compile(rb'version "(\d+)')

Progress = Callable[[int], None]
"""Called with the number of bytes so far."""


def home_of(store: Path) -> Path:
    """Return the folder of installed releases, which may not exist.

    Args:
        store: `STORE__PATH`.
    """
    return store.absolute().parent / "signal-cli"


def program_in(home: Path) -> Path | None:
    """Return the program of the chosen release."""
    candidates = (home / _CURRENT / "signal-cli", home / _CURRENT / "bin" / "signal-cli")
    return next((program for program in candidates if program.is_file()), None)


def chosen_in(home: Path) -> str | None:
    """Return the version of the chosen release."""
    try:
        return (home / _CURRENT).readlink().name
    except OSError:
        return None


def choose(home: Path, version: str | None) -> None:
    """Select the release that `spawn:` runs from its next start on; None: the one on the PATH."""
    link = home / _CURRENT
    if version is None:
        link.unlink(missing_ok=True)
        return
    new = home / f"{_CURRENT}.new"
    new.unlink(missing_ok=True)
    new.symlink_to(version)
    new.replace(link)


async def install(
    release: Release, build: Build, home: Path, source: str, progress: Progress
) -> None:
    """Put a release into its folder, unless it is there.

    Args:
        source: an archive, or the address of a folder of releases.

    Raises:
        BotError: it cannot be fetched, is not the archive of the table, or has no room.
    """
    if is_installed(home, release.version):
        return
    try:
        with _workplace(home) as folder:
            with (folder / "archive").open("xb+") as file:
                if source.startswith(("http://", "https://")):
                    address = f"{source.rstrip('/')}/v{release.version}/{build.name}"
                    sha256 = await _download(address, file, progress)
                else:
                    sha256 = await asyncio.to_thread(_copy, source, file, progress)
                if sha256 != build.sha256 or build.size not in {None, file.tell()}:
                    raise BotError(
                        f"That is not {build.name}: its SHA-256 is {sha256} instead of"
                        f" {build.sha256}. Nothing was installed."
                    )
                file.seek(0)
                await asyncio.to_thread(_unpack, file, folder / "unpacked")
            _top_of(folder / "unpacked", release.version).rename(home / release.version)
    except OSError as error:
        raise BotError(
            f"signal-cli cannot be installed in {home}: {error.strerror or type(error).__name__}."
            " It needs 600 MB there for a moment."
        ) from None


def is_installed(home: Path, version: str) -> bool:
    """Return whether a release is there, whole."""
    return (home / version).is_dir()


@contextmanager
def _workplace(home: Path) -> Iterator[Path]:
    """Provide a temporary folder on the same disk, and delete it at the end of the block."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=".new-", dir=home) as folder:
        yield Path(folder)


def remove_others(home: Path, *versions: str | None) -> None:
    """Delete all releases but these."""
    for folder in home.iterdir():
        if folder.is_dir() and not folder.is_symlink() and folder.name not in versions:
            shutil.rmtree(folder, ignore_errors=True)


def java_version() -> int | None:
    """Return the major version of the Java that signal-cli's start script would take."""
    home = os.environ.get("JAVA_HOME")
    program = str(Path(home) / "bin" / "java") if home else "java"
    try:
        said = subprocess.run(  # noqa: S603 - the operator's own Java
            [program, "-version"], capture_output=True, timeout=JAVA_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _JAVA_VERSION.search(said.stderr + said.stdout)
    return int(found[1]) if found else None


def _copy(source: str, target: BinaryIO, progress: Progress) -> str:
    """Copy an archive and return its SHA-256; the copy is what is unpacked."""
    digest, size = hashlib.sha256(), 0
    try:
        file = Path(source).expanduser().open("rb")
    except OSError as error:
        raise BotError(f"{source} cannot be read: {error.strerror}.") from None
    with file:
        while piece := file.read(PIECE_BYTES):
            size = _keep(piece, size, digest, target)
            progress(size)
    return digest.hexdigest()


async def _download(address: str, target: BinaryIO, progress: Progress) -> str:
    """Download a file and return its SHA-256."""
    digest, size = hashlib.sha256(), 0
    bounds = aiohttp.ClientTimeout(
        total=DOWNLOAD_SECONDS, sock_connect=CONNECT_SECONDS, sock_read=SILENCE_SECONDS
    )
    try:
        with httpx2_errors():
            async with (
                new_session(bounds) as session,
                session.get(address, max_redirects=MAX_REDIRECTS) as response,
            ):
                if response.status != 200:
                    raise BotError(f"{address} answered with status {response.status}.")
                async for piece in response.content.iter_chunked(PIECE_BYTES):
                    size = _keep(piece, size, digest, target)
                    progress(size)
    except httpx2.TransportError as error:
        if size:
            raise BotError(f"The download broke off after {size:,} bytes. Try again.") from None
        if isinstance(error.__cause__, aiohttp.TooManyRedirects):
            raise BotError(f"{address} redirects in circles.") from None
        raise BotError(
            f"{address} cannot be downloaded. {error} Without a network, fetch the file elsewhere"
            " and give it with --from FILE."
        ) from None
    return digest.hexdigest()


def _keep(piece: bytes, size: int, digest: "hashlib._Hash", target: BinaryIO) -> int:
    """Take a piece of an archive and return the size so far."""
    size += len(piece)
    if size > MAX_ARCHIVE_BYTES:
        raise BotError("That file is too large for a release of signal-cli.")
    digest.update(piece)
    target.write(piece)
    return size


def _unpack(archive: BinaryIO, folder: Path) -> None:
    """Unpack the files of an archive whose hash was right, with the rights that programs need."""
    size = 0
    with tarfile.open(fileobj=archive, mode="r:gz") as tar:
        for member in tar:
            path = folder / member.name
            if not path.resolve().is_relative_to(folder.resolve()):
                raise BotError("The archive has a file outside of its own folder.")
            data = tar.extractfile(member) if member.isreg() else None
            if data is None:
                continue
            size += member.size
            if size > MAX_UNPACKED_BYTES:
                raise BotError("The archive is too large when unpacked.")
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with path.open("xb") as file:
                shutil.copyfileobj(data, file, PIECE_BYTES)
                file.flush()
                os.fsync(file.fileno())
            path.chmod(0o700 if member.mode & 0o100 else 0o600)


def _top_of(unpacked: Path, version: str) -> Path:
    """Return the folder with the program: the archive's own, or the one it was unpacked into."""
    own = unpacked / f"signal-cli-{version}"
    return own if own.is_dir() else unpacked
