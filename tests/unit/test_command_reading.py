"""What is said of a command before it runs: its programs, what is risky, what nobody can tell."""

import json
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tools.commands.inside.dangers import RUNNERS
from tools.commands.inside.program import answer
from tools.commands.inside.python import read_python
from tools.commands.inside.shell import (
    MADE_LATER,
    REDEFINES,
    UNREADABLE,
    WRITES_OVER,
    read_shell,
    read_words,
)


@pytest.mark.parametrize(
    ("command", "programs"),
    [
        ("ls -la | wc -l", ["ls", "wc"]),
        ("cat a b >> c", ["cat"]),
        ("grep -rn 'two words' . 2>&1 >/dev/null", ["grep"]),
        ("find . -name '*.csv' -newer x", ["find"]),
        ('"l"s && ec""ho x', ["ls", "echo"]),
        ("for i in *; do echo \"$i\"; done", ["echo"]),
        ("if [ -f x ]; then head -n 3 x; fi", ["head"]),
        ("sort -k2 a | tail -n 3 >&2", ["sort", "tail"]),
        ("a=1; echo $a ${a}; TZ=UTC date", ["echo", "date"]),
        ("cat <<'E'\nwords\nE", ["cat"]),
        ("diff <(ls a) <(ls b)", ["diff", "ls"]),
    ],
)  # fmt: skip
def test_what_changes_nothing_is_harmless(command: str, programs: Sequence[str]) -> None:
    reading = read_shell(command)
    assert (reading.programs, reading.risks, reading.is_open) == (list(programs), [], False)


@pytest.mark.parametrize(
    ("command", "programs", "risk"),
    [
        ("rm -rf *", ["rm"], "deletes files"),
        ("\\rm x", ["rm"], "deletes files"),
        ("'r'm x", ["rm"], "deletes files"),
        ("ls; r\"m\" x", ["ls", "rm"], "deletes files"),
        ("echo $(rm x)", ["echo", "rm"], "deletes files"),
        ("case $x in a) rm y;; esac", ["rm"], "deletes files"),
        ("true & rm x", ["true", "rm"], "deletes files"),
        ("ls #comment\nrm x", ["ls", "rm"], "deletes files"),
        ("cat <(rm x)", ["cat", "rm"], "deletes files"),
        ("cat <<E\n$(rm x)\nE", ["cat", "rm"], "deletes files"),
        ("echo x > a", ["echo"], WRITES_OVER),
        ("echo x >| a", ["echo"], WRITES_OVER),
        ("echo x &> a", ["echo"], WRITES_OVER),
        ('echo x > "$a"', ["echo"], WRITES_OVER),
        ("echo x >& a", ["echo"], WRITES_OVER),
        ("mv a b", ["mv"], "may write over files"),
        ("curl example.org", ["curl"], "network"),
    ],
)  # fmt: skip
def test_risks_are_named_and_may_be_allowed_for_longer(
    command: str, programs: Sequence[str], risk: str
) -> None:
    reading = read_shell(command)
    assert reading.programs == list(programs)
    assert risk in " ".join(reading.risks)
    assert not reading.is_open


@pytest.mark.parametrize(
    ("command", "risk"),
    [
        ("git commit -m x", "throw changes away"),
        ("python3 a.py", "not shown"),
        ("sed 1d a", "may write over"),
        ("frobnicate", "not known"),
        ("read PATH", "not known"),
        ("hash -p ./x ls", "not known"),
        ("echo `rm a`", UNREADABLE),
        ("echo ${x:-`rm a`}", UNREADABLE),
        ('echo "${x:-`rm a`}"', UNREADABLE),
        ("echo `echo \\`rm a\\``", UNREADABLE),
        ("echo ${x:=$(rm y)}", UNREADABLE),
        ("echo \"${x:-'$(rm a)'}\"", UNREADABLE),
        ("echo \"${x:-'}\"; rm a; echo \"'}\"", UNREADABLE),
        ("echo $((1 + $(rm y)))", UNREADABLE),
        ("echo $((PATH=1)); ls", UNREADABLE),
        ("echo ${PATH:=.}; ls", UNREADABLE),
        ("ls x\r#; rm a", UNREADABLE),
        ("ls x\v#; rm a", UNREADABLE),
        ("ls x\f#; rm a", UNREADABLE),
        ("ls x\\\n#; rm a", UNREADABLE),
        ("ls x\u00a0#; rm a", UNREADABLE),
        ("[[ x > a ]]; ls", UNREADABLE),
        ("[ a > a ]; ls", UNREADABLE),
        ("[[ x || rm = a ]]; ls", UNREADABLE),
        ("((rm * b)); ls", UNREADABLE),
        ("echo $[x > a ]", UNREADABLE),
        ("echo $'a\\' ; rm a ; echo '", UNREADABLE),
        ("GREP=rm grep a b", REDEFINES),
        ("RIPGREP_CONFIG_PATH=c rg . s", REDEFINES),
        ("zgrep a b", "not known"),
        ("$x y", MADE_LATER),
        ("l$y", MADE_LATER),
        ("/bin/l? x", MADE_LATER),
        ("$(echo rm) x", MADE_LATER),
        ("./a.sh", "not known"),
        ("/bin/rm x", "not known"),
        ("find . -delete", "an option"),
        ("find . -name x -exec rm {} +", "an option"),
        ("find $x", "an option"),
        ("sort -o a b", "an option"),
        ("sort -uoa b", "an option"),
        ("sort --outp=a b", "an option"),
        ("sort --compress-program=./x a", "an option"),
        ("rg --pre ./x y", "an option"),
        ("printf -v PATH x", "an option"),
        ("cat <<E\n`rm x`\nE", UNREADABLE),
        ("ls() { rm x; }; ls", REDEFINES),
        ("PATH=. ls", REDEFINES),
        ("LD_PRELOAD=./x ls", REDEFINES),
        ("export PATH=x; ls", UNREADABLE),
        ("for PATH in .; do ls; done", REDEFINES),
        ("unset x; ls", UNREADABLE),
        ("(", UNREADABLE),
        ("echo 'x", UNREADABLE),
        ("", UNREADABLE),
        ("# nothing", UNREADABLE),
        *((f"{runner} x", "runs other programs") for runner in sorted(RUNNERS - {"time"})),
    ],
)  # fmt: skip
def test_what_nobody_can_tell_beforehand_is_never_allowed_for_longer(
    command: str, risk: str
) -> None:
    reading = read_shell(command)
    assert risk in " ".join(reading.risks)
    assert reading.is_open


def test_words_without_a_shell_mean_what_they_are() -> None:
    assert read_words(["ls", "; rm x"]).risks == []
    assert "not known" in read_words(["ls; rm x"]).risks[0]
    assert read_words(["xargs", "rm"]).is_open


@pytest.mark.parametrize(
    "code",
    [
        "import csv, json\nprint(json.dumps(list(csv.reader(open('a')))))",
        "import numpy as np\nfrom matplotlib import pyplot\npyplot.savefig('a.png')",
        "import os\nprint(os.listdir('.'), 'x'.replace('x', 'y'))",
        "this is no Python",
        "(" * 5_000 + ")" * 5_000,
        "\0",
    ],
)
def test_programs_that_compute_and_write_are_harmless(code: str) -> None:
    assert read_python(code).risks == []


@pytest.mark.parametrize(
    ("code", "risk"),
    [
        ("import os\nos.remove('a')", "remove may delete files"),
        ("from shutil import rmtree", "shutil"),
        ("from os import unlink as x", "unlink may delete files"),
        ("import pathlib\npathlib.Path('a').unlink()", "unlink may delete files"),
        ("import subprocess", "subprocess"),
        ("__import__('os')", "__import__ runs"),
        ("eval('1')", "eval runs"),
        ("import os\nos.execv('a', [])", "execv runs"),
        ("from . import a", "a module of the workspace"),
        ("import ctypes.util", "ctypes"),
        ("def f():\n  def g():\n    import socket", "socket"),
    ],
)
def test_programs_that_delete_or_run_others_are_not(code: str, risk: str) -> None:
    assert risk in " ".join(read_python(code).risks)


@given(st.text(st.sampled_from("ab $`'\"\\(){};|&<>\n#=*[]!-~"), max_size=60))
@settings(max_examples=300, deadline=None)
def test_whatever_is_written_something_is_said_of_it(text: str) -> None:
    reading = read_shell(text)
    assert reading.programs or reading.is_open
    assert json.loads(answer(json.dumps({"line": text})))["programs"] == reading.programs


@pytest.mark.parametrize("piece", ["(", "$(", "a;", "`", "{ ", "if ", "<<A ", '"$(', "a=$("])
def test_what_is_nested_deep_is_read_in_time(piece: str) -> None:
    read_shell(piece * (20_000 // len(piece)))
