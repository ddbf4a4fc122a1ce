"""The help for every command, and the offers of the Tab key."""

import os
import pty
import re
import select
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import Final

import pytest

from bot.cli.arguments import CommandParser, command_line, read_arguments

PROGRAM: Final = Path(sys.executable).with_name("signal-tee-bot")
COLUMNS: Final = 80
TAB_SECONDS: Final = 10.0
CONTROL: Final = re.compile(r"\x1b\[[?\d;]*[A-Za-z]|\x08")


def commands(parser: CommandParser) -> Iterator[CommandParser]:
    yield parser
    for below in parser.commands.values():
        yield from commands(below)


def test_help_of_every_command_has_working_examples(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", str(COLUMNS))
    for parser in commands(command_line()):
        said = parser.format_help()
        assert parser.description, parser.prog
        assert parser.examples, parser.prog
        assert all(line in said for line in parser.description.split())
        for example in parser.examples:
            assert example.splitlines()[-1] in said
            if example.startswith("signal-tee-bot "):
                read_arguments(shlex.split(example.replace("\\\n", "").partition(" > ")[0])[1:])
        assert max(map(len, said.splitlines())) <= COLUMNS + 4, parser.prog
        assert [action.dest for action in parser.arguments if not action.help] == [], parser.prog


@pytest.mark.parametrize(
    ("typed", "meant"),
    [(("chekc",), "check"), (("check", "--jsn"), "--json"), (("pair", "aprove", "X"), "approve")],
)
def test_a_misspelt_command_or_option_is_told_the_right_one(
    typed: tuple[str, ...], meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        read_arguments(typed)
    assert left.value.code == 2
    assert f"did you mean {meant}?" in capsys.readouterr().err


def shell(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def run(*command: str | Path) -> list[str]:
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    assert done.stderr == ""
    return done.stdout.splitlines()


def script(name: str, folder: Path) -> Path:
    file = folder / f"completion.{name}"
    file.write_text("\n".join(run(PROGRAM, "completion", name)))
    return file


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
def test_the_tab_key_completes_a_command_and_a_file(name: str, tmp_path: Path) -> None:
    command, (here, far) = shell(name), (tmp_path / "here.db", tmp_path / "far.db")
    here.touch()
    far.touch()
    options = {"bash": ["--norc"], "zsh": ["-f"], "fish": ["--no-config"]}[name]
    file = script(name, tmp_path)
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(tmp_path)
        os.environ.update(TERM="xterm", HOME=str(tmp_path))
        os.execv(command, [name, *options, "-i"])
    try:
        os.write(terminal, f"source {file}; echo rea''dy\n".encode())
        until(terminal, "ready")
        os.write(terminal, f"{PROGRAM} resto\t he\t".encode())
        until(terminal, "here.db")
    finally:
        os.close(terminal)
        os.kill(child, 9)
        os.waitpid(child, 0)


def until(terminal: int, text: str) -> None:
    """Read the output of a shell until it contains this text."""
    shown, deadline = "", monotonic() + TAB_SECONDS
    while text not in CONTROL.sub("", shown):
        readable, _, _ = select.select([terminal], [], [], deadline - monotonic())
        assert readable, shown
        shown += os.read(terminal, 65_536).decode(errors="replace")
