"""The package as an index takes it: wheel and source, and the program installed elsewhere."""

import asyncio
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from bot import __version__

ROOT: Final = Path(__file__).parents[2]
BUILD_SECONDS: Final = 60.0
RUN_SECONDS: Final = 60.0

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build wheel and source of the checkout."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "--directory", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=BUILD_SECONDS)
    return folder


@pytest.fixture(scope="module")
def installed(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel in a new environment; return its programs."""
    return install([wheel_in(built)], tmp_path_factory.mktemp("venv"))


def wheel_in(built: Path) -> Path:
    [wheel] = built.glob("*.whl")
    return wheel


def install(wheels: Sequence[Path], folder: Path) -> Path:
    """Install wheels in a new environment, with the dependencies of this one; return its bin."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, timeout=BUILD_SECONDS)
    pip = [str(folder / "bin/python"), "-m", "pip", "install", "--no-index", "--no-deps"]
    for wheel in wheels:
        command = [*pip, str(wheel)]
        subprocess.run(command, check=True, capture_output=True, timeout=BUILD_SECONDS)
    [own] = folder.glob("lib/python*/site-packages")
    [dependencies] = (path for path in map(Path, sys.path) if path.name == "site-packages")
    # A plain path, so that .pth files there are ignored; one of them would add the checkout.
    (own / "dependencies.pth").write_text(f"{dependencies}\n")
    return folder / "bin"


def test_the_archives_hold_the_program_and_nothing_else(built: Path) -> None:
    [wheel], [source] = built.glob("*.whl"), built.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert {name.split("/")[0] for name in names} == {"bot", "tools", "conversation_store"}
    assert not [name for name in names if "tests/" in name or name.endswith(".pyc")]
    with tarfile.open(source) as archive:
        sources = {name.partition("/")[2] for name in archive.getnames()}
    assert {".env.example", "README.md", "LICENSE", "bot/cli/env.py", "pyproject.toml"} <= sources
    assert not [name for name in sources if name.endswith(".py") and name.startswith("tests")]


def neighbour(folder: Path) -> Path:
    """Build a package that also has the folders `bot` and `tools`."""
    for name in ("bot", "tools"):
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text("")
    (folder / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'
        '[project]\nname = "other-bot"\nversion = "1"\n'
        '[tool.hatch.build.targets.wheel]\npackages = ["bot", "tools"]\n'
    )
    command = [sys.executable, "-m", "hatchling", "build", "--directory", str(folder / "dist")]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=BUILD_SECONDS)
    [wheel] = (folder / "dist").glob("*.whl")
    return wheel


@pytest.mark.parametrize("comes", ["before", "after"])
async def test_an_environment_with_packages_of_the_same_names_is_said_in_a_sentence(
    built: Path, tmp_path: Path, comes: str
) -> None:
    wheels = [neighbour(tmp_path / "other"), wheel_in(built)]
    if comes == "after":
        wheels.reverse()
    programs = install(wheels, tmp_path / "venv")
    process = await asyncio.create_subprocess_exec(
        *(programs / "signal-tee-bot", "check"),
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "SIGNAL__PHONE_NUMBER": "+4915100000000"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    async with asyncio.timeout(RUN_SECONDS):
        out, _ = await process.communicate()
    assert "This Python environment also has other-bot" in out.decode()
    assert "Traceback" not in out.decode()


async def run(program: Path, *arguments: str, folder: Path) -> str:
    process = await asyncio.create_subprocess_exec(
        program, *arguments, cwd=folder, env={"PATH": "/usr/bin:/bin"}, stdout=subprocess.PIPE
    )
    async with asyncio.timeout(RUN_SECONDS):
        out, _ = await process.communicate()
    assert process.returncode == 0
    return out.decode()


async def test_the_installed_program_works_outside_the_checkout(
    installed: Path, tmp_path: Path
) -> None:
    program = installed / "signal-tee-bot"
    said = await run(program, "--version", folder=tmp_path)
    assert said == f"signal-tee-bot {__version__}\n"
    where = await run(
        installed / "python", "-c", "import bot; print(bot.__file__)", folder=tmp_path
    )
    assert Path(where).is_relative_to(installed.parent)
    assert await run(program, "env", folder=tmp_path) == (ROOT / ".env.example").read_text()
    assert "127*43 = 5461." in await run(program, "demo", "--say", "127*43?", folder=tmp_path)
