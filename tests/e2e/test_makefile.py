"""The arguments that make targets pass to the program."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAKE = shutil.which("make") or "make"


@pytest.mark.parametrize(
    "text",
    ["What is 127*43?", 'It\'s "5" $HOME $(shell id) `id` \\ $$ % #', "-x", "--help", "a\nb 🎈"],
)
def test_no_character_of_say_means_anything_on_the_way(text: str, tmp_path: Path) -> None:
    for name in (".installed", ".installed-demo"):
        (tmp_path / name).touch()
    program = tmp_path / "signal-tee-bot"
    program.write_text('#!/bin/sh\nprintf "%s\\0" "$@"\n')
    program.chmod(0o700)
    done = subprocess.run(
        [MAKE, "--silent", "demo", f"SAY={text}", f"VENV={tmp_path}", f"BIN={tmp_path}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert done.stdout.split("\0") == ["demo", f"--say={text}", ""], done.stderr


@pytest.mark.parametrize("arguments", [(), ("help",)])
def test_make_lists_its_targets_and_makes_nothing(
    arguments: tuple[str, ...], tmp_path: Path
) -> None:
    done = subprocess.run(
        [MAKE, *arguments, f"VENV={tmp_path / 'venv'}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=20,
        check=True,
    )
    assert list(tmp_path.iterdir()) == []
    lines = done.stdout.replace(f"{tmp_path}/", "").splitlines()
    assert max(map(len, lines)) <= 80
    named = {line.split()[1] for line in lines if line.startswith("  make ")}
    [targets] = re.findall(r"^\.PHONY: (.*)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert named == set(targets.split())


GIT = """#!/bin/sh
case "$1" in
  archive) tar -cf - bot/__init__.py ;;
  log) echo 1700000000 ;;
  rev-parse) echo 0123abcd ;;
esac
"""
DOCKER = """#!/bin/sh
echo "$*" >> {asked}
case "$1" in
  push) printf '%s\\n' "f83ceb393547: Pushed" "0123abcd: digest: sha256:{digest} size: 528" ;;
esac
"""


def test_a_release_is_made_of_the_images_as_the_registry_has_them(tmp_path: Path) -> None:
    digest, asked = "ab" * 32, tmp_path / "asked"
    programs = {
        "git": GIT,
        "docker": DOCKER.format(asked=asked, digest=digest),
        "python": '#!/bin/sh\nprintf "%s\\0" "$@"\n',
    }
    for name, text in programs.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o700)
    for name in (".installed", ".installed-demo"):
        (tmp_path / name).touch()
    system = "it's $HOME, 2 CPUs=measured.json"
    done = subprocess.run(
        [
            *(MAKE, "--silent", "release", f"VENV={tmp_path}", f"BIN={tmp_path}"),
            *(
                "REGISTRY=registry.example/you",
                f"SYSTEM={system.replace('$', '$$')}",
                "KMS_ID=aabb",
                "MODEL_PINS=pins.json",
            ),
        ],
        cwd=ROOT,
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    images = [f"registry.example/you/{name}" for name in ("signal-tee-bot", "signal-cli")]
    assert done.stdout.split("\0") == [
        *("-m", "scripts.release", "dist/release-0123abcd", "--commit", "0123abcd"),
        *("--image", f"signal-tee-bot={images[0]}@sha256:{digest}"),
        *("--image", f"signal-cli={images[1]}@sha256:{digest}"),
        *("--os", system, "--kms-id", "aabb", "--model-pins", "pins.json", ""),
    ], done.stderr
    pushed = [line for line in asked.read_text().splitlines() if line.startswith("push")]
    assert pushed == [f"push {image}:0123abcd" for image in images]
