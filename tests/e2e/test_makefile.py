"""The arguments that make targets pass to the program."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAKE = shutil.which("make") or "make"


@pytest.mark.parametrize("text", ['It\'s "5" $HOME $(shell id) `id` \\ $$ % #\n🎈', "--help"])
def test_no_character_of_say_means_anything_on_the_way(text: str, tmp_path: Path) -> None:
    for name in (".installed", ".installed-demo", "python"):
        (tmp_path / name).touch()
    program = tmp_path / "signal-tee-bot"
    program.write_text('#!/bin/sh\nprintf "%s\\0" "$@"\n')
    program.chmod(0o700)
    done = subprocess.run(
        [MAKE, "--silent", "demo", f"SAY={text}", f"VENV={tmp_path}", f"BIN={tmp_path}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.stdout.split("\0") == ["demo", f"--say={text}", ""], done.stderr
