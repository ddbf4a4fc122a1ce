"""The images and the compose file, as far as a machine without a container engine can check them.

What only an engine can show is in `deploy/CHECKLIST.md`.
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
from tools.sandbox.jail.program import PLACES, Bounds

ROOT: Final = Path(__file__).parents[2]
DEPLOY: Final = ROOT / "deploy"
DOCKERFILES: Final = sorted((DEPLOY / "container").glob("*Dockerfile"))
FILES: Final = [*DOCKERFILES, DEPLOY / "compose.yaml"]
PINNED: Final = re.compile(r"[a-z0-9/-]+:[a-z0-9._-]+@sha256:[0-9a-f]{64}")
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


# The images --------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [*DOCKERFILES, ROOT / ".devcontainer" / "Dockerfile"], ids=str)
def test_the_linter_finds_nothing(path: Path) -> None:
    hadolint = Path(sys.executable).with_name("hadolint")
    done = subprocess.run([hadolint, path], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("", 0)


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.name)
def test_a_base_is_named_by_its_content_and_every_stage_is_made_of_it(path: Path) -> None:
    base = next(rest for name, rest in instructions(path) if (name, rest[:5]) == ("ARG", "BASE="))
    assert PINNED.fullmatch(base.removeprefix("BASE="))
    stages = {rest.partition(" ")[0] for name, rest in instructions(path) if name == "FROM"}
    assert stages <= {"${BASE}", "scratch"}


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.name)
def test_what_is_fetched_is_checked_and_nothing_is_fetched_by_a_shell(path: Path) -> None:
    for name, rest in instructions(path):
        assert name != "ADD" or re.match(r"--checksum=sha256:[0-9a-f]{64} ", rest)
        assert name != "RUN" or not re.search(r"\b(curl|wget|apt-get|apk|npm)\b", rest)
        assert "pip" not in rest or "--require-hashes" in rest or name != "RUN"


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.name)
def test_an_image_runs_as_nobody_special_and_ends_when_it_is_told(path: Path) -> None:
    user, _, group = last(path, "USER").partition(":")
    assert int(user) >= 10_000
    assert int(group) == BOT_USER  # signal-cli's socket is this group's
    assert last(path, "STOPSIGNAL") == "SIGTERM"
    assert last(path, "ENTRYPOINT").startswith("[")
    assert last(path, "CMD").startswith("[")


def test_the_bots_image_starts_by_no_shell_and_publishes_nothing() -> None:
    names = [name for path in DOCKERFILES for name, _ in instructions(path)]
    assert "EXPOSE" not in names
    bot = DEPLOY / "container" / "Dockerfile"
    assert (last(bot, "ENTRYPOINT"), last(bot, "CMD")) == ('["signal-tee-bot"]', '["run"]')
    assert last(bot, "HEALTHCHECK").endswith('CMD ["signal-tee-bot", "ready"]')


def test_signal_cli_is_started_as_the_bot_itself_would_start_it() -> None:
    path = DEPLOY / "container" / "signal-cli.Dockerfile"
    flags = '"--receive-mode", "manual", "--no-receive-stdout"]'
    assert last(path, "CMD") == f'["daemon", "--socket", "/run/signal-cli/socket", {flags}'


def test_what_the_image_is_made_of_reaches_the_builder_and_nothing_else_does() -> None:
    taken = [line[1:] for line in ignore_lines() if line.startswith("!")]
    assert ignore_lines()[0] == "*"
    assert all((ROOT / name).exists() for name in taken)
    hatch = (ROOT / "pyproject.toml").read_text()
    for package in ("bot", "tools", "conversation_store"):
        assert package in taken
        assert f'"{package}"' in hatch
    secret = {".env", "data", "deploy", "deploy/secrets", "tests", ".git"}
    assert not secret & set(taken)


def ignore_lines() -> list[str]:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


# The compose file --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["compose.yaml", "dstack-compose.yaml"])
def test_the_compose_files_fit_the_schema_of_compose(name: str) -> None:
    program = Path(sys.executable).with_name("check-jsonschema")
    command: list[str | Path] = [program, "--builtin-schema", "vendor.compose-spec", DEPLOY / name]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_nothing_is_published_and_nothing_is_more_than_it_needs_to_be() -> None:
    for service in services().values():
        assert not {"ports", "network_mode", "privileged", "cap_add", "devices"} & set(service)
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert service["restart"] == "unless-stopped"
        assert service["pids_limit"] > 0
        assert service["mem_limit"]
        assert service["logging"]["driver"] == "none" or service["logging"]["options"]["max-size"]


def test_there_are_processes_left_for_the_bot_when_commands_have_all_of_theirs() -> None:
    assert services()["bot"]["pids_limit"] >= 2 * PLACES * Bounds().processes


def test_only_java_may_run_what_it_has_written() -> None:
    may = {name: "noexec" not in service["tmpfs"][0] for name, service in services().items()}
    assert may == {"signal-cli": True, "bot": False}


def test_the_settings_of_the_compose_file_exist() -> None:
    bot = services()["bot"]
    targets = {secret["target"] for secret in bot["secrets"]}
    assert set(bot["environment"]) | targets <= setting_names()
    assert not targets & set(bot["environment"])


def test_the_bot_finds_signal_cli_where_signal_cli_is() -> None:
    bot, signal_cli = services()["bot"], services()["signal-cli"]
    command = last(DEPLOY / "container" / "signal-cli.Dockerfile", "CMD")
    socket = Path(bot["environment"]["SIGNAL__URL"].removeprefix("unix:"))
    assert f'"{socket}"' in command
    mounts = dict(reversed(volume.split(":")) for volume in signal_cli["volumes"])
    assert mounts.keys() == {str(socket.parent), bot["environment"]["SIGNAL__DATA_DIR"]}
    assert set(signal_cli["volumes"]) < set(bot["volumes"])


def test_the_bot_has_time_to_end_what_it_began() -> None:
    seconds = int(services()["bot"]["stop_grace_period"].removesuffix("s"))
    assert seconds >= 2 * app.BOUNDS.grace_seconds


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_no_registry_is_named(path: Path) -> None:
    images = re.findall(
        r"[\w.-]+\.[a-z]{2,}(?::\d+)?/[\w./-]+(?:@sha256|:[\w.-]+)", path.read_text()
    )
    assert images == []


# The steps of the build, for real ----------------------------------------------------------------


@pytest.mark.full
def test_two_builds_are_the_same_and_the_bot_runs_in_them_alone(tmp_path: Path) -> None:
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
    check_commands(image)
    missing = run(
        *bot,
        "-c",
        "from tools.mcp.transports import not_found as f; print(f('uvx'))",
        environment={},
    )
    assert "nothing can be installed in this image" in missing
    for name in ("uvx", "pip", "apt", "dpkg"):
        assert not list(image.rglob(name)), "There is a package manager."
    special = stat.S_ISUID | stat.S_ISGID
    assert not [path for path in image.rglob("*") if path.lstat().st_mode & special]
    assert all(path.stat().st_mtime == EPOCH for path in image.rglob("*.pyc"))
    owned = [path for path in image.rglob("*") if path.lstat().st_uid != 0]
    assert owned == [image / "var/lib/signal-tee-bot"]


IN_A_JAIL: Final = """
import asyncio, sys
from pathlib import Path
from tools.sandbox.jail.jail import Jail
from tools.sandbox.jail.program import READABLE, THE_SCRIPT, Bounds, Program

script = '''
printf 'b,2\\na,1\\n' > table.csv
sort table.csv | sed s/,/=/ | grep -n = | awk -F : '{ print $2 }'
tar -czf all.tgz table.csv && gzip -dc all.tgz | tar -t
find . -name '*.csv' | xargs cmp table.csv && diff -q table.csv all.tgz
python3 -c 'print(6 * 7)'
cat /var/lib/signal-tee-bot/secret
'''

async def main():
    folder = Path("/var/lib/signal-tee-bot/workspace")
    folder.mkdir()
    folder.with_name("secret").write_text("the key")
    jail = Jail(readable=(*READABLE, Path(sys.argv[1])))
    ended = await jail.run(Program(("sh", THE_SCRIPT), folder, script), Bounds())
    print(await jail.kind(folder), ended.output, ended.errors, sep="\\n")

asyncio.run(main())
"""
AS_A_CONTAINER: Final = """
mkdir -p "$1/proc" "$1/dev"
mount -t proc proc "$1/proc"
mount --rbind /dev "$1/dev"
exec chroot --userspec="$2" "$1" /usr/local/bin/python3 -I -c "$3" "$4"
"""


def check_commands(image: Path) -> None:
    """Run a shell command in the image, where there are no namespaces: in a jail of Landlock's."""
    user = f"{BOT_USER}:{BOT_USER}"
    said = run(
        *("unshare", "--mount", "--pid", "--fork", "sh", "-euc", AS_A_CONTAINER),
        # The official image has Python's library below /usr/local; this machine may not.
        *("sh", image, user, IN_A_JAIL, sys.base_prefix),
    )
    _, *lines = said.splitlines()  # the first one is the log's
    assert lines == [
        *("Landlock", "a=1", "b=2", "table.csv", "Files table.csv and all.tgz differ", "42", ""),
        "cat: /var/lib/signal-tee-bot/secret: Permission denied",
        "",
    ]
    shutil.rmtree(image / "var/lib/signal-tee-bot/workspace")
    (image / "var/lib/signal-tee-bot/secret").unlink()


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
