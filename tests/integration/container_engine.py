"""Podman with a storage of its own, for tests of the images, and Debian as their base."""

import asyncio
import fcntl
import os
import re
import shutil
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
CACHE: Final = ROOT / ".cache"
DEBIAN: Final = "bookworm"
DEBIAN_PACKAGES: Final = "ca-certificates,python3,python3-pip,python3-venv"
BASE: Final = "localhost/base"
COMMAND_SECONDS: Final = 600.0
CERTIFICATES: Final = "/etc/ssl/certs/ca-certificates.crt"
"""Where Debian's Python and pip look for them."""

# Podman starts its monitor with an environment of its own, so that gets the same files. Without
# systemd there are no timers for health checks. Where limits may only be lowered, the usual ones
# are too high.
CONTAINERS_CONF: Final = """\
[containers]
default_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]
[engine]
cgroup_manager = "cgroupfs"
conmon_env_vars = [{environment}]
events_logger = "file"
lock_type = "file"
tmp_dir = "{folder}/state"
"""
STORAGE_CONF: Final = """\
[storage]
driver = "overlay"
graphroot = "{folder}/storage"
runroot = "{folder}/run"
"""
PODMAN: Final = """\
#!/bin/sh
export {environment}
exec nsenter --mount=/proc/{holder}/ns/mnt podman "$@"
"""
# crun before 1.9 refuses the mixture of both versions of cgroups, so it does not see the second.
HOLDER: Final = """\
if mountpoint -q /sys/fs/cgroup/unified; then umount /sys/fs/cgroup/unified; fi
echo ready
exec sleep infinity
"""


class NoEngine(Exception):
    """No container can run here; the text says why."""


class CommandFailed(Exception):
    """A command ended badly; the text is what it said."""


@dataclass(frozen=True)
class Engine:
    """Podman, to be used by its path; images, containers and volumes are in `folder` alone."""

    folder: Path

    @property
    def podman(self) -> Path:
        return self.folder / "podman"

    async def run(self, *arguments: str | Path) -> str:
        """Run podman to its end, and return what it said.

        Raises:
            CommandFailed: it ended with another code than 0.
        """
        return await run(self.podman, *arguments)

    async def build(self, dockerfile: Path, tag: str, *options: str, **given: str) -> None:
        """Build an image from a folder with its Dockerfile; `given` are build arguments."""
        context = ROOT if dockerfile.is_relative_to(ROOT) else dockerfile.parent
        await self.run(
            "build", "--isolation=chroot", "--format=docker", "--tag", tag,
            "--volume", f"{_certificates()}:{CERTIFICATES}:ro",
            "--volume", f"{self.folder}/pip.conf:/etc/pip.conf:ro",
            *(f"--build-arg={name}={value}" for name, value in given.items()),
            *options, "--file", dockerfile, context,
        )  # fmt: skip

    def volume(self, name: str) -> Path:
        """Return the folder of a volume on this machine."""
        return self.folder / "storage" / "volumes" / name / "_data"


@contextmanager
def engine() -> Iterator[Engine]:
    """Set podman up, with Debian as the image BASE, for a block that removes its containers.

    Raises:
        NoEngine: it cannot run here.
    """
    if os.geteuid() != 0:
        raise NoEngine("the container engine of these tests needs root")
    for program in ("podman", "mmdebstrap"):
        if shutil.which(program) is None:
            raise NoEngine(f"{program} is not installed")
    with TemporaryDirectory(prefix="stb-") as name:
        made = Engine(Path(name))
        with _mounts() as holder:
            _configure(made, holder)
            asyncio.run(_prepare(made))
            yield made


@contextmanager
def _mounts() -> Iterator[int]:
    """Hold a namespace for the engine's mounts, so that none is left; yield the holder's id."""
    command = ["unshare", "--mount", "sh", "-c", HOLDER]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        try:
            if holder.stdout is None or holder.stdout.readline() != "ready\n":
                raise NoEngine("mounts cannot be kept apart here")
            yield holder.pid
        finally:
            holder.kill()


def _configure(made: Engine, holder: int) -> None:
    environment = {
        "CONTAINERS_CONF": f"{made.folder}/containers.conf",
        "CONTAINERS_STORAGE_CONF": f"{made.folder}/storage.conf",
        "DISABLE_HC_SYSTEMD": "true",
        "PATH": os.environ["PATH"],
    }
    settings = [f"{name}={value}" for name, value in environment.items()]
    quoted = ", ".join(f'"{setting}"' for setting in settings)
    files = {
        "containers.conf": CONTAINERS_CONF.format(environment=quoted, folder=made.folder),
        "storage.conf": STORAGE_CONF.format(folder=made.folder),
        "podman": PODMAN.format(environment=" ".join(settings), holder=holder),
        "pip.conf": _pip_configuration(),
    }
    for name, text in files.items():
        made.folder.joinpath(name).write_text(text)
    made.podman.chmod(0o700)


async def _prepare(made: Engine) -> None:
    debian = _debian()
    try:
        await made.run("import", debian, BASE)
        await made.run("run", "--rm", "--init", "--network=host", "--pids-limit=64", BASE, "true")
    except CommandFailed as error:
        reason = str(error).strip().splitlines()[-1]
        raise NoEngine(f"podman cannot run a container here: {reason}") from error


def _debian() -> Path:
    """Return Debian with Python as an archive of its files; make it if it is not cached."""
    archive = CACHE / f"debian-{DEBIAN}.tar"
    CACHE.mkdir(exist_ok=True)
    with archive.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not archive.exists():
            new = archive.with_suffix(".new.tar")
            command = ["mmdebstrap", "--variant=minbase", f"--include={DEBIAN_PACKAGES}"]
            done = subprocess.run(
                [*command, DEBIAN, new],
                capture_output=True,
                text=True,
                timeout=COMMAND_SECONDS,
                check=False,
            )
            if done.returncode != 0:
                raise NoEngine(f"Debian cannot be had here: {done.stderr.splitlines()[-1]}")
            new.rename(archive)
    return archive


def _certificates() -> str:
    """Return the file of those that this machine trusts."""
    paths = ssl.get_default_verify_paths()
    return os.environ.get("SSL_CERT_FILE") or paths.cafile or paths.openssl_cafile


def _pip_configuration() -> str:
    """Return the package index of this machine's pip, if another one than usual is set."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    index = re.findall(r"^[^=]*\.index-url='(.+)'$", listed, re.MULTILINE)
    return f"[global]\nindex-url = {index[-1]}\n" if index else ""


async def run(
    *command: str | Path, cwd: Path | None = None, seconds: float = COMMAND_SECONDS
) -> str:
    """Run a command to its end, and return what it said.

    Raises:
        CommandFailed: it ended with another code than 0.
    """
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=cwd,
    )
    try:
        async with asyncio.timeout(seconds):
            out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0:
        raise CommandFailed((out + err).decode())
    return out.decode()
