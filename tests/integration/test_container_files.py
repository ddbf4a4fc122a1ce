"""The images and the compose file, as far as a machine without a container engine can check them.

Checks that need an engine are in `deploy/CHECKLIST.md`.
"""

import hashlib
import os
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from bot import app
from bot.config.loading import setting_names
from bot.signal.releases import RELEASES
from tools.sandbox.jail.program import PLACES, Bounds

ROOT: Final = Path(__file__).parents[2]
DEPLOY: Final = ROOT / "deploy"
DOCKERFILES: Final = sorted((DEPLOY / "container").glob("*Dockerfile"))
PINNED: Final = re.compile(r"[a-z0-9/-]+:[a-z0-9._-]+@sha256:[0-9a-f]{64}")
CHECKED: Final = 'test "$(sha256sum < %s)" = "${SIGNAL_CLI_SHA256}  -" && '
COMMAND_SECONDS: Final = 600
COMMIT: Final = "0123456789abcdef0123456789abcdef01234567"
EPOCH: Final = 1_700_000_000
BOT_USER: Final = 10_001
SYSTEM: Final = "/usr/sbin:/usr/bin:/sbin:/bin"


def instructions(path: Path) -> list[tuple[str, str]]:
    """Return the instructions of a Dockerfile with their arguments, continued lines joined."""
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in joined.split("\n"))]


def last(path: Path, name: str) -> str:
    return [rest for found, rest in instructions(path) if found == name][-1]


def services() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())[
        "services"
    ]
    return found


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.name)
def test_an_image_is_built_from_checked_parts_and_runs_unprivileged(path: Path) -> None:
    known = {"${BASE}", "${JAVA}", "scratch"}
    downloaded = ""
    for name, rest in instructions(path):
        assert name != "EXPOSE"
        assert name != "FROM" or rest.partition(" ")[0] in known
        known |= {rest.partition(" AS ")[2]} if name == "FROM" else set()
        assert not re.match("(BASE|JAVA)=", rest) or PINNED.fullmatch(rest[5:])
        if name == "ADD":
            downloaded = rest.removeprefix("${SIGNAL_CLI_SOURCE} ")
        assert name != "RUN" or not downloaded or rest.startswith(CHECKED % downloaded)
        downloaded = "" if name == "RUN" else downloaded
        assert name != "RUN" or not re.search(r"\b(curl|wget|apt-get|apk|npm)\b", rest)
        assert name != "RUN" or "pip" not in rest or "--require-hashes" in rest
    user, _, group = last(path, "USER").partition(":")
    assert int(user) >= 10_000
    assert int(group) == BOT_USER  # signal-cli's socket is this group's
    assert last(path, "STOPSIGNAL") == "SIGTERM"
    assert last(path, "ENTRYPOINT").startswith("[")


def test_both_images_with_signal_cli_have_the_same_one_that_the_bot_would_install() -> None:
    bot, alone = (path.read_text() for path in DOCKERFILES)
    pins = dict(re.findall(r"^ARG (SIGNAL_CLI_\w+)=(.+)$", alone, re.MULTILINE))
    assert pins == dict(re.findall(r"^ARG (SIGNAL_CLI_\w+)=(.+)$", bot, re.MULTILINE))
    [java] = re.findall(r"^ARG JAVA=(.+)$", bot, re.MULTILINE)
    assert f"ARG BASE={java}\n" in alone
    [release] = [each for each in RELEASES if each.version == pins["SIGNAL_CLI_VERSION"]]
    assert [build.sha256 for build in release.builds if build.needs_java] == [
        pins["SIGNAL_CLI_SHA256"]
    ]


def ignore_lines() -> list[str]:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def test_no_secret_reaches_the_builder() -> None:
    everything, *taken = ignore_lines()
    assert everything == "*"
    secret = {".env", "data", "deploy", "deploy/secrets", "tests", ".git"}
    assert not secret & {name.removeprefix("!") for name in taken}


def test_services_have_no_more_rights_than_they_need() -> None:
    for name, service in services().items():
        assert not {"ports", "network_mode", "privileged", "cap_add", "devices"} & set(service)
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert service["pids_limit"] > 0
        assert service["mem_limit"]
        # Only Java may run what it has written.
        assert ("noexec" in service["tmpfs"][0]) == (name == "bot")


def test_the_bot_is_set_up_for_its_neighbours_and_bounds() -> None:
    bot, signal_cli = services()["bot"], services()["signal-cli"]
    targets = {secret["target"] for secret in bot["secrets"]}
    assert set(bot["environment"]) | targets <= setting_names()
    assert not targets & set(bot["environment"])
    assert bot["pids_limit"] >= 2 * PLACES * Bounds().processes
    assert int(bot["stop_grace_period"].removesuffix("s")) >= 2 * app.BOUNDS.grace_seconds
    socket = Path(bot["environment"]["SIGNAL__URL"].removeprefix("unix:"))
    flags = '"--receive-mode", "manual", "--no-receive-stdout"]'
    command = last(DEPLOY / "container" / "signal-cli.Dockerfile", "CMD")
    assert command == f'["daemon", "--socket", "{socket}", {flags}'
    mounts = dict(reversed(volume.split(":")) for volume in signal_cli["volumes"])
    assert mounts.keys() == {str(socket.parent), bot["environment"]["SIGNAL__DATA_DIR"]}
    assert set(signal_cli["volumes"]) < set(bot["volumes"])


# The steps of the build, for real ----------------------------------------------------------------


@pytest.mark.full
def test_two_builds_are_equal_and_the_bot_runs_on_their_files_alone(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can change to another root folder")
    packages = tmp_path / "wheels"
    python = shutil.which("python3", path=str(Path(sys.base_prefix, "bin")))
    assert python is not None
    run(
        python, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes",
        "--only-binary", ":all:",
        "--dest", packages, "--requirement", ROOT / "requirements.lock",
    )  # fmt: skip
    images = [tmp_path / "one" / "image", tmp_path / "elsewhere" / "image"]
    source = tmp_path / "source"
    copy_as_the_builder_would(source)
    for image in images:
        shutil.copytree(source, image.with_name("source"))
        assemble(packages, image)
    assert tree(images[0]) == tree(images[1])
    check_alone(images[0])


def assemble(packages: Path, image: Path) -> None:
    """Run the step of the Dockerfile that puts the image together, as it stands there."""
    source = image.with_name("source")
    environment = {
        "PATH": f"{sys.base_prefix}/bin:{SYSTEM}",
        "COMMIT": COMMIT,
        "SOURCE_DATE_EPOCH": str(EPOCH),
    }
    run(source / "deploy/container/assemble.sh", source, packages, image, environment=environment)


def copy_as_the_builder_would(source: Path) -> None:
    for line in ignore_lines():
        if line.startswith("!"):
            here, there = ROOT / line[1:], source / line[1:]
            there.parent.mkdir(parents=True, exist_ok=True)
            if here.is_dir():
                shutil.copytree(here, there, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(here, there)


def tree(root: Path) -> list[tuple[str, int, int, int, float, str]]:
    """Return all that an image's layer is made of."""
    return sorted(entry(root, path) for path in root.rglob("*"))


def entry(root: Path, path: Path) -> tuple[str, int, int, int, float, str]:
    found = path.lstat()
    content = hashlib.sha256(path.read_bytes()).hexdigest() if stat.S_ISREG(found.st_mode) else ""
    name = str(path.relative_to(root))
    return name, found.st_mode, found.st_uid, found.st_gid, found.st_mtime, content


def check_alone(image: Path) -> None:
    """Start the bot in the image's folder, as the image's user, with an empty environment."""
    chroot = shutil.which("chroot", path=SYSTEM)
    assert chroot is not None
    bot = (chroot, f"--userspec={BOT_USER}:{BOT_USER}", image, "/usr/local/bin/python3", "-I")
    assert run(*bot, "-m", "bot", "--version", environment={}).startswith("signal-tee-bot ")
    asked = run(*bot, "-c", "import bot; print(bot.built_from())", environment={})
    assert asked.strip() == COMMIT
    dumpable = "import ctypes; print(ctypes.CDLL(None).prctl(3))"  # PR_GET_DUMPABLE
    closed_from_the_start = run(*bot, "-c", dumpable, environment={}).strip() != "1"
    assert closed_from_the_start
    for name in ("uvx", "pip", "apt", "dpkg"):
        assert not list(image.rglob(name)), "There is a package manager."
    special = stat.S_ISUID | stat.S_ISGID
    assert not [path for path in image.rglob("*") if path.lstat().st_mode & special]
    assert all(path.stat().st_mtime == EPOCH for path in image.rglob("*.pyc"))
    owned = [path for path in image.rglob("*") if path.lstat().st_uid != 0]
    assert owned == [image / "var/lib/signal-tee-bot"]


def run(*command: str | Path, environment: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
